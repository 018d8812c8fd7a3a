"""Refusals of OpenAI-compatible endpoints: what a refusal means, and what later requests do without.

A refusal is read by the tables of this module. The request is then sent again without what was refused, and so are all later ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from wikidx.base.net.endpoint import TOO_LONG, error_message

from .dialects import Body
from .turns import Fold

TOP_LOGPROBS = (20, 5)
"""Numbers of alternative tokens to request: first the maximum of vLLM and OpenAI, then the maximum of older endpoints."""

MAX_TOKENS = 1_000_000_000

Meaning = Literal["too_long", "no_model", "beginning", "system"]

_WORDS: Mapping[Meaning, tuple[str | None, re.Pattern[str]]] = {
    "too_long": ("context_length_exceeded", TOO_LONG),
    "no_model": ("model_not_found", re.compile(r"model\b.*\b(does not exist|not found)", re.IGNORECASE)),
    "beginning": (
        None,
        re.compile(r"prefill|(last|final) (turn|message|role)|end with a user|assistant messages? at the end", re.IGNORECASE),
    ),
    "system": (None, re.compile(r"\broles?\b|alternat|system (prompt|message|turn|instruction)|jinja", re.IGNORECASE)),
}
"""Meaning of a refusal -> OpenAI's code for it, and words of the messages.

The prompt is longer than the context; there is no such model; the chat template refuses an answer that is to be continued; it refuses a
system turn, or two turns of one speaker.
"""

_ESSENTIAL = frozenset({"model", "messages", "prompt", "echo"})  # without any other field, a request is still one
_UNNAMED = {"logprobs": "logprob", "stream": "streaming"}
"""Fields that a refusal may mean without naming them -> a word in its message."""

_NAMING = r"""['"`]{0}['"`]|\b{0} (?:is|are|must|should|not|can(?:not|'t))\b|(?:parameter|field|argument|option|support)s?:? {0}\b"""
"""Pattern of a refusal's words around a field's name that is a word by itself."""

_DEPENDENT = {"logprobs": "top_logprobs", "stream": "stream_options"}  # field -> the field that needs it
_CONTEXT = re.compile(r"context (?:length|size|window)(?: is| of)?(?: only)? \(?(\d+)|n_ctx\W+(\d+)", re.IGNORECASE)
_PROMPT_TOKENS = re.compile(
    r"(\d+) in the messages|resulted in (\d+) tokens|(\d+) input tokens|first (\d+) tokens|prompt is (\d+) tokens|request \((\d+) tokens",
    re.IGNORECASE,
)


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

    def means(self, meaning: Meaning) -> bool:
        """Return whether the refusal has a meaning, by its code or its words."""
        code, words = _WORDS[meaning]
        return self.code == code or bool(words.search(self.message))

    @property
    def is_about_api(self) -> bool:
        """True if the endpoint lacks this API, or its model a chat template."""
        return self.status in (404, 405, 501) or "chat template" in self.message

    @property
    def turns(self) -> Fold | None:
        """The ``Fold`` that avoids the refused turn (see ``turns``); None if the refusal is not about turns."""
        return "beginning" if self.means("beginning") else "system" if self.means("system") else None

    def refused_parameter(self, body: Collection[str]) -> str | None:
        """Return the optional field of ``body`` that the refusal names; None if it names no such field."""
        for name in sorted(set(body) - _ESSENTIAL, key=lambda name: (-len(name), name)):  # top_logprobs before logprobs
            is_unquoted = "_" in name and name in self.message
            if self.param.split(".")[-1] == name or is_unquoted or re.search(_NAMING.format(re.escape(name)), self.message):
                return name
        unnamed = (name for name, word in _UNNAMED.items() if name in body and word in self.message.casefold())
        return next(unnamed, None)


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
    return refusal if any(map(refusal.means, _WORDS)) else refusal._replace(status=200)


def _number(given: object, pattern: re.Pattern[str], message: str) -> int | None:
    """Return a positive number given as a field, else in the message; None if there is none."""
    found = pattern.search(message)
    value = given if isinstance(given, int) else int(next(filter(None, found.groups()))) if found else 0
    return value if 0 < value < MAX_TOKENS else None


@dataclass(slots=True)
class Lacks:
    """Fields and abilities that an endpoint lacks, as its refusals have told so far.

    Attributes:
        fields: fields that requests leave out.
        top: maximum number of alternatives of a token.
        effort: the model's lowest effort of reasoning; None: the dialect's.
        n: maximum number of texts in one request; None: unlimited.
        folds: changes of the turns.
        chat, completions: whether one of the APIs is missing.
    """

    fields: set[str] = field(default_factory=set)
    top: int = TOP_LOGPROBS[0]
    effort: str | None = None
    n: int | None = None
    folds: frozenset[Fold] = frozenset()
    chat: bool = False
    completions: bool = False

    def learn_field(self, name: str, body: Body, message: str) -> None:
        """Learn from the refusal of a field, or of its value where another one may do."""
        alternatives = body.get("top_logprobs") or (body["logprobs"] if "prompt" in body and "logprobs" in body else 0)
        if name == "n":
            self.n = min(_largest_n(message), body["n"] - 1)
        elif name in ("logprobs", "top_logprobs") and alternatives > TOP_LOGPROBS[-1]:
            self.top = TOP_LOGPROBS[-1]
        elif name == "reasoning_effort" and (effort := _lowest_effort(message)) not in (None, body[name]):
            self.effort = effort
        else:
            self.fields.add(name)

    def learn_api(self, body: Body) -> bool:
        """Learn that the API of a request is missing; return False, and forget it, if the request has no other, or neither is there."""
        if isinstance(body.get("prompt"), list):
            return False  # token ids cannot be sent in another form
        is_chat = "messages" in body
        self.chat, self.completions = self.chat or is_chat, self.completions or not is_chat
        if self.chat and self.completions:
            self.chat = self.completions = False
            return False
        return True

    def strip(self, body: Body) -> Body:
        """Return a body without what is lacking."""
        left = {name: value for name, value in body.items() if name not in self.fields}
        if self.effort and "reasoning_effort" in left:
            left["reasoning_effort"] = self.effort
        if "max_tokens" in self.fields and "max_completion_tokens" not in self.fields:
            left["max_completion_tokens"] = body["max_tokens"]  # OpenAI's new name of the field
        for name, dependent in _DEPENDENT.items():
            if name not in left:
                left.pop(dependent, None)
        name = "logprobs" if "prompt" in left else "top_logprobs"
        if name in left:
            left[name] = min(left[name], self.top)
        return left


def _largest_n(message: str) -> int:
    """Return the largest number of texts that a refusal of ``n`` allows: the last number of "1 <= value <= 4", else 1."""
    found = re.search(r"<=?\s*(\d+)|(?:at most|up to|maximum(?: of)?) (\d+)", message[message.find("value") + 1 :])
    return max(1, int(found[1] or found[2])) if found else 1


def _lowest_effort(message: str) -> str | None:
    """Return the lowest effort of reasoning that a refusal of another one offers; None if it offers none."""
    offered = set(re.findall(r"['\"`](\w+)['\"`]", message.partition("upported values")[2]))
    return next((effort for effort in ("none", "minimal", "low") if effort in offered), None)
