"""Cursors, which go through the postings of a query's terms block by block, and lookups of single rows in them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel

from .files import Postings


class Terms(NamedTuple):
    """Distinct terms of one or several queries, concatenated: numbers, positions among the frequent terms (or -1), and weights."""

    numbers: NDArray[np.int64]
    frequent: NDArray[np.int64]
    weights: NDArray[np.float32]


class Cursors(NamedTuple):
    """Positions in the postings of each query term.

    Attributes:
        segments: the first segment in the current block or a later block.
        positions: the first posting of this segment.
        sizes: number of postings of this segment if it is in the current block, else 0.
    """

    segments: NDArray[np.int64]
    positions: NDArray[np.int64]
    sizes: NDArray[np.int64]


@kernel
def start_cursors(segment_starts: NDArray[np.int64], posting_starts: NDArray[np.int64], numbers: NDArray[np.int64]) -> Cursors:
    """Return cursors at the first segment of each term."""
    n = len(numbers)
    cursors = Cursors(np.empty(n, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64))
    for t in range(n):
        cursors.segments[t], cursors.positions[t] = segment_starts[numbers[t]], posting_starts[numbers[t]]
    return cursors


@kernel
def advance(postings: Postings, terms: Terms, cursors: Cursors, block: int) -> None:
    """Move the cursors of all terms with segments to a block. Blocks must come in ascending order."""
    for t in range(len(terms.numbers)):
        if terms.frequent[t] >= 0:
            continue
        segment, position, size = cursors.segments[t], cursors.positions[t], np.int64(0)
        end = postings.segment_starts[terms.numbers[t] + 1]
        while segment < end:
            size = np.int64(postings.segment_sizes[segment]) + 1
            if postings.segment_blocks[segment] >= block:
                break
            position += size
            segment += 1
        is_in_block = segment < end and postings.segment_blocks[segment] == block
        cursors.segments[t], cursors.positions[t], cursors.sizes[t] = segment, position, size if is_in_block else 0


@kernel
def look_up(segment: NDArray[np.uint16], segment_impacts: NDArray[np.uint8], rows: NDArray[np.uint16], impacts: NDArray[np.uint8]) -> None:
    """Write each row's impact, 0 for a row without the term. The bisection is branchless: a CPU overlaps several.

    Args:
        segment: rows of a block with the term, ascending, (n,), at least one.
        segment_impacts: their impacts, (n,).
        rows: rows of the same block, (m,).
        impacts: result, (m,).
    """
    for i in range(len(rows)):
        row, position, n = rows[i], np.intp(0), len(segment)
        while n > 1:
            half = n >> 1
            position = position + half if segment[position + half] <= row else position
            n -= half
        impacts[i] = segment_impacts[position] if segment[position] == row else np.uint8(0)
