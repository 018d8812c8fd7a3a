"""English analysis: the kernels' terms and term numbers of texts."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wikidx.indexer.analysis.analyzer import ENGLISH, Analyzer, TermTable
from wikidx.indexer.analysis.dictionary import Dictionary
from wikidx.indexer.analysis.numbering import MAX_TERM_BYTES, Texts, no_recent_tokens, number_terms
from wikidx.indexer.analysis.terms import read_rules
from wikidx.indexer.analysis.tokens import token_bounds

_rules = functools.cache(read_rules)


class TermNumbers:
    """Numbering of the distinct terms of many texts, from 0 in order of first appearance.

    Its memory grows with the vocabulary. A call of ``add`` takes up to 12 more bytes per character of its texts.
    It is not thread-safe: use one object per thread.
    """

    def __init__(self) -> None:
        self._dictionary, self._recent = Dictionary(), no_recent_tokens()

    def __len__(self) -> int:
        """Return the number of distinct terms."""
        return len(self._dictionary)

    def add(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Analyse texts and return the numbers of their terms.

        Every string is valid. A lone surrogate separates words.

        Returns:
            The concatenated term numbers of all texts (int32), and the position after each text's last number (int64, one per text).
        """
        bounds = np.cumsum(np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)))
        points = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype="<u4")
        read = Texts(points, bounds, np.empty(len(points), dtype=np.int32), np.zeros(len(texts), dtype=np.int64))
        state, terms = np.zeros(3, dtype=np.int64), self._dictionary
        while state[0] < len(texts):
            terms.reserve(1, MAX_TERM_BYTES)
            terms.n_terms = number_terms(read, _rules(), terms.terms, terms.n_terms, self._recent, state)
        return read.numbers[: state[2]].copy(), read.ends

    def table(self) -> TermTable:
        """Return the terms numbered so far; later calls of ``add`` do not change the returned table."""
        return TermTable(*self._dictionary.pool_and_ends())


def english(text: str) -> list[str]:
    """Return the terms of a text in order."""
    numbers = TermNumbers()
    occurrences, _ = numbers.add([text])
    terms = numbers.table().terms()
    return [terms[number] for number in occurrences.tolist()]


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each word of a text, stop words included, in code points."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return [(begin, end) for begin, end in token_bounds(points, _rules().token).tolist()]


ANALYZER = Analyzer(name=ENGLISH, terms=english, numbering=TermNumbers)
