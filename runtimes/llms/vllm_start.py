"""Start of vLLM's engine: its share of the GPU's memory, and its errors in one line.

``LLM``, ``EngineArgs`` and their errors are as in vLLM 0.22 to 0.33.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from wikidx.base.errors import IdxError, InputError
from wikidx.base.machine.devices import count_gpus, free_memory
from wikidx.base.machine.failures import first_line
from wikidx.base.registry import unknown_name_error
from wikidx.base.validation import explain
from wikidx.indexer.indexes.exact.memory import WORK_BYTES
from wikidx.runtimes.errors import LLMError

_LARGEST_SHARE, _SMALLEST_SHARE = 0.92, 0.02  # of a GPU's memory; the first is vLLM's default
_LONGEST = 300  # characters of a message: vLLM lists all its architectures
_NO_MEMORY = ("out of memory", "Free memory on device", "No available memory")

logger = logging.getLogger(__name__)


def start_engine(vllm: Any, model: str, options: Mapping[str, Any], later: Sequence[Mapping[str, Any]] = ()) -> Any:  # noqa: ANN401 - vllm
    """Start vLLM's engine.

    Args:
        vllm: the module.
        model: a directory, or a repository on the Hugging Face hub.
        options: further arguments of ``vllm.LLM``.
        later: options of the engines that this process will start after this one.

    Raises:
        InputError, UnknownNameError: the model or an option is unusable.
        LLMError: the engine cannot start, for instance because the GPU has too little free memory.
    """
    arguments = {"enable_prefix_caching": True, "generation_config": "vllm", **options}
    if options:
        _check_names(vllm, options)
    if "revision" in options:  # else the tokenizer is that of the main branch
        arguments.setdefault("tokenizer_revision", options["revision"])
    if not _has_share(options) and count_gpus():
        arguments["gpu_memory_utilization"] = _choose_share(f"vllm:{model}", options, later)
    try:
        return vllm.LLM(model=model, **arguments)
    except Exception as error:
        raise _translate(error, model) from error


def _check_names(vllm: Any, options: Mapping[str, Any]) -> None:  # noqa: ANN401
    known = {field.name for field in dataclasses.fields(vllm.EngineArgs)} | set(inspect.signature(vllm.LLM).parameters)
    for name in options:
        if name not in known:
            raise unknown_name_error("option of vllm", name, known)


def _has_share(options: Mapping[str, Any]) -> bool:
    return "gpu_memory_utilization" in options or "kv_cache_memory_bytes" in options


def _choose_share(name: str, options: Mapping[str, Any], later: Sequence[Mapping[str, Any]]) -> float:
    """Return the share of each GPU's memory for an engine: an equal part of what is free now, except for searches and later shares."""
    n_gpus = int(options.get("tensor_parallel_size", 1)) * int(options.get("pipeline_parallel_size", 1))
    if n_gpus > count_gpus():
        raise InputError(f"{name} is to run on {n_gpus} GPUs, but there are {count_gpus()}: set a smaller tensor_parallel_size")
    sizes_of = [(_total_memory(number), free_memory(number, is_named=True)) for number in range(n_gpus)]
    number, (total, free) = min(enumerate(sizes_of), key=lambda gpu: gpu[1][1] / gpu[1][0])  # the fullest: the share is that of each
    promised = math.fsum(float(each.get("gpu_memory_utilization", 0)) for each in later)
    n_sharing = 1 + sum(not _has_share(each) for each in later)
    share = _largest_share(total, free, promised, n_sharing)
    others = f", {promised * total / 1e9:.1f} GB for models with a share of their own" if promised else ""
    others += f", and {n_sharing} models share the rest" if n_sharing > 1 else ""
    sizes = f"cuda:{number} has {total / 1e9:.1f} GB, of which {free / 1e9:.1f} GB are free; {WORK_BYTES / 1e9:.1f} GB are for searches"
    if share < _SMALLEST_SHARE:
        raise LLMError(
            f"no memory is left for {name}: {sizes}{others}; keep the index on the CPU (--device cpu), or serve the model by 'vllm serve'"
        )
    logger.info("%s takes %s %% of the GPU's memory: %s%s (--llm-option gpu_memory_utilization)", name, round(100 * share), sizes, others)
    return share


def _largest_share(total: int, free: int, promised: float, n_sharing: int) -> float:
    """Return the share of a GPU's memory for one of several language models, in whole percent, which leaves room for searches.

    Args:
        total: memory of the GPU in bytes.
        free: its free memory.
        promised: shares of models that are started later.
        n_sharing: number of models that divide the rest.
    """
    share = (free - WORK_BYTES - promised * total) / total / n_sharing
    return math.floor(100 * min(_LARGEST_SHARE, share)) / 100


def _total_memory(number: int) -> int:
    import torch

    return int(torch.cuda.get_device_properties(number).total_memory)


def _translate(error: Exception, model: str) -> IdxError:
    """Return the error for the user. An engine that fails in its own process raises ``RuntimeError`` whatever the reason."""
    text = (explain(error, whole=f"'{model}'") if isinstance(error, ValidationError) else first_line(error)).splitlines()[0]
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
    if type(error).__name__ == "OutOfMemoryError" or any(words in str(error) for words in _NO_MEMORY):
        advice = "set another share by --llm-option gpu_memory_utilization, or a shorter max_model_len"
        return LLMError(f"the GPU has too little memory for 'vllm:{model}': {text}; {advice}")
    if "infer device type" in str(error):
        return LLMError(f"vLLM finds no GPU for '{model}': use hf:{model}, or an endpoint (openai:MODEL@URL)")
    if isinstance(error, OSError | ValueError | TypeError):
        return InputError(f"vLLM cannot load '{model}': {text}")
    return LLMError(f"vLLM cannot start with '{model}': {text}; the lines above tell why, often too little memory")
