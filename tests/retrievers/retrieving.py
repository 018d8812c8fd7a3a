"""Retrievers that tests change or watch, and homes and corpora made in a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import corpus_of
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.passage import Passage, Rows
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, Scores, SearchParam, SearchParams, empty_hits
from wikidx.indexer.build import build_index
from wikidx.retrievers.base import Retriever
from wikidx.retrievers.opening import OpenRetriever, open_retriever


@contextmanager
def at_home(folder: Path) -> Iterator[Path]:
    """Use a data home within a with block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(folder))
        yield folder


def build_corpus(name: str, passages: Sequence[Passage], *indexes: str) -> PassageStore:
    """Build a corpus and its indexes, and open its store."""
    build_store(corpus_of(passages, name), StoreOptions())
    store = open_store(name)
    for index in indexes:
        build_index(name, index, store)
    return store


class Forwarding:
    """A retriever that forwards to another."""

    def __init__(self, retriever: Retriever) -> None:
        self.retriever = retriever
        self.parameters: Mapping[str, SearchParam] = retriever.parameters

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        return self.retriever.retrieve(queries, depth, params)

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        return self.retriever.rescore(queries, rows)


def opener_of(wrap: Callable[[Retriever], Retriever]) -> OpenRetriever:
    """Return an opener of retrievers, each within another."""

    def open_wrapped(corpus: str, name: str, store: PassageStore, *, device: str) -> Retriever:
        return wrap(open_retriever(corpus, name, store, device=device))

    return open_wrapped


class ByDigits:
    """A retriever that finds, for a query of digits, those rows in that order with scores from 10 on, and records its calls."""

    def __init__(self, *parameters: str) -> None:
        self.parameters: Mapping[str, SearchParam] = {name: SearchParam(1, 10) for name in parameters}
        self.asked: list[list[str]] = []
        self.depths: list[int] = []
        self.params: list[SearchParams] = []

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        self.asked.append(list(queries))
        self.depths.append(depth)
        self.params.append(params)
        hits = empty_hits(len(queries), depth)
        for line, query in enumerate(queries):
            found = query[:depth]
            hits.rows[line, : len(found)] = [int(digit) for digit in found]
            hits.scores[line, : len(found)] = 10 - np.arange(len(found))
        return hits

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        raise AssertionError("nobody asked for it")
