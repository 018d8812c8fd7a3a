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

from benchmarks.engines.kinds import K1, B, Engine, Kind, contents, require
from benchmarks.processes import NAME
from wikidx.corpora.build import open_store
from wikidx.indexer.analysis.english import TermNumbers, english
from wikidx.indexer.base import NO_ROW, Hits

_BATCH = 4096


class BM25SEngine(Engine):
    """An index in a folder, searched with given terms, or with questions."""

    is_exhaustive = True

    def __init__(self, name: str, folder: Path, threads: int) -> None:
        self._index = _package().BM25.load(folder / name, show_progress=False)
        self._threads, self._takes_terms = threads, name == "bm25s"
        self._tokenize = _tokenizer()

    def set_questions(self, questions: Sequence[str]) -> None:
        """Store the terms of the questions, or the questions unchanged."""
        self.questions = [english(question) for question in questions] if self._takes_terms else list(questions)

    def batch(self, span: slice, k: int) -> tuple[Any, Any]:
        """Retrieve for several questions in one batch."""
        depth = min(k, self._index.scores["num_docs"])  # larger k are refused
        terms = self.questions[span] if self._takes_terms else self._tokenize(self.questions[span])
        results = self._index.retrieve(terms, k=depth, n_threads=self._threads, show_progress=False)
        return results.documents, results.scores

    def to_hits(self, found: Any, n: int, k: int) -> Hits:  # noqa: ANN401 - rows and scores
        """Leave rows of score 0 out, which have no term of the question."""
        rows, scores = found
        is_found = scores > 0
        return Hits(np.where(is_found, rows, NO_ROW).astype(np.int64), np.where(is_found, scores, -np.inf).astype(np.float32))


def _tokenizer() -> Callable[[list[str]], Any]:
    """Return the package's tokenizer."""
    has_stemmer = importlib.util.find_spec("Stemmer") is not None
    stemmer = importlib.import_module("Stemmer").Stemmer("english") if has_stemmer else None
    return partial(_package().tokenize, stopwords="en", stemmer=stemmer, show_progress=False)


def _build(name: str, folder: Path, _threads: int) -> Path:
    """Analyse or tokenise, index and save, on one thread."""
    terms = _number_terms() if name == "bm25s" else _tokenizer()([contents(passage) for passage in open_store(NAME).read()])
    index = _package().BM25(method="lucene", k1=K1, b=B, backend="numba")
    index.index(terms, show_progress=False)
    index.save(folder / name, show_progress=False)
    return folder / name


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


BM25S, BM25S_STRINGS = (
    Kind(partial(_build, name), partial(BM25SEngine, name), _package, partial(require, "bm25s", "bench"))
    for name in ("bm25s", "bm25s-strings")
)
