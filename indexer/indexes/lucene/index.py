"""BM25 by Lucene itself: an existing index, searched by Pyserini's ``LuceneSearcher`` with its k1 0.9 and b 0.4.

``index/`` is Lucene's directory. ``rows.i32`` has the row of each Lucene document, little-endian. ``indexer.published.lucene`` imports an
index; idx builds none.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.checked_files import CheckedFiles
from wikidx.base.artifacts.manifest import Manifest, Parameters
from wikidx.base.errors import ArtifactCorrupt, InputError
from wikidx.base.machine.threads import n_threads
from wikidx.corpora.passage import Rows
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Hits, Scores, check_k, empty_hits
from wikidx.indexer.indexes.kinds import IndexKind, OpenOptions
from wikidx.indexer.scope import Scope

from .library import JavaError, call_in_java, let_go

DIRECTORY = "index"
ROWS = "rows.i32"
PARAMETERS: Parameters = {"k1": 0.9, "b": 0.4, "stemmer": "porter"}
_QUERIES_PER_CALL = 256
_HITS_PER_CALL = 1 << 20


class LuceneIndex:
    """An open Lucene index. Thread-safe; searches are serialised.

    Results are Pyserini's: it rounds scores to four decimals, orders ties by id, and takes a millionth off each tied score.
    """

    def __init__(self, searcher: Any, rows: NDArray[np.int32], path: Path) -> None:  # noqa: ANN401 - a LuceneSearcher
        self._searcher, self._rows, self._path = searcher, rows, path
        weakref.finalize(self, let_go, searcher).atexit = False

    def __len__(self) -> int:
        return len(self._rows)

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> Hits:
        """Return the k rows with the highest scores for each query.

        Raises:
            ValueError: k < 1.
            InputError: there is a scope.
            ArtifactCorrupt: Lucene cannot read its files.
        """
        check_k(k)
        if scope is not None:
            raise InputError("'lucene' searches all rows only: use 'bm25', whose scores are the same before Pyserini rounds them")
        hits = empty_hits(len(queries), k)
        depth = min(k, len(self._rows))
        per_call = max(1, min(_QUERIES_PER_CALL, _HITS_PER_CALL // max(1, depth)))
        for first in range(0, len(queries) if depth else 0, per_call):
            with lucene_errors(self._path):
                answers = call_in_java(partial(self._search, queries[first : first + per_call], depth))
            for line, found in enumerate(answers, first):
                documents, scores = zip(*found, strict=True) if found else ((), ())
                hits.rows[line, : len(found)] = self._rows[list(documents)]
                hits.scores[line, : len(found)] = scores
        return hits

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Raise ``InputError``: Lucene does not score given rows."""
        raise InputError("'lucene' cannot score given rows again: use 'bm25', whose scores are the same before Pyserini rounds them")

    def _search(self, queries: Sequence[str], depth: int, _: object) -> list[list[tuple[int, float]]]:
        """Return the documents and scores of each query; must be called on the Java thread. Java takes no lone surrogates."""
        texts = [query.encode("utf-16-le", "replace").decode("utf-16-le") for query in queries]
        numbers = [str(number) for number in range(len(texts))]
        results = self._searcher.batch_search(texts, numbers, k=depth, threads=n_threads())
        return [[(hit.lucene_docid, hit.score) for hit in results[number]] for number in numbers]


@contextmanager
def lucene_errors(path: Path) -> Iterator[None]:
    """Translate Lucene's exceptions for unreadable files into ``ArtifactCorrupt``. Lack of memory remains a ``JavaError``."""
    try:
        yield
    except JavaError as error:
        if "OutOfMemoryError" in str(error):
            raise
        raise ArtifactCorrupt.of(error, path, f"Lucene cannot read {path} ({error}): 'idx check' says which files are corrupt") from error


def open_lucene(path: Path, manifest: Manifest, options: OpenOptions) -> LuceneIndex:
    """Open an imported index; see ``IndexKind.open``.

    Raises:
        ArtifactCorrupt: the rows are corrupt, or Lucene cannot read its files.
        MissingExtraError, IdxError: see ``call_in_java``.
    """
    rows = CheckedFiles(path, manifest)[ROWS].array("<i4", (manifest.count("documents"),))[:]
    with lucene_errors(path):
        searcher = call_in_java(lambda pyserini: _open_searcher(pyserini, path / DIRECTORY))
    return LuceneIndex(searcher, rows, path)


def _open_searcher(pyserini: Any, path: Path) -> Any:  # noqa: ANN401 - a LuceneSearcher
    searcher = pyserini.LuceneSearcher(str(path))
    searcher.set_bm25(PARAMETERS["k1"], PARAMETERS["b"])
    return searcher


def _refuse(_: object) -> Any:  # noqa: ANN401 - it returns nothing
    raise InputError("idx builds no Lucene index: 'idx import lucene PATH --corpus NAME' imports one that Pyserini or Anserini built")


KIND: IndexKind[PassageStore, LuceneIndex] = IndexKind(
    name="lucene",
    source="passages",
    format_version=1,
    parameters=_refuse,
    write=_refuse,
    open=open_lucene,
    estimate=_refuse,
)
