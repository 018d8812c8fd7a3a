"""vLLM as a child: ``vllm serve`` with a free port, and the part of the GPUs' memory that indexes and other models leave.

This backend needs the extra ``vllm`` and a GPU. The command line and the answers are those of vLLM 0.22 to 0.33, from its documentation.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import re
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from wikidx.base.errors import IdxError, InputError, MissingExtraError
from wikidx.base.machine.devices import count_gpus, free_memory
from wikidx.indexer.indexes.exact.memory import WORK_BYTES
from wikidx.runtimes.errors import LLMError

from .dialects import VLLM
from .options import VLLM_SHARES, ConnectionOptions
from .prompts import Thinking
from .served import Address, ServedLLM

_COMMAND = (sys.executable, "-m", "vllm.entrypoints.cli.main", "serve")
_CONCURRENCY = 128  # requests; vLLM lets more wait than it works on
_LARGEST_SHARE, _SMALLEST_SHARE = 0.92, 0.02  # of a GPU's memory; the first is vLLM's default
_LONGEST = 300  # characters of a message: vLLM lists all its architectures
_NO_MEMORY = re.compile(r"out of memory|Free memory on device|No available memory", re.IGNORECASE)
_REASON = re.compile(r"(?:\w*(?:Error|Exception)|error): .+")

logger = logging.getLogger(__name__)


class Vllm(ServedLLM):
    """A checkpoint in vLLM; must be closed.

    Args:
        model: a directory, or a repository on the Hugging Face hub.
        thinking: way of thinking of calls that name none.
        options: further options of ``vllm serve``.
        n_later: number of such models that this process will start after this one; they get as much memory.

    Raises:
        InputError, LLMError: the model cannot be served, for instance because the GPU has too little free memory.
        MissingExtraError: vLLM is not installed.
    """

    def __init__(
        self, model: str, *, thinking: Thinking = "off", options: Mapping[str, Any] = MappingProxyType({}), n_later: int = 0
    ) -> None:
        name, address = f"vllm:{model}", Address()
        if importlib.util.find_spec("vllm") is None:
            raise MissingExtraError(f"the model '{name}'", "vllm")
        given = {"host": "127.0.0.1", "port": address.port, "generation_config": "vllm", "uvicorn_log_level": "warning", **options}
        if "revision" in options:  # else the tokenizer is that of the main branch
            given.setdefault("tokenizer_revision", options["revision"])
        if not VLLM_SHARES & options.keys() and count_gpus():
            given["gpu_memory_utilization"] = _choose_share(name, options, n_later + 1)
        logger.warning("starting vLLM with %s: this takes minutes", model)
        super().__init__(
            model,
            [*_COMMAND, model, *_arguments(given)],
            address,
            environment={"VLLM_API_KEY": address.key},
            options=ConnectionOptions(concurrency=_CONCURRENCY, thinking=thinking, name=name, dialect=VLLM),
            explain=partial(_explain, name),
        )


def _arguments(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield options as arguments of the command."""
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        else:
            yield from (f"--{flag}", json.dumps(value) if isinstance(value, dict | list) else str(value))


def _choose_share(name: str, options: Mapping[str, Any], n_sharing: int) -> float:
    """Return the share of each GPU's memory for one of several models, in whole percent: an equal part of what is free."""
    n_gpus = int(options.get("tensor_parallel_size", 1)) * int(options.get("pipeline_parallel_size", 1))
    if n_gpus > count_gpus():
        raise InputError(f"{name} is to run on {n_gpus} GPUs, but there are {count_gpus()}: set a smaller tensor_parallel_size")
    free, total = min((_free_and_total(number) for number in range(n_gpus)), key=lambda sizes: sizes[0] / sizes[1])
    share = math.floor(100 * min(_LARGEST_SHARE, (free - WORK_BYTES) / total / n_sharing)) / 100
    sizes = f"{free / 1e9:.1f} of {total / 1e9:.1f} GB are free, of which {WORK_BYTES / 1e9:.1f} GB are for searches"
    if share < _SMALLEST_SHARE:
        raise LLMError(f"the GPU has no memory for {name}: {sizes}; keep the index on the CPU (--device cpu), or use another GPU")
    logger.info("%s takes %.0f %% of the GPU's memory: %s (--llm-option gpu_memory_utilization)", name, 100 * share, sizes)
    return share


def _free_and_total(number: int) -> tuple[int, int]:
    import torch

    return free_memory(number, is_named=True), int(torch.cuda.get_device_properties(number).total_memory)


def _explain(name: str, log: str) -> IdxError | None:
    """Return the error for the user from vLLM's log."""
    reasons = _REASON.findall(log)
    if not reasons:
        return None
    reason = f"{reasons[-1]:.{_LONGEST}}"
    if memory := next((each for each in reasons if _NO_MEMORY.search(each)), None):
        advice = "set another share by --llm-option gpu_memory_utilization, or a shorter max_model_len"
        return LLMError(f"the GPU has too little memory for '{name}': {memory:.{_LONGEST}}; {advice}")
    if "infer device type" in log:
        return LLMError(f"vLLM finds no GPU for '{name}': use hf:, or an endpoint (openai:MODEL@URL)")
    return InputError(f"vLLM cannot serve '{name}': {reason}")
