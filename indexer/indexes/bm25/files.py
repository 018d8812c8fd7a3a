"""The files of a built index: what each holds, how they are memory-mapped, and how a search knows that they are undamaged.

A row is 65,536 * block + row within the block. The postings of a term are its segments, one for each block that has the term, in ascending
order; a segment is the rows within the block, ascending, and an impact for each (see ``similarity``). A term in more than 1/8 of all rows
has no segments: it is *dense*, one impact for every row, 0 where the row lacks it.

Every 64 KB of every file have a checksum in ``sums``. What a search reads for the first time in a process is compared before it is used: a
flipped bit is an error, never a wrong result. All files are little-endian.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from corpora.errors import ArtifactDamaged, StorageError
from indexer.page_checks import PAGE_BYTES, SUMS, Pages, is_sound, page_sums

BLOCK_ROWS = 65_536


class Postings(NamedTuple):
    """All arrays of an index; each stands in the file of its name.

    Attributes:
        pool, ends, slots: the dictionary; see ``HashedTerms``.
        posting_starts: (terms + 1): where each term's postings begin in ``rows`` and ``impacts``.
        segment_starts: (terms + 1): where each term's segments begin in ``segment_blocks`` and ``segment_sizes``.
        segment_blocks: the block of each segment.
        segment_sizes: postings of each segment, less one.
        rows: row within the block, (postings).
        impacts: see ``similarity``, (postings).
        lengths: length code of each row; see ``similarity``.
        dense_terms: the dense terms, ascending, and ...
        dense_frequencies: ... how many rows each is in.
        dense_impacts: (dense terms * rows): term by term.
        high_postings: term * rows of the corpus + row, ascending, of postings whose tf the impact does not tell, and ...
        high_frequencies: ... that tf.
        totals: rows that have a term, and the tokens of all rows.
    """

    pool: NDArray[np.uint8]
    ends: NDArray[np.uint32]
    slots: NDArray[np.uint32]
    posting_starts: NDArray[np.int64]
    segment_starts: NDArray[np.int64]
    segment_blocks: NDArray[np.uint16]
    segment_sizes: NDArray[np.uint16]
    rows: NDArray[np.uint16]
    impacts: NDArray[np.uint8]
    lengths: NDArray[np.uint8]
    dense_terms: NDArray[np.int64]
    dense_frequencies: NDArray[np.int64]
    dense_impacts: NDArray[np.uint8]
    high_postings: NDArray[np.int64]
    high_frequencies: NDArray[np.uint16]
    totals: NDArray[np.int64]


DTYPES: dict[str, DTypeLike] = {
    "pool": np.uint8,
    "ends": np.uint32,
    "slots": np.uint32,
    "posting_starts": np.int64,
    "segment_starts": np.int64,
    "segment_blocks": np.uint16,
    "segment_sizes": np.uint16,
    "rows": np.uint16,
    "impacts": np.uint8,
    "lengths": np.uint8,
    "dense_terms": np.int64,
    "dense_frequencies": np.int64,
    "dense_impacts": np.uint8,
    "high_postings": np.int64,
    "high_frequencies": np.uint16,
    "totals": np.int64,
}
_IN_STRETCHES = ("segment_blocks", "segment_sizes", "rows", "impacts", "dense_impacts")  # checked as far as they are read


class Checks(NamedTuple):
    """Pages of the files that are read in stretches."""

    segment_blocks: Pages
    segment_sizes: Pages
    rows: Pages
    impacts: Pages
    dense_impacts: Pages


class IndexFiles:
    """The mapped files of an index."""

    def __init__(self, path: Path) -> None:
        """Map the files; nothing is read yet.

        Raises:
            ArtifactDamaged: a file's size does not fit its content.
        """
        self._path = path
        self.postings = Postings(**{name: map_array(path / name, dtype) for name, dtype in DTYPES.items()})
        sums = map_array(path / SUMS, np.uint64)
        n_pages = [_n_pages(array) for array in self.postings]
        if sum(n_pages) != len(sums):
            raise ArtifactDamaged(f"{path / SUMS} has {len(sums)} checksums, {sum(n_pages)} are needed: build it again with --force")
        ends = np.cumsum(n_pages)
        pages = {
            name: Pages(sums[end - n : end], np.zeros(n, dtype=np.bool_))
            for name, n, end in zip(DTYPES, n_pages, ends.tolist(), strict=True)
        }
        self.checks = Checks(**{name: pages.pop(name) for name in _IN_STRETCHES})
        self._unchecked = pages

    def check_tables(self) -> None:
        """Compare the files that every search needs whole, the first time.

        Raises:
            ArtifactDamaged: a checksum differs.
        """
        for name in list(self._unchecked):
            pages = self._unchecked.get(name)  # another thread may do the same
            array = getattr(self.postings, name)
            if pages is not None and not is_sound(array, 0, len(array), pages):
                raise self.damaged(name)
            self._unchecked.pop(name, None)

    def damaged(self, name: str) -> ArtifactDamaged:
        """Return the error that says a file is damaged."""
        return ArtifactDamaged(f"{self._path / name} or its checksums in {SUMS} are damaged: build it again with --force")


def map_array(path: Path, dtype: DTypeLike) -> NDArray[Any]:
    """Return a whole file as a read-only, memory-mapped array; an empty file is an empty array.

    Raises:
        ArtifactDamaged: the file is missing, or its size is not that of whole elements.
    """
    try:
        array = np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.empty(0, dtype=dtype)
    except (FileNotFoundError, ValueError) as error:
        raise ArtifactDamaged(f"{path} cannot be mapped: {error}") from error
    array.flags.writeable = False
    return array.view(np.ndarray)


def write_sums(folder: Path) -> None:
    """Write the checksums of all files."""
    sums = [page_sums(map_array(folder / name, dtype)) for name, dtype in DTYPES.items()]
    (folder / SUMS).write_bytes(np.concatenate(sums).tobytes())


def check_byte_order() -> None:
    """Raise ``StorageError`` on a machine whose arrays would be written the other way round."""
    if sys.byteorder != "little":
        raise StorageError("a bm25 index can be built and read on little-endian machines only")


def _n_pages(array: NDArray[Any]) -> int:
    return -(-array.nbytes // PAGE_BYTES)
