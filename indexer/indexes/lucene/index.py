"""BM25 by Lucene and Anserini, as in published BM25 results (k1 0.9, b 0.4, Porter stemmer).

The indexed text of a passage is its title, a line break and its text. A passage without a printed character has no document.
``index/`` is Lucene's directory, which Pyserini can open; it holds the passages' ids, but not their texts. ``rows.i32`` has the row of
each Lucene document, little-endian. ``build`` builds an index; ``indexer.published.lucene`` imports an existing index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.manifest import Manifest, Parameters
from wikidx.base.errors import ArtifactCorrupt, InputError
from wikidx.corpora.store import Rows
from wikidx.indexer.base import Hits, Scores, check_k, empty_hits
from wikidx.indexer.indexes.kinds import IndexKind, OpenOptions

from .build import DIRECTORY, PIECE_ROWS, ROWS, estimate, write
from .jvm import JavaError
from .reader import K1, STEMMER, B, LuceneReader

_QUERIES_PER_CALL = 256
_HITS_PER_CALL = 1 << 20


class LuceneIndex:
    """An open Lucene index. Thread-safe; searches are serialised.

    Scores are Lucene's own, float32. If Lucene's documents are not in row order, a query with ties at its k-th score is searched again
    until all its ties are known. The returned rows therefore do not depend on Lucene's order.
    """

    def __init__(self, reader: LuceneReader, rows: NDArray[np.int32], path: Path) -> None:
        self._reader = reader
        self._rows = rows  # (documents,)
        self._in_row_order = bool((rows[1:] > rows[:-1]).all())
        self._path = path

    def __len__(self) -> int:
        return len(self._rows)

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k rows with the highest scores for each query.

        Raises:
            ValueError: k < 1.
            ArtifactCorrupt: Lucene cannot read its files.
        """
        check_k(k)
        hits = empty_hits(len(queries), k)
        n_documents = len(self._rows)
        depth = min(k if self._in_row_order else k + 1, n_documents)
        remaining = list(range(len(queries))) if n_documents else []
        while remaining:
            tied = []
            for line, documents, scores in self._search(queries, remaining, depth):
                if k < depth == len(scores) < n_documents and scores[k - 1] == scores[-1]:
                    tied.append(line)
                    continue
                document_rows = self._rows[documents]
                best = np.lexsort((document_rows, -scores))[:k]
                hits.rows[line, : len(best)], hits.scores[line, : len(best)] = document_rows[best], scores[best]
            remaining, depth = tied, min(2 * depth, n_documents)
        return hits

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Raise ``InputError``: Lucene does not score given rows."""
        raise InputError("'lucene' cannot score given rows again: use 'bm25', whose scores are the same")

    def _search(
        self, queries: Sequence[str], lines: Sequence[int], depth: int
    ) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.float32]]]:
        """Yield each of ``lines``, which are numbers of queries, with the query's documents and scores."""
        per_call = max(1, min(_QUERIES_PER_CALL, _HITS_PER_CALL // depth))
        for first in range(0, len(lines), per_call):
            batch = lines[first : first + per_call]
            with lucene_errors(self._path):
                results = self._reader.search([queries[line] for line in batch], depth)
            for line, (documents, scores) in zip(batch, results, strict=True):
                yield line, documents, scores


@contextmanager
def lucene_errors(path: Path) -> Iterator[None]:
    """Translate Lucene's exceptions for unreadable files into ``ArtifactCorrupt``. Lack of memory remains a ``JavaError``."""
    try:
        yield
    except JavaError as error:
        if error.kind == "java.lang.OutOfMemoryError":
            raise
        raise ArtifactCorrupt.of(error, path, f"Lucene cannot read {path} ({error}): 'idx check' says which files are corrupt") from error


def open_lucene(path: Path, manifest: Manifest, options: OpenOptions) -> LuceneIndex:
    """Open a built or imported index; see ``IndexKind.open``.

    Raises:
        ArtifactCorrupt: a file does not match its manifest.
        MissingExtraError: the extra ``lucene`` is not installed.
    """
    rows = np.memmap(path / ROWS, dtype="<i4", mode="r") if (path / ROWS).stat().st_size else np.empty(0, dtype="<i4")
    with lucene_errors(path):
        reader = LuceneReader(path / DIRECTORY)
    actual = {"documents": reader.n_documents, "searchable": reader.n_searchable}
    expected = {name: manifest.count(name) for name in actual}
    if actual != expected or len(rows) != reader.n_documents:
        raise ArtifactCorrupt(f"{path} holds {actual} and {len(rows)} rows, its manifest says {expected}: build it again with --force")
    if len(rows) and not 0 <= rows.min() <= rows.max() < manifest.count("rows"):
        raise ArtifactCorrupt(f"{path / ROWS} has rows outside the corpus: build it again with --force")
    return LuceneIndex(reader, rows, path)


PARAMETERS: Parameters = {"k1": K1, "b": B, "stemmer": STEMMER}
KIND = IndexKind(
    name="lucene",
    format_version=1,
    parameters=lambda size: {**PARAMETERS, "origin": "built", "piece_rows": PIECE_ROWS},
    write=write,
    open=open_lucene,
    estimate=estimate,
)
