"""bm25s with its numba backend: given the project's terms, and with its own tokenizer, which has other stop words and stems.

With given terms, its time covers only ``retrieve``, from lists of terms to arrays; analysis of the questions is excluded, in its
favour. Its lengths are exact, whereas Lucene stores one byte, so that its scores are close to Lucene's, not equal.

With its own tokenizer its time starts from strings, as in its README: English stop words, and PyStemmer's stems if that is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engines.embedded import require
from benchmarks.engines.kinds import NAME, Kind
from tests.lucene.oracle import K1, B, contents
from wikidx.corpora.build import open_store
from wikidx.indexer.analysis import TermNumbers, english
from wikidx.indexer.base import NO_ROW, Hits

_FOLDER, _STRINGS_FOLDER = "bm25s", "bm25s-strings"
_BATCH = 4096

RawHits = tuple[Any, Any]  # rows and scores, both of shape (Q, k)


class _Index:
    """A loaded index."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._index = _package().BM25.load(folder, show_progress=False)
        self._threads = threads

    def retrieve(self, terms: Any, k: int) -> RawHits:  # noqa: ANN401 - lists of terms, or what its tokenizer returns
        depth = min(k, self._index.scores["num_docs"])  # larger k are refused
        results = self._index.retrieve(terms, k=depth, n_threads=self._threads, show_progress=False)
        return results.documents, results.scores


class BM25SEngine:
    """An index searched with given terms."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._index = _Index(folder / _FOLDER, threads)
        self._terms: list[list[str]] = []

    def set_questions(self, questions: Sequence[str]) -> None:
        """Store the terms of the questions."""
        self._terms = [english(question) for question in questions]

    def batch(self, span: slice, k: int) -> RawHits:
        """Retrieve for several questions in one batch."""
        return self._index.retrieve(self._terms[span], k)

    def single(self, number: int, k: int) -> RawHits:
        """Retrieve for one question."""
        return self._index.retrieve([self._terms[number]], k)

    def hits(self, n: int, k: int) -> Hits:
        """Return the results of ``batch``."""
        return _hits(self.batch(slice(n), k))

    exhaustive = hits  # there is no other search


class BM25SStringsEngine:
    """An index searched with questions."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._index = _Index(folder / _STRINGS_FOLDER, threads)
        self._tokenize = _tokenizer()
        self._questions: list[str] = []

    def set_questions(self, questions: Sequence[str]) -> None:
        """Store the questions unchanged."""
        self._questions = list(questions)

    def batch(self, span: slice, k: int) -> RawHits:
        """Tokenise several questions and retrieve for them in one batch."""
        return self._index.retrieve(self._tokenize(self._questions[span]), k)

    def single(self, number: int, k: int) -> RawHits:
        """Tokenise one question and retrieve for it."""
        return self._index.retrieve(self._tokenize([self._questions[number]]), k)

    def hits(self, n: int, k: int) -> Hits:
        """Return the results of ``batch``."""
        return _hits(self.batch(slice(n), k))

    exhaustive = hits  # there is no other search


def _hits(found: RawHits) -> Hits:
    """Return the results without rows of score 0, which have no term of the question."""
    rows, scores = found
    is_found = scores > 0
    return Hits(np.where(is_found, rows, NO_ROW).astype(np.int64), np.where(is_found, scores, -np.inf).astype(np.float32))


def _tokenizer() -> Callable[[list[str]], Any]:
    """Return the package's tokenizer."""
    stemmer = importlib.import_module("Stemmer").Stemmer("english") if has_stemmer() else None
    return partial(_package().tokenize, stopwords="en", stemmer=stemmer, show_progress=False)


def has_stemmer() -> bool:
    """Return whether PyStemmer is installed, bm25s's optional stemmer."""
    return importlib.util.find_spec("Stemmer") is not None


def _build(folder: Path, _threads: int) -> Path:
    """Analyse, index and save, on one thread."""
    return _save(_number_terms(), folder / _FOLDER)


def _build_of_strings(folder: Path, _threads: int) -> Path:
    """Tokenise, index and save."""
    return _save(_tokenizer()([contents(passage) for passage in open_store(NAME).read()]), folder / _STRINGS_FOLDER)


def _save(terms: Any, folder: Path) -> Path:  # noqa: ANN401 - as ``_Index.retrieve`` takes them
    index = _package().BM25(method="lucene", k1=K1, b=B, backend="numba")
    index.index(terms, show_progress=False)
    index.save(folder, show_progress=False)
    return folder


def _number_terms() -> tuple[list[list[int]], dict[str, int]]:
    """Return the numbers of every passage's terms, and each term's number.

    Equal numbers are one object, as in the package's own tokenizer: otherwise they would take five times the memory.
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


_check = partial(require, "bm25s", "bench")

BM25S = Kind(build=_build, open=BM25SEngine, load=_package, check=_check)
BM25S_STRINGS = Kind(build=_build_of_strings, open=BM25SStringsEngine, load=_package, check=_check)
