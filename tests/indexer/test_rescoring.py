"""Vectors mapped into memory, and exact scores of given rows from them."""

from __future__ import annotations

import dataclasses
import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from corpora.errors import ArtifactDamaged
from indexer.base import Stored
from indexer.corpus_vectors import CorpusVectors
from indexer.memory_map import map_array
from indexer.rescoring import Rescorer
from indexer.vectors import ShardChecks, Shards
from tests.conftest import ROOT
from tests.indexer.made_vectors import clustered


@pytest.mark.parametrize("shape", [(7,), (1000, 3), (0, 4)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int64"])
def test_a_mapped_array_is_the_file_s(shape: tuple[int, ...], dtype: str, tmp_path: Path) -> None:
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    np.save(tmp_path / "a.npy", values)
    mapped = map_array(tmp_path / "a.npy")
    np.testing.assert_array_equal(mapped, values)
    assert mapped.dtype == dtype
    assert not mapped.size or not mapped.flags.writeable


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's list of mappings")
def test_a_mapping_holds_no_file_open_and_ends_with_its_array(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.ones(10_000))

    def is_mapped() -> bool:
        return str(path) in Path("/proc/self/maps").read_text()

    n_open = len(os.listdir("/proc/self/fd"))
    part = map_array(path)[5:7]
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == n_open
    assert is_mapped()
    assert part.tolist() == [1, 1]
    del part
    gc.collect()
    assert not is_mapped()


def test_what_is_no_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.ones((100, 100)))
    content = path.read_bytes()
    for damaged in (content[:-1], content[:50], b"", b"text" * 100):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"bytes follow its head|magic|EOF"):
            map_array(path)
    np.save(path, np.asfortranarray(np.ones((3, 2))))
    with pytest.raises(ValueError, match="follow its head"):
        map_array(path)
    with pytest.raises(FileNotFoundError):
        map_array(tmp_path / "none.npy")


def test_every_damaged_head_is_refused_or_names_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(512, dtype=np.float32).reshape(64, 8))
    content = path.read_bytes()
    rng, n_refused = np.random.default_rng(0), 0
    for _ in range(1500):
        damaged = bytearray(content)
        damaged[rng.integers(128)] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            assert map_array(path).nbytes <= len(content) - 128
        except ValueError:
            n_refused += 1
    assert n_refused > 500
    for said, instead in ((b"'<f4'", b"'|O' "), (b"(64, 8)", b"(-1, 8)"), (b"}", b" "), (b"{'", b"{{")):
        path.write_bytes(content[:10] + content[10:].replace(said, instead, 1))
        with pytest.raises(ValueError, match=r"damaged|head|Cannot parse"):
            map_array(path)


def test_threads_may_read_while_the_interpreter_exits(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(1 << 20))
    command = (
        "import sys, threading, time; from pathlib import Path; from indexer.memory_map import map_array\n"
        "a = map_array(Path(sys.argv[1]))\n"
        "def read():\n    while True: a.sum()\n"
        "threading.Thread(target=read, daemon=True).start(); time.sleep(0.2)"
    )
    for _ in range(3):
        assert subprocess.run([sys.executable, "-c", command, str(tmp_path / "a.npy")], check=False, cwd=ROOT).returncode == 0


@pytest.fixture(params=["float32", "float16"])
def vectors(request: pytest.FixtureRequest, tmp_path: Path) -> CorpusVectors:
    stored: Stored = request.param
    shards = Shards(tmp_path, 1000, 64)
    for rows in shards.rows():
        shards.write(rows, clustered(1000, 8, 0)[rows.start : rows.stop], stored)
    return CorpusVectors(shards, 8, stored, np.empty(0, dtype=np.int64), "identity", ShardChecks(shards, 0, {}))


def test_scores_are_the_products_with_the_rows_named(vectors: CorpusVectors, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = clustered(20, 8, 1)
    rows = np.random.default_rng(0).integers(-1, 1000, size=(20, 30))
    vectors = dataclasses.replace(vectors, missing=np.unique(rows[rows >= 0])[:5])
    stored = np.concatenate(vectors.mapped())
    expected = np.where(
        (rows < 0) | np.isin(rows, vectors.missing),
        -np.inf,
        np.einsum("qd,qcd->qc", queries.astype(np.float64), stored[rows].astype(np.float64)),
    )
    np.testing.assert_allclose(Rescorer(vectors.mapped(), vectors.missing).scores(queries, rows), expected, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr("indexer.rescoring._CANDIDATES_AT_ONCE", 70)  # two queries at a time
    np.testing.assert_allclose(Rescorer(vectors.mapped(), vectors.missing).scores(queries, rows), expected, rtol=1e-5, atol=1e-5)


def test_a_shard_that_cannot_be_read_is_named(vectors: CorpusVectors) -> None:
    path = vectors.shards.path(64)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactDamaged, match=f"{path.name} cannot be read"):
        vectors.mapped()
    with pytest.raises(ArtifactDamaged, match=f"{path.name} cannot be read"):
        list(vectors.pages())


def test_vectors_replaced_later_are_not_mixed_with_those_that_were_opened(vectors: CorpusVectors) -> None:
    queries, rows = clustered(1, 8, 1), np.arange(1000)[np.newaxis]
    expected = Rescorer(vectors.mapped(), vectors.missing).scores(queries, rows)
    rescorer = Rescorer(vectors.mapped(), vectors.missing)
    for shard in vectors.shards.rows():
        vectors.shards.write(shard, np.zeros((len(shard), 8), dtype=np.float32), vectors.stored)
    np.testing.assert_array_equal(rescorer.scores(queries, rows), expected)


def test_a_shard_of_another_shape_or_type_is_refused(vectors: CorpusVectors) -> None:
    path = vectors.shards.path(64)
    for other in (np.zeros((32, 16), dtype=vectors.stored), np.zeros((64, 8), dtype=np.float64)):
        np.save(path, other)
        with pytest.raises(ArtifactDamaged, match=rf"{path.name} holds .* instead of {vectors.stored} \(64, 8\)"):
            vectors.mapped()
