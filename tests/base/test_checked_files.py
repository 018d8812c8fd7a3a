"""Page checksums: they detect corruption, only pages that are read are checked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from wikidx.base.artifacts.checked_files import PAGE_BYTES, CheckedFile, map_bytes
from wikidx.base.artifacts.page_sums import page_sums
from wikidx.base.errors import ArtifactCorrupt


def flip(path: Path, place: int, bit: int = 3) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1 << bit]))


@pytest.mark.parametrize("n_bytes", [1, 7, 8, 9, 31, 32, 33, 40, 1_000, PAGE_BYTES - 1, PAGE_BYTES])
def test_every_flipped_bit_changes_the_checksum(n_bytes: int) -> None:
    rng = np.random.default_rng(n_bytes)
    content = rng.integers(0, 256, n_bytes, dtype=np.uint8)
    (expected,) = page_sums(content, PAGE_BYTES)
    for place in {0, n_bytes - 1, *rng.integers(0, n_bytes, 60).tolist()}:
        for bit in range(8):
            content[place] ^= 1 << bit
            assert page_sums(content, PAGE_BYTES)[0] != expected
            content[place] ^= 1 << bit
    assert page_sums(content[:-1], PAGE_BYTES).tolist() != [expected]


def test_only_what_is_asked_for_is_compared_and_only_once(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(np.random.default_rng(0).bytes(5 * PAGE_BYTES + 100))
    sums = page_sums(np.fromfile(path, dtype=np.uint8), PAGE_BYTES)
    assert len(sums) == 6
    flip(path, 3 * PAGE_BYTES)
    file = CheckedFile(path, sums)

    def check(*stretches: tuple[int, int]) -> None:
        starts, stops = np.array(stretches).T
        file.check(starts, stops)

    check((0, PAGE_BYTES), (PAGE_BYTES, 3 * PAGE_BYTES))
    check((4 * PAGE_BYTES, len(file.content)))
    check((3 * PAGE_BYTES, 3 * PAGE_BYTES))  # nothing
    flip(path, 0)  # compared already
    check((0, 1))
    with pytest.raises(ArtifactCorrupt, match=f"{path} or its checksums"):
        check((0, 1), (3 * PAGE_BYTES - 1, 3 * PAGE_BYTES + 1))
    with pytest.raises(ArtifactCorrupt, match=f"{path} or its checksums"):
        file.check_all()
    flip(path, 3 * PAGE_BYTES)
    file.check_all()
    flip(path, 3 * PAGE_BYTES)
    file.check_all()


def test_rows_of_an_array_are_compared_when_they_are_taken_out(tmp_path: Path) -> None:
    values = np.arange(6 * PAGE_BYTES, dtype=np.float32).reshape(-1, 16)  # 1,024 rows a page, but for the header
    np.save(tmp_path / "a.npy", values)
    array = CheckedFile(tmp_path / "a.npy", page_sums(map_bytes(tmp_path / "a.npy"), PAGE_BYTES)).array("float32", values.shape)
    flip(tmp_path / "a.npy", 5 * PAGE_BYTES)
    np.testing.assert_array_equal(array[100:1200], values[100:1200])
    scattered = np.array([9, 9_000, 3_000])
    np.testing.assert_array_equal(array[scattered], values[scattered])
    part = array.row_range(range(4_000, 6_000))
    assert (len(part), part.shape, part.dtype.name) == (2_000, (2_000, 16), "float32")
    np.testing.assert_array_equal(part[:1_000], values[4_000:5_000])
    for rows in (slice(1_000, 1_200), np.array([0, 1_200])):
        with pytest.raises(ArtifactCorrupt, match="a.npy or its checksums"):
            part[rows]


def test_what_holds_another_array_is_corruption(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((100, 8), dtype=np.float32))
    file = CheckedFile(tmp_path / "a.npy", page_sums(map_bytes(tmp_path / "a.npy"), PAGE_BYTES))
    for shape, dtype in (((100, 9), "float32"), ((100, 8), "float16")):
        with pytest.raises(ArtifactCorrupt, match=r"a\.npy has 3,328 bytes, which is no float"):
            file.array(dtype, shape)
    with pytest.raises(ArtifactCorrupt, match=r"a\.npy has 3,328 bytes, and 2 checksums"):
        CheckedFile(tmp_path / "a.npy", np.zeros(2, dtype=np.uint64))
    with pytest.raises(ArtifactCorrupt, match="cannot be read"):
        CheckedFile(tmp_path / "none.npy", np.zeros(2, dtype=np.uint64))


def test_threads_may_read_while_the_interpreter_exits(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(1 << 20))
    command = (
        "import sys, threading, time; from pathlib import Path; from wikidx.base.artifacts.checked_files import map_bytes\n"
        "a = map_bytes(Path(sys.argv[1]))\n"
        "def read():\n    while True: a.sum()\n"
        "threading.Thread(target=read, daemon=True).start(); time.sleep(0.2)"
    )
    for _ in range(3):
        assert subprocess.run([sys.executable, "-c", command, str(tmp_path / "a.npy")], check=False, cwd=ROOT).returncode == 0
