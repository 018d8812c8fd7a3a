"""Merge of blocks into the files of an index: the impacts of its postings, their exceptions, and the lengths of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel
from wikidx.indexer.analysis.dictionary import Dictionary
from wikidx.indexer.indexes.postings.files import BLOCK_ROWS, MAX_TF
from wikidx.indexer.indexes.postings.merging import BlockSlice, FrequentTerms, TermRange, count_postings, merge, write_arrays

from .similarity import TermFrequencies, impact, inverse_norms, length_codes, mean_length, term_frequencies


class Scoring(NamedTuple):
    """Inputs of the impacts: the length code of each row, the inverse norm of each code, and the tf of each impact."""

    lengths: NDArray[np.uint8]
    inverse: NDArray[np.float32]
    frequencies: TermFrequencies


class Exceptions(NamedTuple):
    """Exceptions (see ``similarity``): ``exception_postings`` and ``exception_tfs`` of ``files.Documents``."""

    postings: NDArray[np.int64]
    tfs: NDArray[np.uint16]


def write_index(folder: Path, blocks: Path, dictionary: Dictionary, k1: float, b: float) -> dict[str, int]:
    """Write the files of ``postings.files.Postings`` and ``files.Documents``, and return the counts for the manifest."""
    counted = count_postings(blocks, len(dictionary))
    n_rows_with_terms, n_tokens = int(np.count_nonzero(counted.lengths)), int(counted.lengths.sum(dtype=np.int64))
    inverse = inverse_norms(k1, b, mean_length(n_tokens, n_rows_with_terms))
    scoring = Scoring(length_codes(counted.lengths), inverse, term_frequencies(inverse))
    counts = {
        "rows": len(counted.lengths),
        "rows_with_terms": n_rows_with_terms,
        "tokens": n_tokens,
        "terms": len(dictionary),
        "postings": int(counted.rows.sum()),
    }
    write_arrays(folder, {"lengths": scoring.lengths, "totals": np.array([n_rows_with_terms, n_tokens], dtype=np.int64)})
    merge(folder, blocks, dictionary, counted, partial(_fill, scoring), ("exception_postings", "exception_tfs"))
    return counts


def _fill(scoring: Scoring, term_range: TermRange, slices: Iterator[BlockSlice], frequent: FrequentTerms) -> Exceptions:
    """Fill a range and the impacts of its frequent terms; return its exceptions in ascending order."""
    exceptions = [_append(block, term_range, scoring, frequent) for block in slices]
    postings, tfs = (np.concatenate(arrays) for arrays in zip(*exceptions, strict=True))
    order = np.argsort(postings)
    return Exceptions(postings[order], tfs[order])


@kernel
def _append(block: BlockSlice, term_range: TermRange, scoring: Scoring, frequent: FrequentTerms) -> tuple[NDArray[Any], ...]:
    """Append a block's postings to those of earlier blocks; return the arrays of the block's exceptions."""
    n_rows = len(scoring.lengths)
    exceptions, n_exceptions = Exceptions(np.empty(len(block.postings), np.int64), np.empty(len(block.postings), np.uint16)), 0
    start = 0
    for i in range(len(block.numbers)):
        term, end = block.numbers[i], block.ends[i]
        t = term - term_range.first_term
        offset = term_range.next_posting[t]
        for p in range(start, end):
            row, tf = block.postings[p] >> 16, block.postings[p] & MAX_TF
            code = scoring.lengths[block.number * BLOCK_ROWS + row]
            value = int(impact(tf, scoring.inverse[code]))
            if scoring.frequencies.lowest[code, value] != tf:
                exceptions.postings[n_exceptions] = term * n_rows + block.number * BLOCK_ROWS + row
                exceptions.tfs[n_exceptions] = tf
                n_exceptions += 1
            if frequent.positions[term] >= 0:
                frequent.impacts[frequent.positions[term] * n_rows + block.number * BLOCK_ROWS + row] = value
            else:
                term_range.rows[offset + p - start] = row
                term_range.impacts[offset + p - start] = value
        if frequent.positions[term] < 0:
            term_range.segment_blocks[term_range.next_segment[t]] = block.number
            term_range.segment_sizes[term_range.next_segment[t]] = end - start - 1
            term_range.next_segment[t] += 1
            term_range.next_posting[t] += end - start
        start = end
    return exceptions.postings[:n_exceptions].copy(), exceptions.tfs[:n_exceptions].copy()
