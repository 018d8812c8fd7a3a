"""Retriever of LangChain."""

from __future__ import annotations

from typing import Any, Unpack

from wikidx.base.errors import MissingExtraError
from wikidx.retrievers.base import DEFAULTS, Searcher
from wikidx.retrievers.documents import place_of
from wikidx.retrievers.options import SearchOptions, SearchOptionValues, override

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
except ImportError as error:
    raise MissingExtraError("the adapter for LangChain", "langchain") from error


class Retriever(BaseRetriever):
    """A searcher as a ``BaseRetriever``: documents with id and text, and with title, score and place in a document in their metadata.

    >>> retriever = Retriever(idx.open_searcher("sample", "bm25+minilm"), k=5)
    >>> retriever.invoke("river of Egypt")
    >>> retriever.invoke("river of Egypt", k=1)

    Args:
        searcher: a local or remote searcher.
        options: the search options.
        values: single options, which override those of ``options``.
    """

    searcher: Any
    options: Any

    def __init__(self, searcher: Searcher, options: SearchOptions = DEFAULTS, **values: Unpack[SearchOptionValues]) -> None:
        super().__init__(searcher=searcher, options=override(options, values))

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        **values: Unpack[SearchOptionValues],
    ) -> list[Document]:
        (ranking,) = self.searcher.search([query], self.options, **values)
        return [
            Document(id=hit.id, page_content=hit.text, metadata={"title": hit.title, "score": hit.score, **place_of(hit.span)})
            for hit in ranking
        ]
