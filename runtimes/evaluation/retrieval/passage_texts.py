"""Texts of the passages that a run has found; its steps record their ids alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from wikidx.base.errors import IdxError
from wikidx.corpora.build import open_store
from wikidx.corpora.store import PassageStore
from wikidx.runtimes.questions import Question


class PassageTexts:
    """Texts by id: those of predictions, those given with questions, and those of the searched corpus if this machine has it.

    Args:
        run_json: the content of ``run.json``.
    """

    def __init__(self, run_json: Mapping[str, Any]) -> None:
        self._search: Mapping[str, Any] = (run_json.get("settings") or {}).get("search") or {}

    @cached_property
    def _store(self) -> PassageStore | None:
        """The store of the searched corpus; None if this machine does not have it."""
        with contextlib.suppress(IdxError, OSError):
            store = open_store(str(self._search.get("corpus") or ""))
            if store.fingerprint == (self._search.get("fingerprints") or {}).get("passages"):
                return store
        return None

    def recorded(self, passages: Iterable[Mapping[str, Any]], question: Question | None) -> dict[str, str]:
        """Return id -> text of the passages in a prediction, and of those given with its question."""
        given = {item.passage.id: item.passage.text for item in question.passages} if question else {}
        return given | {passage["id"]: passage["text"] for passage in passages if {"id", "text"} <= passage.keys()}

    def in_corpus(self, ids: Iterable[str]) -> dict[str, str]:
        """Return id -> text of the passages that the corpus has."""
        wanted = list(dict.fromkeys(ids))
        if not wanted or self._store is None:
            return {}
        rows = [row for row in self._store.rows_of(wanted).tolist() if row >= 0]
        return {passage.id: passage.text for passage in self._store.get_many(rows)}
