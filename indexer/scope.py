"""Scopes: which rows of a corpus a search may return."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikidx.base.errors import ArgumentError
from wikidx.corpora.passage import Rows

Words = NDArray[np.uint64]

NO_WORDS: Words = np.empty(0, dtype=np.uint64)  # for kernels: no scope, all rows
NO_WORDS.flags.writeable = False


class Scope:
    """Rows of a corpus that a search may return, as a bitmap: row r is bit r % 64 of word r // 64. Equal scopes have equal hashes.

    >>> scope = Scope.of([3, 1, 4], n_rows=len(searcher))
    >>> searcher.search(["river of Egypt"], rows=scope)

    Attributes:
        words: the bitmap, uint64 (ceil(n_rows / 64),), read-only; bits beyond the last row are 0.
        n_rows: number of rows of the corpus.
        key: a digest of the bitmap, by which scopes are compared.
    """

    __slots__ = ("_rows", "key", "n_rows", "words")

    def __init__(self, words: Words, n_rows: int) -> None:
        self.words, self.n_rows = words, n_rows
        words.flags.writeable = False
        self.key = hashlib.blake2b(words.data, digest_size=16).hexdigest()
        self._rows: Rows | None = None

    @classmethod
    def of(cls, rows: object, n_rows: int) -> Scope:
        """Return the scope of rows.

        Args:
            rows: row numbers in any order, or whether each row of the corpus is in the scope, bool (n_rows,); or a scope.
            n_rows: number of rows of the corpus.

        Raises:
            ArgumentError: these are no rows of the corpus.
        """
        if isinstance(rows, Scope):
            if rows.n_rows != n_rows:
                raise ArgumentError(f"the scope is of a corpus of {rows.n_rows:,} passages, this one has {n_rows:,}")
            return rows
        numbers, allowed = _read(rows), np.zeros(n_rows, dtype=bool)
        if numbers.dtype == bool:
            if numbers.shape != (n_rows,):
                raise ArgumentError(f"rows are {len(numbers):,} times true or false, and the corpus has {n_rows:,} passages")
            allowed = numbers
        elif len(numbers):
            if not 0 <= numbers.min() <= numbers.max() < n_rows:
                raise ArgumentError(f"rows are {numbers.min():,} to {numbers.max():,}, and the corpus has rows 0 to {n_rows - 1:,}")
            allowed[numbers] = True
        return cls(to_words(allowed), n_rows)

    @classmethod
    def from_json(cls, rows: object, n_rows: int) -> Scope:
        """Return the scope of rows as ``rows_to_json`` writes them; raises ``ArgumentError``."""
        if not isinstance(rows, str):
            return cls.of(rows, n_rows)
        try:
            bitmap, n_bytes = base64.b64decode(rows, validate=True), 8 * -(-n_rows // 64)
        except (binascii.Error, ValueError) as error:
            raise ArgumentError(f"rows are {rows!r:.40}, neither numbers nor a bitmap in base64: {error}") from error
        words: Words = np.frombuffer(bitmap[:n_bytes].ljust(n_bytes, b"\0"), dtype="<u8")
        if any(bitmap[n_bytes:]) or (n_rows % 64 and words[-1] >> np.uint64(n_rows % 64)):
            raise ArgumentError(f"rows are a bitmap with a row beyond the last one of the corpus, {n_rows - 1:,}")
        return cls(words, n_rows)

    def __len__(self) -> int:
        """Return the number of rows in the scope."""
        return int(np.bitwise_count(self.words).sum())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scope) and (self.key, self.n_rows) == (other.key, other.n_rows)

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self) -> tuple[type[Scope], tuple[Words, int]]:
        return Scope, (self.words, self.n_rows)

    def __repr__(self) -> str:
        return f"<Scope of {len(self):,} of {self.n_rows:,} rows>"

    def mask(self, rows: range | None = None) -> NDArray[np.bool_]:
        """Return whether each row of a range, or each row, is in the scope."""
        rows = range(self.n_rows) if rows is None else rows
        first = rows.start // 64
        bits = np.unpackbits(self.words[first : -(-rows.stop // 64)].view(np.uint8), bitorder="little")
        return bits[rows.start - 64 * first : rows.stop - 64 * first].view(bool)

    def words_within(self, rows: range) -> Words:
        """Return the words of a range of rows, whose first row is then the first bit."""
        return self.words if rows == range(self.n_rows) else to_words(self.mask(rows))

    def rows(self) -> Rows:
        """Return the rows in the scope, ascending. They are computed once; do not change them."""
        if self._rows is None:
            filled = np.flatnonzero(self.words)
            bits = np.flatnonzero(np.unpackbits(self.words[filled].view(np.uint8), bitorder="little").view(bool))
            self._rows = 64 * filled[bits >> 6] + (bits & 63)
        return self._rows


def to_words(mask: NDArray[np.bool_]) -> Words:
    """Return bits in words, the lowest first, read-only; bits beyond the mask are 0."""
    words: Words = np.packbits(np.pad(mask, (0, -len(mask) % 64)), bitorder="little").view("<u8")
    words.flags.writeable = False
    return words


def rows_to_json(rows: object) -> list[int] | str:
    """Return rows, as ``Scope.of`` takes them, as JSON: numbers, or the bitmap's bytes in base64 if that is shorter."""
    if isinstance(rows, Scope):
        return base64.b64encode(rows.words.tobytes()).decode()
    numbers = _read(rows)
    if numbers.dtype == bool:
        return base64.b64encode(np.packbits(numbers, bitorder="little").tobytes()).decode()
    return numbers.tolist()  # type: ignore[no-any-return]


def _read(rows: object) -> NDArray[Any]:
    """Return rows as an array of integers or of booleans."""
    given: Any = rows.tolist() if hasattr(rows, "tolist") and not isinstance(rows, np.ndarray) else rows
    try:
        numbers = np.asarray(given if isinstance(given, np.ndarray | Sequence) else list(given))
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"rows are {rows!r:.60}: give row numbers, or an array of true and false") from error
    if numbers.ndim != 1 or (len(numbers) and numbers.dtype.kind not in "biu") or isinstance(rows, str | bytes):
        raise ArgumentError(f"rows are {rows!r:.60}: give row numbers, or an array of true and false")
    return numbers if numbers.dtype == bool else numbers.astype(np.int64)
