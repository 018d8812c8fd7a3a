from __future__ import annotations

import asyncio

import pytest

import wikidx as idx
from tests.retrievers.adapters.conftest import skip_without
from wikidx.base.errors import OptionError

pytestmark = pytest.mark.slow  # imports the framework

skip_without("langchain_core", "langchain")


def test_it_retrieves_documents_in_a_chain(searcher: idx.LocalSearcher) -> None:
    from langchain_core.runnables import RunnableLambda

    from wikidx.retrievers.adapters.langchain import Retriever

    retriever = Retriever(searcher, k=2)
    hits = searcher.search(["blue fox"], k=2)[0]
    documents = retriever.invoke("blue fox")
    assert [(document.id, document.page_content) for document in documents] == [(hit.id, hit.text) for hit in hits]
    assert [document.metadata for document in documents] == [{"title": hit.title, "score": hit.score} for hit in hits]
    assert len(retriever.invoke("blue fox", k=1)) == 1
    chain = retriever | RunnableLambda(lambda documents: [document.id for document in documents])
    assert chain.batch(["whale", "red"]) == [["b"], ["a"]]
    assert asyncio.run(chain.ainvoke("whale")) == ["b"]


def test_a_wrong_option_is_named(searcher: idx.LocalSearcher) -> None:
    from wikidx.retrievers.adapters.langchain import Retriever

    with pytest.raises(OptionError, match="fuse is 'rff': did you mean 'rrf'"):
        Retriever(searcher, fuse="rff")  # type: ignore[arg-type]


def test_place_in_a_document_is_metadata() -> None:
    from wikidx.retrievers.adapters.langchain import Retriever

    with idx.build([{"id": "d", "text": "The fox. The whale."}], split="sentences:1") as searcher:
        (found,) = Retriever(searcher, k=1).invoke("whale")
        assert found.metadata.items() >= {"document": "d", "start": 9, "end": 19, "page": 0, "heading": ""}.items()
