"""Options of backends of language models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from wikidx.base.artifacts.durable import parse_json
from wikidx.base.errors import InputError

from .dialects import Dialect
from .prompts import Thinking

_OWN_FIELDS = frozenset({"model", "messages", "prompt", "n", "stop", "seed", "stream", "stream_options"})

DEFAULT_CONCURRENCY = 16

VLLM_SHARES = frozenset({"gpu_memory_utilization", "kv_cache_memory_bytes"})
"""Options of vLLM that say how much of a GPU's memory a model takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Options of an endpoint.

    Attributes:
        concurrency: maximum number of concurrent requests; None: as many as the server has slots (llama.cpp tells), at most 16.
        timeout: maximum time until the first token of an answer, in seconds; it begins anew with each token of another answer.
        token_timeout: maximum time from a token to the next, in seconds; a long answer may take any time.
        retries: maximum number of retries of a request.
        first_pause: maximum pause before the first retry, in seconds; doubled for each further retry.
        api_key: the API key; None: the environment's OPENAI_API_KEY, or else a placeholder, which local servers accept.
        thinking: way of thinking of calls that name none.
        extra_body: further fields of every request, as JSON values.
        context: maximum number of tokens of prompt and answer together; None: as the endpoint reports (vLLM does), else unknown.
        name: the model as the user named it; None: made of its name at the endpoint and the URL.
        dialect: the server's dialect; None: the server is asked.
    """

    concurrency: int | None = None
    timeout: float = 600.0
    token_timeout: float = 120.0
    retries: int = 5
    first_pause: float = 0.5
    api_key: str | None = None
    thinking: Thinking = "off"
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    context: int | None = None
    name: str | None = None
    dialect: Dialect | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of a checkpoint in this process.

    Attributes:
        device: "auto" (the first GPU, else the CPU), "cpu", "cuda", "cuda:1"; of several GPUs ("cuda:1,2", "all") the first.
        dtype: "auto" (float32 on the CPU, the checkpoint's dtype on a GPU), "float32", "float16", "bfloat16".
        revision: revision of a repository on the Hugging Face hub.
        thinking: way of thinking of calls that name none.
        batch_tokens: maximum number of tokens in memory together, of prompts and generated texts; more rows wait. None: by device.
    """

    device: str = "auto"
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    revision: str | None = None
    thinking: Thinking = "off"
    batch_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppOptions:
    """Options of a GGUF file in llama.cpp.

    Attributes:
        device: "cpu", or "auto" for the GPUs of a build of llama.cpp with support for them.
        thinking: way of thinking of calls that name none.
        context: maximum number of tokens of prompt and answer together, unless the model's own is smaller; each slot has memory for them.
        slots: number of concurrent requests; None: one per processor, but at least two and at most eight.
        threads: number of threads; None: one per processor.
    """

    device: str = "auto"
    thinking: Thinking = "off"
    context: int = 8192
    slots: int | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            InputError: a number is not positive.
        """
        for name, value in (("context", self.context), ("slots", self.slots), ("threads", self.threads)):
            if value is not None and value < 1:
                raise InputError(f"{name} of a model in llama.cpp is {value}: it must be at least 1")


def parse_thinking(text: str) -> Thinking:
    """Parse "off", "on", or a number of tokens.

    Raises:
        InputError: the text is none of these.
    """
    if text in ("off", "on"):
        return "on" if text == "on" else "off"
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise InputError(f"--thinking is {text!r:.40}: give off, on, or the maximum number of tokens of a thought")


def parse_extra_body(assignments: Iterable[str]) -> dict[str, Any]:
    """Parse fields ``NAME=VALUE`` of a request; a value that is not JSON is a text.

    Raises:
        InputError: an assignment has another form, or sets a field of idx's own.
    """
    fields = dict[str, Any]()
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise InputError(f"{assignment!r} sets no field of a request: write NAME=VALUE")
        if name in _OWN_FIELDS:
            raise InputError(f"--extra-body cannot set '{name}', which every request has of its own")
        fields[name] = parse_json_or_text(text)
    return fields


def parse_json_or_text(text: str) -> Any:  # noqa: ANN401 - JSON
    """Parse JSON; return a text that is not JSON as it is."""
    try:
        return parse_json(text)
    except ValueError:
        return text
