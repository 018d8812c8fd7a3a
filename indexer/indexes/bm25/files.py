"""The files of a built index: contents, memory mapping, and checksums verified by a search.

A row is 65,536 * block + row within the block. The postings of a term are its segments, one for each block that has the term, in ascending
order; a segment is the rows within the block, ascending, and an impact for each (see ``similarity``). A frequent term, in more than 1/8 of
all rows, has no segments: it is *dense*, with one impact for every row, 0 where the row lacks it.

All files are little-endian. A process verifies the checksums of everything that it reads for the first time (``page_checks``).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.artifacts.manifest import Manifest
from wikidx.corpora.errors import ArtifactDamaged, StorageError
from wikidx.indexer.page_checks import CheckedFiles

BLOCK_ROWS = 65_536


class Postings(NamedTuple):
    """All arrays of an index; each is in the file of its name.

    Attributes:
        pool, ends, slots: the dictionary; see ``HashedTerms``.
        posting_starts: (terms + 1): start of each term's postings in ``rows`` and ``impacts``.
        segment_starts: (terms + 1): start of each term's segments in ``segment_blocks`` and ``segment_sizes``.
        segment_blocks: the block of each segment.
        segment_sizes: postings of each segment, minus one.
        rows: row within the block, (postings).
        impacts: see ``similarity``, (postings).
        lengths: length code of each row; see ``similarity``.
        dense_terms: the dense terms, ascending, and ...
        dense_frequencies: ... their document frequencies.
        dense_impacts: (dense terms * rows): term by term.
        high_postings: exceptions, the postings whose tf the impact cannot represent: term * rows of the corpus + row, ascending, and ...
        high_frequencies: ... their tf.
        totals: number of rows with a term, and of tokens in all rows.
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


DTYPES = {name: np.dtype(get_args(get_args(array)[1])[0]) for name, array in get_type_hints(Postings).items()}  # dtype of each file
_OF_SEGMENTS = ("segment_blocks", "segment_sizes")  # read only for a query's terms: a term's segments, ...
_OF_POSTINGS = ("rows", "impacts")  # ... its postings, ...
_DENSE = "dense_impacts"  # ... and, if it is dense, its impacts; all other files are read whole


class IndexFiles:
    """The mapped files of an index.

    Attributes:
        postings: their arrays; call ``check`` before reading them.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """Map the files, without reading them.

        Raises:
            ArtifactDamaged: a file's size does not fit its content.
        """
        self._files = CheckedFiles(path, manifest)
        self.postings = Postings(**{name: self._array(path, name) for name in DTYPES})
        self._is_seen = np.zeros(len(self.postings.ends), dtype=np.bool_)  # terms whose data is verified
        self._is_begun = False

    def check(self, numbers: NDArray[np.int64], dense: NDArray[np.int64]) -> None:
        """Verify what a search for some terms reads, once; given the terms' numbers and places among the dense ones or -1.

        Raises:
            ArtifactDamaged: a checksum differs.
        """
        is_new = ~self._is_seen[numbers]
        if not is_new.any():
            return
        numbers, places = numbers[is_new], dense[is_new & (dense >= 0)]
        self._check(_OF_SEGMENTS, self.postings.segment_starts[numbers], self.postings.segment_starts[numbers + 1])
        self._check(_OF_POSTINGS, self.postings.posting_starts[numbers], self.postings.posting_starts[numbers + 1])
        self._check((_DENSE,), places * len(self.postings.lengths), (places + 1) * len(self.postings.lengths))
        self._is_seen[numbers] = True

    def check_tables(self) -> None:
        """Verify the files that every search reads whole, once; raises as ``check`` does."""
        if not self._is_begun:
            for name in DTYPES:
                if name not in (*_OF_SEGMENTS, *_OF_POSTINGS, _DENSE):
                    self._files[name].check_all()
            self._is_begun = True

    def _check(self, names: Sequence[str], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        for name in names:
            self._files[name].check(starts * DTYPES[name].itemsize, stops * DTYPES[name].itemsize)

    def _array(self, path: Path, name: str) -> NDArray[Any]:
        content, dtype = self._files[name].content, DTYPES[name]
        if len(content) % dtype.itemsize:
            raise ArtifactDamaged(f"{path / name} has {len(content):,} bytes, which are no {dtype} numbers: build it again with --force")
        return content.view(dtype)


def check_byte_order() -> None:
    """Raise ``StorageError`` on a big-endian machine."""
    if sys.byteorder != "little":
        raise StorageError("a bm25 index can be built and read on little-endian machines only")
