"""Inverts rows of terms into postings, piece by piece, merges the pieces, and maps the result. Knows nothing of scores."""

from __future__ import annotations

import zipfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import DTypeLike, NDArray

from corpora.durable import replacing
from corpora.errors import PiecesDamaged

MAX_COUNT = np.iinfo(np.uint16).max  # a term more frequent than this in one row counts as this; BM25 is flat there


class PostingArrays(NamedTuple):
    """Where each term's postings end, shape (terms,); rows, ascending for each term, and counts, shape (postings,)."""

    ends: NDArray[np.int64]
    rows: NDArray[np.int32]
    counts: NDArray[np.uint16]


class Postings:
    """The merged postings of a corpus: terms, and for each the rows that have it and how often."""

    def __init__(self, path: Path) -> None:
        self._terms = map_array(path / "terms.bin", np.uint8)
        self._term_ends = map_array(path / "term_ends.i64", np.int64)
        self.arrays = PostingArrays(
            map_array(path / "posting_ends.i64", np.int64),
            map_array(path / "rows.i32", np.int32),
            map_array(path / "counts.u16", np.uint16),
        )

    def __len__(self) -> int:
        return len(self.arrays.ends)

    @property
    def n_postings(self) -> int:
        """Number of (term, row) pairs."""
        return len(self.arrays.rows)

    def find(self, term: str) -> int:
        """Return the number of a term, -1 if no row has it."""
        wanted, low, high = term.encode(), 0, len(self._term_ends)
        while low < high:
            middle = (low + high) // 2
            if self._term(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self._term_ends) and self._term(low) == wanted else -1

    def n_rows(self, term: int) -> int:
        """Return how many rows have the term of that number."""
        return int(self.arrays.ends[term] - (self.arrays.ends[term - 1] if term else 0))

    def _term(self, number: int) -> bytes:
        start = self._term_ends[number - 1] if number else 0
        return self._terms[start : self._term_ends[number]].tobytes()


class _Piece(NamedTuple):
    """Postings of consecutive rows, with term numbers of their own."""

    terms: list[bytes]
    postings: PostingArrays
    lengths: NDArray[np.int32]


def invert(rows: Iterable[Sequence[str]], first_row: int, piece: Path) -> None:
    """Write the postings of rows of terms, the first of them row ``first_row``, as one finished file."""
    numbers: defaultdict[str, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    per_row = [np.fromiter((numbers[term] for term in terms), dtype=np.int64) for terms in rows]
    lengths = np.array([len(terms) for terms in per_row], dtype=np.int32)
    encoded = [term.encode() for term in numbers]
    order = sorted(range(len(encoded)), key=encoded.__getitem__)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    terms = rank[np.concatenate(per_row)] if lengths.any() else np.empty(0, dtype=np.int64)
    # One sortable number per occurrence: the term above, the row below.
    occurrences = (terms << 32) | np.repeat(np.arange(len(lengths)), lengths)
    pairs, counts = np.unique(occurrences, return_counts=True)
    with replacing(piece) as file:
        np.savez(
            file,
            terms=np.frombuffer(b"\n".join(encoded[i] for i in order), dtype=np.uint8),
            ends=np.searchsorted(pairs >> 32, np.arange(len(order)), side="right").astype(np.int64),
            rows=((pairs & 0xFFFFFFFF) + first_row).astype(np.int32),
            counts=np.minimum(counts, MAX_COUNT).astype(np.uint16),
            lengths=lengths,
        )


def merge(pieces: Sequence[Path], folder: Path) -> dict[str, int]:
    """Merge pieces, in row order, into the files of ``Postings`` and ``lengths.i32``, and return the counts."""
    terms = sorted(set().union(*(_read_piece(piece).terms for piece in pieces)))
    numbers = {term: number for number, term in enumerate(terms)}
    n_postings = np.zeros(len(terms), dtype=np.int64)
    for piece in map(_read_piece, pieces):
        n_postings[[numbers[term] for term in piece.terms]] += np.diff(piece.postings.ends, prepend=0)
    ends = np.cumsum(n_postings)
    total = int(ends[-1]) if len(ends) else 0
    merged = PostingArrays(ends, _new_array(folder / "rows.i32", np.int32, total), _new_array(folder / "counts.u16", np.uint16, total))
    filled = ends - n_postings
    with (folder / "lengths.i32").open("wb") as lengths:
        n_rows = 0
        for piece in map(_read_piece, pieces):
            to = np.array([numbers[term] for term in piece.terms], dtype=np.int64)
            _append_postings(piece.postings, to, filled, merged)
            lengths.write(piece.lengths.tobytes())
            n_rows += len(piece.lengths)
    _write(folder / "posting_ends.i64", ends)
    _write(folder / "term_ends.i64", np.cumsum([len(term) for term in terms], dtype=np.int64))
    (folder / "terms.bin").write_bytes(b"".join(terms))
    return {"terms": len(terms), "postings": total, "rows": n_rows}


@njit(nogil=True, cache=True)
def _append_postings(piece: PostingArrays, to: NDArray[np.int64], filled: NDArray[np.int64], merged: PostingArrays) -> None:
    """Append each term's postings of one piece behind what is ``filled`` of the same term, term ``to[term]``, which goes up."""
    start = 0
    for term in range(len(piece.ends)):
        at = filled[to[term]]
        for p in range(start, piece.ends[term]):
            merged.rows[at] = piece.rows[p]
            merged.counts[at] = piece.counts[p]
            at += 1
        filled[to[term]] = at
        start = piece.ends[term]


def map_array(path: Path, dtype: DTypeLike) -> NDArray[Any]:
    """Return a whole file as a read-only, memory-mapped array; an empty file is an empty array."""
    return np.memmap(path, dtype=dtype, mode="r") if path.stat().st_size else np.empty(0, dtype=dtype)


def _new_array(path: Path, dtype: DTypeLike, n: int) -> NDArray[Any]:
    path.write_bytes(b"")
    return np.memmap(path, dtype=dtype, mode="w+", shape=(n,)) if n else np.empty(0, dtype=dtype)


def _write(path: Path, array: NDArray[np.int64]) -> None:
    path.write_bytes(array.tobytes())


def _read_piece(path: Path) -> _Piece:
    try:
        with path.open("rb") as file, np.load(file) as arrays:  # numpy leaves a file open that it cannot read
            terms = arrays["terms"].tobytes()
            postings = PostingArrays(arrays["ends"], arrays["rows"], arrays["counts"])
            return _Piece(terms.split(b"\n") if terms else [], postings, arrays["lengths"])
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise PiecesDamaged(f"{path} cannot be read: {error}") from error
