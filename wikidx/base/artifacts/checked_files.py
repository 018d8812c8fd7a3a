"""Checksums of the 64 KiB pages of an artifact's files. A process verifies a page before it first uses the page.

A flipped bit causes an error, never a wrong score. Kernels do not verify pages; their callers verify the bytes or rows beforehand.
The file ``sums`` holds the checksums of all files directly in the artifact's folder, concatenated in order of the files' names.
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

from wikidx.base.errors import ArtifactCorrupt
from wikidx.base.machine.threads import equal_ranges, n_threads

from .building import ArtifactSpec, BuildResult, artifact_files, build_artifact
from .durable import atomic_write
from .manifest import Manifest

PAGE_BYTES = 65_536
SUMS = "sums"

_MOST_HEADER_BYTES = 256


def build_checked(target: Path, spec: ArtifactSpec) -> Manifest:
    """Build an artifact and its page checksums; raises as ``base.artifacts.building.build_artifact`` does."""

    def write(staging: Path) -> BuildResult:
        outcome = spec.write(staging)
        write_sums(staging)
        return outcome

    return build_artifact(target, dataclasses.replace(spec, write=write))


def write_sums(staging: Path) -> None:
    """Write the page checksums of all files in the staging directory of an artifact.

    Raises:
        OSError: a disk error.
    """
    from wikidx.base.compiled import interpreted

    from .page_sums import page_sums

    with atomic_write(staging / SUMS) as file:
        for path in artifact_files(staging):
            if path.parent == staging and path.name != SUMS:
                content = map_bytes(path)
                with interpreted(len(content) // 8):
                    file.write(page_sums(content, PAGE_BYTES).data)


class CheckedFile:
    """A mapped file with checksums of its pages. Thread-safe.

    Attributes:
        content: the file's bytes, read-only; call ``check`` before reading them. They stay the same if the file is replaced.
    """

    def __init__(self, path: Path, sums: NDArray[np.uint64]) -> None:
        """Map the file without reading it; raises ``ArtifactCorrupt`` if it is missing."""
        try:
            self.content = map_bytes(path)
        except OSError as error:
            raise ArtifactCorrupt.of(error, path, f"{path} cannot be read ({error.strerror}): build it again with --force") from error
        if -(-len(self.content) // PAGE_BYTES) != len(sums):
            raise ArtifactCorrupt(
                f"{path} has {len(self.content):,} bytes, and {len(sums)} checksums of pages: build it again with --force"
            )
        self._path, self._sums = path, sums
        self._is_checked = np.zeros(len(sums), dtype=np.bool_)
        self._is_all_checked = not len(sums)

    def check(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        """Verify the pages of the byte ranges from ``starts[i]`` to before ``stops[i]``.

        Raises:
            ArtifactCorrupt: a page is corrupt.
        """
        if self._is_all_checked:
            return
        from wikidx.base.compiled import interpreted

        from .page_sums import pages_match

        with interpreted(int((stops - starts).sum()) // 8):
            is_intact = pages_match(
                self.content, np.ascontiguousarray(starts), np.ascontiguousarray(stops), self._sums, self._is_checked, PAGE_BYTES
            )
        if not is_intact:
            raise ArtifactCorrupt(f"{self._path} or its checksums in {SUMS} are corrupt: build it again with --force")
        self._is_all_checked = bool(self._is_checked.all())

    def check_all(self) -> None:
        """Verify all unverified pages, in ``n_threads()`` threads; raises as ``check`` does."""
        if self._is_all_checked:
            return
        bounds = np.array([rows.start for rows in equal_ranges(len(self.content), n_threads())] + [len(self.content)])
        with ThreadPoolExecutor(len(bounds) - 1) as threads:
            for _ in threads.map(self.check, bounds[:-1, np.newaxis], bounds[1:, np.newaxis]):
                pass

    def read_ahead(self, start: int, stop: int) -> None:
        """Have the system read the bytes from ``start`` to before ``stop``, which it would otherwise read page by page."""
        if isinstance(self.content.base, mmap.mmap) and hasattr(mmap, "MADV_WILLNEED"):
            start -= start % mmap.PAGESIZE
            self.content.base.madvise(mmap.MADV_WILLNEED, start, stop - start)

    def release(self) -> None:
        """Let the system reclaim the memory of pages that were read; they are read again on demand."""
        if isinstance(self.content.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self.content.base.madvise(mmap.MADV_DONTNEED)

    def array(self, dtype: DTypeLike, shape: tuple[int, ...]) -> CheckedArray:
        """Return the array at the end of the file, after a header if any, as in a ``.npy`` file.

        Raises:
            ArtifactCorrupt: the file is too short or too long for the array.
        """
        n_bytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        first = len(self.content) - n_bytes
        if not 0 <= first <= _MOST_HEADER_BYTES:
            size = f"{len(self.content):,} bytes"
            raise ArtifactCorrupt(f"{self._path} has {size}, which is no {np.dtype(dtype)} {shape}: build it again with --force")
        return CheckedArray(self, self.content[first:].view(dtype).reshape(shape), first)


class CheckedArray:
    """Array in a file, indexed by a slice or by row numbers. The pages of a row are verified on first access."""

    def __init__(self, file: CheckedFile, array: NDArray[Any], first_byte: int) -> None:
        self._file, self._array, self._first_byte = file, array, first_byte
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = array.dtype
        self._row_bytes = int(np.prod(array.shape[1:], dtype=np.int64)) * array.itemsize

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, rows: slice | NDArray[np.int64]) -> NDArray[Any]:
        """Return rows: a mapped view for a slice, a copy for row numbers; raises ``ArtifactCorrupt`` if they are corrupt."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            starts, stops = np.array([start]), np.array([stop])
        else:
            starts, stops = rows, rows + 1
        self._file.check(self._first_byte + starts * self._row_bytes, self._first_byte + stops * self._row_bytes)
        return self._array[rows]

    def release(self) -> None:
        """Let the system reclaim the memory of rows that were read; they are read again on demand."""
        self._file.release()

    def row_range(self, rows: range) -> CheckedArray:
        """Return consecutive rows as another ``CheckedArray``."""
        return CheckedArray(self._file, self._array[rows.start : rows.stop], self._first_byte + rows.start * self._row_bytes)


ReadableArray = CheckedArray | NDArray[Any]


class CheckedFiles(dict[str, CheckedFile]):
    """Mapped files of an artifact by name. Their pages are verified on first use."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Map the files.

        Raises:
            ArtifactCorrupt: the number of checksums does not match the files, or a file is missing.
        """
        self._folder = folder
        sizes = {name: record.n_bytes for name, record in sorted(manifest.files.items()) if "/" not in name and name != SUMS}
        ends = np.cumsum([-(-n_bytes // PAGE_BYTES) for n_bytes in sizes.values()], dtype=np.int64).tolist()
        n_bytes, n_sums = (folder / SUMS).stat().st_size if SUMS in manifest.files else 0, ends[-1] if ends else 0
        if n_bytes != 8 * n_sums:
            raise ArtifactCorrupt(f"{folder / SUMS} has {n_bytes // 8} checksums, {n_sums} are needed: build it again with --force")
        sums = np.split(map_bytes(folder / SUMS).view(np.uint64), ends[:-1]) if n_sums else [np.empty(0, np.uint64)] * len(sizes)
        super().__init__((name, CheckedFile(folder / name, sums_of_file)) for name, sums_of_file in zip(sizes, sums, strict=True))

    def __missing__(self, name: str) -> CheckedFile:
        raise ArtifactCorrupt(f"{self._folder} has no file {name}: build it again with --force")


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write a ``.npy`` file atomically. Unlike ``np.save``, the error on a full disk gives the reason."""
    array = np.ascontiguousarray(array)
    with atomic_write(path) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)


def map_bytes(path: Path) -> NDArray[np.uint8]:
    """Map the bytes of a file read-only; raises ``OSError`` if the file cannot be opened or mapped."""
    with path.open("rb") as file:
        n_bytes = os.fstat(file.fileno()).st_size
        return np.frombuffer(mmap.mmap(file.fileno(), n_bytes, access=mmap.ACCESS_READ) if n_bytes else b"", dtype=np.uint8)
