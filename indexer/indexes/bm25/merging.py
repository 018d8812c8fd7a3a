"""Pieces -> the files of the index, a range of terms at a time: memory is bounded by the range, and files are written sequentially."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.indexer.machine.compiled import kernel

from .dictionary import Dictionary
from .files import BLOCK_ROWS
from .inversion import n_pieces, read_lists, read_piece
from .similarity import MAX_TF, TermFrequencies, impact, inverse_norms, length_codes, mean_length, term_frequencies

DENSE_ABOVE = 1 / 8  # share of all rows; above, adding to every row of a block costs no more than adding to its postings
RANGE_POSTINGS = 1 << 24


class Scoring(NamedTuple):
    """Inputs of the impacts: a length code for each row, an inverse norm for each code, and the tf that each impact stands for."""

    lengths: NDArray[np.uint8]
    inverse: NDArray[np.float32]
    frequencies: TermFrequencies


class Dense(NamedTuple):
    """The dense terms.

    Attributes:
        places: each term's place among the dense terms, or -1.
        impacts: (dense terms * rows), see ``files.Postings``.
    """

    places: NDArray[np.int64]
    impacts: NDArray[np.uint8]


class Range(NamedTuple):
    """Consecutive terms whose postings are being filled in.

    Attributes:
        first_term: the number of the first.
        next_posting, next_segment: next free place of each term.
        rows, impacts, segment_blocks, segment_sizes: see ``files.Postings``.
    """

    first_term: int
    next_posting: NDArray[np.int64]
    next_segment: NDArray[np.int64]
    rows: NDArray[np.uint16]
    impacts: NDArray[np.uint8]
    segment_blocks: NDArray[np.uint16]
    segment_sizes: NDArray[np.uint16]


class Slice(NamedTuple):
    """One piece's share of a range of terms: the block, the terms' numbers, the end of each term's postings, and the postings."""

    block: int
    numbers: NDArray[np.int64]
    ends: NDArray[np.int64]
    postings: NDArray[np.uint32]


class High(NamedTuple):
    """Exceptions: postings whose tf is not the lowest of their impact; see ``files.Postings``."""

    postings: NDArray[np.int64]
    frequencies: NDArray[np.uint16]


_WRITTEN_BY_RANGE = ("rows", "impacts", "segment_blocks", "segment_sizes", "high_postings", "high_frequencies")


def merge(folder: Path, pieces: Path, dictionary: Dictionary, k1: float, b: float) -> dict[str, int]:
    """Write the files of ``files.Postings``, and return the counts."""
    in_rows, in_blocks = np.zeros(len(dictionary), np.int64), np.zeros(len(dictionary), np.int64)
    lengths = []
    for n in range(n_pieces(pieces)):
        piece = read_piece(pieces, n)
        numbers, ends = piece.terms
        in_rows[numbers] += np.diff(ends, prepend=0)
        in_blocks[numbers] += 1
        lengths.append(piece.lengths)
    scoring, counts = _scoring(np.concatenate(lengths), k1, b)
    counts |= {"terms": len(dictionary), "postings": int(in_rows.sum())}
    dense_terms = np.flatnonzero(in_rows > DENSE_ABOVE * len(scoring.lengths))
    dense_frequencies = in_rows[dense_terms]
    in_rows[dense_terms] = in_blocks[dense_terms] = 0  # from here on only terms with segments
    starts, segment_starts = _starts(in_rows), _starts(in_blocks)
    small = {
        **dictionary.table()._asdict(),
        "posting_starts": starts,
        "segment_starts": segment_starts,
        "lengths": scoring.lengths,
        "dense_terms": dense_terms,
        "dense_frequencies": dense_frequencies,
        "totals": np.array([counts["rows_with_terms"], counts["tokens"]], dtype=np.int64),
    }
    for name, array in small.items():
        (folder / name).write_bytes(array.tobytes())
    places = np.full(len(dictionary), -1, dtype=np.int64)
    places[dense_terms] = np.arange(len(dense_terms))
    dense = Dense(places, _new_array(folder / "dense_impacts", len(dense_terms) * len(scoring.lengths)))
    with ExitStack() as opened:
        files = [opened.enter_context((folder / name).open("wb")) for name in _WRITTEN_BY_RANGE]
        for first, end in _ranges(starts):
            part = _new_range(first, starts[first : end + 1], segment_starts[first : end + 1])
            high = _filled(part, (_slice(pieces, n, first, end) for n in range(n_pieces(pieces))), scoring, dense)
            written: tuple[NDArray[Any], ...] = (part.rows, part.impacts, part.segment_blocks, part.segment_sizes, *high)
            for file, array in zip(files, written, strict=True):
                file.write(array.tobytes())
    return counts


def _scoring(lengths: NDArray[np.uint32], k1: float, b: float) -> tuple[Scoring, dict[str, int]]:
    n_filled, n_tokens = int(np.count_nonzero(lengths)), int(lengths.sum(dtype=np.int64))
    inverse = inverse_norms(k1, b, mean_length(n_tokens, n_filled))
    counts = {"rows": len(lengths), "rows_with_terms": n_filled, "tokens": n_tokens}
    return Scoring(length_codes(lengths), inverse, term_frequencies(inverse)), counts


def _starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def _new_array(path: Path, n_bytes: int) -> NDArray[np.uint8]:
    with path.open("wb") as file:
        file.truncate(n_bytes)
        if n_bytes and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, n_bytes)  # a full disk is an error here instead of a crash when the map is written
    return np.memmap(path, dtype=np.uint8, mode="r+") if n_bytes else np.empty(0, dtype=np.uint8)


def _ranges(starts: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield ranges of terms with ``RANGE_POSTINGS`` postings, or a single term with more."""
    first, n_terms = 0, len(starts) - 1
    while first < n_terms:
        end = max(first + 1, int(np.searchsorted(starts, starts[first] + RANGE_POSTINGS, side="right")) - 1)
        yield first, end
        first = end


def _new_range(first: int, starts: NDArray[np.int64], segment_starts: NDArray[np.int64]) -> Range:
    n_postings, n_segments = starts[-1] - starts[0], segment_starts[-1] - segment_starts[0]
    return Range(
        first,
        starts[:-1] - starts[0],
        segment_starts[:-1] - segment_starts[0],
        np.empty(n_postings, np.uint16),
        np.empty(n_postings, np.uint8),
        np.empty(n_segments, np.uint16),
        np.empty(n_segments, np.uint16),
    )


def _slice(pieces: Path, n: int, first: int, end: int) -> Slice:
    (numbers, ends), postings = read_lists(pieces, n)
    a, z = np.searchsorted(numbers, [first, end])
    start, stop = (int(ends[i - 1]) if i else 0 for i in (a, z))
    return Slice(n, np.array(numbers[a:z]), ends[a:z] - start, np.array(postings[start:stop]))


def _filled(part: Range, slices: Iterable[Slice], scoring: Scoring, dense: Dense) -> High:
    """Fill in a range and the impacts of its dense terms, and return its exceptions in order."""
    highs = [_append(piece, part, scoring, dense) for piece in slices]
    postings, frequencies = (np.concatenate(arrays) for arrays in zip(*highs, strict=True))
    order = np.argsort(postings)
    return High(postings[order], frequencies[order])


@kernel
def _append(piece: Slice, part: Range, scoring: Scoring, dense: Dense) -> High:
    """Append a piece's postings to those of the earlier pieces, and return its exceptions."""
    n_rows = len(scoring.lengths)
    high, n_high = High(np.empty(len(piece.postings), np.int64), np.empty(len(piece.postings), np.uint16)), 0
    start = 0
    for i in range(len(piece.numbers)):
        term, end = piece.numbers[i], piece.ends[i]
        t = term - part.first_term
        at = part.next_posting[t]
        for p in range(start, end):
            row, tf = piece.postings[p] >> 16, piece.postings[p] & MAX_TF
            code = scoring.lengths[piece.block * BLOCK_ROWS + row]
            value = impact(tf, scoring.inverse[code])
            if scoring.frequencies.lowest[code, value] != tf:
                high.postings[n_high] = term * n_rows + piece.block * BLOCK_ROWS + row
                high.frequencies[n_high] = tf
                n_high += 1
            if dense.places[term] >= 0:
                dense.impacts[dense.places[term] * n_rows + piece.block * BLOCK_ROWS + row] = value
            else:
                part.rows[at + p - start] = row
                part.impacts[at + p - start] = value
        if dense.places[term] < 0:
            part.segment_blocks[part.next_segment[t]] = piece.block
            part.segment_sizes[part.next_segment[t]] = end - start - 1
            part.next_segment[t] += 1
            part.next_posting[t] += end - start
        start = end
    return High(high.postings[:n_high].copy(), high.frequencies[:n_high].copy())
