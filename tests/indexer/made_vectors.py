"""Vectors made in a test, put where an encoder's vectors are, and brute force over them."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.building import ArtifactSpec, BuildResult
from wikidx.base.artifacts.checked_files import build_checked, write_sums
from wikidx.base.artifacts.manifest import FileRecord, Manifest, Parameters, Recipe
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Passage, Rows
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Hits, Stored, Vectors
from wikidx.indexer.build import open_vector_index
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.published.formats import find_embeddings
from wikidx.indexer.published.importing import ImportOptions, import_vectors
from wikidx.indexer.vectors.file import FORMAT_VERSION, KIND, MISSING, VectorFile

ENCODER = "minilm"  # nothing is encoded: only its name is used
NOTHING = Manifest(
    recipe=Recipe(kind=KIND, format_version=FORMAT_VERSION, parameters={}, inputs={}),
    sources={},
    fingerprint="",
    counts={},
    packages={},
    files={},
    created="",
)


def sealed(folder: Path, manifest: Manifest) -> Manifest:
    """Write the checksums of a folder's pages, and return a manifest that has its files."""
    write_sums(folder)
    files = {path.name: FileRecord(path.stat().st_size, "") for path in folder.iterdir() if path.is_file()}
    return dataclasses.replace(manifest, files=files)


def vectors_manifest(folder: Path, shape: tuple[int, int], stored: str, n_missing: int = 0) -> Manifest:
    """Write the checksums of a folder with vectors, and return their manifest."""
    recipe = dataclasses.replace(NOTHING.recipe, parameters={"dtype": stored})
    counts = {"rows": shape[0], "dim": shape[1], "missing": n_missing}
    return sealed(folder, dataclasses.replace(NOTHING, recipe=recipe, counts=counts))


def numbered_passages(n: int) -> list[Passage]:
    return [Passage(str(number), f"Title {number}", f"Text {number}.") for number in range(n)]


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


def import_flat_index(store: PassageStore, vectors: Vectors, missing: Sequence[int] = ()) -> Manifest:
    """Import vectors, without those of missing rows, as vectors of 'none' from Pyserini's files, which have the last row first."""
    import faiss

    rows = np.setdiff1d(np.arange(len(store)), np.array(missing, dtype=np.int64))[::-1]
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(np.ascontiguousarray(vectors[rows]))
    with tempfile.TemporaryDirectory() as folder:
        faiss.write_index(index, f"{folder}/index")
        Path(folder, "docid").write_text("".join(f"{passage.id}\n" for passage in store.get_many(rows)))
        options = ImportOptions(allow_missing=bool(missing))
        return import_vectors("made", encoder_spec("none"), store, find_embeddings(Path(folder)), options)


def brute_force(vectors: NDArray[Any], queries: Vectors, k: int, missing: Sequence[int] | Rows = ()) -> Hits:
    """Sort all float64 products, the missing rows' left out; equal ones by row; pad to k."""
    products = queries.astype(np.float64) @ vectors.astype(np.float64).T
    products[:, list(missing)] = -np.inf
    rows = np.argsort(-products, axis=1, kind="stable")[:, :k]
    scores = np.take_along_axis(products, rows, axis=1)
    rows = np.where(np.isfinite(scores), rows, -1)
    pad = ((0, 0), (0, k - rows.shape[1]))
    return Hits(np.pad(rows, pad, constant_values=-1), np.pad(scores, pad, constant_values=-np.inf).astype(np.float32))


def assert_same(found: Hits, expected: Hits) -> None:
    """Check that rows and scores are equal to the bit, and of the types that every search returns."""
    assert found.rows.dtype == np.int64
    assert found.scores.dtype == np.float32
    np.testing.assert_array_equal(found.rows, expected.rows)
    np.testing.assert_array_equal(found.scores, expected.scores)


def open_and_search(name: str, queries: Vectors, k: int) -> list[list[int]]:
    """Open an index over the corpus ``made``, and return the rows that it finds; for processes, since this module needs no torch."""
    rows: list[list[int]] = open_vector_index("made", name, open_store("made")).search(queries, k).rows.tolist()
    return rows
