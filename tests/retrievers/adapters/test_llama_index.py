from __future__ import annotations

import asyncio

import pytest

import wikidx as idx
from tests.retrievers.adapters.conftest import skip_without

pytestmark = pytest.mark.slow  # imports the framework

skip_without("llama_index", "llama-index")


def test_it_retrieves_nodes(searcher: idx.LocalSearcher) -> None:
    from wikidx.retrievers.adapters.llama_index import Retriever

    retriever = Retriever(searcher, k=2)
    hits = searcher.search(["blue fox"], k=2)[0]
    for nodes in (retriever.retrieve("blue fox"), asyncio.run(retriever.aretrieve("blue fox"))):
        assert [(node.node_id, node.text, node.score) for node in nodes] == [(hit.id, hit.text, hit.score) for hit in hits]
        assert [node.metadata for node in nodes] == [{"title": hit.title} if hit.title else {} for hit in hits]


def test_a_query_engine_gives_a_model_the_passages(searcher: idx.LocalSearcher) -> None:
    from llama_index.core.llms import MockLLM
    from llama_index.core.query_engine import RetrieverQueryEngine

    from wikidx.retrievers.adapters.llama_index import Retriever

    engine = RetrieverQueryEngine.from_args(Retriever(searcher, k=1), llm=MockLLM())  # which answers with its prompt
    answer = engine.query("whale")
    assert "title: Whale" in str(answer)
    assert "The blue whale." in str(answer)
    assert [source.node_id for source in answer.source_nodes] == ["b"]


def test_place_in_a_document_is_metadata() -> None:
    from wikidx.retrievers.adapters.llama_index import Retriever

    with idx.build([{"id": "d", "text": "The fox. The whale."}], split="sentences:1") as searcher:
        (found,) = Retriever(searcher, k=1).retrieve("whale")
        assert found.metadata.items() >= {"document": "d", "start": 9, "end": 19, "page": 0, "heading": ""}.items()
