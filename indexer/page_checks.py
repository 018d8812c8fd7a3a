"""Checksums of an artefact's files, one for every 64 KiB: what a process reads of them for the first time is compared before it is used.

So a flipped bit is an error, never a wrong score. The file ``sums`` holds them, those of one file after those of another, by name; ``bm25``
orders its own otherwise. Artefacts that were made before there were any are read as they are.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corpora.artifacts import Manifest
from corpora.durable import replacing
from corpora.errors import ArtifactDamaged

from .base import equal_ranges, n_threads
from .compiled import kernel
from .memory_map import map_bytes

PAGE_BYTES = 65_536  # what one checksum is over
SUMS = "sums"

_SUFFIXES = (".npy", ".faiss")
_PRIME = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplying loses nothing


class Pages(NamedTuple):
    """The checksums of one file's pages, and which of them have been compared in this process."""

    sums: NDArray[np.uint64]
    seen: NDArray[np.bool_]


class CheckedFile:
    """A file whose pages are compared before they are first read; the one that was there when it was opened, also if it is replaced later.

    Several threads may ask at once.
    """

    def __init__(self, path: Path, n_bytes: int, sums: NDArray[np.uint64] | None) -> None:
        """Map the file, reading nothing yet; without ``sums`` there is nothing to compare. Raises ``ArtifactDamaged`` if it is gone."""
        self.n_bytes = n_bytes
        self._path = path
        try:
            self._unseen = None if sums is None else (map_bytes(path), Pages(sums, np.zeros(len(sums), dtype=np.bool_)))
        except OSError as error:
            raise ArtifactDamaged(f"{path} cannot be read ({error.strerror}): build it again with --force") from error

    def check(self, start: int, stop: int) -> None:
        """Compare the pages that some bytes lie on; raises ``ArtifactDamaged`` if one is damaged."""
        self.check_records(np.array([start]), stop - start)

    def check_records(self, starts: NDArray[np.int64], record_bytes: int) -> None:
        """Compare the pages of records of equal size, given by their first bytes; raises as ``check`` does."""
        unseen = self._unseen  # another thread may be about to drop it
        if unseen is None:
            return
        content, pages = unseen
        if not _are_sound(content, starts, record_bytes, pages):
            raise self._damaged()
        if pages.seen.all():
            self._unseen = None

    def check_all(self) -> None:
        """Compare all pages that have not been; raises as ``check`` does."""
        unseen = self._unseen
        if unseen is None:
            return
        content, pages = unseen
        parts = [part for part in equal_ranges(len(pages.sums), n_threads()) if part]

        def is_part_sound(part: range) -> bool:
            return bool(is_sound(content, part.start * PAGE_BYTES, min(part.stop * PAGE_BYTES, len(content)), pages))

        with ThreadPoolExecutor(max(1, len(parts))) as threads:
            if not all(threads.map(is_part_sound, parts)):
                raise self._damaged()
        self._unseen = None

    def _damaged(self) -> ArtifactDamaged:
        return ArtifactDamaged(f"{self._path} or its checksums in {SUMS} are damaged: build it again with --force")


def checked_files(folder: Path, manifest: Manifest) -> dict[str, CheckedFile]:
    """Return the files of arrays and of FAISS that an artefact has, by their names, none of them compared yet.

    Raises:
        ArtifactDamaged: there are not as many checksums as the files need.
    """
    sizes = {name: record.n_bytes for name, record in sorted(manifest.files.items()) if Path(name).suffix in _SUFFIXES}
    if SUMS not in manifest.files:
        return {name: CheckedFile(folder / name, n_bytes, None) for name, n_bytes in sizes.items()}
    sums = map_bytes(folder / SUMS).view(np.uint64)
    n_pages = [-(-n_bytes // PAGE_BYTES) for n_bytes in sizes.values()]
    if sum(n_pages) != len(sums):
        raise ArtifactDamaged(f"{folder / SUMS} has {len(sums)} checksums, {sum(n_pages)} are needed: build it again with --force")
    parts = np.split(sums, np.cumsum(n_pages)[:-1])
    return {name: CheckedFile(folder / name, sizes[name], part) for name, part in zip(sizes, parts, strict=True)}


def checked_file(folder: Path, manifest: Manifest, name: str) -> CheckedFile:
    """Return one of these files; raises as ``checked_files`` does."""
    return checked_files(folder, manifest).get(name) or CheckedFile(folder / name, (folder / name).stat().st_size, None)


def write_sums(folder: Path) -> None:
    """Write the checksums of the files of arrays and of FAISS in a folder.

    Raises:
        OSError: the disk refuses.
    """
    with replacing(folder / SUMS) as file:
        for path in sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES):
            file.write(page_sums(map_bytes(path)).data)


@kernel
def is_sound(array: NDArray[Any], start: int, stop: int, pages: Pages) -> bool:
    """Return whether elements ``start`` to ``stop`` lie on pages with the right checksums; each page is compared once."""
    if start >= stop:
        return True
    size = PAGE_BYTES // array.itemsize
    for page in range(start // size, (stop - 1) // size + 1):
        if not pages.seen[page]:
            if _page_sum(array[page * size : (page + 1) * size]) != pages.sums[page]:
                return False
            pages.seen[page] = True
    return True


@kernel
def _are_sound(content: NDArray[np.uint8], starts: NDArray[np.int64], n_bytes: int, pages: Pages) -> bool:
    """Return whether all stretches of so many bytes lie on such pages."""
    for start in starts:
        if not is_sound(content, start, start + n_bytes, pages):
            return False
    return True


@kernel
def page_sums(array: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the checksum of every page of an array."""
    size = PAGE_BYTES // array.itemsize
    sums = np.empty((len(array) + size - 1) // size, dtype=np.uint64)
    for page in range(len(sums)):
        sums[page] = _page_sum(array[page * size : (page + 1) * size])
    return sums


@kernel
def _page_sum(page: NDArray[Any]) -> np.uint64:
    """Return a checksum that differs whenever a single 8-byte word does: each step can be undone. It is no defence against intent."""
    data = page.view(np.uint8)
    n_words = len(data) // 8
    words = data[: 8 * n_words].view(np.uint64)
    total = np.uint64(len(data))
    first, second, third, fourth = total, total, total, total  # four sums at a time: each has to wait for its last product
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
