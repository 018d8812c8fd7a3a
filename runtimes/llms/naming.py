"""Names of language models: ``[ROLE=]BACKEND:MODEL[@URL]``.

    openai:gpt-4.1-mini      openai:qwen@http://127.0.0.1:8000/v1      hf:/checkpoints/llama      vllm:org/model      scripted:answers.jsonl

A model with a role serves only that role; a model without a role serves all remaining roles.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from wikidx.corpora.errors import InputError
from wikidx.corpora.registry import unknown_name_error

from .base import LLM, Thinking
from .cache import ReplyCache
from .options import ConnectionOptions, EngineOptions

_FORM = re.compile(r"(?:(?P<role>[a-z_]+)=)?(?P<backend>[a-z]+):(?P<model>.+?)(?:@(?P<url>https?://.+))?", re.DOTALL)


class ModelSpec(NamedTuple):
    """A model as named by the user.

    Attributes:
        role: the role that the model serves; None: all roles without a model of their own.
        url: the URL of an endpoint; None: the backend's default.
    """

    role: str | None
    backend: str
    model: str
    url: str | None


class Backend(NamedTuple):
    """A backend of language models.

    Attributes:
        open: function that opens a model.
        kind: "endpoint": models at a URL, whose replies can be cached; "checkpoint": models in this process; "script": files of answers.
    """

    open: Callable[[ModelSpec, Settings], LLM]
    kind: Literal["endpoint", "checkpoint", "script"]


class Settings(NamedTuple):
    """Settings shared by all models of a run.

    Attributes:
        connection: options of endpoints.
        cache: cache of the endpoints' replies; None: replies are not cached.
        device: device of ``hf`` checkpoints.
        thinking: way of thinking of calls that name none.
    """

    connection: ConnectionOptions = ConnectionOptions()
    cache: ReplyCache | None = None
    device: str = "auto"
    thinking: Thinking = "off"


def parse_spec(text: str) -> ModelSpec:
    """Parse ``[ROLE=]BACKEND:MODEL[@URL]``.

    Raises:
        InputError: the text does not have this form, or has a URL although the backend is not an endpoint.
        UnknownNameError: the backend is unknown.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise InputError(f"{text!r} names no language model: use [ROLE=]BACKEND:MODEL[@URL], such as openai:qwen@http://127.0.0.1:8000/v1")
    spec = ModelSpec(form["role"], form["backend"], form["model"], form["url"])
    if spec.backend not in BACKENDS:
        raise unknown_name_error("backend", spec.backend, BACKENDS)
    if spec.url is not None and BACKENDS[spec.backend].kind != "endpoint":
        raise InputError(f"{text!r} has an address, but the backend {spec.backend} takes none: leave @{spec.url} out")
    return spec


def open_llms(chosen: Mapping[str, ModelSpec], settings: Settings = Settings()) -> dict[str, LLM]:  # noqa: B008 - immutable
    """Open the model of each role. A model shared by several roles is opened once.

    Raises:
        InputError, LLMError, MissingExtraError: a model cannot be opened.
    """
    opened: dict[ModelSpec, LLM] = {}
    try:
        for spec in dict.fromkeys(chosen.values()):
            opened[spec] = BACKENDS[spec.backend].open(spec, settings)
    except BaseException:
        close_llms(opened.values())
        raise
    return {role: opened[spec] for role, spec in chosen.items()}


def close_llms(llms: Iterable[LLM]) -> None:
    """Close models, each once."""
    for llm in {id(llm): llm for llm in llms}.values():
        llm.close()


def assign_models(specs: Sequence[str], roles: Iterable[str], default: ModelSpec | None = None) -> dict[str, ModelSpec]:
    """Return role -> specification of its model. The role is removed from the specification, so that roles may share a model.

    Args:
        specs: models as named by the user.
        roles: all roles of the method.
        default: the model of the roles to which ``specs`` assign no model; None: every role must have a model.

    Raises:
        InputError: a specification is malformed, or a role has two models or none.
        UnknownNameError: a role or a backend is unknown.
    """
    known = list(roles)
    by_role: dict[str | None, ModelSpec] = {}
    for text in specs:
        spec = parse_spec(text)
        if spec.role is not None and spec.role not in known:
            raise unknown_name_error("role", spec.role, known)
        if spec.role in by_role:
            raise InputError(f"{'the role ' + repr(spec.role) if spec.role else 'every role'} is given to two models, the second {text!r}")
        by_role[spec.role] = spec
    if default is not None:
        by_role.setdefault(None, default)
    missing = [role for role in known if role not in by_role and None not in by_role]
    if missing:
        raise InputError(
            f"no model for {', '.join(map(repr, missing))}: add --llm BACKEND:MODEL, or --llm {missing[0]}=BACKEND:MODEL, "
            "such as openai:qwen@http://127.0.0.1:8001/v1"
        )
    return {role: (by_role[role] if role in by_role else by_role[None])._replace(role=None) for role in known}


def _openai(spec: ModelSpec, settings: Settings) -> LLM:
    from .openai_http import OpenAIHttp

    options = dataclasses.replace(settings.connection, thinking=settings.thinking)
    return OpenAIHttp(spec.model, spec.url, options=options, cache=settings.cache)


def _hf(spec: ModelSpec, settings: Settings) -> LLM:
    from .transformers_engine import TransformersEngine

    return TransformersEngine(spec.model, options=EngineOptions(device=settings.device, thinking=settings.thinking))


def _vllm(spec: ModelSpec, settings: Settings) -> LLM:
    from .vllm_engine import VllmEngine

    return VllmEngine(spec.model, thinking=settings.thinking)


def _scripted(spec: ModelSpec, settings: Settings) -> LLM:
    from .scripted import ScriptedLLM, read_script

    return ScriptedLLM(read_script(Path(spec.model)), name=f"scripted:{spec.model}")


BACKENDS: Mapping[str, Backend] = {
    "openai": Backend(_openai, "endpoint"),
    "hf": Backend(_hf, "checkpoint"),
    "vllm": Backend(_vllm, "checkpoint"),
    "scripted": Backend(_scripted, "script"),
}
