from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from corpora.artifacts import Manifest, Recipe
from corpora.errors import ArtifactDamaged, IdxError, InputError
from indexer.base import Stored, Vectors
from indexer.corpus_vectors import corpus_vectors
from indexer.indexes.exact import open_shards
from indexer.vectors import MISSING, ScatteredShards, Shards

N_ROWS = 25


def of(folder: Path) -> Shards:
    return Shards(folder, N_ROWS, 10)


def made(n: int = N_ROWS, dim: int = 4) -> Vectors:
    return np.random.default_rng(1).normal(size=(n, dim)).astype(np.float32)


def manifest(n_missing: int = 0, dtype: str = "float32") -> Manifest:
    return Manifest(
        recipe=Recipe(kind="vectors", format_version=1, parameters={"dtype": dtype, "shard_rows": 10}, inputs={}),
        sources={},
        fingerprint="",
        counts={"rows": N_ROWS, "dim": 4, "missing": n_missing},
        packages={},
        files={},
        created="",
    )


def write_all(folder: Path, content: Vectors, stored: Stored = "float32") -> None:
    for rows in of(folder).rows():
        of(folder).write(rows, content[rows.start : rows.stop], stored)


@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_shards_are_searched_as_they_were_written(stored: Stored, tmp_path: Path) -> None:
    content, queries = made(), made(3)
    write_all(tmp_path, content, stored)
    assert [np.load(path).shape for path in sorted(tmp_path.iterdir())] == [(10, 4), (10, 4), (5, 4)]
    hits = open_shards(tmp_path, manifest(dtype=stored)).search(queries, 7)
    products = queries.astype(np.float64) @ content.astype(stored).astype(np.float64).T
    np.testing.assert_array_equal(hits.rows, np.argsort(-products, axis=1)[:, :7])
    np.testing.assert_allclose(hits.scores, -np.sort(-products, axis=1)[:, :7], rtol=1e-5)
    np.testing.assert_array_equal(of(tmp_path).read(np.array([24, 0, 10])), content[[24, 0, 10]].astype(stored))


def test_missing_rows_are_never_found(tmp_path: Path) -> None:
    content = -np.abs(made())
    missing = np.array([0, 9, 10, 24])
    content[missing] = 0  # with queries that like none, zeros would come first
    write_all(tmp_path, content)
    np.save(tmp_path / MISSING, missing)
    hits = open_shards(tmp_path, manifest(len(missing))).search(np.abs(made(3)), N_ROWS)
    assert [sorted(line) for line in hits.rows.tolist()] == [[-1] * 4 + sorted(set(range(N_ROWS)) - set(missing.tolist()))] * 3
    assert (hits.scores[:, -4:] == -np.inf).all()


def test_missing_rows_that_are_not_as_counted_are_damage(tmp_path: Path) -> None:
    write_all(tmp_path, made())
    with pytest.raises(ArtifactDamaged, match=r"missing\.npy cannot be read"):
        open_shards(tmp_path, manifest(3))
    np.save(tmp_path / MISSING, np.arange(2))
    with pytest.raises(ArtifactDamaged, match=r"missing\.npy holds int64 \(2,\) instead of int64 \(3,\)"):
        open_shards(tmp_path, manifest(3))
    content = (tmp_path / MISSING).read_bytes()
    (tmp_path / MISSING).write_bytes(content[:10] + b"{" * 118 + content[128:])
    for opened in (open_shards, corpus_vectors):
        with pytest.raises(ArtifactDamaged, match=r"missing\.npy cannot be read \(its head is damaged"):
            opened(tmp_path, manifest(3))


def test_a_shard_of_another_shape_or_type_is_refused(tmp_path: Path) -> None:
    write_all(tmp_path, made())
    with pytest.raises(ArtifactDamaged, match=r"holds float32 \(10, 4\) instead of float16 \(10, 4\)"):
        open_shards(tmp_path, manifest(dtype="float16"))
    with pytest.raises(ArtifactDamaged, match="says 10 rows of 'float64' a shard"):
        open_shards(tmp_path, manifest(dtype="float64"))
    np.save(of(tmp_path).path(10), made(9))
    with pytest.raises(ArtifactDamaged, match=r"holds float32 \(9, 4\) instead of float32 \(10, 4\)"):
        open_shards(tmp_path, manifest())
    for content in (b"", b"not an array"):
        of(tmp_path).path(10).write_bytes(content)
        with pytest.raises(ArtifactDamaged, match="cannot be read"):
            open_shards(tmp_path, manifest())


@pytest.mark.parametrize(
    ("bad", "reason"), [(np.nan, "is not finite"), (np.inf, "is not finite"), (1e5, "has a component too large for float16")]
)
def test_a_vector_that_cannot_be_stored_is_named_and_nothing_is_written(bad: float, reason: str, tmp_path: Path) -> None:
    content = made(10)
    content[3, 2] = bad
    with pytest.raises(IdxError, match=f"the vector of row 13 {reason}") as raised:
        of(tmp_path).write(range(10, 20), content, "float16")
    assert not isinstance(raised.value, InputError)  # which would throw the finished shards away
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match=f"the vector of row 23 {reason}"):
        ScatteredShards(of(tmp_path), 4, "float16").put(np.array([24, 23, 22]), content[2:5])
    with pytest.raises(ValueError, match="10 vectors for 5 rows"):
        of(tmp_path).write(range(20, 25), made(10), "float32")


def test_a_full_disk_leaves_no_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    unfinished_shard = tmp_path / ".shard-00000.npy.tmp"
    unfinished_shard.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as raised:
        of(tmp_path).write(range(10), made(10), "float32")
    assert raised.value.errno == errno.ENOSPC
    assert of(tmp_path).unfinished() == of(tmp_path).rows()


@pytest.mark.parametrize("n_at_once", [1, 4, N_ROWS])
@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_rows_in_any_order_make_the_same_shards(n_at_once: int, stored: Stored, tmp_path: Path) -> None:
    content = made()
    for folder in ("in order", "scattered"):
        (tmp_path / folder).mkdir()
    write_all(tmp_path / "in order", content, stored)
    scattered = ScatteredShards(of(tmp_path / "scattered"), 4, stored)
    order = np.random.default_rng(2).permutation(N_ROWS)
    for start in range(0, N_ROWS, n_at_once):
        rows = order[start : start + n_at_once]
        scattered.put(rows, content[rows])
    files = {path.name: path.read_bytes() for path in (tmp_path / "scattered").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "in order").iterdir()}


def test_rows_that_never_come_are_zeros(tmp_path: Path) -> None:
    content = made()
    scattered = ScatteredShards(of(tmp_path), 4, "float32")
    rows = np.array([3, 4, 8, 20, 24])
    scattered.put(rows, content[rows])
    assert of(tmp_path).unfinished() == of(tmp_path).rows()
    scattered.finish()
    assert of(tmp_path).unfinished() == []
    expected = np.zeros_like(content)
    expected[rows] = content[rows]
    np.testing.assert_array_equal(of(tmp_path).read(np.arange(N_ROWS)), expected)


def test_a_shard_that_was_cut_off_is_unfinished(tmp_path: Path) -> None:
    shards = Shards(tmp_path, 25, 10)
    for rows in shards.rows():
        shards.write(rows, np.ones((len(rows), 3), dtype=np.float32), "float32")
    assert shards.unfinished() == []
    whole = shards.path(10).read_bytes()
    shards.path(10).write_bytes(whole[:-1])
    np.save(shards.path(20), np.ones((4, 3), dtype=np.float32))
    assert shards.unfinished() == [range(10, 20), range(20, 25)]


def test_finished_shards_are_not_written_again_and_unfinished_ones_begin_anew(tmp_path: Path) -> None:
    content = made()
    first = ScatteredShards(of(tmp_path), 4, "float32")
    first.put(np.arange(5, 15)[::-1], content[5:15][::-1])
    first.put(np.arange(5), content[:5])
    before = of(tmp_path).path(0).stat().st_mtime_ns
    assert of(tmp_path).unfinished() == [range(10, 20), range(20, 25)]
    second = ScatteredShards(of(tmp_path), 4, "float32")
    second.put(np.arange(15), np.ones((15, 4), dtype=np.float32))
    second.finish()
    assert of(tmp_path).path(0).stat().st_mtime_ns == before
    np.testing.assert_array_equal(of(tmp_path).read(np.arange(10)), content[:10])
    np.testing.assert_array_equal(of(tmp_path).read(np.arange(10, 20)), [[1] * 4] * 5 + [[0] * 4] * 5)
