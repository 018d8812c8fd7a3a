"""Exact search in two passes: ``upper_bounds`` selects candidates, ``scoring`` computes their scores.

Results do not depend on the batch or on other threads; k only truncates them. Queries of more than ``MAX_FILTERED_TERMS`` terms, for
which 16-bit bounds are too coarse, are scored over all rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.indexer.machine.compiled import kernel

from .files import BLOCK_ROWS, Postings
from .scoring import scores
from .similarity import Denominators
from .upper_bounds import Terms, select_candidates

MAX_FILTERED_TERMS = 1000


class SearchTables(NamedTuple):
    """Tables read by all searches, and the maximum number of query terms for the candidate filter."""

    postings: Postings
    denominators: Denominators
    max_filtered_terms: int


class WorkingMemory(NamedTuple):
    """Working memory of one thread: upper bounds, all 0 between uses, and positions, all -1, both of shape (BLOCK_ROWS,)."""

    upper_bounds: NDArray[np.uint16]
    positions: NDArray[np.int32]


@kernel
def search_query(
    tables: SearchTables, terms: Terms, memory: WorkingMemory, best_rows: NDArray[np.int64], best_scores: NDArray[np.float32]
) -> None:
    """Write the best rows of one query and their scores, both of shape (k,), initialised to -1 and -inf."""
    postings, denominators = tables.postings, tables.denominators
    if len(terms.numbers) == 0:
        return
    if len(terms.numbers) <= tables.max_filtered_terms:
        rows = select_candidates(postings, terms, len(best_rows), memory.upper_bounds)
        write_best(scores(postings, denominators, terms, rows, memory.positions), rows, best_scores, best_rows)
        return
    for first_row in range(0, len(postings.lengths), BLOCK_ROWS):
        rows = np.arange(first_row, min(first_row + BLOCK_ROWS, len(postings.lengths)))
        merge_best(scores(postings, denominators, terms, rows, memory.positions), rows, best_scores, best_rows)


@kernel
def write_best(
    scores: NDArray[np.float32], rows: NDArray[np.int64], best_scores: NDArray[np.float32], best_rows: NDArray[np.int64]
) -> None:
    """Write the best of given rows, whose scores are at least 0; only scores above 0 count, and ties keep their order.

    Stable radix sort by the scores' inverted bits, whose ascending order as integers is the descending order of the scores.
    """
    keys, order = ~scores.view(np.uint32), np.arange(len(rows))
    moved = np.empty_like(order)
    for shift in (np.uint32(0), np.uint32(8), np.uint32(16), np.uint32(24)):
        positions = np.zeros(257, dtype=np.int64)
        for i in range(len(keys)):
            positions[((keys[i] >> shift) & np.uint32(255)) + 1] += 1
        for digit in range(256):
            positions[digit + 1] += positions[digit]
        for key in order:
            digits = (keys[key] >> shift) & np.uint32(255)
            moved[positions[digits]] = key
            positions[digits] += 1
        order, moved = moved, order
    for n in range(min(len(order), len(best_rows))):
        if scores[order[n]] == 0:
            break
        best_scores[n], best_rows[n] = scores[order[n]], rows[order[n]]


@kernel
def merge_best(
    scores: NDArray[np.float32], rows: NDArray[np.int64], best_scores: NDArray[np.float32], best_rows: NDArray[np.int64]
) -> None:
    """Merge further rows, ascending and above all earlier rows, into the best so far; see ``write_best``."""
    n, better = np.count_nonzero(best_rows >= 0), np.flatnonzero(scores > max(np.float32(0), best_scores[-1]))
    all_scores, all_rows = np.concatenate((best_scores[:n], scores[better])), np.concatenate((best_rows[:n], rows[better]))
    write_best(all_scores, all_rows, best_scores, best_rows)


@kernel
def score_rows(
    tables: SearchTables, terms: Terms, memory: WorkingMemory, rows: NDArray[np.int64], best_scores: NDArray[np.float32]
) -> None:
    """Write the scores of given rows, ascending; -inf for rows without any of the terms."""
    row_scores = scores(tables.postings, tables.denominators, terms, rows, memory.positions)
    for i in range(len(rows)):
        best_scores[i] = row_scores[i] if row_scores[i] > 0 else np.float32(-np.inf)
