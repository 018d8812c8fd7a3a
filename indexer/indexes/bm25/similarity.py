"""Arithmetic of Lucene's BM25Similarity (Lucene 9 and 10), equal bit by bit, and one-byte impacts.

    score(query, row) = sum over distinct query terms t of  w - w / (1 + tf * inverse[length code of the row])
    w = (count of t in the query) * ln(1 + (N - df + 0.5) / (df + 0.5))
    inverse[c] = 1 / (k1 * (1 - b + b * length(c) / mean length))

N is the number of rows with at least one term; the mean length is over these rows. A length is stored in one byte: exactly up to 40
terms, above with four significant bits (org.apache.lucene.util.SmallFloat.intToByte4). A term's part of the score is a float32. The sum
is computed in float64 and rounded to float32.

An impact is a term's part of the score in 255ths of w: 255 * (1 - 1 / (1 + tf * inverse)), rounded up to an integer. The impact and the
row's length code determine tf, unless several high tf share an impact. A posting with a tf other than the lowest of these is an
*exception*; the index lists the exceptions with their tf.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel
from wikidx.indexer.indexes.postings.files import MAX_TF

N_LENGTH_CODES = 256

_INFINITE = np.float32(1e30)  # stands for an infinite ``inverse``: the scores are the same, and products stay finite
_N_EXACT = 24  # lengths below this are their own codes; in Lucene, 255 minus longToInt4(Integer.MAX_VALUE)


class TermFrequencies(NamedTuple):
    """The lowest tf of each impact (0: none), and whether the next tf shares the impact, both of shape (length codes, 256)."""

    lowest: NDArray[np.uint16]
    is_shared: NDArray[np.bool_]


class Denominators(NamedTuple):
    """Denominators ``1 + tf * inverse`` of the scores.

    Attributes:
        values: denominators by length code and impact, (256, 256): for the lowest tf, negated, if several tf share the impact; 1 if no tf
            has the impact.
        inverse: ``inverse`` by length code, (256,).
    """

    values: NDArray[np.float32]
    inverse: NDArray[np.float32]


@kernel
def length_code(length: int) -> int:
    """Return the byte that encodes a length."""
    rest = length - _N_EXACT
    if rest < 8:
        return length if rest < 0 else rest + _N_EXACT
    shift = 0
    while rest >> shift >= 16:
        shift += 1
    return _N_EXACT + (((rest >> shift) & 7) | ((shift + 1) << 3))


def coded_length(code: int) -> int:
    """Return the length that a byte encodes: the lowest length with this code."""
    rest = code - _N_EXACT
    if rest < 8:
        return code
    return _N_EXACT + (((rest & 7) | 8) << ((rest >> 3) - 1))


@kernel
def length_codes(lengths: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Return ``length_code`` of every length, uint8."""
    codes = np.empty(len(lengths), dtype=np.uint8)
    for i in range(len(lengths)):
        codes[i] = length_code(np.int64(lengths[i]))
    return codes


def mean_length(n_tokens: int, n_rows: int) -> float:
    """Return the mean length of the rows with a term; 1 if no row has a term."""
    return n_tokens / n_rows if n_rows else 1.0


def inverse_norms(k1: float, b: float, mean_length: float) -> NDArray[np.float32]:
    """Return ``inverse`` of each length code, float32, shape (256,)."""
    one, k, share = np.float32(1), np.float32(k1), np.float32(b)
    lengths = np.array([coded_length(code) for code in range(N_LENGTH_CODES)], dtype=np.float32)
    norms = k * ((one - share) + share * lengths / np.float32(mean_length))
    inverse: NDArray[np.float32] = one / np.maximum(norms, one / _INFINITE)
    return inverse


def idf(n_rows: int, frequencies: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the logarithm in w for terms with these document frequencies in ``n_rows`` rows, float32."""
    df = frequencies.astype(np.float64)
    return np.log(1 + (n_rows - df + 0.5) / (df + 0.5)).astype(np.float32)


@kernel
def impact(tf: int, inverse: np.float32) -> np.float32:
    """Return the impact of a term frequency, 1 to 255; in Python, also those of arrays."""
    one = np.float32(1)
    share = one - one / (one + np.float32(tf) * inverse)
    value: np.float32 = np.maximum(one, np.ceil(share * np.float32(255)))
    return value


def term_frequencies(inverse: NDArray[np.float32]) -> TermFrequencies:
    """Return the tf of each impact, for each length code, by bisection: a higher tf never has a lower impact."""
    codes, values = inverse[:, None], np.arange(257)
    low, high = np.zeros((len(inverse), 257), np.int64), np.full((len(inverse), 257), MAX_TF + 1)
    while (high - low > 1).any():  # the lowest tf with at least this impact is above ``low`` and at most ``high``
        middle = np.maximum(1, (low + high) // 2)
        reaches = impact.py_func(middle, codes) >= values
        low, high = np.where(reaches, low, middle), np.where(reaches, middle, high)
    lowest, following = high[:, :256], high[:, 1:]
    exists = (following > lowest) & (values[:256] > 0)
    return TermFrequencies(np.where(exists, lowest, 0).astype(np.uint16), exists & (following > lowest + 1))


def denominators(inverse: NDArray[np.float32]) -> Denominators:
    """Return the denominators of the scores; see ``Denominators``."""
    lowest, is_shared = term_frequencies(inverse)
    values = np.float32(1) + lowest.astype(np.float32) * inverse[:, None]
    return Denominators(np.where(is_shared, -values, values), inverse)
