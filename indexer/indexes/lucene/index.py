"""BM25 by Lucene, through Anserini: the index of the published figures for BM25 (k1 0.9, b 0.4, Porter stems).

The indexed text of a passage is its title, a line break and its text. Files: ``index/`` is Lucene's directory, which Pyserini opens too,
with the passages' ids and no texts; ``rows.i32`` the row of each of Lucene's documents, little-endian. A passage without a single printed
character has no document. ``lucene_build`` builds an index, ``lucene_import`` adopts an existing one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.artifacts.manifest import Manifest, Parameters
from wikidx.corpora.errors import ArtifactDamaged, InputError
from wikidx.corpora.store import Rows
from wikidx.indexer.base import Hits, Scores, check_k, no_hits
from wikidx.indexer.indexes.kinds import IndexKind, OpenOptions

from .build import DIRECTORY, PIECE_ROWS, ROWS, cost, write
from .jvm import JavaError
from .reader import K1, STEMMER, B, LuceneReader

_QUERIES_PER_CALL = 256
_HITS_PER_CALL = 1 << 20


class LuceneIndex:
    """An open Lucene index; thread-safe, with searches serialised.

    Scores are Lucene's own, float32. If Lucene's documents are not in the order of the rows, a query with ties at its k-th score is
    searched again for more results until all of them are known: the returned rows never depend on Lucene's order.
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
            ArtifactDamaged: Lucene cannot read its files.
        """
        check_k(k)
        hits = no_hits(len(queries), k)
        n_documents = len(self._rows)
        depth = min(k if self._in_row_order else k + 1, n_documents)
        asked = list(range(len(queries))) if n_documents else []
        while asked:
            asked_again = []
            for line, documents, found in self._search(queries, asked, depth):
                if k < depth == len(found) < n_documents and found[k - 1] == found[-1]:
                    asked_again.append(line)
                    continue
                found_rows = self._rows[documents]
                best = np.lexsort((found_rows, -found))[:k]
                hits.rows[line, : len(best)], hits.scores[line, : len(best)] = found_rows[best], found[best]
            asked, depth = asked_again, min(2 * depth, n_documents)
        return hits

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Raise ``InputError``: Lucene does not score given rows."""
        raise InputError("'lucene' cannot score given rows again: use 'bm25', whose scores are the same")

    def _search(
        self, queries: Sequence[str], lines: Sequence[int], depth: int
    ) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.float32]]]:
        """Yield the number of each of the lines, with its query's documents and scores."""
        per_call = max(1, min(_QUERIES_PER_CALL, _HITS_PER_CALL // depth))
        for first in range(0, len(lines), per_call):
            part = lines[first : first + per_call]
            with damage_named(self._path):
                found = self._reader.search([queries[line] for line in part], depth)
            for line, (documents, scores) in zip(part, found, strict=True):
                yield line, documents, scores


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Translate Lucene's exceptions for unreadable files into ``ArtifactDamaged``, except for lack of memory."""
    try:
        yield
    except JavaError as error:
        if error.kind == "java.lang.OutOfMemoryError":
            raise
        raise ArtifactDamaged(f"Lucene cannot read {path} ({error}): 'idx check' says which files are damaged") from error


def open_lucene(path: Path, manifest: Manifest, options: OpenOptions) -> LuceneIndex:
    """Open a built or imported index; see ``IndexKind.open``.

    Raises:
        ArtifactDamaged: a file does not match its manifest.
        MissingExtraError: the extra ``lucene`` is not installed.
    """
    rows = np.memmap(path / ROWS, dtype="<i4", mode="r") if (path / ROWS).stat().st_size else np.empty(0, dtype="<i4")
    with damage_named(path):
        reader = LuceneReader(path / DIRECTORY)
    found = {"documents": reader.n_documents, "searchable": reader.n_searchable}
    promised = {name: manifest.count(name) for name in found}
    if found != promised or len(rows) != reader.n_documents:
        raise ArtifactDamaged(f"{path} holds {found} and {len(rows)} rows, its manifest says {promised}: build it again with --force")
    if len(rows) and not 0 <= rows.min() <= rows.max() < manifest.count("rows"):
        raise ArtifactDamaged(f"{path / ROWS} has rows outside the corpus: build it again with --force")
    return LuceneIndex(reader, rows, path)


PARAMETERS: Parameters = {"k1": K1, "b": B, "stemmer": STEMMER}
KIND = IndexKind(
    name="lucene",
    format_version=1,
    parameters=lambda size: {**PARAMETERS, "origin": "built", "piece_rows": PIECE_ROWS},
    write=write,
    open=open_lucene,
    cost=cost,
)
