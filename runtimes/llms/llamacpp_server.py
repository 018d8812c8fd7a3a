"""GGUF files in llama.cpp, whose own server batches requests and applies the model's tokenizer, chat template and grammars.

It is used as any endpoint of its dialect, so that prompts and replies are those of ``llama-server``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from wikidx.base.artifacts.home import utf8_path
from wikidx.base.errors import InputError, MissingExtraError
from wikidx.base.machine.threads import n_threads

from .dialects import LLAMA_CPP
from .gguf_files import find_gguf
from .options import ConnectionOptions, LlamaCppOptions
from .served import Address, ServedLLM

_SLOTS = range(2, 9)  # default numbers of slots

# The log is written by a thread of its own, and lost if the process ends at once.
_SERVER = """
import json, os, threading, time, xllamacpp
given, params = json.loads(os.environ["IDX_SERVER"]), xllamacpp.CommonParams()
params.model.path, params.model_alias = given["file"], {given["model"]}
params.port, params.api_keys = given["port"], [given["key"]]
params.n_parallel, params.n_ctx, params.n_gpu_layers = given["slots"], given["context"], given["gpu_layers"]
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = given["threads"]
params.cache_ram_mib, params.ui, params.verbosity = 256, False, 1
try:
    server = xllamacpp.Server(params)
except RuntimeError:
    time.sleep(1)
    raise
threading.Event().wait()
"""
_REASON = re.compile(r"error loading model: (.+)|(failed to allocate .+)|(invalid magic .+)|(\w*Error: .+)")
_ESCAPED_OR_SLASH = re.compile(r"\\.|/", re.DOTALL)


def _guide(grammar: str) -> dict[str, str]:
    """Return the field for a grammar of LLGuidance, which not every build of llama.cpp has."""
    return {"grammar": f"%llguidance {{}}\nstart: {grammar}"}


def _guide_json(schema: str) -> dict[str, str]:
    """Return the field for JSON on one line: small models spend their tokens on line breaks if they may."""
    style = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    return _guide(f"%json {json.dumps({**json.loads(schema), 'x-guidance': style}, ensure_ascii=False)}")


def _escape_slash(found: re.Match[str]) -> str:
    return r"\/" if found[0] == "/" else found[0]


_GUIDED = replace(
    LLAMA_CPP,
    regex=lambda pattern: _guide(f"/{_ESCAPED_OR_SLASH.sub(_escape_slash, pattern)}/"),
    json=_guide_json,
    has_response_format=False,
)


class LlamaCpp(ServedLLM):
    """A GGUF file in llama.cpp; must be closed.

    Args:
        model: a GGUF file, a folder with one, or the name of an embedded model.
        options: options of the engine.

    Raises:
        InputError: the model cannot be loaded.
        MissingExtraError: the package of llama.cpp, xllamacpp, is not installed.
    """

    def __init__(self, model: str, *, options: LlamaCppOptions | None = None) -> None:
        options = options or LlamaCppOptions()
        name, address = f"llamacpp:{model}", Address()
        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingExtraError(f"the model '{name}'", "llm")
        file = find_gguf(model)
        if file is None:
            raise InputError(f"{model} is no GGUF file: llamacpp: takes GGUF files, hf: other checkpoints")
        slots, alias = options.slots or min(max(n_threads(), _SLOTS.start), _SLOTS.stop - 1), utf8_path(Path(model))
        given = {
            "file": utf8_path(file),
            "model": alias,
            "port": address.port,
            "key": address.key,
            "slots": slots,
            "context": slots * options.context,  # a slot's share is at most the model's own context
            "gpu_layers": 0 if options.device == "cpu" else -1,  # the number that fits
            "threads": options.threads or n_threads(),
        }
        waiting = os.environ.get("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads take processors from others
        super().__init__(
            alias,
            [sys.executable, "-c", _SERVER],
            address,
            environment={"IDX_SERVER": json.dumps(given), "OMP_WAIT_POLICY": waiting},
            options=ConnectionOptions(concurrency=slots, thinking=options.thinking, name=name, dialect=_GUIDED),
            explain=partial(_explain, model),
        )


def _explain(model: str, log: str) -> InputError | None:
    found = _REASON.search(log)
    return None if found is None else InputError(f"llama.cpp cannot load {model}: {next(filter(None, found.groups()))}")
