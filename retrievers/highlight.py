"""Highlights: the words of a passage from which an analyzer makes a term of the query."""

from __future__ import annotations

from collections.abc import Sequence

from wikidx.base.plugins import plug_ins
from wikidx.indexer.analysis import Analyzer
from wikidx.indexer.analysis.english import ANALYZER, word_spans
from wikidx.indexer.naming import canonical_name

from .base import ScoredPassage

Span = tuple[int, int]  # start and end of a word, in code points


def analyzer_of(ranking: Sequence[ScoredPassage]) -> Analyzer:
    """Return the analyzer of an index that found a passage; English if all have it, or none, or if the plug-in is not known here."""
    names = dict.fromkeys(getattr(canonical_name(match.retriever), "analyzer", "") for hit in ranking for match in hit.provenance)
    return next((plug_ins("analyzer")[name].value for name in names if name in plug_ins("analyzer")), ANALYZER)


def find_highlights(texts: Sequence[str], queries: Sequence[str], analyzer: Analyzer = ANALYZER) -> list[list[Span]]:
    """Return the spans of the words of each text that share a term with a query, in text order."""
    numbers = analyzer.new_numbering()
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
