"""Retrieval callable of DSPy."""

from __future__ import annotations

from typing import Unpack

from wikidx.base.errors import MissingExtraError
from wikidx.retrievers.base import DEFAULTS, Searcher
from wikidx.retrievers.options import SearchOptions, SearchOptionValues, override

try:
    import dspy
    from dspy.dsp.utils import dotdict
except ImportError as error:
    raise MissingExtraError("the adapter for DSPy", "dspy") from error


class Retriever:
    """A searcher as a callable that returns a ``dspy.Prediction`` with passages, ids and scores, as ``dspy.Embeddings`` does.

    A passage is ``title | text``, as in DSPy's own collections, or the text if there is no title.

    >>> retrieve = Retriever(idx.open_searcher("sample", "bm25+minilm"), k=3)
    >>> retrieve("river of Egypt").passages
    >>> dspy.configure(rm=retrieve.rm)  # for dspy.Retrieve

    Args:
        searcher: a local or remote searcher.
        options: the search options.
        values: single options, which override those of ``options``.
    """

    def __init__(self, searcher: Searcher, options: SearchOptions = DEFAULTS, **values: Unpack[SearchOptionValues]) -> None:
        self._searcher, self._options = searcher, override(options, values)

    def __call__(self, query: str, k: int | None = None) -> dspy.Prediction:
        """Return the passages for a query; ``k`` overrides the option."""
        passages = self.rm(query, k)
        return dspy.Prediction(
            passages=[passage.long_text for passage in passages],
            ids=[passage.id for passage in passages],
            scores=[passage.score for passage in passages],
        )

    def rm(self, query: str, k: int | None = None) -> list[dotdict]:
        """Return the passages for a query as ``dspy.Retrieve`` takes them from the configured retrieval model."""
        (ranking,) = self._searcher.search([query], self._options if k is None else override(self._options, {"k": k}))
        return [dotdict(long_text=f"{hit.title} | {hit.text}" if hit.title else hit.text, id=hit.id, score=hit.score) for hit in ranking]
