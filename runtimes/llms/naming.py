"""Names of language models: ``[ROLE=]BACKEND:MODEL[@URL[,URL]]``, or the name of an embedded model.

    openai:gpt-4.1-mini      openai:qwen@http://127.0.0.1:8000/v1      hf:/checkpoints/llama      vllm:org/model      scripted:answers.jsonl
    smollm2      ./mine.py:BACKEND:model

A model with a role serves only that role; a model without a role serves all remaining roles. Options of models that idx runs are
``[ROLE.]NAME=VALUE``, for all of them or for that of one role.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from wikidx.base.errors import InputError
from wikidx.base.plugins import PlugIn, find, is_reference, plug, plug_in_names
from wikidx.base.registry import unknown_name_error
from wikidx.runtimes.assignments import parse_assignments

from .base import LLM
from .cache import CachedLLM, ReplyCache
from .embedded import EMBEDDED
from .options import VLLM_SHARES, ConnectionOptions, EngineOptions, LlamaCppOptions, parse_json_or_text
from .prompts import Thinking

_EMBEDDED_BACKEND = "hf"
_FORM = re.compile(r"(?:(?P<role>[a-z_]+)=)?(?P<backend>[a-z][a-z0-9_-]*):(?P<model>.+?)(?:@(?P<url>https?://.+))?", re.DOTALL)
_EMBEDDED_FORM = re.compile(r"(?:(?P<role>[a-z_]+)=)?(?P<name>[\w.-]+)")
_REFERENCE = re.compile(r"(?:(?P<role>[a-z_]+)=)?(?P<place>[^:]+):(?P<value>[A-Za-z_]\w*)(?::(?P<model>.+))?", re.DOTALL)
_OPTION = re.compile(r"(?:(?P<role>[a-z_]+)\.)?(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_SET_APART = {"model": "--llm", "device": "--device", "thinking": "--thinking"}  # option of a model -> option of the command for it


class ModelSpec(NamedTuple):
    """A model as named by the user.

    Attributes:
        role: the role that the model serves; None: all roles without a model of their own.
        url: the URL of an endpoint, or those of its replicas, separated by commas; None: the backend's default.
        options: ``(name, value)`` of the options of a model that idx runs, values as the user wrote them.
    """

    role: str | None
    backend: str
    model: str
    url: str | None
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        """Return the model as the user names it, without its role."""
        return self.backend + (f":{self.model}" if self.model else "") + (f"@{self.url}" if self.url else "")

    @property
    def is_stand_in(self) -> bool:
        """True for the model of a rehearsal, which no backend opens."""
        return self == STAND_IN


STAND_IN = ModelSpec(None, "stand-in", "", None)


class Backend(NamedTuple):
    """A backend of language models.

    Attributes:
        open: function that opens a model.
        kind: "endpoint": models at a URL, whose replies can be cached; "checkpoint": models that idx runs; "script": files of answers;
            "plug-in": models of the user's own code.
        options: dataclass of the options of a checkpoint; None: the backend's library checks them.
        neutral: names of options that do not affect the results.
    """

    open: Callable[[ModelSpec, Settings], LLM]
    kind: Literal["endpoint", "checkpoint", "script", "plug-in"]
    options: type | None = None
    neutral: frozenset[str] = frozenset()


class Settings(NamedTuple):
    """Settings shared by all models of a run.

    Attributes:
        connection: options of endpoints.
        cache: cache of the endpoints' replies; None: replies are not cached.
        device: device of ``hf`` checkpoints.
        thinking: way of thinking of calls that name none.
        n_later: number of models that will be opened after this one.
    """

    connection: ConnectionOptions = ConnectionOptions()
    cache: ReplyCache | None = None
    device: str = "auto"
    thinking: Thinking = "off"
    n_later: int = 0


def parse_spec(text: str) -> ModelSpec:
    """Parse ``[ROLE=]BACKEND:MODEL[@URL]``, or ``[ROLE=]NAME`` for an embedded model, which the backend ``hf`` opens.

    Raises:
        InputError: the text does not have this form, or has a URL although the backend is not an endpoint.
        UnknownNameError: the backend is unknown.
    """
    if (plugged := _parse_plugged(text)) is not None:
        return plugged
    embedded = _EMBEDDED_FORM.fullmatch(text)
    if embedded is not None and embedded["name"] in EMBEDDED:
        return ModelSpec(embedded["role"], _EMBEDDED_BACKEND, embedded["name"], None)
    form = _FORM.fullmatch(text)
    if form is None:
        raise InputError(
            f"{text!r} names no language model: use [ROLE=]BACKEND:MODEL[@URL], such as openai:qwen@http://127.0.0.1:8000/v1, "
            f"or the embedded model {', '.join(EMBEDDED)}"
        )
    spec = ModelSpec(form["role"], form["backend"], form["model"], form["url"])
    kind = find_backend(spec.backend).kind
    if spec.url is not None and kind != "endpoint":
        raise InputError(f"{text!r} has an address, but the backend {spec.backend} takes none: leave @{spec.url} out")
    # Behind @ is an address, unless it is a version of the model as in name@20240620.
    if kind == "endpoint" and not spec.url and (place := re.search(r".@(localhost|[^@]*[.:/][^@]*)$", spec.model)):
        raise InputError(f"{text!r} has an address without its http://: write @http://{place[1]}; a name with @ needs @URL behind it")
    return spec


def _parse_plugged(text: str) -> ModelSpec | None:
    """Parse ``[ROLE=]FILE.py:VALUE[:MODEL]``, the same with a module, or ``[ROLE=]NAME`` of a plug-in; None: it is none."""
    named = _EMBEDDED_FORM.fullmatch(text)
    if named is not None and named["name"] in plug_in_names("backend"):
        return ModelSpec(named["role"], named["name"], "", None)
    form = _REFERENCE.fullmatch(text)
    if form is None or form["place"] in (*BACKENDS, *plug_in_names("backend")):
        return None
    reference = f"{form['place']}:{form['value']}"
    is_module = is_reference(reference) and find_spec(form["place"].partition(".")[0]) is not None
    if not form["place"].endswith(".py") and not is_module:
        return None
    return ModelSpec(form["role"], plug(reference, "backend").name, form["model"] or "", None)


def open_llms(chosen: Mapping[str, ModelSpec], settings: Settings = Settings()) -> dict[str, LLM]:  # noqa: B008 - immutable
    """Open the model of each role. A model shared by several roles is opened once.

    vLLM is last, because it takes what is free of the GPU's memory, and first of all that with a share of its own.

    Raises:
        InputError, LLMError, MissingExtraError: a model cannot be opened.
    """
    opened: dict[ModelSpec, LLM] = {}
    try:
        waiting = sorted(dict.fromkeys(chosen.values()), key=_takes_memory)
        for number, spec in enumerate(waiting, start=1):
            opened[spec] = find_backend(spec.backend).open(spec, settings._replace(n_later=len(waiting) - number))
    except BaseException:
        close_llms(opened.values())
        raise
    return {role: opened[spec] for role, spec in chosen.items()}


def _takes_memory(spec: ModelSpec) -> tuple[bool, bool]:
    """Return whether a model takes a GPU's free memory, and whether all that others leave."""
    is_vllm = spec.backend == "vllm"
    return is_vllm, is_vllm and not VLLM_SHARES & dict(spec.options).keys()


def close_llms(llms: Iterable[LLM]) -> None:
    """Close models, each once."""
    for llm in {id(llm): llm for llm in llms}.values():
        llm.close()


def assign_models(
    specs: Sequence[str], roles: Iterable[str], default: ModelSpec | None = None, options: Iterable[str] = ()
) -> dict[str, ModelSpec]:
    """Return role -> specification of its model. The role is removed from the specification, so that roles may share a model.

    Args:
        specs: models as named by the user.
        roles: all roles of the method.
        default: the model of the roles to which ``specs`` assign no model; None: every role must have a model.
        options: options of models that idx runs, ``[ROLE.]NAME=VALUE``.

    Raises:
        InputError: a specification or an option is malformed, a role has two models or none, or a model takes no options.
        UnknownNameError: a role, a backend or an option is unknown.
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
    assigned = {role: (by_role[role] if role in by_role else by_role[None])._replace(role=None) for role in known}
    return _set_options(assigned, options)


def _set_options(specs: Mapping[str, ModelSpec], assignments: Iterable[str]) -> dict[str, ModelSpec]:
    """Return role -> specification with the options of its model; those of a role override those of all models that idx runs."""
    values: dict[tuple[str | None, str], str] = {}
    for text in assignments:
        form = _OPTION.fullmatch(text)
        if form is None:
            raise InputError(f"{text!r} sets no option of a model: write NAME=VALUE, or ROLE.NAME=VALUE for the model of one role")
        if form["role"] is not None and form["role"] not in specs:
            raise unknown_name_error("role", form["role"], specs)
        if (form["role"], form["name"]) in values:
            raise InputError(f"the option '{text.partition('=')[0]}' of a model is set twice")
        values[form["role"], form["name"]] = form["value"]
    chosen = {role: dict[str, str]() for role in specs}
    for (of_role, name), value in sorted(values.items(), key=lambda item: item[0][0] or ""):
        for role in _roles_with_options(specs, of_role, name):
            chosen[role][name] = value
    completed = {role: spec._replace(options=tuple(sorted(chosen[role].items()))) for role, spec in specs.items()}
    for spec in completed.values():
        parse_model_options(spec)
    return completed


def _roles_with_options(specs: Mapping[str, ModelSpec], role: str | None, name: str) -> list[str]:
    """Return the roles whose models an option concerns: the given one, or all with a model that idx runs."""
    kinds = {each: find_backend(spec.backend).kind for each, spec in specs.items() if role in (None, each) and not spec.is_stand_in}
    local = [each for each, kind in kinds.items() if kind == "checkpoint"]
    if kinds and not local:
        spec, kind = specs[next(iter(kinds))], next(iter(kinds.values()))
        if kind == "endpoint":
            raise InputError(f"{spec} is no model that idx runs, and has no option '{name}': --extra-body sets fields of its requests")
        raise InputError(f"{spec} has no options: leave --llm-option {name} out")
    return local


def parse_model_options(spec: ModelSpec) -> dict[str, Any]:
    """Return the options of a model that idx runs as values.

    Raises:
        InputError: a value is invalid, or an option of the command sets it.
        UnknownNameError: an option is unknown.
    """
    apart = next((name for name, _ in spec.options if name in _SET_APART), None)
    if apart is not None:
        raise InputError(f"--llm-option cannot set '{apart}': {_SET_APART[apart]} does")
    type_ = None if spec.is_stand_in else find_backend(spec.backend).options
    if type_ is None:
        return {name: parse_json_or_text(value) for name, value in spec.options}
    texts = [f"{name}={value}" for name, value in spec.options]
    options: Any = parse_assignments(type_, texts, noun=f"option of {spec.backend}", excluded=_SET_APART)
    return {name: getattr(options, name) for name, _ in spec.options}


def _openai(spec: ModelSpec, settings: Settings) -> LLM:
    from .openai_model import OpenAIHttp
    from .replicas import Replicas, split_urls

    options = dataclasses.replace(settings.connection, thinking=settings.thinking)
    urls = split_urls(spec.url) if spec.url else []
    llm: LLM
    if len(urls) <= 1:
        llm = OpenAIHttp(spec.model, spec.url, options=options)
    else:
        once = dataclasses.replace(options, retries=min(1, options.retries))  # then another replica is asked
        llm = Replicas(str(spec), [OpenAIHttp(spec.model, url, options=once) for url in urls], options)
    # Prompts are cut to the context, so replies depend on it.
    others = {"context": options.context, "thinking": options.thinking, "extra": dict(options.extra_body) or None}
    differing = [f"{name} {json.dumps(value)}" for name, value in others.items() if value not in (None, "off")]
    return llm if settings.cache is None else CachedLLM(llm, settings.cache, " ".join([llm.name, *differing]))


def _hf(spec: ModelSpec, settings: Settings) -> LLM:
    from .scoring import ScoringEngine, scores_texts
    from .transformers_engine import TransformersEngine

    options = EngineOptions(**parse_model_options(spec), device=settings.device, thinking=settings.thinking)
    engine = ScoringEngine if scores_texts(spec.model, options.revision) else TransformersEngine
    return engine(spec.model, options=options)


def _llamacpp(spec: ModelSpec, settings: Settings) -> LLM:
    from .llamacpp_server import LlamaCpp

    options = LlamaCppOptions(**parse_model_options(spec), device=settings.device, thinking=settings.thinking)
    return LlamaCpp(spec.model, options=options)


def _vllm(spec: ModelSpec, settings: Settings) -> LLM:
    from .vllm_server import Vllm

    return Vllm(spec.model, thinking=settings.thinking, options=parse_model_options(spec), n_later=settings.n_later)


def _scripted(spec: ModelSpec, settings: Settings) -> LLM:
    from .scripted import ScriptedLLM, read_script

    return ScriptedLLM(read_script(Path(spec.model)), name=f"scripted:{spec.model}")


_VLLM_NEUTRAL = frozenset(
    {
        "cpu_offload_gb",
        "data_parallel_size",
        "disable_log_stats",
        "distributed_executor_backend",
        "download_dir",
        "enable_chunked_prefill",
        "enable_prefix_caching",
        "enforce_eager",
        "gpu_memory_utilization",
        "kv_cache_memory_bytes",
        "max_num_batched_tokens",
        "max_num_seqs",
        "pipeline_parallel_size",
        "tensor_parallel_size",
    }
)


def _plugged(plugged: PlugIn) -> Backend:
    """Return a backend that is a plug-in."""

    def open_plugged(spec: ModelSpec, settings: Settings) -> LLM:
        from .plugged import PluggedLLM

        return PluggedLLM(plugged, spec.model, settings.device)

    return Backend(open_plugged, "plug-in")


BACKENDS = {
    "openai": Backend(_openai, "endpoint"),
    "hf": Backend(_hf, "checkpoint", EngineOptions, neutral=frozenset({"batch_tokens"})),
    "llamacpp": Backend(_llamacpp, "checkpoint", LlamaCppOptions, neutral=frozenset({"slots", "threads"})),
    "vllm": Backend(_vllm, "checkpoint", neutral=_VLLM_NEUTRAL),
    "scripted": Backend(_scripted, "script"),
}


def find_backend(name: str) -> Backend:
    """Return the backend of a name, of idx or of a plug-in.

    Raises:
        UnknownNameError: no backend has this name.
        InputError: see ``wikidx.base.plugins.find``.
    """
    backend: Backend = find("backend", name, BACKENDS, _plugged)
    return backend
