"""Exact search in two passes: ``bounds`` selects candidates, ``scoring`` computes their scores.

Results do not depend on the batch, on other threads, or, except for the cut, on k. Queries of more than ``MAX_FILTERED_TERMS`` terms, for
which bounds in 16 bits are too coarse, are scored over all rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.indexer.machine.compiled import kernel

from .bounds import Terms, candidates
from .files import BLOCK_ROWS, Postings
from .scoring import scores
from .similarity import Denominators

MAX_FILTERED_TERMS = 1000


class Tables(NamedTuple):
    """Tables read by all searches, and the maximum number of terms for which the filter is used."""

    postings: Postings
    denominators: Denominators
    max_filtered_terms: int


class Space(NamedTuple):
    """Working memory of one thread: (BLOCK_ROWS) bounds, all 0 between uses, and places, all -1."""

    bounds: NDArray[np.uint16]
    places: NDArray[np.int32]


@kernel
def answer(tables: Tables, terms: Terms, space: Space, best_rows: NDArray[np.int64], best_scores: NDArray[np.float32]) -> None:
    """Write the best rows of one query and their scores, both of shape (k,), initialised to -1 and -inf."""
    postings, denominators = tables.postings, tables.denominators
    if len(terms.numbers) == 0:
        return
    if len(terms.numbers) <= tables.max_filtered_terms:
        rows = candidates(postings, terms, len(best_rows), space.bounds)
        take_best(scores(postings, denominators, terms, rows, space.places), rows, best_scores, best_rows)
        return
    for first_row in range(0, len(postings.lengths), BLOCK_ROWS):
        rows = np.arange(first_row, min(first_row + BLOCK_ROWS, len(postings.lengths)))
        take_better(scores(postings, denominators, terms, rows, space.places), rows, best_scores, best_rows)


@kernel
def take_best(scores: NDArray[np.float32], rows: NDArray[np.int64], best_scores: NDArray[np.float32], best_rows: NDArray[np.int64]) -> None:
    """Write the best of given rows, whose scores are not below 0; only scores above 0 count, equal ones keep their order.

    Stable radix sort of the scores' inverted bits: as integers they order like the scores.
    """
    keys, order = ~scores.view(np.uint32), np.arange(len(rows))
    moved = np.empty_like(order)
    for shift in (np.uint32(0), np.uint32(8), np.uint32(16), np.uint32(24)):
        places = np.zeros(257, dtype=np.int64)
        for i in range(len(keys)):
            places[((keys[i] >> shift) & np.uint32(255)) + 1] += 1
        for digit in range(256):
            places[digit + 1] += places[digit]
        for key in order:
            digits = (keys[key] >> shift) & np.uint32(255)
            moved[places[digits]] = key
            places[digits] += 1
        order, moved = moved, order
    for n in range(min(len(order), len(best_rows))):
        if scores[order[n]] == 0:
            break
        best_scores[n], best_rows[n] = scores[order[n]], rows[order[n]]


@kernel
def take_better(
    scores: NDArray[np.float32], rows: NDArray[np.int64], best_scores: NDArray[np.float32], best_rows: NDArray[np.int64]
) -> None:
    """Merge further rows, ascending and above all earlier ones, into the best so far; see ``take_best``."""
    n, better = np.count_nonzero(best_rows >= 0), np.flatnonzero(scores > max(np.float32(0), best_scores[-1]))
    found, places = np.concatenate((best_scores[:n], scores[better])), np.concatenate((best_rows[:n], rows[better]))
    take_best(found, places, best_scores, best_rows)


@kernel
def score_rows(tables: Tables, terms: Terms, space: Space, rows: NDArray[np.int64], best_scores: NDArray[np.float32]) -> None:
    """Write the scores of given rows, ascending; -inf for rows with none of the terms."""
    found = scores(tables.postings, tables.denominators, terms, rows, space.places)
    for i in range(len(rows)):
        best_scores[i] = found[i] if found[i] > 0 else np.float32(-np.inf)
