"""Some consecutive rows of a BM25 index as one of their own, in memory: with the weights and lengths of the whole, so that scores are its.

Of the index only the postings of these rows are read. The dictionary, which terms are dense and how many rows of the corpus each is in stay
as they are; rows are counted from the first of the range, and so fall into other blocks than before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from corpora.errors import ArtifactDamaged
from indexer.compiled import kernel
from indexer.page_checks import PAGE_BYTES, Pages, is_sound

from .files import BLOCK_ROWS, Checks, IndexFiles, Postings

_SEEN_PAGES = np.ones(1, dtype=np.bool_)


class _Sizes(NamedTuple):
    """How many postings and segments of each term are in a range of rows; and the place in ``Checks`` of a damaged file, or -1."""

    postings: NDArray[np.int64]
    segments: NDArray[np.int64]
    damage: int


class RangeFiles:
    """The postings of a range of rows, all checked; what ``BM25Index`` takes for its files.

    Args:
        whole: the files of the whole index.
        rows: the range, within its rows.

    Raises:
        ArtifactDamaged: what the rows need of the files is damaged.
    """

    def __init__(self, whole: IndexFiles, rows: range) -> None:
        whole.check_tables()
        postings, n_rows = whole.postings, len(whole.postings.lengths)
        first, last = np.int64(rows.start), np.int64(rows.stop)
        for number in range(len(postings.dense_terms)):
            if not is_sound(postings.dense_impacts, number * n_rows + first, number * n_rows + last, whole.checks.dense_impacts):
                raise whole.damaged("dense_impacts")
        sizes = _sizes(postings, whole.checks, first, last)
        if sizes.damage >= 0:
            raise whole.damaged(Checks._fields[sizes.damage])
        posting_starts, segment_starts = (np.concatenate([[0], np.cumsum(some)]).astype(np.int64) for some in sizes[:2])
        cut = postings._replace(
            posting_starts=posting_starts,
            segment_starts=segment_starts,
            segment_blocks=np.empty(segment_starts[-1], np.uint16),
            segment_sizes=np.empty(segment_starts[-1], np.uint16),
            rows=np.empty(posting_starts[-1], np.uint16),
            impacts=np.empty(posting_starts[-1], np.uint8),
            lengths=postings.lengths[rows.start : rows.stop].copy(),
            dense_impacts=postings.dense_impacts.reshape(-1, n_rows)[:, rows.start : rows.stop].flatten(),
        )
        _fill(postings, cut, first, last)
        self.postings = _read_only(_with_high_frequencies(cut, postings, rows))
        self.checks = Checks(*(_seen(getattr(self.postings, name)) for name in Checks._fields))

    def check_tables(self) -> None:
        """Do nothing: all has been checked."""

    def damaged(self, name: str) -> ArtifactDamaged:
        """Return the error that says memory is damaged; nothing raises it."""
        return ArtifactDamaged(f"'{name}' of a range of rows is damaged in memory: start again")


def _with_high_frequencies(cut: Postings, whole: Postings, rows: range) -> Postings:
    terms, found = np.divmod(whole.high_postings, len(whole.lengths) or 1)
    here = (found >= rows.start) & (found < rows.stop)
    keys = terms[here] * len(rows) + found[here] - rows.start
    return cut._replace(high_postings=keys, high_frequencies=whole.high_frequencies[here])


def _read_only(postings: Postings) -> Postings:
    """Return the arrays as mapped ones are: other types would be compiled once more."""
    for array in postings:
        array.flags.writeable = False
    return postings


def _seen(array: NDArray[np.uint8]) -> Pages:
    """Return pages that have all been compared."""
    n_pages = -(-array.nbytes // PAGE_BYTES)
    sums = np.zeros(n_pages, dtype=np.uint64)
    sums.flags.writeable = False
    return Pages(sums, np.repeat(_SEEN_PAGES, n_pages))


@kernel
def _sizes(postings: Postings, checks: Checks, first: int, last: int) -> _Sizes:
    """Check and count what is in the range, ``first`` to ``last``."""
    n_terms = len(postings.posting_starts) - 1
    n_postings, n_segments = np.zeros(n_terms, np.int64), np.zeros(n_terms, np.int64)
    for term in range(n_terms):
        place, block_before = postings.posting_starts[term], np.int64(-1)
        start, stop = postings.segment_starts[term], postings.segment_starts[term + 1]
        if not is_sound(postings.segment_blocks, start, stop, checks.segment_blocks):
            return _Sizes(n_postings, n_segments, 0)
        if not is_sound(postings.segment_sizes, start, stop, checks.segment_sizes):
            return _Sizes(n_postings, n_segments, 1)
        for segment in range(start, stop):
            size, offset = np.int64(postings.segment_sizes[segment]) + 1, np.int64(postings.segment_blocks[segment]) * BLOCK_ROWS
            if offset + BLOCK_ROWS > first and offset < last:
                if not is_sound(postings.rows, place, place + size, checks.rows):
                    return _Sizes(n_postings, n_segments, 2)
                if not is_sound(postings.impacts, place, place + size, checks.impacts):
                    return _Sizes(n_postings, n_segments, 3)
                for p in range(place, place + size):
                    row = offset + np.int64(postings.rows[p])
                    if first <= row < last:
                        block = (row - first) // BLOCK_ROWS
                        n_postings[term] += 1
                        n_segments[term] += np.int64(block != block_before)
                        block_before = block
            place += size
    return _Sizes(n_postings, n_segments, -1)


@kernel
def _fill(whole: Postings, cut: Postings, first: int, last: int) -> None:
    """Copy what is in the range, ``first`` to ``last``, to arrays that have room for it."""
    for term in range(len(whole.posting_starts) - 1):
        place, block_before = whole.posting_starts[term], np.int64(-1)
        p_out, s_out = cut.posting_starts[term], cut.segment_starts[term] - 1
        for segment in range(whole.segment_starts[term], whole.segment_starts[term + 1]):
            size, offset = np.int64(whole.segment_sizes[segment]) + 1, np.int64(whole.segment_blocks[segment]) * BLOCK_ROWS
            if offset + BLOCK_ROWS > first and offset < last:
                for p in range(place, place + size):
                    row = offset + np.int64(whole.rows[p]) - first
                    if 0 <= row < last - first:
                        block = row // BLOCK_ROWS
                        if block != block_before:
                            s_out += 1
                            cut.segment_blocks[s_out], cut.segment_sizes[s_out] = block, 0
                            block_before = block
                        else:
                            cut.segment_sizes[s_out] += np.uint16(1)
                        cut.rows[p_out], cut.impacts[p_out] = row - block * BLOCK_ROWS, whole.impacts[p]
                        p_out += 1
            place += size
