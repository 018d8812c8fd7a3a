"""Analyzers of tests, which are plug-ins: ``tests.indexer.analyzers:TRIGRAMS`` and ``:ENGLISH_IN_PYTHON``."""

from __future__ import annotations

from wikidx.indexer.analysis import Analyzer
from wikidx.indexer.analysis.english import english

REFERENCES = ",".join(f"{__name__}:{name}" for name in ("TRIGRAMS", "ENGLISH_IN_PYTHON"))


def trigrams(text: str) -> list[str]:
    """Return the runs of three characters of a text, in lower case, across words too."""
    lower = text.lower()
    return [lower[i : i + 3] for i in range(len(lower) - 2)]


TRIGRAMS = Analyzer(name="tri-grams", terms=trigrams)
ENGLISH_IN_PYTHON = Analyzer(name="as-english", terms=english)
