"""What a run was made with, in a line: for tables of results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

from wikidx.runtimes.evaluation.asked import Asked
from wikidx.runtimes.evaluation.published import dataset_of
from wikidx.runtimes.llms.naming import BACKENDS


class RunFacts(NamedTuple):
    """What decides a run's answers, as far as ``run.json`` tells it; empty: unknown, or there is none.

    Attributes:
        method: its name.
        model: the language model; several by role, if they differ.
        retriever: with the reranker.
        corpus: by its name.
        seed: of the run.
        k: passages a search.
    """

    method: str = ""
    model: str = ""
    retriever: str = ""
    corpus: str = ""
    seed: str = ""
    k: str = ""


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


def dataset_name(asked: Asked) -> str:
    """Return what a run's questions are called: a dataset as the papers name it, otherwise their file without its ending."""
    return dataset_of(asked.file) or PurePath(asked.file).name.partition(".")[0] or "questions"


def _model(about: Mapping[str, Any]) -> str:
    name, backend = str(about.get("model") or about.get("backend") or ""), str(about.get("backend") or "")
    is_file = backend in BACKENDS and not BACKENDS[backend].takes_url and PurePath(name).is_absolute()
    return f"{backend}:{PurePath(name).name}" if is_file else name
