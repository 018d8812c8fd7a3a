"""The search: exact, in two passes: ``bounds`` says which rows may be among the best, ``scoring`` what they score.

Nothing depends on the batch, on other threads, or on k but for the cut. Queries of more than ``MAX_FILTERED_TERMS`` terms, for which
bounds in 16 bits are too coarse, are scored over all rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.indexer.machine.compiled import kernel

from .bounds import Terms, candidates
from .files import BLOCK_ROWS, Postings
from .scoring import scores
from .selection import offer_rows, sort_best, take_best
from .similarity import Denominators

MAX_FILTERED_TERMS = 1000


class Tables(NamedTuple):
    """What all searches read, and up to how many terms they use the filter."""

    postings: Postings
    denominators: Denominators
    max_filtered_terms: int


class Space(NamedTuple):
    """Working memory of one thread: (BLOCK_ROWS) bounds, all 0 between uses, and places, all -1."""

    bounds: NDArray[np.uint16]
    places: NDArray[np.int32]


@kernel
def answer(tables: Tables, terms: Terms, space: Space, best_rows: NDArray[np.int64], best_scores: NDArray[np.float32]) -> None:
    """Fill in the best rows of one query and their scores, both of shape (k,), given as -1 and -inf."""
    postings, denominators = tables.postings, tables.denominators
    if len(terms.numbers) == 0:
        return
    if len(terms.numbers) > tables.max_filtered_terms:
        for first_row in range(0, len(postings.lengths), BLOCK_ROWS):
            rows = np.arange(first_row, min(first_row + BLOCK_ROWS, len(postings.lengths)))
            offer_rows(scores(postings, denominators, terms, rows, space.places), rows, best_scores, best_rows)
        sort_best(best_scores, best_rows)
    else:
        rows = candidates(postings, terms, len(best_rows), space.bounds)
        take_best(scores(postings, denominators, terms, rows, space.places), rows, best_scores, best_rows)


@kernel
def score_rows(tables: Tables, terms: Terms, space: Space, rows: NDArray[np.int64], best_scores: NDArray[np.float32]) -> None:
    """Fill in what rows, ascending, score, -inf for those without any of the terms."""
    found = scores(tables.postings, tables.denominators, terms, rows, space.places)
    for i in range(len(rows)):
        best_scores[i] = found[i] if found[i] > 0 else np.float32(-np.inf)
