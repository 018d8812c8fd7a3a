"""BM25 on numba: postings by term, memory-mapped; every score is computed, nothing is pruned.

    score(query, row) = sum over query terms t of  idf(t) * tf / (tf + k1 * (1 - b + b * length / mean length))
    idf(t) = ln(1 + (N - df + 0.5) / (df + 0.5))

This is Lucene's BM25Similarity (without its one-byte rounding of lengths); a term that the query repeats counts each time. What is indexed
is the title and the text. Files, little-endian: ``terms.bin`` the sorted terms in UTF-8 and ``term_ends.i64`` where each one ends;
``posting_ends.i64`` where each term's postings end in ``rows.i32`` and ``counts.u16``; ``lengths.i32`` the terms in each row.

The build inverts pieces of ``PIECE_ROWS`` rows, each a finished file that a resumed build does not make again, and merges them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray

from corpora.artifacts import Manifest
from corpora.errors import ArtifactDamaged, ArtifactMismatch
from corpora.progress import Progress, reported
from corpora.staging import PIECES
from corpora.store import PassageStore
from indexer.analysis import ANALYZERS
from indexer.base import NO_ROW, Hits, IndexKind, check_k

from .inversion import PostingArrays, Postings, invert, map_array, merge
from .selection import offer, sort_best

K1 = 0.9
B = 0.4
ANALYZER = "plain-english"
PIECE_ROWS = 131_072

_QUERIES_PER_TASK = 16


class BM25Index:
    """A memory-mapped BM25 index; searches may run at once in any number of threads."""

    def __init__(self, postings: Postings, lengths: NDArray[np.int32], *, analyzer: str, k1: float = K1, b: float = B) -> None:
        self._postings = postings
        self._analyze = ANALYZERS[analyzer]
        self._n_rows = len(lengths)
        mean_length = max(1.0, float(lengths.mean(dtype=np.float64)))
        self._saturation = np.asarray(k1 * (1 - b + b * (lengths / mean_length)), dtype=np.float32)  # (n,): what tf is held against

    def __len__(self) -> int:
        return self._n_rows

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Return the k rows with the highest scores above 0 for each query.

        Scores are float32 sums in the order of the terms' first appearance in the query: the same whatever the batch.

        Raises:
            ValueError: k < 1.
        """
        check_k(k)
        depth = min(k, self._n_rows)
        rows = np.full((len(queries), k), NO_ROW, dtype=np.int64)
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)

        def answer(first: int) -> None:
            sums = np.zeros(self._n_rows, dtype=np.float32)
            for q in range(first, min(first + _QUERIES_PER_TASK, len(queries))):
                terms, weights = self._weighted_terms(queries[q])
                best_scores, best_rows = scores[q, :depth], rows[q, :depth]
                _add_scores(self._postings.arrays, self._saturation, terms, weights, sums)
                offer(sums, 0, np.float32(0), best_scores, best_rows)
                sort_best(best_scores, best_rows)
                sums.fill(0)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(answer, range(0, len(queries), _QUERIES_PER_TASK)))
        return Hits(rows, scores)

    def _weighted_terms(self, query: str) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the query's known terms and, for each, its idf times how often the query has it."""
        counts = Counter(self._analyze(query))
        found = [(term, n) for text, n in counts.items() if (term := self._postings.find(text)) >= 0]
        terms = np.array([term for term, _ in found], dtype=np.int64)
        df = np.array([self._postings.n_rows(term) for term, _ in found], dtype=np.float64)
        idf = np.log(1 + (self._n_rows - df + 0.5) / (df + 0.5))
        return terms, (idf * np.array([n for _, n in found], dtype=np.float64)).astype(np.float32)


@njit(nogil=True, cache=True)
def _add_scores(
    postings: PostingArrays,
    saturation: NDArray[np.float32],
    terms: NDArray[np.int64],
    weights: NDArray[np.float32],
    sums: NDArray[np.float32],
) -> None:
    """Add the weighted contribution of every posting of every term to the row's sum."""
    for t in range(len(terms)):
        start = postings.ends[terms[t] - 1] if terms[t] > 0 else 0
        for p in range(start, postings.ends[terms[t]]):
            row = postings.rows[p]
            tf = np.float32(postings.counts[p])
            sums[row] += weights[t] * (tf / (tf + saturation[row]))


def write(store: PassageStore, staging: Path, progress: Progress) -> Mapping[str, int]:
    """Build the index of a store into ``staging``; see ``IndexKind.write``."""
    analyze = ANALYZERS[ANALYZER]
    (staging / PIECES).mkdir(exist_ok=True)
    pieces = []
    for first in range(0, len(store), PIECE_ROWS):
        end = min(first + PIECE_ROWS, len(store))
        piece = staging / PIECES / f"{first // PIECE_ROWS:05d}.npz"
        if not piece.exists():
            passages = reported(store.read(first, end), first, len(store), progress)
            invert((analyze(f"{passage.title} {passage.text}") for passage in passages), first, piece)
        pieces.append(piece)
    return merge(pieces, staging)


def open_bm25(path: Path, manifest: Manifest) -> BM25Index:
    """Open a built index; see ``IndexKind.open``.

    Raises:
        ArtifactDamaged: a file does not hold what its manifest says.
        ArtifactMismatch: its analyzer is not known.
    """
    postings = Postings(path)
    lengths = map_array(path / "lengths.i32", np.int32)
    found = {"terms": len(postings), "postings": postings.n_postings, "rows": len(lengths)}
    promised = {name: manifest.count(name) for name in found}
    if found != promised:
        raise ArtifactDamaged(f"{path} holds {found}, its manifest says {promised}: build it again with --force")
    analyzer = manifest.recipe.parameters.get("analyzer")
    if analyzer not in ANALYZERS:
        raise ArtifactMismatch(
            f"{path} was built with the analyzer '{analyzer}', which this version of idx does not have: build it again with --force"
        )
    return BM25Index(postings, lengths, analyzer=str(analyzer))


KIND = IndexKind(name="bm25", format_version=1, parameters={"analyzer": ANALYZER, "piece_rows": PIECE_ROWS}, write=write, open=open_bm25)
