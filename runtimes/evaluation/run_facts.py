"""Reading and validation of ``run.json``, and the settings of a run that tables of results show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, NamedTuple

from wikidx.base.artifacts.durable import parse_json
from wikidx.base.errors import ArtifactCorrupt
from wikidx.runtimes.execution.runs import PREDICTIONS, RUN
from wikidx.runtimes.llms.json_shape import EACH, find_mismatch
from wikidx.runtimes.llms.naming import BACKENDS, find_backend

_SHAPE: Mapping[str, Any] = {
    "settings": {
        "questions": {"sha256": str, "n": int, "protocol": str, "sample": {"n": int, "seed": int}},
        "models": {EACH: {}},
        "options": {EACH: {}},
        "search": {},
        "metrics": {EACH: {}},
    },
    "sessions": [{"questions": int, "source": {"file": str, "format": str}, "models": [str], "seconds": int | float}],
}
"""Types of the fields of ``run.json`` that are read. All except ``settings`` and ``sessions`` may be absent, or null for unknown."""


class RunFacts(NamedTuple):
    """Settings of a run for display, as recorded in ``run.json``. An empty text means unknown or unused.

    Attributes:
        model: the language model; if roles have different models, each role with its model.
        retriever: the retriever and, if used, the reranker.
        k: number of passages per search.
        answered_by: the models that answered, as their endpoints name them, unless it is the name of ``model``.
    """

    method: str = ""
    model: str = ""
    retriever: str = ""
    corpus: str = ""
    seed: str = ""
    k: str = ""
    answered_by: str = ""


def read_run_json(folder: Path) -> Mapping[str, Any]:
    """Return the content of ``run.json`` in a run's folder; an empty mapping if the file does not exist.

    Raises:
        ArtifactCorrupt: the file is not JSON, or not in the form that ``idx run`` writes.
    """
    file = folder / RUN
    if not file.is_file():
        return MappingProxyType({})
    try:
        run_json = parse_json(file.read_bytes())
    except ValueError as error:
        raise _corrupt(file, str(error)) from error
    problem = find_mismatch(run_json, _SHAPE, "it") or next((f"it has no '{name}'" for name in _SHAPE if run_json.get(name) is None), None)
    if problem is not None:
        raise _corrupt(file, problem)
    return MappingProxyType(run_json)


def _corrupt(file: Path, why: str) -> ArtifactCorrupt:
    return ArtifactCorrupt(
        f"{file} cannot be read ({why}): restore it, remove its folder to make the run anew, or have idx eval read {PREDICTIONS} alone"
    )


def run_facts(run_json: Mapping[str, Any]) -> RunFacts:
    """Return the facts of a run from the content of its ``run.json``."""
    settings = run_json.get("settings") or {}
    search = settings.get("search") or {}
    models = {role: _model(model) for role, model in (settings.get("models") or {}).items()}
    is_single = len(set(models.values())) == 1
    model = next(iter(models.values())) if is_single else ", ".join(f"{role}: {name}" for role, name in models.items())
    reranker = search.get("reranker")
    retriever = str(search.get("retriever") or "") + (f", reranked by {reranker}" if reranker else "")
    k = (settings.get("options") or {}).get("k") or {}
    method, corpus = str(settings.get("method") or ""), str(search.get("corpus") or "")
    answered_by = ", ".join(sorted({name for session in run_json.get("sessions") or () for name in session.get("models") or ()} - {model}))
    return RunFacts(method, model, retriever, corpus, str(settings.get("seed", "")), str(k.get("value", "")), answered_by)


def wall_seconds(run_json: Mapping[str, Any]) -> float:
    """Return the duration of a run, summed over its starts; NaN if a start does not record it."""
    sessions = run_json.get("sessions") or ()
    return float(sum(session.get("seconds", math.nan) for session in sessions)) if sessions else math.nan


def _model(metadata: Mapping[str, Any]) -> str:
    name, backend = str(metadata.get("model") or metadata.get("backend") or ""), str(metadata.get("backend") or "")
    is_file = backend in BACKENDS and find_backend(backend).kind != "endpoint" and PurePath(name).is_absolute()
    return f"{backend}:{PurePath(name).name}" if is_file else name
