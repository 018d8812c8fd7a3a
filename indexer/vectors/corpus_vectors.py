"""Finished, memory-mapped vectors of an encoder over a corpus: for exact search, for building indexes, and for rescoring their results.

Builds read them a batch at a time, never all at once, without missing rows. If the files are replaced, mapped ones stay valid.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from wikidx.corpora.artifacts.manifest import Manifest
from wikidx.corpora.errors import ArtifactDamaged
from wikidx.corpora.store import Rows
from wikidx.indexer.base import Scores, Stored, Vectors
from wikidx.indexer.page_checks import CheckedArray, CheckedFiles

from .file import MISSING, VECTORS

BATCH_ROWS = 16_384
_CANDIDATES_AT_ONCE = 32_768  # scored at a time


@dataclass(frozen=True, slots=True)
class CorpusVectors:
    """The finished vectors of one encoder over a corpus.

    A vector has two numbers: its ``row``, and its ``place`` among the rows that have a vector. Without missing rows they are the same.

    Attributes:
        folder: folder of their files.
        array: the vectors of all rows, float32 or float16 of shape (rows, dim), zeros for missing rows.
        stored: their type.
        missing: rows without a vector, int64, ascending.
        identity: sha256 shared by sets of vectors with the same files.
    """

    folder: Path
    array: CheckedArray
    stored: Stored
    missing: Rows
    identity: str

    def __len__(self) -> int:
        """Number of rows with a vector."""
        return self.n_rows - len(self.missing)

    @property
    def n_rows(self) -> int:
        """Number of rows of the corpus."""
        return len(self.array)

    @property
    def dim(self) -> int:
        """Components of a vector."""
        return self.array.shape[1]

    def counts(self) -> dict[str, int]:
        """Return the counts for the manifest of an index built from them."""
        return {"rows": self.n_rows, "vectors": len(self), "dim": self.dim, "missing": len(self.missing)}

    def batches(self, rows: range | None = None) -> Iterator[tuple[Rows, Vectors]]:
        """Yield row numbers and vectors, float32 of shape (rows, dim), ``BATCH_ROWS`` at a time, of given rows or all.

        Raises:
            ArtifactDamaged: a vector is corrupt.
        """
        rows = range(self.n_rows) if rows is None else rows
        for first in range(rows.start, min(rows.stop, self.n_rows), BATCH_ROWS):
            numbers = np.arange(first, min(first + BATCH_ROWS, rows.stop, self.n_rows))
            numbers = np.setdiff1d(numbers, self.missing, assume_unique=True) if len(self.missing) else numbers
            yield numbers, self.read(numbers)

    def sample(self, n: int, seed: int) -> Vectors:
        """Return ``n`` vectors drawn without replacement, or all if there are fewer; float32, ordered by row."""
        places = np.arange(len(self))
        if n < len(self):
            places = np.sort(np.random.default_rng(seed).choice(len(self), n, replace=False, shuffle=False))
        return self.read(rows_at(places, self.missing))

    def read(self, rows: Rows) -> Vectors:
        """Return a copy of the vectors of given rows, ascending, float32 of shape (len(rows), dim).

        Raises:
            ArtifactDamaged: one is corrupt.
        """
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
            vectors = np.array(self.array[int(rows[0]) : int(rows[-1]) + 1], dtype=np.float32)
        else:
            vectors = self.array[rows].astype(np.float32, copy=False)
        self.array.release()
        return vectors

    def scores(self, queries: Vectors, rows: Rows) -> Scores:
        """Return the exact inner product of each query with the vectors of its rows.

        Args:
            queries: float32, shape (Q, dim).
            rows: int64, shape (Q, C); -1 for unused places.

        Returns:
            float32, shape (Q, C); -inf for unused places and rows without a vector.

        Raises:
            ArtifactDamaged: a vector is corrupt.
        """
        scores = np.full(rows.shape, -np.inf, dtype=np.float32)
        width = min(max(1, rows.shape[1]), _CANDIDATES_AT_ONCE)
        n_queries = max(1, _CANDIDATES_AT_ONCE // width)
        for first in range(0, len(rows), n_queries):
            for start in range(0, rows.shape[1], width):
                some = np.s_[first : first + n_queries, start : start + width]
                self._score(queries[first : first + n_queries], rows[some], scores[some])
        scores[(rows < 0) | np.isin(rows, self.missing)] = -np.inf
        return scores

    def _score(self, queries: Vectors, rows: Rows, scores: Scores) -> None:
        """Write the scores of few enough candidates to hold their vectors in memory together; scores for row -1 are arbitrary."""
        wanted, places = np.unique(rows, return_inverse=True)
        n_none = int(np.searchsorted(wanted, 0))
        if n_none == len(wanted):
            return
        vectors = self.array[wanted[n_none:]].astype(np.float32, copy=False)
        for line, (query, found) in enumerate(zip(queries, places.reshape(rows.shape), strict=True)):
            scores[line] = vectors[found - n_none] @ query


def corpus_vectors(path: Path, manifest: Manifest) -> CorpusVectors:
    """Return the vectors in a directory with a manifest.

    Raises:
        ArtifactDamaged: they do not match their manifest.
    """
    said = manifest.recipe.parameters.get("dtype")
    stored: Stored | None = next((known for known in get_args(Stored) if known == said), None)
    if stored is None:
        raise ArtifactDamaged(f"the manifest of {path} says vectors of '{said}': build it again with --force")
    files = CheckedFiles(path, manifest)
    n_missing = manifest.counts.get("missing", 0)
    missing = files[MISSING].array("int64", (n_missing,))[:].copy() if n_missing else np.empty(0, dtype=np.int64)
    array = files[VECTORS].array(stored, (manifest.count("rows"), manifest.count("dim")))
    return CorpusVectors(path, array, stored, missing, vectors_identity(manifest))


def vectors_identity(manifest: Manifest) -> str:
    """Return a sha256 that identifies the vectors with this manifest, from the checksums of their files."""
    files = {name: record.sha256 for name, record in manifest.files.items()}
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def rows_at(places: Rows, missing: Rows) -> Rows:
    """Return the rows of vectors, given their places among the existing ones; places below 0 are unchanged.

    Args:
        places: int64, any shape.
        missing: rows without a vector, ascending.
    """
    if not len(missing):
        return places
    n_there_before = missing - np.arange(len(missing))
    return places + np.where(places < 0, 0, np.searchsorted(n_there_before, places, side="right"))
