"""Reading of ``run.json`` for evaluation: validation, and the settings of a run for tables of results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, NamedTuple

from wikidx.corpora.artifacts.durable import json_value
from wikidx.corpora.errors import ArtifactDamaged
from wikidx.runtimes.execution.runs import PREDICTIONS, RUN
from wikidx.runtimes.llms.json_shape import EACH, misfit
from wikidx.runtimes.llms.naming import BACKENDS

_SHAPE: Mapping[str, Any] = {
    "settings": {
        "questions": {"sha256": str, "n": int, "protocol": str, "sample": {"n": int, "seed": int}},
        "models": {EACH: {}},
        "switches": {EACH: {}},
        "search": {},
    },
    "sessions": [{"questions": int, "source": {"file": str, "format": str}}],
}
"""The shape of the parts read; all but the first two names may be absent or null, that is, unknown."""


class RunFacts(NamedTuple):
    """The settings that decide a run's answers, as recorded in ``run.json``; empty: unknown or none.

    Attributes:
        method: its name.
        model: the language model; several by role, if they differ.
        retriever: with the reranker.
        corpus: by its name.
        seed: of the run.
        k: passages per search.
    """

    method: str = ""
    model: str = ""
    retriever: str = ""
    corpus: str = ""
    seed: str = ""
    k: str = ""


def read_run_json(folder: Path) -> Mapping[str, Any]:
    """Return ``run.json`` of a run's folder; empty if there is none.

    Raises:
        ArtifactDamaged: it is not JSON, or not in the form written by ``idx run``.
    """
    file = folder / RUN
    if not file.is_file():
        return MappingProxyType({})
    try:
        about = json_value(file.read_bytes())
    except ValueError as error:
        raise _damaged(file, str(error)) from error
    wrong = misfit(about, _SHAPE, "it") or next((f"it has no '{name}'" for name in _SHAPE if about.get(name) is None), None)
    if wrong is not None:
        raise _damaged(file, wrong)
    return MappingProxyType(about)


def _damaged(file: Path, why: str) -> ArtifactDamaged:
    return ArtifactDamaged(f"{file} cannot be read ({why}): restore it, or name the file {PREDICTIONS} alone")


def run_facts(about: Mapping[str, Any]) -> RunFacts:
    """Return the facts of a run from its ``run.json``."""
    settings = about.get("settings") or {}
    search = settings.get("search") or {}
    models = {role: _model(model) for role, model in (settings.get("models") or {}).items()}
    alike = len(set(models.values())) == 1
    model = next(iter(models.values())) if alike else ", ".join(f"{role}: {name}" for role, name in models.items())
    reranker = search.get("reranker")
    retriever = str(search.get("retriever") or "") + (f", reranked by {reranker}" if reranker else "")
    k = (settings.get("switches") or {}).get("k") or {}
    method, corpus = str(settings.get("method") or ""), str(search.get("corpus") or "")
    return RunFacts(method, model, retriever, corpus, str(settings.get("seed", "")), str(k.get("value", "")))


def _model(about: Mapping[str, Any]) -> str:
    name, backend = str(about.get("model") or about.get("backend") or ""), str(about.get("backend") or "")
    is_file = backend in BACKENDS and BACKENDS[backend].kind != "endpoint" and PurePath(name).is_absolute()
    return f"{backend}:{PurePath(name).name}" if is_file else name
