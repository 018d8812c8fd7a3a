"""Vectors made in a test, put where an encoder's vectors are, and brute force over them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from wikidx.base.artifacts.building import ArtifactSpec, BuildResult
from wikidx.base.artifacts.manifest import FileRecord, Manifest, Parameters, Recipe
from wikidx.base.artifacts.pages import build_checked, write_sums
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Hits, Stored, Vectors
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.vectors.file import FORMAT_VERSION, KIND, MISSING, VectorFile

ENCODER = "minilm"  # nothing is encoded: only its name is used


def sealed(folder: Path, manifest: Manifest) -> Manifest:
    """Write the checksums of a folder's pages, and return a manifest that has its files."""
    write_sums(folder)
    files = {path.name: FileRecord(path.stat().st_size, "") for path in folder.iterdir() if path.is_file()}
    return dataclasses.replace(manifest, files=files)


def clustered(n: int, dim: int, seed: int) -> Vectors:
    """Return vectors around 40 centres, the same ones for every seed; unlike vectors of no structure, they can be told apart by lists."""
    centres = np.random.default_rng(99).normal(size=(40, dim))
    rng = np.random.default_rng(seed)
    return (centres[rng.integers(0, len(centres), n)] + 0.6 * rng.normal(size=(n, dim))).astype(np.float32)


def put_vectors(
    store: PassageStore,
    vectors: Vectors,
    *,
    corpus: str = "made",
    stored: Stored = "float32",
    missing: Sequence[int] = (),
) -> Manifest:
    """Store vectors as those of ``ENCODER`` over a corpus; those of missing rows become zeros."""
    content = vectors.copy()
    content[list(missing)] = 0

    def write(staging: Path) -> BuildResult:
        VectorFile(staging, len(store), stored).write(range(len(store)), content)
        if missing:
            np.save(staging / MISSING, np.array(missing, dtype=np.int64))
        return BuildResult(store.fingerprint, {"rows": len(store), "dim": vectors.shape[1], "missing": len(missing)})

    parameters: Parameters = {"encoder": ENCODER, "origin": "imported", "dtype": stored}
    recipe = Recipe(kind=KIND, format_version=FORMAT_VERSION, parameters=parameters, inputs={"passages": store.fingerprint})
    return build_checked(index_ref(corpus, ENCODER).path, ArtifactSpec(recipe=recipe, sources={}, find_existing=lambda: None, write=write))


def brute_force(vectors: Vectors, queries: Vectors, k: int, missing: Sequence[int] = ()) -> Hits:
    """Sort all float64 products, the missing rows' left out; equal ones by row; pad to k."""
    products = queries.astype(np.float64) @ vectors.astype(np.float64).T
    products[:, list(missing)] = -np.inf
    rows = np.argsort(-products, axis=1, kind="stable")[:, :k]
    scores = np.take_along_axis(products, rows, axis=1)
    rows = np.where(np.isfinite(scores), rows, -1)
    pad = ((0, 0), (0, k - rows.shape[1]))
    return Hits(np.pad(rows, pad, constant_values=-1), np.pad(scores, pad, constant_values=-np.inf).astype(np.float32))
