"""Component of Haystack."""

from __future__ import annotations

from typing import Any, Unpack

from wikidx.base.errors import InputError, MissingExtraError
from wikidx.retrievers.base import DEFAULTS, Searcher
from wikidx.retrievers.documents import place_of
from wikidx.retrievers.options import SearchOptions, SearchOptionValues, override

try:
    from haystack import Document, component
except ImportError as error:
    raise MissingExtraError("the adapter for Haystack", "haystack") from error


@component
class Retriever:
    """A searcher as a Haystack component: documents with id, content and score, and with title and place in a document in meta.

    >>> pipeline.add_component("retriever", Retriever(idx.open_searcher("sample", "bm25+minilm"), k=5))

    A pipeline that contains the component cannot be serialized, because a searcher cannot.

    Args:
        searcher: a local or remote searcher.
        options: the search options.
        values: single options, which override those of ``options``.
    """

    def __init__(self, searcher: Searcher, options: SearchOptions = DEFAULTS, **values: Unpack[SearchOptionValues]) -> None:
        self._searcher, self._options = searcher, override(options, values)

    @component.output_types(documents=list[Document])
    def run(self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None) -> dict[str, list[Document]]:
        """Return the documents for a query.

        Args:
            query: the query.
            filters: none are supported.
            top_k: maximum number of documents; None: ``k`` of the component's options.

        Raises:
            InputError: filters are given.
        """
        if filters:
            raise InputError("idx has no filters over metadata: search without filters")
        (ranking,) = self._searcher.search([query], self._options if top_k is None else override(self._options, {"k": top_k}))
        return {
            "documents": [
                Document(id=hit.id, content=hit.text, meta={"title": hit.title, **place_of(hit.span)}, score=hit.score) for hit in ranking
            ]
        }
