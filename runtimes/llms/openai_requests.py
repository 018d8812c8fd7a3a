"""Request bodies for OpenAI-compatible endpoints, and descriptions of what they lack."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .base import AskYesNo, Generate, MeanNll
from .dialects import OPENAI, UNKNOWN, Body, Dialect
from .openai_refusals import TOP_LOGPROBS
from .prompts import TokenIds
from .text import FREE_TEXT

BEGINS_ANEW = "the endpoint cannot continue a given beginning of an answer: it begins a new answer"
OWN_SAMPLING = "the endpoint applies its own sampling defaults, such as top_k: other endpoints sample differently"

_STREAM: Body = {"stream": True, "stream_options": {"include_usage": True}}
_FALLBACKS = {
    "logprobs": "no logprobs",
    "seed": "no seed: sampling cannot be repeated",
    "stop": "the endpoint accepts no stop texts: the finished text is cut at the first one",
    "temperature": "the endpoint sets the temperature",
    "top_p": "the endpoint sets top_p",
}
"""Field that an endpoint may refuse -> the effect of a request without it."""

_QWEN3 = re.compile(r"qwen-?3(?![.\d])(?!.*2507)", re.IGNORECASE)


def build_body(call: Generate | AskYesNo, model: str, dialect: Dialect = UNKNOWN, *, answer_tokens: int = 1) -> Body:
    """Return the request body of a call, before refused fields are dropped; a yes/no question generates ``answer_tokens`` tokens."""
    body: Body = {"model": model}
    is_chat = not isinstance(call.prompt, str | TokenIds)
    if isinstance(call.prompt, str | TokenIds):
        body["prompt"] = list(call.prompt.ids) if isinstance(call.prompt, TokenIds) else call.prompt
    else:
        body["messages"] = [turn.to_json() for turn in call.prompt]
        if call.prompt[-1].role == "assistant":
            body |= dialect.continuation or {}
        mode = call.decoding.thinking if isinstance(call, Generate) else None
        body |= dialect.thinking_fields(mode or "off")
        if not mode or mode == "off":
            _ask_not_to_think(body, dialect)
    body |= dialect.neutral
    if isinstance(call, Generate):
        structure = dialect.structure(call.schema, is_chat=is_chat) if call.schema else None
        return body | _generation(call, is_chat=is_chat) | (structure or {}) | (_STREAM if dialect.streams else {})
    top = TOP_LOGPROBS[0]
    return (
        body
        | {"max_tokens": answer_tokens, "temperature": 0.0, "top_p": 1.0}
        | ({"logprobs": True, "top_logprobs": top} if is_chat else {"logprobs": top})
    )


def _ask_not_to_think(body: Body, dialect: Dialect) -> None:
    """Append Qwen3's own word for no thinking to the user's last turn, if the server has no field for it."""
    asked = [turn for turn in body["messages"] if turn["role"] == "user"]
    if asked and not dialect.no_thinking and _QWEN3.search(body["model"]):
        asked[-1]["content"] += " /no_think"


def build_echo_body(call: MeanNll, prompt: str, model: str) -> Body:
    """Return a body that makes the endpoint score a prompt and its continuation. One token is generated as well, and ignored."""
    return {"model": model, "prompt": prompt + call.continuation, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0.0}


def build_ids_body(ids: Sequence[int], model: str) -> Body:
    """Return a body that makes vLLM score ids. One token is generated as well, and ignored."""
    return {"model": model, "prompt": list(ids), "prompt_logprobs": 0, "max_tokens": 1, "temperature": 0.0}


def _generation(call: Generate, *, is_chat: bool) -> Body:
    decoding = call.decoding
    body: Body = {"max_tokens": decoding.max_tokens, "temperature": decoding.temperature, "top_p": decoding.top_p}
    if call.n > 1:
        body["n"] = call.n
    if decoding.stop:
        body["stop"] = list(decoding.stop)
    if decoding.seed is not None:
        body["seed"] = decoding.seed
    if call.control:
        body |= {"skip_special_tokens": False, "preserved_tokens": list(call.control)}  # of vLLM and SGLang, of llama.cpp
        body |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS[0]} if is_chat else {"logprobs": TOP_LOGPROBS[0]}
    elif call.logprobs:
        body |= {"logprobs": True} if is_chat else {"logprobs": 1}
    return body


def extend(body: Body, extra: Mapping[str, Any]) -> Body:
    """Return a body with the user's fields; objects are merged."""
    merged = {
        name: {**body[name], **value} for name, value in extra.items() if isinstance(value, dict) and isinstance(body.get(name), dict)
    }
    return {**body, **extra, **merged}


def describe_fallbacks(call: Generate | AskYesNo, dialect: Dialect, body: Body, sent: Body) -> tuple[str, ...]:
    """Return descriptions of what a request lacks: fields that the dialect has not, and fields of ``body`` that ``sent`` lacks."""
    notes = [_FALLBACKS[name] for name in body if name in _FALLBACKS and name not in sent]
    is_chat = "messages" in body
    if is_chat and body["messages"][-1]["role"] == "assistant" and not _is_sent(dialect.continuation, sent):
        notes.append(BEGINS_ANEW)
    if isinstance(call, Generate):
        if call.schema and not _is_sent(dialect.structure(call.schema, is_chat=is_chat), sent):
            notes.append(FREE_TEXT)
        if not call.decoding.is_greedy and not _is_sent(dialect.neutral or None, sent) and dialect is not OPENAI:
            notes.append(OWN_SAMPLING)
    return tuple(dict.fromkeys(notes))


def _is_sent(fields: Mapping[str, Any] | None, sent: Body) -> bool:
    return fields is not None and fields.keys() <= sent.keys()
