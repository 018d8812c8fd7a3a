"""GGUF files in llama.cpp, in this process.

llama.cpp comes with its own server, which batches requests and applies the model's tokenizer, chat template and grammars. Here it runs in
threads of this process and answers on the loopback address, to this process alone: requests need a random key. It is used as any endpoint
of its dialect, so that prompts and replies are those of ``llama-server``.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from wikidx.base.artifacts.home import utf8_path
from wikidx.base.errors import InputError, MissingExtraError
from wikidx.base.machine.failures import first_line
from wikidx.base.machine.threads import n_threads
from wikidx.base.net.transport import disconnect
from wikidx.runtimes.errors import LLMError

from .base import Call, Capabilities, Deliver, Reply
from .dialects import LLAMA_CPP
from .gguf_files import find_gguf
from .openai_http import OpenAIHttp
from .options import ConnectionOptions, LlamaCppOptions

_SLOTS = range(2, 9)  # default numbers of slots
_TIMEOUT_S = 3600.0  # a slow processor is no failure
_PROMPT_CACHE_MIB = 256
_LAST_LINE, _LOG_CHECKS, _LOG_PAUSE_S, _MAX_LOG_BYTES = b"exiting due to", 40, 0.05, 100_000
_SILENT, _ERRORS = -1, 1  # levels of llama.cpp's log
_REASON = re.compile(r"error loading model: (.+)|(failed to allocate .+)|(invalid magic .+)")
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
    streams=False,  # within a process nobody waits for a first token
)


class LlamaCpp:
    """A GGUF file in llama.cpp's engine; must be closed.

    Args:
        model: a GGUF file, a folder with one, or the name of an embedded model.
        options: options of the engine.

    Raises:
        InputError: the model cannot be loaded.
        MissingExtraError: the package of llama.cpp, xllamacpp, is not installed.
    """

    def __init__(self, model: str, *, options: LlamaCppOptions | None = None) -> None:
        options = options or LlamaCppOptions()
        self.name = f"llamacpp:{model}"
        package = _import(self.name)
        file = find_gguf(model)
        if file is None:
            raise InputError(f"{model} is no GGUF file: llamacpp: takes GGUF files, hf: other checkpoints")
        key, n_slots = secrets.token_urlsafe(), options.slots or min(max(n_threads(), _SLOTS.start), _SLOTS.stop - 1)
        params = _parameters(package, model, file, options, n_slots)
        params.api_keys = [key]
        self._engine: Any = _start(package, params, model)
        connection = ConnectionOptions(
            concurrency=n_slots,
            timeout=_TIMEOUT_S,
            retries=1,
            api_key=key,
            thinking=options.thinking,
            name=self.name,
            dialect=_GUIDED,
        )
        self._client = OpenAIHttp(utf8_path(Path(model)), f"{self._engine.listening_address}/v1", options=connection)

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of llama.cpp with this model."""
        return self._client.capabilities

    def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
        """Answer a batch of calls, as many at once as there are slots. A failed call has an error in place of a reply."""
        return self._client.run(calls, deliver)

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        return self._client.count_tokens(text)

    def truncate(self, text: str, max_tokens: int, *, keep: Literal["start", "end"] = "start") -> str:
        """Return the first or last tokens of a text."""
        return self._client.truncate(text, max_tokens, keep=keep)

    def close(self) -> None:
        """Stop the engine, with the calls in progress, and release its memory."""
        self._client.close()
        if self._engine is not None:
            disconnect(urlsplit(self._engine.listening_address).port or 0)  # the engine ends after its last request
        self._engine = None


def _import(name: str) -> Any:  # noqa: ANN401 - the package has no types
    """Return the package of llama.cpp. Its OpenMP threads wait without spinning, which would take processors from others."""
    variable = "OMP_WAIT_POLICY"
    before = os.environ.get(variable)
    os.environ.setdefault(variable, "PASSIVE")
    try:
        return importlib.import_module("xllamacpp")
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"the model '{name}'", "llm") from error
    except ImportError as error:
        raise InputError(f"the package xllamacpp, for the model '{name}', cannot be imported: {first_line(error)}") from error
    finally:
        if before is None:
            del os.environ[variable]


def _parameters(package: Any, model: str, file: Path, options: LlamaCppOptions, n_slots: int) -> Any:  # noqa: ANN401 - the package has no types
    params = package.CommonParams()
    params.model.path, params.model_alias = utf8_path(file), {utf8_path(Path(model))}
    params.n_parallel, params.n_ctx = n_slots, n_slots * options.context  # a slot's share is at most the model's own context
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads or n_threads()
    params.n_gpu_layers = 0 if options.device == "cpu" else -1  # the number that fits
    params.cache_ram_mib, params.ui, params.verbosity = _PROMPT_CACHE_MIB, False, _SILENT
    return params


def _start(package: Any, params: Any, model: str) -> Any:  # noqa: ANN401 - the package has no types
    """Return a started engine. After a failure, start again with a log, in which llama.cpp tells the reason.

    Raises:
        InputError: the model cannot be loaded.
    """
    log = ""
    try:
        return package.Server(params)
    except RuntimeError as error:
        failure = error
    params.verbosity = _ERRORS
    with _captured_log() as read_log:
        try:
            return package.Server(params)
        except RuntimeError:
            log = read_log()
        finally:
            params.verbosity = _SILENT
    found = _REASON.search(log)
    raise InputError(f"llama.cpp cannot load {model}: {next(filter(None, found.groups())) if found else first_line(failure)}")


@contextlib.contextmanager
def _captured_log() -> Iterator[Callable[[], str]]:
    """Keep what C code writes to standard error; yield a function that returns it once llama.cpp's log has its last line."""
    with tempfile.TemporaryFile() as file:

        def read() -> str:
            log = b""
            for _ in range(_LOG_CHECKS):
                time.sleep(_LOG_PAUSE_S)  # a thread of its own writes the log
                log = os.pread(file.fileno(), _MAX_LOG_BYTES, 0)
                if _LAST_LINE in log and log.endswith(b"\n"):
                    break
            return log.decode(errors="replace")

        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield read
        finally:
            os.dup2(saved, 2)
            os.close(saved)
