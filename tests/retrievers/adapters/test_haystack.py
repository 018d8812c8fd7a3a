from __future__ import annotations

import asyncio

import pytest

import wikidx as idx
from tests.retrievers.adapters.conftest import skip_without
from wikidx.base.errors import InputError

pytestmark = pytest.mark.slow  # imports the framework


skip_without("haystack", "haystack")


@pytest.fixture(autouse=True)
def without_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep Haystack from reporting its use."""
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")


def test_it_is_a_component_of_a_pipeline(searcher: idx.LocalSearcher) -> None:
    from haystack import Pipeline
    from haystack.components.builders import PromptBuilder

    from wikidx.retrievers.adapters.haystack import Retriever

    hits = searcher.search(["blue fox"], k=2)[0]
    pipeline = Pipeline()
    pipeline.add_component("retriever", Retriever(searcher, k=2))
    pipeline.add_component("prompt", PromptBuilder("{% for document in documents %}{{ document.content }};{% endfor %}"))
    pipeline.connect("retriever.documents", "prompt.documents")
    query = {"retriever": {"query": "blue fox"}}
    for answer in (pipeline.run(query), asyncio.run(pipeline.run_async(query))):
        assert answer["prompt"]["prompt"] == "".join(f"{hit.text};" for hit in hits)
    (document,) = Retriever(searcher).run("whale", top_k=1)["documents"]
    assert (document.id, document.score) == ("b", searcher.search(["whale"])[0][0].score)


def test_filters_are_refused(searcher: idx.LocalSearcher) -> None:
    from wikidx.retrievers.adapters.haystack import Retriever

    with pytest.raises(InputError, match="idx has no filters"):
        Retriever(searcher).run("whale", filters={"field": "meta.year"})


def test_place_in_a_document_is_metadata() -> None:
    from wikidx.retrievers.adapters.haystack import Retriever

    with idx.build([{"id": "d", "text": "The fox. The whale."}], split="sentences:1") as searcher:
        (found,) = Retriever(searcher).run("whale", top_k=1)["documents"]
        assert found.meta.items() >= {"document": "d", "start": 9, "end": 19, "page": 0, "heading": ""}.items()
