"""Exact search in two passes: ``selection`` selects candidates, then ``scoring`` computes their scores.

Results do not depend on the batch or on other threads. The k best are the first k of any longer result. For queries of more than
``MAX_FILTERED_TERMS`` terms, 16-bit upper bounds are too coarse: all rows are scored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel
from wikidx.indexer.indexes.keys import encode, write_largest
from wikidx.indexer.indexes.postings.cursors import Terms
from wikidx.indexer.indexes.postings.files import BLOCK_ROWS, Postings
from wikidx.indexer.indexes.postings.selection import select_candidates
from wikidx.indexer.scope import Words

from .scoring import POSTINGS_PER_LOOKUP, ScoringTables, scores

MAX_FILTERED_TERMS = 1000


class SearchTables(NamedTuple):
    """Tables of an index, and the maximum number of terms of a query whose candidates are selected by upper bounds."""

    scoring: ScoringTables
    max_filtered_terms: int


class Allowed(NamedTuple):
    """Rows that may be returned: the words of a scope, and its rows, ascending, if they are few; without words, all rows."""

    words: Words
    rows: NDArray[np.int64]


class WorkingMemory(NamedTuple):
    """Working memory of one thread, shape (BLOCK_ROWS,): upper bounds, all 0 between uses, and positions, all -1 between uses."""

    upper_bounds: NDArray[np.uint16]
    positions: NDArray[np.int32]


@kernel
def search_query(  # noqa: PLR0913
    tables: SearchTables,
    terms: Terms,
    allowed: Allowed,
    memory: WorkingMemory,
    best_rows: NDArray[np.int64],
    best_scores: NDArray[np.float32],
) -> None:
    """Write the best rows of one query to ``best_rows``, filled with -1, and their scores to ``best_scores``, filled with -inf.

    Both have shape (k,). A scope of so few rows that looking them up takes less time than reading the postings is scored whole.
    """
    scoring, postings = tables.scoring, tables.scoring.postings
    if len(terms.numbers) == 0:
        return
    has_few_rows = 0 < len(allowed.rows) * len(terms.numbers) * POSTINGS_PER_LOOKUP < _n_postings(postings, terms)
    if has_few_rows or len(terms.numbers) <= tables.max_filtered_terms:
        rows = allowed.rows
        if not has_few_rows:
            rows = select_candidates(postings, terms, len(best_rows), allowed.words, memory.upper_bounds)
        merge_best(scores(scoring, terms, rows, memory.positions), rows, best_scores, best_rows)
        return
    for first_row in range(0, postings.n_rows, BLOCK_ROWS):
        rows = _rows_within(allowed.words, first_row, min(first_row + BLOCK_ROWS, postings.n_rows))
        merge_best(scores(scoring, terms, rows, memory.positions), rows, best_scores, best_rows)


@kernel
def _n_postings(postings: Postings, terms: Terms) -> int:
    """Return the number of postings of a query's terms; those of frequent terms are read for all rows."""
    n = 0
    for t in range(len(terms.numbers)):
        number = terms.numbers[t]
        n += postings.n_rows if terms.frequent[t] >= 0 else postings.posting_starts[number + 1] - postings.posting_starts[number]
    return n


@kernel
def _rows_within(words: Words, first_row: int, end: int) -> NDArray[np.int64]:
    """Return the rows of a range that are in a scope, all if ``words`` is empty."""
    rows, n = np.empty(end - first_row, np.int64), 0
    for row in range(first_row, end):
        rows[n] = row
        n += 1 if len(words) == 0 or words[row >> 6] >> np.uint64(row & 63) & np.uint64(1) else 0
    return rows[:n]


@kernel
def merge_best(
    scores: NDArray[np.float32], rows: NDArray[np.int64], best_scores: NDArray[np.float32], best_rows: NDArray[np.int64]
) -> None:
    """Merge more rows, which must ascend and follow all earlier ones, into the best so far.

    Scores of 0 are left out; no score is below 0. Ties go to the lower row.
    """
    keys, n, lowest = np.empty(len(best_rows) + len(rows), dtype=np.int64), 0, max(np.float32(0), best_scores[-1])
    while n < len(best_rows) and best_rows[n] >= 0:
        keys[n] = encode(best_scores[n], best_rows[n])
        n += 1
    for i in range(len(rows)):
        keys[n] = encode(scores[i], rows[i])
        n += scores[i] > lowest
    write_largest(keys[:n], best_rows, best_scores)


@kernel
def score_rows(
    tables: SearchTables, terms: Terms, memory: WorkingMemory, rows: NDArray[np.int64], best_scores: NDArray[np.float32]
) -> None:
    """Write the scores of given rows, which must ascend; -inf for a row without a term of the query."""
    row_scores = scores(tables.scoring, terms, rows, memory.positions)
    for i in range(len(rows)):
        best_scores[i] = row_scores[i] if row_scores[i] > 0 else np.float32(-np.inf)
