"""Request bodies for OpenAI-compatible endpoints, and parsing of their answers. Nothing here opens a connection."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Container, Mapping, Sequence, Set
from itertools import islice, zip_longest
from typing import Any, Literal, NamedTuple

from .base import AskYesNo, Choice, Gen, Generate, JsonSchema, MeanNll, Regex, Schema, TokenIds, YesNo
from .text import FREE_TEXT, NO_THINKING, NextToken, cut_at_stop, is_blank, replace_surrogates, strip_thinking, yes_no_from_tokens
from .turns import Fold

Body = dict[str, Any]

TOP_LOGPROBS = (20, 5)
"""Numbers of alternatives to request: first the maximum of vLLM and OpenAI, then the maximum of older endpoints."""

VLLM_ONLY = ("top_k", "repetition_penalty", "chat_template_kwargs", "structured_outputs", "add_generation_prompt", "continue_final_message")
OPTIONAL = (*VLLM_ONLY, "response_format", "top_logprobs", "logprobs", "seed", "n", "stop", "temperature", "top_p", "max_tokens")
"""Optional fields of a body; a field that an endpoint refuses by name is omitted from then on."""

_FALLBACKS = {
    "continue_final_message": "the endpoint does not go on from a given beginning of its answer: it begins a new one",
    "structured_outputs": FREE_TEXT,
    "response_format": FREE_TEXT,
    "logprobs": "no logprobs",
    "seed": "no seed: the draws cannot be repeated",
    "stop": "no stop texts at the endpoint: the text is cut when it is there",
    "temperature": "the endpoint sets the temperature",
    "top_p": "the endpoint sets top_p",
}

_LEAST_LOGPROB = -1e4  # OpenAI writes -9999 for impossible tokens

_BEGINNING_REFUSED = re.compile(r"prefill|(last|final) (turn|message|role)|end with a user|assistant messages? at the end", re.IGNORECASE)
_TURNS_REFUSED = re.compile(r"\broles?\b|alternat|system (prompt|message|turn|instruction)|jinja", re.IGNORECASE)
_TOO_LONG = re.compile(r"context[ _](length|size|window)|maximum context|prompt is too long|too many tokens|n_ctx", re.IGNORECASE)


class Refusal(NamedTuple):
    """An endpoint's refusal of a request.

    Attributes:
        status: the HTTP status.
        message: the message, on one line.
        code: OpenAI's error code; empty: none.
        param: name of the refused field; empty: none.
    """

    status: int
    message: str
    code: str
    param: str

    @property
    def is_too_long(self) -> bool:
        """True if the prompt is longer than the context."""
        return self.code == "context_length_exceeded" or bool(_TOO_LONG.search(self.message))

    @property
    def is_model_missing(self) -> bool:
        """True if the endpoint does not know the model."""
        return self.code == "model_not_found" or bool(re.search(r"model\b.*\b(does not exist|not found)", self.message, re.IGNORECASE))

    @property
    def refused_turns(self) -> Fold | None:
        """The fold of turns that the refusal suggests; None if the refusal is not about turns."""
        return "beginning" if _BEGINNING_REFUSED.search(self.message) else "system" if _TURNS_REFUSED.search(self.message) else None

    def refused_parameter(self, body: Container[str]) -> str | None:
        """Return the optional field of ``body`` that the refusal names; None if it names no such field."""
        for name in [name for name in OPTIONAL if name in body]:
            is_unquoted = "_" in name and name in self.message
            if self.param.split(".")[-1] == name or is_unquoted or re.search(rf"""['"`]{name}['"`]""", self.message):
                return name
        return "logprobs" if "logprobs" in body and "logprob" in self.message.casefold() else None


def parse_refusal(status: int, body: object) -> Refusal:
    """Parse an answer with a status of 300 or more."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        return Refusal(status, _one_line(error), "", "")
    message = error.get("message") or error.get("detail") or error
    return Refusal(status, _one_line(message), str(error.get("code") or ""), str(error.get("param") or ""))


def _one_line(message: object) -> str:
    text = message if isinstance(message, str) else json.dumps(message, default=str)
    return " ".join(text.split())[:500]


def build_body(call: Generate | AskYesNo, model: str, *, answer_tokens: int = 1) -> Body:
    """Return the request body of a call, before refused fields are dropped. A yes/no question generates ``answer_tokens``."""
    body: Body = {"model": model}
    is_chat = not isinstance(call.prompt, str | TokenIds)
    if isinstance(call.prompt, str | TokenIds):
        body["prompt"] = list(call.prompt.ids) if isinstance(call.prompt, TokenIds) else call.prompt
    else:
        body["messages"] = [{"role": turn.role, "content": turn.content} for turn in call.prompt]
        if call.prompt[-1].role == "assistant":
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        body["chat_template_kwargs"] = {"enable_thinking": False}
    body |= {"top_k": -1, "repetition_penalty": 1.0}  # otherwise vLLM takes both from generation_config.json
    if isinstance(call, Generate):
        return body | _generation(call, is_chat=is_chat)
    top = TOP_LOGPROBS[0]
    return (
        body
        | {"max_tokens": answer_tokens, "temperature": 0.0, "top_p": 1.0}
        | ({"logprobs": True, "top_logprobs": top} if is_chat else {"logprobs": top})
    )


def build_echo_body(call: MeanNll, prompt: str, model: str) -> Body:
    """Return a body that makes the endpoint score a prompt and its continuation. One token is generated as well, and ignored."""
    return {"model": model, "prompt": prompt + call.continuation, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0.0}


def _generation(call: Generate, *, is_chat: bool) -> Body:
    decoding = call.decoding
    body: Body = {"max_tokens": decoding.max_tokens, "temperature": decoding.temperature, "top_p": decoding.top_p}
    if call.n > 1:
        body["n"] = call.n
    if decoding.stop:
        body["stop"] = list(decoding.stop)
    if decoding.seed is not None:
        body["seed"] = decoding.seed
    if call.logprobs:
        body |= {"logprobs": True} if is_chat else {"logprobs": 1}
    return body | _structure(call.schema, is_chat=is_chat)


def _structure(schema: Schema | None, *, is_chat: bool) -> Body:
    match schema:
        case Choice():
            return {"structured_outputs": {"choice": list(schema.texts)}}
        case Regex():
            return {"structured_outputs": {"regex": schema.pattern}}
        case JsonSchema() if is_chat:
            json_schema = {"name": "answer", "schema": json.loads(schema.text), "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": json_schema}}
        case JsonSchema():
            return {"structured_outputs": {"json": json.loads(schema.text)}}
        case None:
            return {}


def drop_refused(body: Body, refused: Set[str], *, top: int) -> Body:
    """Return a body without refused fields, with at most ``top`` alternatives per token."""
    remaining = {name: value for name, value in body.items() if name not in refused}
    if "max_tokens" in refused:
        remaining["max_completion_tokens"] = body["max_tokens"]  # OpenAI's new name of the field
    if "logprobs" not in remaining:
        remaining.pop("top_logprobs", None)
    name = "logprobs" if "prompt" in remaining else "top_logprobs"
    if name in remaining:
        remaining[name] = min(remaining[name], top)
    return remaining


def describe_dropped(body: Body, sent: Body) -> tuple[str, ...]:
    """Return descriptions of the effects of dropped fields, which ``body`` has and ``sent`` lacks."""
    return tuple(dict.fromkeys(_FALLBACKS[name] for name in body if name in _FALLBACKS and name not in sent))


def parse_gen(choice: Mapping[str, Any], call: Generate, degraded: tuple[str, ...]) -> Gen:
    """Parse one generated text of an answer."""
    text = _choice_text(choice)
    finish = choice.get("finish_reason")
    if text is None:
        degraded = (*degraded, f"the endpoint gives no text: {finish or 'without a reason'}")
    logprobs = _own_logprobs(choice.get("logprobs")) if call.logprobs else None
    if call.logprobs and logprobs is None and "no logprobs" not in degraded:
        degraded = (*degraded, "no logprobs")
    text, has_thought = strip_thinking(replace_surrogates(text or ""))
    if has_thought:
        degraded = (*degraded, NO_THINKING)
    text, is_cut = cut_at_stop(text, call.decoding.stop)
    finish_reason: Literal["stop", "length"] = "length" if finish == "length" and not is_cut else "stop"
    return Gen(text=text, finish=finish_reason, logprobs=logprobs, degraded=degraded)


def has_text(choice: Mapping[str, Any]) -> bool:
    """Return True if a choice of an answer has a text that is not empty."""
    return bool(_choice_text(choice))


def _choice_text(choice: Mapping[str, Any]) -> str | None:
    message: Mapping[str, str | None] = choice.get("message") or {}
    return message.get("content") if "message" in choice else choice.get("text")


def _own_logprobs(logprobs: Mapping[str, Any] | None) -> tuple[float, ...] | None:
    if not logprobs:
        return None
    if isinstance(logprobs.get("content"), list):
        values = [token.get("logprob") for token in logprobs["content"]]
    else:
        values = logprobs.get("token_logprobs") or []
    return tuple(_logprob(value) for value in values if value is not None) or None


def _logprob(value: float) -> float:
    """Clip a log-probability of an endpoint to [-10,000, 0]."""
    return float(max(_LEAST_LOGPROB, min(0.0, value)))


def parse_yes_no(choice: Mapping[str, Any], call: AskYesNo, degraded: tuple[str, ...] = ()) -> YesNo | None:
    """Parse the probabilities of the two answers; return None if the choice has no log-probabilities."""
    positions = _positions(choice.get("logprobs") or {})
    return yes_no_from_tokens(positions, call.positive, call.negative, degraded) if positions and positions[0].likeliest else None


def begins_blank(choice: Mapping[str, Any]) -> bool:
    """Return True if a text begins with a token of white space."""
    positions = _positions(choice.get("logprobs") or {})
    return bool(positions and positions[0].generated and is_blank(positions[0].generated[0]))


def _positions(logprobs: Mapping[str, Any]) -> list[NextToken]:
    """Return the positions of a text, each with its generated token and the likeliest tokens."""
    if content := logprobs.get("content"):
        return [_position((token.get("token"), token.get("logprob")), _pairs(token.get("top_logprobs") or [token])) for token in content]
    tops = [list((top or {}).items()) for top in logprobs.get("top_logprobs") or []]
    generated = zip_longest(logprobs.get("tokens") or [], logprobs.get("token_logprobs") or [])
    return [_position(token or (None, None), top) for top, token in zip_longest(tops, islice(generated, len(tops)))]


def _pairs(tokens: Sequence[Mapping[str, Any]]) -> list[tuple[Any, Any]]:
    return [(token.get("token"), token.get("logprob")) for token in tokens]


def _position(generated: tuple[Any, Any], likeliest: Sequence[tuple[Any, Any]]) -> NextToken:
    own, *others = ([(token, _logprob(logprob))] if _is_scored(token, logprob) else [] for token, logprob in (generated, *likeliest))
    return NextToken(own[0] if own else None, [pair for pairs in others for pair in pairs])


def _is_scored(token: object, logprob: object) -> bool:
    return isinstance(token, str) and isinstance(logprob, int | float)


def parse_echo_nll(choice: Mapping[str, Any], call: MeanNll, prompt: str) -> tuple[float, int] | None:
    """Return the total NLL and the number of the continuation's tokens; None if the answer lacks their log-probabilities."""
    logprobs = choice.get("logprobs") or {}
    fields = [logprobs.get(name) or [] for name in ("tokens", "token_logprobs", "text_offset")]
    start, end = len(prompt), len(prompt) + len(call.continuation)
    own_logprobs = [
        _logprob(logprob)
        for token, logprob, offset in zip(*fields, strict=False)
        if logprob is not None and offset < end and offset + len(token) > start
    ]
    return (-math.fsum(own_logprobs), len(own_logprobs)) if own_logprobs else None
