"""Highlights: the words of a passage from which BM25's analyzer makes a term of the query."""

from __future__ import annotations

from collections.abc import Sequence

from wikidx.indexer.analysis import TermNumbers, word_spans

Span = tuple[int, int]  # start and end of a word, in code points


def find_highlights(texts: Sequence[str], queries: Sequence[str]) -> list[list[Span]]:
    """Return the spans of the words of each text that share a term with a query, in text order."""
    numbers = TermNumbers()
    numbers.add(queries)
    n_query_terms = len(numbers)
    spans = [(number, start, stop) for number, text in enumerate(texts) for start, stop in word_spans(text)]
    terms, ends = numbers.add([texts[number][start:stop] for number, start, stop in spans])
    highlighted: list[list[Span]] = [[] for _ in texts]
    first = 0
    for (number, start, stop), end in zip(spans, ends.tolist(), strict=True):
        if (terms[first:end] < n_query_terms).any():
            highlighted[number].append((start, stop))
        first = end
    return highlighted
