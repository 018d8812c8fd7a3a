"""Highlights: words of passages that match terms of queries, both analysed as in the index."""

from __future__ import annotations

from collections.abc import Sequence

from wikidx.indexer.analysis import TermNumbers, word_spans

Span = tuple[int, int]  # start and end of a word, in code points


def highlights(texts: Sequence[str], queries: Sequence[str]) -> list[list[Span]]:
    """Return, for each text, its words that share a term with a query, in order."""
    numbers = TermNumbers()
    numbers.add(queries)
    n_wanted = len(numbers)
    spans = [(number, start, stop) for number, text in enumerate(texts) for start, stop in word_spans(text)]
    found, ends = numbers.add([texts[number][start:stop] for number, start, stop in spans])
    marked: list[list[Span]] = [[] for _ in texts]
    first = 0
    for (number, start, stop), end in zip(spans, ends.tolist(), strict=True):
        if (found[first:end] < n_wanted).any():
            marked[number].append((start, stop))
        first = end
    return marked
