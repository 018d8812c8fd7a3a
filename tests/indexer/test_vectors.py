from __future__ import annotations

import dataclasses
import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from tests.indexer.made_vectors import clustered, vectors_manifest
from wikidx.base.artifacts.building import INTERMEDIATE
from wikidx.base.errors import ArtifactCorrupt, IdxError, InputError
from wikidx.indexer.base import Stored, Vectors
from wikidx.indexer.vectors.corpus_vectors import open_corpus_vectors
from wikidx.indexer.vectors.file import VECTORS, VectorFile, finished_ranges, write_rows

N_ROWS = 25
RANGES = [range(10), range(10, 20), range(20, 25)]


def file_in(folder: Path, stored: Stored = "float32") -> VectorFile:
    return VectorFile(folder, N_ROWS, stored, 10)


def journal(folder: Path) -> Path:
    return folder / INTERMEDIATE / "finished"


def made(n: int = N_ROWS, dim: int = 4) -> Vectors:
    return np.random.default_rng(1).normal(size=(n, dim)).astype(np.float32)


def write_all(folder: Path, content: Vectors, stored: Stored = "float32") -> None:
    for rows in RANGES:
        file_in(folder, stored).write(rows, content[rows.start : rows.stop])


@pytest.mark.parametrize(
    ("bad", "reason"), [(np.nan, "is not finite"), (np.inf, "is not finite"), (1e5, "has a component too large for float16")]
)
def test_a_vector_that_cannot_be_stored_is_named(bad: float, reason: str, tmp_path: Path) -> None:
    content = made(10)
    content[3, 2] = bad
    with pytest.raises(IdxError, match=f"the vector of row 13 {reason}") as raised:
        file_in(tmp_path, "float16").write(range(10, 20), content)
    assert not isinstance(raised.value, InputError)  # which would throw the finished vectors away
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match=f"the vector of row 23 {reason}"):
        write_rows(file_in(tmp_path, "float16").map_writable(4), np.array([24, 23, 22]), content[2:5])


def test_vectors_that_are_not_as_the_manifest_says(tmp_path: Path) -> None:
    write_all(tmp_path, made())
    for dtype, n_missing, message in (
        ("float16", 0, r"vectors\.npy has 528 bytes, which is no float16 \(25, 4\)"),
        ("float32", 3, r"has no file missing\.npy"),
    ):
        with pytest.raises(ArtifactCorrupt, match=message):
            open_corpus_vectors(tmp_path, vectors_manifest(tmp_path, (N_ROWS, 4), dtype, n_missing))


@pytest.mark.parametrize("factor", [50, 0.98, 0])
def test_a_vector_of_another_length_than_the_encoders_is_named(factor: float, tmp_path: Path) -> None:
    content = made(10)
    content /= np.linalg.norm(content, axis=1, keepdims=True)
    content[3] *= factor
    file = dataclasses.replace(file_in(tmp_path), is_unit=True)
    message = f"the vector of row 13 has length {factor}, the encoder's have length 1"
    with pytest.raises(IdxError, match=message):
        file.write(range(10, 20), content)
    with pytest.raises(InputError, match=message):
        write_rows(file.map_writable(4), np.arange(10, 20), content, is_unit=True)
    file_in(tmp_path).write(range(10, 20), content)  # of an encoder that does not normalize


@pytest.mark.parametrize("n_bits", [8, 11])
def test_lengths_that_were_rounded_in_16_bits_pass(n_bits: int, tmp_path: Path) -> None:
    def rounded(numbers: Vectors) -> Vectors:
        mantissa, exponent = np.frexp(numbers)
        found: Vectors = np.ldexp(np.round(mantissa * 2**n_bits) / np.float32(2**n_bits), exponent)
        return found

    content = rounded(made(N_ROWS, 384))
    content = rounded(content / rounded(np.linalg.norm(content, axis=1, keepdims=True)))
    dataclasses.replace(file_in(tmp_path), is_unit=True).write(range(N_ROWS), content)
    assert np.abs(np.linalg.norm(content, axis=1) - 1).max() > 1e-4


@pytest.mark.parametrize("n_at_once", [1, 4, N_ROWS])
@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_rows_in_any_order_make_the_same_file(n_at_once: int, stored: Stored, tmp_path: Path) -> None:
    content = made()
    content[[5, 13]] = 0
    for folder in ("in order", "scattered"):
        (tmp_path / folder).mkdir()
    write_all(tmp_path / "in order", content, stored)
    scattered = file_in(tmp_path / "scattered", stored).map_writable(4)
    order = np.random.default_rng(2).permutation(np.setdiff1d(np.arange(N_ROWS), [5, 13]))
    for start in range(0, len(order), n_at_once):
        rows = order[start : start + n_at_once]
        write_rows(scattered, rows, content[rows])
    assert (tmp_path / "scattered" / VECTORS).read_bytes() == (tmp_path / "in order" / VECTORS).read_bytes()
    assert file_in(tmp_path / "scattered", stored).unfinished_ranges() == RANGES


def test_what_the_journal_says_is_finished(tmp_path: Path) -> None:
    content = made()
    assert file_in(tmp_path).unfinished_ranges() == RANGES
    file_in(tmp_path).write(range(20, 25), content[20:])
    file_in(tmp_path).write(range(10), content[:10])
    assert file_in(tmp_path).unfinished_ranges() == [range(10, 20)]
    assert finished_ranges(tmp_path) == [range(20, 25), range(10)]
    assert VectorFile(tmp_path, N_ROWS, "float32", 5).unfinished_ranges() == [range(10, 15), range(15, 20)]
    assert VectorFile(tmp_path, N_ROWS, "float32", 25).unfinished_ranges() == [range(25)]
    file_in(tmp_path).write(range(10, 20), content[10:20])
    assert file_in(tmp_path).unfinished_ranges() == []
    np.testing.assert_array_equal(np.load(tmp_path / VECTORS), content)


def test_a_torn_or_corrupt_line_of_the_journal_counts_for_nothing(tmp_path: Path) -> None:
    content = made()
    write_all(tmp_path, content)
    whole = journal(tmp_path).read_bytes()
    for n_bytes in range(len(whole)):
        journal(tmp_path).write_bytes(whole[:n_bytes])
        lines = [line for line in whole[:n_bytes].split(b"\n") if line and line in whole.split(b"\n")]
        assert finished_ranges(tmp_path) == RANGES[: len(lines)], n_bytes
    for place in range(len(whole)):
        journal(tmp_path).write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert len(finished_ranges(tmp_path)) >= 1
        assert all(rows in RANGES for rows in finished_ranges(tmp_path))
    journal(tmp_path).write_bytes(whole[:-4])  # torn: what is written behind it still counts
    file_in(tmp_path).write(range(20, 25), content[20:])
    assert file_in(tmp_path).unfinished_ranges() == []


@pytest.mark.parametrize("content", [b"", b"not an array", None])
def test_a_file_that_was_cut_off_is_rebuilt(content: bytes | None, tmp_path: Path) -> None:
    write_all(tmp_path, made())
    (tmp_path / VECTORS).write_bytes((tmp_path / VECTORS).read_bytes()[:-1] if content is None else content)
    assert file_in(tmp_path).unfinished_ranges() == RANGES
    file_in(tmp_path).write(range(10, 20), made()[10:20])
    assert file_in(tmp_path).unfinished_ranges() == [range(10), range(20, 25)]
    write_all(tmp_path, made())
    np.testing.assert_array_equal(np.load(tmp_path / VECTORS), made())


def _write(file: VectorFile, first: int) -> None:
    for start in range(first, 2000, 40):
        file.write(range(start, start + 10), np.full((10, 3), start, dtype=np.float32))


def test_processes_write_at_once(tmp_path: Path) -> None:
    file = VectorFile(tmp_path, 2000, "float32", 10)
    processes = [multiprocessing.get_context("fork").Process(target=_write, args=(file, first)) for first in (0, 10, 20, 30)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert file.unfinished_ranges() == []
    np.testing.assert_array_equal(np.load(file.path)[:, 0], np.arange(2000) // 10 * 10)


@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_scores_are_the_products_with_the_rows_named(stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    VectorFile(tmp_path, 1000, stored).write(range(1000), clustered(1000, 8, 0))
    queries = clustered(20, 8, 1)
    rows = np.random.default_rng(0).integers(-1, 1000, size=(20, 30))
    vectors = open_corpus_vectors(tmp_path, vectors_manifest(tmp_path, (1000, 8), stored))
    vectors = dataclasses.replace(vectors, missing=np.unique(rows[rows >= 0])[:5])
    content = vectors.array[:]
    expected = np.where(
        (rows < 0) | np.isin(rows, vectors.missing),
        -np.inf,
        np.einsum("qd,qcd->qc", queries.astype(np.float64), content[rows].astype(np.float64)),
    )
    np.testing.assert_allclose(vectors.scores(queries, rows), expected, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr("wikidx.indexer.vectors.corpus_vectors._CANDIDATES_AT_ONCE", 70)  # two queries at a time
    np.testing.assert_allclose(vectors.scores(queries, rows), expected, rtol=1e-5, atol=1e-5)
