"""Retriever of LlamaIndex."""

from __future__ import annotations

import asyncio
from typing import Any, Unpack

from wikidx.base.errors import MissingExtraError
from wikidx.retrievers.base import DEFAULTS, ScoredPassage, Searcher
from wikidx.retrievers.documents import place_of
from wikidx.retrievers.options import SearchOptions, SearchOptionValues, override

try:
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
except ImportError as error:
    raise MissingExtraError("the adapter for LlamaIndex", "llama-index") from error


class Retriever(BaseRetriever):
    """A searcher as a ``BaseRetriever``: nodes with id, text and score, and with title and place in a document in their metadata.

    >>> retriever = Retriever(idx.open_searcher("sample", "bm25+minilm"), k=5)
    >>> retriever.retrieve("river of Egypt")

    Args:
        searcher: a local or remote searcher.
        options: the search options.
        values: single options, which override those of ``options``.
    """

    def __init__(self, searcher: Searcher, options: SearchOptions = DEFAULTS, **values: Unpack[SearchOptionValues]) -> None:
        super().__init__()
        self._searcher, self._options = searcher, override(options, values)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        (ranking,) = self._searcher.search([query_bundle.query_str], self._options)
        return [NodeWithScore(node=TextNode(id_=hit.id, text=hit.text, metadata=_metadata(hit)), score=hit.score) for hit in ranking]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _metadata(hit: ScoredPassage) -> dict[str, Any]:
    return {**({"title": hit.title} if hit.title else {}), **place_of(hit.span)}
