"""The vectors of a corpus as indexes are built from them: read shard by shard, never all at once, those of missing rows left out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpora.artifacts import Manifest
from corpora.store import Rows

from .base import Stored, Vectors
from .memory_map import map_checked
from .page_checks import checked_files
from .vectors import ShardChecks, Shards, missing_of, shards_of


@dataclass(frozen=True, slots=True)
class CorpusVectors:
    """The finished vectors of one encoder over a corpus.

    A vector has two numbers: its ``row``, and its ``place`` among the rows that have a vector. Without missing rows they are the same.

    Attributes:
        shards: where they lie.
        dim: components of each.
        stored: their type.
        missing: rows that have no vector, int64, ascending.
        identity: sha256 that two sets of vectors share if their files are the same.
        checks: asked before vectors are read.
    """

    shards: Shards
    dim: int
    stored: Stored
    missing: Rows
    identity: str
    checks: ShardChecks

    def __len__(self) -> int:
        """The number of rows that have a vector."""
        return self.shards.n_rows - len(self.missing)

    def counts(self) -> dict[str, int]:
        """Return what the manifest of an index made of them counts."""
        return {"rows": self.shards.n_rows, "vectors": len(self), "dim": self.dim, "missing": len(self.missing)}

    def pages(self, first_row: int = 0, stop_row: int | None = None) -> Iterator[tuple[Rows, Vectors]]:
        """Yield the rows and vectors, float32 of shape (rows, dim), of one shard at a time, from ``first_row``, which begins one, on.

        Raises:
            ArtifactDamaged: a shard cannot be read, is damaged, or does not hold what it should.
        """
        for rows in self.shards.rows():
            if first_row <= rows.start < (self.shards.n_rows if stop_row is None else stop_row):
                vectors = self._read(rows)
                is_missing = np.zeros(len(rows), dtype=np.bool_)
                start, stop = np.searchsorted(self.missing, (rows.start, rows.stop))
                is_missing[self.missing[start:stop] - rows.start] = True
                yield np.arange(rows.start, rows.stop)[~is_missing], vectors[~is_missing] if is_missing.any() else vectors

    def sample(self, n: int, seed: int) -> Vectors:
        """Return ``n`` vectors drawn without replacement, or all if there are fewer; float32, ordered by row."""
        places = np.arange(len(self))
        if n < len(self):
            places = np.sort(np.random.default_rng(seed).choice(len(self), n, replace=False, shuffle=False))
        rows = rows_at(places, self.missing)
        found = np.empty((len(rows), self.dim), dtype=np.float32)
        for page in self.shards.rows():
            start, stop = np.searchsorted(rows, (page.start, page.stop))
            if start < stop:
                found[start:stop] = self._read(page)[rows[start:stop] - page.start]
        return found

    def mapped(self) -> list[NDArray[Any]]:
        """Return all shards, each of shape (rows, dim), mapped into memory; ``checks`` are to be asked before they are read."""
        return [self._map(rows) for rows in self.shards.rows()]

    def _map(self, rows: range) -> NDArray[Any]:
        return map_checked(self.shards.path(rows.start), (len(rows), self.dim), self.stored)

    def _read(self, rows: range) -> Vectors:
        """Copy one shard: pages that stay mapped would count as memory of this process until the system wants them back."""
        self.checks.check_range(rows.start, rows.stop)
        return np.array(self._map(rows), dtype=np.float32)


def corpus_vectors(path: Path, manifest: Manifest) -> CorpusVectors:
    """Return the vectors in a directory with a manifest.

    Raises:
        ArtifactDamaged: they do not hold what their manifest says.
    """
    (shards, stored), dim = shards_of(path, manifest), manifest.count("dim")
    files = checked_files(path, manifest)
    checks = ShardChecks(shards, dim * np.dtype(stored).itemsize, files)
    return CorpusVectors(shards, dim, stored, missing_of(path, manifest, files), vectors_identity(manifest), checks)


def vectors_identity(manifest: Manifest) -> str:
    """Return a sha256 that tells the vectors with this manifest from others, by the checksums of their files."""
    files = {name: record.sha256 for name, record in manifest.files.items()}
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def rows_at(places: Rows, missing: Rows) -> Rows:
    """Return the rows of vectors given by their places among those that are there; places below 0 stay as they are.

    Args:
        places: int64, any shape.
        missing: rows without a vector, ascending.
    """
    if not len(missing):
        return places
    n_there_before = missing - np.arange(len(missing))
    return places + np.where(places < 0, 0, np.searchsorted(n_there_before, places, side="right"))
