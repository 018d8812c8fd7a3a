"""Page checksums of an artefact's files, one per 64 KiB: a process verifies every page before it first uses it.

A flipped bit is an error, never a wrong score. Kernels know nothing of it: callers verify bytes or rows before reading them. The
file ``sums`` holds the checksums of all files directly in the folder, file after file, by name.
"""

from __future__ import annotations

import dataclasses
import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from wikidx.corpora.artifacts.building import Outcome, Work, artifact_files, build_artifact
from wikidx.corpora.artifacts.durable import replacing
from wikidx.corpora.artifacts.manifest import Manifest
from wikidx.corpora.errors import ArtifactDamaged
from wikidx.corpora.store import Rows

from .machine.compiled import kernel
from .machine.threads import equal_ranges, n_threads

PAGE_BYTES = 65_536  # covered by one checksum
SUMS = "sums"

_MOST_HEADER_BYTES = 256
_PRIME = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplying loses nothing


def build_checked(target: Path, work: Work) -> Manifest:
    """Build an artefact and its page checksums; see ``corpora.artifacts.building.build_artifact``, which raises the same errors."""

    def write(staging: Path) -> Outcome:
        outcome = work.write(staging)
        write_sums(staging)
        return outcome

    return build_artifact(target, dataclasses.replace(work, write=write))


def write_sums(staging: Path) -> None:
    """Write the page checksums of all files in a directory that will become an artefact.

    Raises:
        OSError: a disk error.
    """
    with replacing(staging / SUMS) as file:
        for path in artifact_files(staging):
            if path.parent == staging and path.name != SUMS:
                file.write(page_sums(map_bytes(path)).data)


class CheckedFile:
    """A mapped file whose pages are verified before they are first read. Thread-safe.

    Attributes:
        content: its bytes, read-only; those at opening time, even if the file is replaced later.
    """

    def __init__(self, path: Path, sums: NDArray[np.uint64]) -> None:
        """Map the file without reading it; raises ``ArtifactDamaged`` if it is missing."""
        try:
            self.content = map_bytes(path)
        except OSError as error:
            raise ArtifactDamaged(f"{path} cannot be read ({error.strerror}): build it again with --force") from error
        if -(-len(self.content) // PAGE_BYTES) != len(sums):
            raise ArtifactDamaged(
                f"{path} has {len(self.content):,} bytes, and {len(sums)} checksums of pages: build it again with --force"
            )
        self._path, self._sums = path, sums
        self._is_seen = np.zeros(len(sums), dtype=np.bool_)
        self._is_all_seen = not len(sums)

    def check(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        """Verify the pages of byte ranges, given by their starts and stops.

        Raises:
            ArtifactDamaged: a page is corrupt.
        """
        if self._is_all_seen:
            return
        if not _are_sound(self.content, starts, stops, self._sums, self._is_seen):
            raise ArtifactDamaged(f"{self._path} or its checksums in {SUMS} are damaged: build it again with --force")
        self._is_all_seen = bool(self._is_seen.all())

    def check_all(self) -> None:
        """Verify all pages not verified yet, on all CPUs; raises as ``check`` does."""
        if self._is_all_seen:
            return
        bounds = np.array([part.start for part in equal_ranges(len(self.content), n_threads())] + [len(self.content)])
        with ThreadPoolExecutor(len(bounds) - 1) as threads:
            for _ in threads.map(self.check, bounds[:-1, np.newaxis], bounds[1:, np.newaxis]):
                pass

    def release(self) -> None:
        """Let the system reclaim the memory of read pages; they are read again on demand."""
        if isinstance(self.content.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self.content.base.madvise(mmap.MADV_DONTNEED)

    def array(self, dtype: DTypeLike, shape: tuple[int, ...]) -> CheckedArray:
        """Return the array at the end of the file, as in a ``.npy`` file.

        Raises:
            ArtifactDamaged: the file is too short or too long for it.
        """
        n_bytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        first = len(self.content) - n_bytes
        if not 0 <= first <= _MOST_HEADER_BYTES:
            n_there = f"{len(self.content):,} bytes"
            raise ArtifactDamaged(f"{self._path} has {n_there}, which is no {np.dtype(dtype)} {shape}: build it again with --force")
        return CheckedArray(self, self.content[first:].view(dtype).reshape(shape), first)


class CheckedArray:
    """Rows of an array in a file, verified when they are first taken by a slice or by their numbers.

    Attributes:
        shape: of the array.
        dtype: of its numbers.
    """

    def __init__(self, file: CheckedFile, array: NDArray[Any], first_byte: int) -> None:
        self._file, self._array, self._first_byte = file, array, first_byte
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = array.dtype
        self._row_bytes = int(np.prod(array.shape[1:], dtype=np.int64)) * array.itemsize

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, rows: slice | Rows) -> NDArray[Any]:
        """Return rows, mapped for a slice; raises ``ArtifactDamaged`` if they are corrupt."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            starts, stops = np.array([start]), np.array([stop])
        else:
            starts, stops = rows, rows + 1
        self._file.check(self._first_byte + starts * self._row_bytes, self._first_byte + stops * self._row_bytes)
        return self._array[rows]

    def release(self) -> None:
        """Let the system reclaim the memory of read rows."""
        self._file.release()

    def part(self, rows: range) -> CheckedArray:
        """Return consecutive rows as an array of their own."""
        return CheckedArray(self._file, self._array[rows.start : rows.stop], self._first_byte + rows.start * self._row_bytes)


ReadableArray = CheckedArray | NDArray[Any]  # indexed by a slice or by row numbers


class CheckedFiles(dict[str, CheckedFile]):
    """The files of an artefact by their names, none verified yet."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Map the files.

        Raises:
            ArtifactDamaged: the number of checksums does not match the files, or a file is missing.
        """
        self._folder = folder
        sizes = {name: record.n_bytes for name, record in sorted(manifest.files.items()) if "/" not in name and name != SUMS}
        ends = np.cumsum([-(-n_bytes // PAGE_BYTES) for n_bytes in sizes.values()], dtype=np.int64).tolist()
        n_bytes, n_sums = (folder / SUMS).stat().st_size if SUMS in manifest.files else 0, ends[-1] if ends else 0
        if n_bytes != 8 * n_sums:
            raise ArtifactDamaged(f"{folder / SUMS} has {n_bytes // 8} checksums, {n_sums} are needed: build it again with --force")
        parts = np.split(map_bytes(folder / SUMS).view(np.uint64), ends[:-1]) if n_sums else [np.empty(0, np.uint64)] * len(sizes)
        super().__init__((name, CheckedFile(folder / name, part)) for name, part in zip(sizes, parts, strict=True))

    def __missing__(self, name: str) -> CheckedFile:
        raise ArtifactDamaged(f"{self._folder} has no file {name}: build it again with --force")


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write a ``.npy`` file atomically. ``np.save`` is not used, because its error on a full disk gives no reason."""
    array = np.ascontiguousarray(array)
    with replacing(path) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)


def map_bytes(path: Path) -> NDArray[np.uint8]:
    """Return the bytes of a file, mapped read-only; raises ``OSError`` if it cannot be."""
    with path.open("rb") as file:
        n_bytes = os.fstat(file.fileno()).st_size
        return np.frombuffer(mmap.mmap(file.fileno(), n_bytes, access=mmap.ACCESS_READ) if n_bytes else b"", dtype=np.uint8)


@kernel
def _are_sound(
    content: NDArray[np.uint8],
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    sums: NDArray[np.uint64],
    is_seen: NDArray[np.bool_],
) -> bool:
    """Return whether the pages of byte ranges match their checksums; each page is verified once."""
    for i in range(len(starts)):
        if starts[i] < stops[i]:
            for page in range(starts[i] // PAGE_BYTES, (stops[i] - 1) // PAGE_BYTES + 1):
                if not is_seen[page]:
                    if _page_sum(content[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]) != sums[page]:
                        return False
                    is_seen[page] = True
    return True


@kernel
def page_sums(content: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the checksum of every page."""
    sums = np.empty((len(content) + PAGE_BYTES - 1) // PAGE_BYTES, dtype=np.uint64)
    for page in range(len(sums)):
        sums[page] = _page_sum(content[page * PAGE_BYTES : (page + 1) * PAGE_BYTES])
    return sums


@kernel
def _page_sum(data: NDArray[np.uint8]) -> np.uint64:
    """Return a checksum that changes with any single 8-byte word: each step is invertible. It does not protect against tampering."""
    n_words = len(data) // 8
    words = data[: 8 * n_words].view(np.uint64)
    total = np.uint64(len(data))
    first, second, third, fourth = total, total, total, total  # four sums at a time, because each waits for its previous product
    n_fours = n_words // 4
    for number in range(0, 4 * n_fours, 4):
        first = _added(first, words[number])
        second = _added(second, words[number + 1])
        third = _added(third, words[number + 2])
        fourth = _added(fourth, words[number + 3])
    for part in (first, second, third, fourth):
        total = _added(total, part)
    for word in words[4 * n_fours :]:
        total = _added(total, word)
    for byte in data[8 * n_words :]:
        total = _added(total, np.uint64(byte))
    return total


@kernel
def _added(total: np.uint64, word: np.uint64) -> np.uint64:
    product = (total ^ word) * _PRIME
    return product ^ (product >> np.uint64(32))
