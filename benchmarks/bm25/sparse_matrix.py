"""bm25s with its numba backend and the project's terms: its own tokenizer has other stop words and stems, and is slower.

Its time is that of ``retrieve`` alone, from lists of terms to arrays; the analysis of the questions is not counted, in its favour. Its
lengths are exact, where Lucene keeps one byte, so that its scores are near Lucene's and not equal to them.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bm25.engines import NAME, Kind
from corpora.build import open_store
from corpora.errors import MissingExtraError
from indexer.analysis import TermNumbers, english
from indexer.base import NO_ROW, Hits
from indexer.indexes.lucene_build import contents
from indexer.indexes.lucene_reader import K1, B

_FOLDER = "bm25s"
_BATCH = 4096


class BM25SEngine:
    """A loaded index."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._index = _package().BM25.load(folder / _FOLDER, show_progress=False)
        self._threads = threads
        self._terms: list[list[str]] = []

    def ask(self, questions: Sequence[str]) -> None:
        """Keep the terms of the questions."""
        self._terms = [english(question) for question in questions]

    def batch(self, n: int, k: int) -> tuple[Any, Any]:
        """Retrieve for n questions at once: rows and scores, both of shape (n, k)."""
        return self._retrieve(self._terms[:n], k)

    def single(self, number: int, k: int) -> tuple[Any, Any]:
        """Retrieve for one question."""
        return self._retrieve([self._terms[number]], k)

    def hits(self, n: int, k: int) -> Hits:
        """Return what ``batch`` finds; its rows of score 0, which have no term of the question, are left out."""
        rows, scores = self.batch(n, k)
        found = scores > 0
        return Hits(np.where(found, rows, NO_ROW).astype(np.int64), np.where(found, scores, -np.inf).astype(np.float32))

    def _retrieve(self, terms: list[list[str]], k: int) -> tuple[Any, Any]:
        depth = min(k, self._index.scores["num_docs"])  # it refuses more
        found = self._index.retrieve(terms, k=depth, n_threads=self._threads, show_progress=False)
        return found.documents, found.scores


def _build(folder: Path, _threads: int) -> Path:
    """Analyse, index and save; it builds on one thread."""
    index = _package().BM25(method="lucene", k1=K1, b=B, backend="numba")
    index.index(_numbered(), show_progress=False)
    index.save(folder / _FOLDER, show_progress=False)
    return folder / _FOLDER


def _numbered() -> tuple[list[list[int]], dict[str, int]]:
    """Return the numbers of every passage's terms, and each term's number.

    Equal numbers are one object, as in what the package's own tokenizer makes: otherwise they would take five times the memory.
    """
    numbering = TermNumbers()
    passages = open_store(NAME).read()
    objects = np.empty(0, dtype=np.object_)
    numbered: list[list[int]] = []
    while texts := [contents(passage) for passage in islice(passages, _BATCH)]:
        numbers, ends = numbering.add(texts)
        objects = np.append(objects, np.arange(len(objects), len(numbering)).astype(np.object_))
        numbered += [part.tolist() for part in np.split(objects[numbers], ends[:-1])]
    return numbered, {term: number for number, term in enumerate(numbering.table().terms())}


def _package() -> Any:  # noqa: ANN401 - a module without types
    return importlib.import_module("bm25s")


def _check() -> None:
    if importlib.util.find_spec("bm25s") is None:
        raise MissingExtraError("bm25s", "bench")


BM25S = Kind(build=_build, open=BM25SEngine, load=_package, check=_check)
