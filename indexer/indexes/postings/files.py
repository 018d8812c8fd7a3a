"""Files of a built index: their contents, memory mapping, and checksums.

A row's number is 65,536 * block + row within the block. The postings of a term consist of segments, one per block that contains the term,
in ascending order. A segment lists rows within the block, ascending, and their impacts: from 1 to 255, in 255ths of the term's weight. A
frequent term is in more than 1/8 of all rows. It has no segments, but an impact for every row: 0 if the row lacks the term.

All files are little-endian. A process verifies the checksum of each page before it first reads the page (``artifacts.checked_files``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.checked_files import CheckedFiles
from wikidx.base.artifacts.manifest import Manifest

BLOCK_ROWS = 65_536
MAX_TF = np.iinfo(np.uint16).max  # larger tf are clipped. Lucene does not clip them; such scores differ in the third digit


class Postings(NamedTuple):
    """Arrays of an index, each in a file of its name, and the number of rows.

    Attributes:
        pool, ends, slots: the dictionary; see ``HashedTerms``.
        posting_starts: start of each term's postings in ``rows`` and ``impacts``, (terms + 1).
        segment_starts: start of each term's segments in ``segment_blocks`` and ``segment_sizes``, (terms + 1).
        segment_blocks: block of each segment.
        segment_sizes: number of postings of each segment, minus one.
        rows: row within the block of each posting.
        impacts: impact of each posting.
        frequent_terms: numbers of the frequent terms, ascending.
        frequent_term_dfs: document frequencies of the frequent terms.
        frequent_impacts: impact of each row for the first frequent term, then for the second, and so on.
        n_rows: number of rows, with and without terms.
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
    frequent_terms: NDArray[np.int64]
    frequent_term_dfs: NDArray[np.int64]
    frequent_impacts: NDArray[np.uint8]
    n_rows: int


DTYPES: dict[str, np.dtype[Any]] = {  # dtype of each file; a table, because annotations differ among versions of NumPy
    **dict.fromkeys(("pool", "impacts", "frequent_impacts"), np.dtype(np.uint8)),
    **dict.fromkeys(("segment_blocks", "segment_sizes", "rows"), np.dtype(np.uint16)),
    **dict.fromkeys(("ends", "slots"), np.dtype(np.uint32)),
    **dict.fromkeys(("posting_starts", "segment_starts", "frequent_terms", "frequent_term_dfs"), np.dtype(np.int64)),
}
# A search reads parts of these files, and all other files whole.
_OF_SEGMENTS = ("segment_blocks", "segment_sizes")
_OF_POSTINGS = ("rows", "impacts")
_FREQUENT = "frequent_impacts"


class IndexFiles:
    """The mapped files of an index.

    Attributes:
        postings: arrays of the files; call ``check_tables`` and ``check`` before reading them.
        further: arrays of the kind's own files, by name; call ``check_tables`` before reading them.
    """

    def __init__(self, path: Path, manifest: Manifest, further: Mapping[str, np.dtype[Any]]) -> None:
        """Map the files.

        Args:
            path: folder of the index.
            manifest: its manifest.
            further: names and dtypes of the files that a kind of index has besides, which every search reads whole.

        Raises:
            ArtifactCorrupt: see ``CheckedFiles``.
        """
        self._files = CheckedFiles(path, manifest)
        self.postings = Postings(**self._arrays(DTYPES), n_rows=manifest.count("rows"))
        self.further = self._arrays(further)
        self._read_whole = [self._files[name] for name in (*DTYPES, *further) if name not in (*_OF_SEGMENTS, *_OF_POSTINGS, _FREQUENT)]
        self._is_checked = np.zeros(len(self.postings.ends), dtype=np.bool_)  # for each term: whether its postings are verified

    def check(self, numbers: NDArray[np.int64], frequent: NDArray[np.int64]) -> None:
        """Verify the segments, postings and impacts of terms, unless they are verified already.

        ``numbers`` are the terms' numbers; ``frequent`` are their positions among the frequent terms, or -1.

        Raises:
            ArtifactCorrupt: a checksum differs.
        """
        is_new = ~self._is_checked[numbers]
        if not is_new.any():
            return
        numbers, positions = numbers[is_new], frequent[is_new & (frequent >= 0)]
        self._check(_OF_SEGMENTS, self.postings.segment_starts[numbers], self.postings.segment_starts[numbers + 1])
        self._check(_OF_POSTINGS, self.postings.posting_starts[numbers], self.postings.posting_starts[numbers + 1])
        self._check((_FREQUENT,), positions * self.postings.n_rows, (positions + 1) * self.postings.n_rows)
        self._is_checked[numbers] = True

    def check_tables(self) -> None:
        """Verify the files that every search reads whole, unless they are verified already; raises as ``check`` does."""
        for file in self._read_whole:
            file.check_all()

    def _check(self, names: Sequence[str], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        for name in names:
            self._files[name].check(starts * DTYPES[name].itemsize, stops * DTYPES[name].itemsize)

    def _arrays(self, dtypes: Mapping[str, np.dtype[Any]]) -> dict[str, NDArray[Any]]:
        return {name: self._files[name].content.view(dtype) for name, dtype in dtypes.items()}
