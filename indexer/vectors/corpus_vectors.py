"""Finished vectors of an encoder over a corpus, memory-mapped, for exact search, for building indexes, and for rescoring results.

A mapped file stays valid when it is replaced on disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from wikidx.base.artifacts.checked_files import CheckedArray, CheckedFiles
from wikidx.base.artifacts.manifest import Manifest
from wikidx.corpora.passage import Rows
from wikidx.indexer.base import Scores, Stored, Vectors

from .file import MISSING, VECTORS
from .products import candidate_scores

BATCH_ROWS = 16_384
_CANDIDATES_AT_ONCE = 32_768  # candidates scored at a time


@dataclass(frozen=True, slots=True)
class CorpusVectors:
    """The finished vectors of one encoder over a corpus.

    A vector has two numbers: its ``row``, and its ``position`` among the rows with a vector. Without missing rows the two are equal.

    Attributes:
        array: the vectors of all rows, float32 or float16 of shape (rows, dim); zeros for missing rows.
        stored: dtype of the components.
        missing: rows without a vector, int64, ascending.
        identity: sha256 of the files' checksums.
    """

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
        """Return the counts for the manifest of an index built from these vectors."""
        return {"rows": self.n_rows, "vectors": len(self), "dim": self.dim, "missing": len(self.missing)}

    def batches(self, rows: range | None = None) -> Iterator[tuple[Rows, Vectors]]:
        """Yield the row numbers and vectors of a range of rows (None: all) in batches; missing rows are left out.

        A batch covers ``BATCH_ROWS`` rows. Its vectors are float32, of shape (rows with a vector, dim).

        Raises:
            ArtifactCorrupt: a vector is corrupt.
        """
        rows = range(self.n_rows) if rows is None else rows
        for first in range(rows.start, min(rows.stop, self.n_rows), BATCH_ROWS):
            numbers = np.arange(first, min(first + BATCH_ROWS, rows.stop, self.n_rows))
            numbers = np.setdiff1d(numbers, self.missing, assume_unique=True) if len(self.missing) else numbers
            yield numbers, self.read(numbers)

    def sample(self, n: int, seed: int) -> Vectors:
        """Return ``n`` random vectors, or all if there are fewer, as float32 in row order."""
        positions = np.arange(len(self))
        if n < len(self):
            positions = np.sort(np.random.default_rng(seed).choice(len(self), n, replace=False, shuffle=False))
        return self.read(positions_to_rows(positions, self.missing))

    def read(self, rows: Rows) -> Vectors:
        """Return a copy of the vectors of given rows, which must ascend, as float32 of shape (len(rows), dim).

        Raises:
            ArtifactCorrupt: a vector is corrupt.
        """
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
            vectors = np.array(self.array[int(rows[0]) : int(rows[-1]) + 1], dtype=np.float32)
        else:
            vectors = self.array[rows].astype(np.float32, copy=False)
        self.array.release()
        return vectors

    def scores(self, queries: Vectors, rows: Rows) -> Scores:
        """Return the inner products of each query with the vectors of its rows, bit for bit those of exact search on a CPU.

        Args:
            queries: float32, shape (Q, dim).
            rows: int64, shape (Q, C); -1 for unused slots.

        Returns:
            float32, shape (Q, C); -inf for unused slots and rows without a vector.

        Raises:
            ArtifactCorrupt: a vector is corrupt.
        """
        scores = np.full(rows.shape, -np.inf, dtype=np.float32)
        width = min(max(1, rows.shape[1]), _CANDIDATES_AT_ONCE)
        n_queries = max(1, _CANDIDATES_AT_ONCE // width)
        for first in range(0, len(rows), n_queries):
            for start in range(0, rows.shape[1], width):
                block = np.s_[first : first + n_queries, start : start + width]
                self._score(queries[first : first + n_queries], rows[block], scores[block])
        scores[(rows < 0) | np.isin(rows, self.missing)] = -np.inf
        return scores

    def _score(self, queries: Vectors, rows: Rows, scores: Scores) -> None:
        """Write the scores of a block of candidates. The scores of row -1 are arbitrary."""
        distinct, positions = np.unique(rows, return_inverse=True)
        n_none = int(np.searchsorted(distinct, 0))
        if n_none == len(distinct):
            return
        vectors = self.array[distinct[n_none:]].astype(np.float32, copy=False)
        scores[:] = candidate_scores(queries, vectors, positions.reshape(rows.shape) - n_none)


def open_corpus_vectors(path: Path, manifest: Manifest) -> CorpusVectors:
    """Return the vectors in a directory with a manifest.

    Raises:
        ArtifactCorrupt: the vectors do not match the manifest.
    """
    stored, files = cast(Stored, manifest.recipe.parameters["dtype"]), CheckedFiles(path, manifest)
    missing = read_missing(files, manifest)
    array = files[VECTORS].array(stored, (manifest.count("rows"), manifest.count("dim")))
    return CorpusVectors(array, stored, missing, vectors_identity(manifest))


def read_missing(files: CheckedFiles, manifest: Manifest) -> Rows:
    """Return the rows without a vector, ascending, of vectors or of an index that lists them; raises ``ArtifactCorrupt``."""
    n_missing = manifest.counts.get("missing", 0)
    return files[MISSING].array("int64", (n_missing,))[:].copy() if n_missing else np.empty(0, dtype=np.int64)


def missing_within(rows: range, missing: Rows) -> Rows:
    """Return the numbers, from the first of ``rows`` on, of the rows that are missing there."""
    return missing[slice(*np.searchsorted(missing, (rows.start, rows.stop)))] - rows.start


def vectors_identity(manifest: Manifest) -> str:
    """Return a sha256 of the checksums of the files in a manifest. It identifies vectors, or an index."""
    files = {name: record.sha256 for name, record in manifest.files.items()}
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def positions_to_rows(positions: Rows, missing: Rows) -> Rows:
    """Return the rows of vectors at given positions. Positions below 0 are unchanged.

    Args:
        positions: positions among the rows with a vector, int64, any shape.
        missing: rows without a vector, ascending.
    """
    if not len(missing):
        return positions
    n_before = missing - np.arange(len(missing))
    return positions + np.where(positions < 0, 0, np.searchsorted(n_before, positions, side="right"))
