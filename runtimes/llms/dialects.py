"""Dialects of servers with OpenAI's API: their fields beyond the standard, and their recognition.

The API's standard leaves out what experiments need: to switch off the server's own sampling defaults, to continue a given beginning of an
answer, to restrict an answer to choices. Each server has its own fields for these. A server is recognised by the owner of its models, or
by a page that only this server has; an unknown server gets standard fields only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from .prompts import Choice, JsonSchema, Regex, Schema, Thinking

Body = dict[str, Any]
Fields = Mapping[str, Any]

_NONE: Fields = {}


class Pages(Protocol):
    """Access to the pages of a server."""

    def models(self) -> list[dict[str, Any]]:
        """Return the server's list of its models; empty if it is unavailable."""
        ...

    def page(self, path: str, body: Body | None = None) -> dict[str, Any] | None:
        """Return the JSON object at a path beside the API, of a POST if there is a body; None if there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """The tokenizer of a server, at ``/tokenize`` and ``/detokenize``.

    Attributes:
        text: field of the text to split; the answer has the ids in "tokens".
        joined: field of the text joined from ids.
        options: further fields of both requests.
    """

    text: str
    joined: str
    options: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The fields that a kind of server takes besides the standard ones.

    Attributes:
        name: the server's name.
        neutral: sampling fields with the values that change nothing; otherwise the server's defaults apply.
        continuation: fields for a conversation whose last turn is to be continued; empty: the server continues it by itself; None: unknown.
        no_thinking: fields that switch thinking off, for chat.
        thinking: fields that switch it on, for chat.
        budget: name of the field for the number of tokens of thoughts; None: there is none.
        choices: texts -> fields that restrict the answer to them; None: impossible.
        regex: pattern -> fields that restrict the answer to it; None: impossible.
        json: schema -> fields that restrict a plain completion to it; None: impossible. Chat has a standard field.
        has_response_format: whether chat has the standard's field for JSON.
        has_n: whether several texts in one request are possible.
        streams: whether answers are to be streamed.
        cancels: whether the server is known to stop its work on a request when the connection is closed.
        tokenizer: the server's tokenizer; None: none.
        scores_ids: whether it gives the log-probabilities of a prompt's ids, and the ids of a chat.
    """

    name: str
    neutral: Fields = field(default_factory=dict)
    continuation: Fields | None = None
    no_thinking: Fields = field(default_factory=dict)
    thinking: Fields = field(default_factory=dict)
    budget: str | None = None
    choices: Callable[[tuple[str, ...]], Body] | None = None
    regex: Callable[[str], Body] | None = None
    json: Callable[[str], Body] | None = None
    has_response_format: bool = True
    has_n: bool = True
    streams: bool = True
    cancels: bool = False
    tokenizer: Tokenizer | None = None
    scores_ids: bool = False

    def thinking_fields(self, mode: Thinking) -> Body:
        """Return the fields for a way of thinking."""
        if mode == "off":
            return dict(self.no_thinking)
        return {**self.thinking, **({self.budget: mode} if self.budget and not isinstance(mode, str) else {})}

    def structure(self, schema: Schema, *, is_chat: bool) -> Body | None:
        """Return the fields that express a constraint; None if the server cannot enforce it."""
        match schema:
            case Choice():
                return self.choices(schema.texts) if self.choices else None
            case Regex():
                return self.regex(schema.pattern) if self.regex else None
            case JsonSchema() if is_chat and self.has_response_format:
                json_schema = {"name": "answer", "schema": json.loads(schema.text), "strict": True}
                return {"response_format": {"type": "json_schema", "json_schema": json_schema}}
            case JsonSchema():
                return self.json(schema.text) if self.json else None


class Server(NamedTuple):
    """A server as it describes itself.

    Attributes:
        dialect: its dialect.
        context: maximum number of tokens of prompt and answer together; None: unknown.
        slots: number of requests that it serves concurrently; None: unknown.
    """

    dialect: Dialect
    context: int | None = None
    slots: int | None = None


def _grammar(texts: tuple[str, ...]) -> str:
    """Return llama.cpp's grammar of a choice between texts."""
    return "root ::= " + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)


def _alternatives(texts: tuple[str, ...]) -> str:
    return f"({'|'.join(map(re.escape, texts))})"


_TEMPLATE_OFF = {"chat_template_kwargs": {"enable_thinking": False}}
_TEMPLATE_ON = {"chat_template_kwargs": {"enable_thinking": True}}
_LLAMA_NEUTRAL = {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}

VLLM = Dialect(
    name="vLLM",
    neutral={"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
    continuation={"add_generation_prompt": False, "continue_final_message": True},
    no_thinking=_TEMPLATE_OFF,
    thinking=_TEMPLATE_ON,
    budget="thinking_token_budget",
    choices=lambda texts: {"structured_outputs": {"choice": list(texts)}},
    regex=lambda pattern: {"structured_outputs": {"regex": pattern}},
    json=lambda schema: {"structured_outputs": {"json": json.loads(schema)}},
    cancels=True,
    tokenizer=Tokenizer(text="prompt", joined="prompt", options={"add_special_tokens": False}),
    scores_ids=True,
)
SGLANG = Dialect(
    name="SGLang",
    neutral={"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
    continuation={"continue_final_message": True},
    no_thinking=_TEMPLATE_OFF,
    thinking=_TEMPLATE_ON,
    choices=lambda texts: {"regex": _alternatives(texts)},
    regex=lambda pattern: {"regex": pattern},
    json=lambda schema: {"json_schema": schema},
    cancels=True,
    tokenizer=Tokenizer(text="prompt", joined="text", options={"add_special_tokens": False}),
)
LLAMA_CPP = Dialect(
    name="llama.cpp",
    neutral=_LLAMA_NEUTRAL,
    continuation=_NONE,
    no_thinking=_TEMPLATE_OFF,
    thinking=_TEMPLATE_ON,
    choices=lambda texts: {"grammar": _grammar(texts)},
    json=lambda schema: {"json_schema": json.loads(schema)},
    cancels=True,
    tokenizer=Tokenizer(text="content", joined="content"),
)
OLLAMA = Dialect(name="Ollama", continuation=_NONE, no_thinking={"reasoning_effort": "none"}, has_n=False, cancels=True)
LM_STUDIO = Dialect(name="LM Studio", neutral={"top_k": 0, "repeat_penalty": 1.0}, has_n=False)
TGI = Dialect(name="text-generation-inference", has_n=False, cancels=True)
WEB_UI = Dialect(
    name="text-generation-webui",
    neutral={"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0},
    continuation={"continue_": True},
    no_thinking={"enable_thinking": False},
    thinking={"enable_thinking": True},
    choices=lambda texts: {"grammar_string": _grammar(texts)},
    has_response_format=False,
    has_n=False,
)
OPENAI = Dialect(name="OpenAI", no_thinking={"reasoning_effort": "minimal"})
UNKNOWN = Dialect(name="unknown")

_OWNERS = {"vllm": VLLM, "sglang": SGLANG, "llamacpp": LLAMA_CPP, "library": OLLAMA, "organization_owner": LM_STUDIO, "openai": OPENAI}
_PAGES = (  # a page, a field of it, and the only dialect that has both
    ("/props", "default_generation_settings", LLAMA_CPP),
    ("/get_model_info", "model_path", SGLANG),
    ("/version", "version", VLLM),
    ("/api/version", "version", OLLAMA),
    ("/api/v0/models", "data", LM_STUDIO),
    ("/info", "max_total_tokens", TGI),
    ("/v1/internal/model/info", "model_name", WEB_UI),
)

_LIMITS: Mapping[str, tuple[str, tuple[str, str] | None, str, str]] = {  # page, list of models there and their name's field, context, slots
    LLAMA_CPP.name: ("/props", None, "default_generation_settings.n_ctx", "total_slots"),
    OLLAMA.name: ("/api/ps", ("models", "name"), "context_length", ""),
    LM_STUDIO.name: ("/api/v0/models", ("data", "id"), "loaded_context_length", ""),
    TGI.name: ("/info", None, "max_total_tokens", "max_concurrent_requests"),
}


def recognize(pages: Pages, model: str, *, is_cloud: bool, known: Dialect | None = None) -> Server:
    """Return the server that has a model, from its list of models and its own pages. OpenAI's cloud has no such pages.

    ``known`` is the dialect of a server that need not be recognised.
    """
    models = pages.models()
    about = next((entry for entry in models if entry.get("id") == model), models[0] if len(models) == 1 else {})
    context = _positive(about.get("max_model_len")) or _positive((about.get("meta") or {}).get("n_ctx"))
    dialect = known or next((_OWNERS[entry["owned_by"]] for entry in [about, *models] if entry.get("owned_by") in _OWNERS), None)
    if is_cloud:
        return Server(OPENAI, context)
    if dialect in (None, OPENAI):  # a proxy in front of another server names OpenAI, too
        dialect = _by_page(pages) or dialect or UNKNOWN
    own_context, slots = own_limits(dialect, pages, model)
    return Server(dialect, context or own_context, slots)


def own_limits(dialect: Dialect, pages: Pages, model: str) -> tuple[int | None, int | None]:
    """Return context and number of slots from a server's own page; None: unknown. Ollama's context is that with which a model is loaded."""
    if dialect.name not in _LIMITS:
        return None, None
    path, models, context, slots = _LIMITS[dialect.name]
    about: object = pages.page(path) or {}
    if models is not None:
        entries, names = _at(about, models[0]), {model, f"{model}:latest"}
        named = (entry for entry in entries if _at(entry, models[1]) in names) if isinstance(entries, list) else iter(())
        about = next(named, {})
    return _positive(_at(about, context)), _positive(_at(about, slots))


def _by_page(pages: Pages) -> Dialect | None:
    return next((dialect for path, name, dialect in _PAGES if name in (pages.page(path) or {})), None)


def _at(value: object, path: str) -> object:
    """Return the value at a path of fields; None if there is none."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
