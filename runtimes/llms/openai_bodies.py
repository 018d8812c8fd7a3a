"""Request bodies for OpenAI-compatible endpoints, and parsing of their answers. Nothing here opens a connection."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

from wikidx.base.net.endpoint import TOO_LONG, error_message

from .base import AskYesNo, Gen, Generate, MeanNll, Prompt, TokenIds, YesNo
from .dialects import OPENAI, UNKNOWN, Dialect
from .openai_logprobs import clip_logprob, positions_of, with_tokens
from .text import FREE_TEXT, is_blank, replace_surrogates, yes_no_from_tokens
from .thinking import finish_text, split_thinking
from .turns import Fold

Body = dict[str, Any]

TOP_LOGPROBS = (20, 5)
"""Numbers of alternative tokens to request: first the maximum of vLLM and OpenAI, then the maximum of older endpoints."""

ESSENTIAL = frozenset({"model", "messages", "prompt", "echo"})
"""Fields that a request needs. If an endpoint refuses any other field by name, later requests omit that field."""

BEGINS_ANEW = "the endpoint cannot continue a given beginning of an answer: it begins a new answer"
ESTIMATED = "the endpoint does not count tokens: their numbers are estimated"
OWN_SAMPLING = "the endpoint applies its own sampling defaults, such as top_k: other endpoints sample differently"

_STREAM: Body = {"stream": True, "stream_options": {"include_usage": True}}
_UNNAMED = {"logprobs": "logprob", "stream": "streaming"}
"""Fields that a refusal may mean without naming them -> a word in its message."""

_NAMING = r"""['"`]{0}['"`]|\b{0} (?:is|are|must|should|not|can(?:not|'t))\b|(?:parameter|field|argument|option|support)s?:? {0}\b"""
"""Pattern of a refusal's words around a field's name that is a word by itself."""

_FALLBACKS = {
    "logprobs": "no logprobs",
    "seed": "no seed: sampling cannot be repeated",
    "stop": "the endpoint accepts no stop texts: the finished text is cut at the first one",
    "temperature": "the endpoint sets the temperature",
    "top_p": "the endpoint sets top_p",
}

# Servers' words for the end of a text; any other one is noted in ``degraded``.
_CUT = ("length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded")
_COMPLETE = ("", "stop", "complete", "eos", "eos_token", "end_turn", "stop_sequence")

_BEGINNING_REFUSED = re.compile(r"prefill|(last|final) (turn|message|role)|end with a user|assistant messages? at the end", re.IGNORECASE)
_TURNS_REFUSED = re.compile(r"\broles?\b|alternat|system (prompt|message|turn|instruction)|jinja", re.IGNORECASE)
_MAX_TOKENS = 1_000_000_000
_CONTEXT = re.compile(r"context (?:length|size|window)(?: is| of)?(?: only)? \(?(\d+)|n_ctx\W+(\d+)", re.IGNORECASE)
_PROMPT_TOKENS = re.compile(
    r"(\d+) in the messages|resulted in (\d+) tokens|(\d+) input tokens|first (\d+) tokens|prompt is (\d+) tokens|request \((\d+) tokens",
    re.IGNORECASE,
)


_QWEN3 = re.compile(r"qwen-?3(?![.\d])(?!.*2507)", re.IGNORECASE)


class Refusal(NamedTuple):
    """An endpoint's refusal of a request.

    Attributes:
        status: the HTTP status.
        message: the message, on one line.
        code: OpenAI's error code; empty: none.
        param: name of the refused field; empty: none.
        prompt_tokens: number of tokens of a prompt that is too long; None: unknown.
        context: maximum number of tokens of prompt and answer together; None: unknown.
    """

    status: int
    message: str
    code: str
    param: str
    prompt_tokens: int | None = None
    context: int | None = None

    @property
    def is_too_long(self) -> bool:
        """True if the prompt is longer than the context."""
        return self.code == "context_length_exceeded" or bool(TOO_LONG.search(self.message))

    @property
    def is_model_missing(self) -> bool:
        """True if the endpoint does not know the model."""
        return self.code == "model_not_found" or bool(re.search(r"model\b.*\b(does not exist|not found)", self.message, re.IGNORECASE))

    @property
    def refused_turns(self) -> Fold | None:
        """The ``Fold`` that avoids the refused turn (see ``turns``); None if the refusal is not about turns."""
        return "beginning" if _BEGINNING_REFUSED.search(self.message) else "system" if _TURNS_REFUSED.search(self.message) else None

    def refused_parameter(self, body: Collection[str]) -> str | None:
        """Return the optional field of ``body`` that the refusal names; None if it names no such field."""
        for name in sorted(set(body) - ESSENTIAL, key=lambda name: (-len(name), name)):  # top_logprobs before logprobs
            is_unquoted = "_" in name and name in self.message
            if self.param.split(".")[-1] == name or is_unquoted or re.search(_NAMING.format(re.escape(name)), self.message):
                return name
        unnamed = (name for name, word in _UNNAMED.items() if name in body and word in self.message.casefold())
        return next(unnamed, None)


class Answer(NamedTuple):
    """An endpoint's answer, and the fallbacks used for the request."""

    data: dict[str, Any]
    degraded: tuple[str, ...]

    @property
    def choices(self) -> list[dict[str, Any]]:
        """The texts, with their finish and logprobs."""
        choices: list[dict[str, Any]] = self.data["choices"]
        return choices

    @property
    def model(self) -> str:
        """The model that answered, as the endpoint names it; empty: it does not say."""
        name = self.data.get("model")
        return replace_surrogates(name) if isinstance(name, str) else ""

    @property
    def hidden_tokens(self) -> int:
        """Number of tokens of thoughts, as the endpoint counts them."""
        details = (self.data.get("usage") or {}).get("completion_tokens_details")
        return _count(details.get("reasoning_tokens")) if isinstance(details, dict) else 0

    @property
    def tokens(self) -> tuple[int, int]:
        """Numbers of tokens read and generated."""
        usage = self.data.get("usage") or {}
        return _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))

    def with_counts(self, prompt: Prompt, estimate: Callable[[Prompt], int]) -> Answer:
        """Return the answer to a prompt with estimates in place of the numbers of tokens that the endpoint does not give."""
        usage = self.data.get("usage") or {}
        texts = (text for choice in self.choices for text in (_choice_text(choice), _own_reasoning(choice)) if text)
        estimates = {"prompt_tokens": estimate(prompt), "completion_tokens": sum(map(estimate, texts))}
        missing = {name: n_tokens for name, n_tokens in estimates.items() if _count(usage.get(name)) != usage.get(name)}
        return Answer({**self.data, "usage": usage | missing}, (*self.degraded, ESTIMATED) if missing else self.degraded)


def parse_refusal(status: int, body: object) -> Refusal:
    """Parse an answer with a status of 300 or more."""
    body = body[0] if isinstance(body, list) and body else body  # as Google has it
    error = body.get("error") or body if isinstance(body, Mapping) else body
    about = error if isinstance(error, Mapping) else {}
    message = error_message(body)
    lengths = _number(about.get("n_prompt_tokens"), _PROMPT_TOKENS, message), _number(about.get("n_ctx"), _CONTEXT, message)
    return Refusal(status, message, str(about.get("code") or ""), str(about.get("param") or ""), *lengths)


def parse_reported_error(body: object) -> Refusal:
    """Parse an error in an answer of status 200. Its status is its code, 400 if the message is known as that of a refusal, or else 200."""
    error = body.get("error", body) if isinstance(body, Mapping) else body
    code = error.get("code") if isinstance(error, Mapping) else None
    refusal = parse_refusal(400, body)
    if isinstance(code, int) and 400 <= code < 600:
        return refusal._replace(status=code)
    return refusal if refusal.is_too_long or refusal.is_model_missing or refusal.refused_turns else refusal._replace(status=200)


def _count(value: object) -> int:
    """Return a number of tokens; 0 if it is no possible one."""
    return value if isinstance(value, int) and 0 <= value <= _MAX_TOKENS else 0


def _number(given: object, pattern: re.Pattern[str], message: str) -> int | None:
    """Return a positive number given as a field, else in the message; None if there is none."""
    found = pattern.search(message)
    value = given if isinstance(given, int) else int(next(filter(None, found.groups()))) if found else 0
    return value if 0 < value < _MAX_TOKENS else None


def build_body(call: Generate | AskYesNo, model: str, dialect: Dialect = UNKNOWN, *, answer_tokens: int = 1) -> Body:
    """Return the request body of a call, before refused fields are dropped; a yes/no question generates ``answer_tokens`` tokens."""
    body: Body = {"model": model}
    is_chat = not isinstance(call.prompt, str | TokenIds)
    if isinstance(call.prompt, str | TokenIds):
        body["prompt"] = list(call.prompt.ids) if isinstance(call.prompt, TokenIds) else call.prompt
    else:
        body["messages"] = [{"role": turn.role, "content": turn.content} for turn in call.prompt]
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
    if call.logprobs:
        body |= {"logprobs": True} if is_chat else {"logprobs": 1}
    return body


def largest_n(message: str) -> int:
    """Return the largest number of texts that a refusal of ``n`` allows: the last number of "1 <= value <= 4", else 1."""
    found = re.search(r"<=?\s*(\d+)|(?:at most|up to|maximum(?: of)?) (\d+)", message[message.find("value") + 1 :])
    return max(1, int(found[1] or found[2])) if found else 1


def lowest_effort(message: str) -> str | None:
    """Return the lowest effort of reasoning that a refusal of another one offers; None if it offers none."""
    offered = set(re.findall(r"['\"`](\w+)['\"`]", message.partition("upported values")[2]))
    return next((effort for effort in ("none", "minimal", "low") if effort in offered), None)


def drop_refused(body: Body, refused: Set[str], *, top: int, effort: str | None = None) -> Body:
    """Return a body without refused fields, with at most ``top`` alternatives per token and another ``effort`` if the model has it."""
    remaining = {name: value for name, value in body.items() if name not in refused}
    if effort and "reasoning_effort" in remaining:
        remaining["reasoning_effort"] = effort
    if "max_tokens" in refused:
        remaining["max_completion_tokens"] = body["max_tokens"]  # OpenAI's new name of the field
    for name, dependent in (("logprobs", "top_logprobs"), ("stream", "stream_options")):
        if name not in remaining:
            remaining.pop(dependent, None)
    name = "logprobs" if "prompt" in remaining else "top_logprobs"
    if name in remaining:
        remaining[name] = min(remaining[name], top)
    return remaining


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


def parse_gen(choice: Mapping[str, Any], call: Generate, degraded: tuple[str, ...], *, is_open: bool = False) -> Gen:
    """Parse one generated text of an answer. ``is_open``: the chat template opens a thought."""
    text = _choice_text(choice)
    finish = (choice.get("finish_reason") or "").casefold()
    message = choice.get("message") or {}
    why = "" if finish in _COMPLETE + _CUT else finish
    if message.get("refusal"):
        degraded = (*degraded, "the model refuses to answer")
    if text is None or (why and not text) or finish not in (*_COMPLETE, *_CUT, "tool_calls", "tool_use", "function_call"):
        degraded = (*degraded, f"the endpoint {'ends the' if text else 'gives no'} text: {why or finish or 'without a reason'}")
    if left_out := message.get("left_out"):
        degraded = (*degraded, f"parts of the answer that are no text are left out: {', '.join(left_out)}")
    text, is_echo = strip_beginning(replace_surrogates(text or ""), call.prompt)
    gen = Gen(text=text, finish="length" if finish in _CUT else "stop", reasoning=_own_reasoning(choice))
    gen = with_tokens(gen, choice.get("logprobs") if call.logprobs else None, is_cut=bool(call.decoding.stop))
    if call.logprobs and gen.logprobs is None and "no logprobs" not in degraded:
        degraded = (*degraded, "no logprobs")
    if is_echo:
        degraded = tuple(note for note in degraded if note != BEGINS_ANEW)
    return finish_text(replace(gen, degraded=degraded), call.decoding.stop, is_open=is_open)


def _own_reasoning(choice: Mapping[str, Any]) -> str | None:
    """Return the thoughts that come in a field of their own."""
    message = choice.get("message") or {}
    thoughts = [message.get(name) for name in ("reasoning_content", "reasoning")]
    return next((replace_surrogates(thought) for thought in thoughts if isinstance(thought, str) and thought.strip()), None)


def begins_thought(choice: Mapping[str, Any]) -> bool:
    """Return True if a text begins with a thought in place of an answer."""
    return _own_reasoning(choice) is not None or split_thinking(_choice_text(choice) or "").reasoning is not None


def closes_thought(choice: Mapping[str, Any]) -> bool:
    """Return True if a text closes a thought that it does not open: the chat template does."""
    text = _choice_text(choice) or ""
    return split_thinking(text).reasoning is not None and not text.lstrip().startswith(("<", "[", "◁", "analysis"))


def strip_beginning(text: str, prompt: Prompt) -> tuple[str, bool]:
    """Return a text without the beginning that the prompt gave it, and whether it repeats this beginning, as llama.cpp's whole texts do."""
    if isinstance(prompt, str | TokenIds) or prompt[-1].role != "assistant":
        return text, False
    beginning = prompt[-1].content
    repeated = next((form for form in (beginning, beginning.rstrip(), beginning.strip()) if form.strip() and text.startswith(form)), None)
    return (text, False) if repeated is None else (text[len(repeated) :], True)


def has_text(choice: Mapping[str, Any]) -> bool:
    """Return True if a choice of an answer has a text that is not empty, and no refusal, which has no logprobs."""
    return bool(_choice_text(choice)) and not (choice.get("message") or {}).get("refusal")


def _choice_text(choice: Mapping[str, Any]) -> str | None:
    message: Mapping[str, str | None] | None = choice.get("message")
    return message.get("refusal") or message.get("content") if message else choice.get("text")


def parse_yes_no(choice: Mapping[str, Any], call: AskYesNo, degraded: tuple[str, ...] = ()) -> YesNo | None:
    """Parse the probabilities of the two answers; return None if the choice has no log-probabilities."""
    positions = positions_of(choice.get("logprobs") or {})
    return yes_no_from_tokens(positions, call.positive, call.negative, degraded) if positions and positions[0].likeliest else None


def begins_blank(choice: Mapping[str, Any]) -> bool:
    """Return True if a text begins with a token of white space."""
    positions = positions_of(choice.get("logprobs") or {})
    return bool(positions and positions[0].generated and is_blank(positions[0].generated[0]))


def parse_echo_nll(choice: Mapping[str, Any], call: MeanNll, prompt: str) -> tuple[float, int] | None:
    """Return the total NLL and the number of the continuation's tokens; None if the answer lacks their log-probabilities."""
    logprobs = choice.get("logprobs") or {}
    fields = [logprobs.get(name) or [] for name in ("tokens", "token_logprobs", "text_offset")]
    start, end = len(prompt), len(prompt) + len(call.continuation)
    own_logprobs = [
        clip_logprob(logprob)
        for token, logprob, offset in zip(*fields, strict=False)
        if logprob is not None and offset < end and offset + len(token) > start
    ]
    return (-math.fsum(own_logprobs), len(own_logprobs)) if own_logprobs else None


def parse_ids_nll(choice: Mapping[str, Any], continuation: Sequence[int]) -> tuple[float, int] | None:
    """Return the total NLL of the last ids of a prompt, and their number; None if the answer lacks their log-probabilities."""
    entries = (choice.get("prompt_logprobs") or [])[-len(continuation) :]
    try:
        logprobs = [clip_logprob(entry[str(token)]["logprob"]) for token, entry in zip(continuation, entries, strict=True)]
    except (LookupError, TypeError, ValueError):
        return None
    return -math.fsum(logprobs), len(logprobs)
