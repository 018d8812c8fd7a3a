from __future__ import annotations

from typing import Any

import pytest

import wikidx as idx
from tests.retrievers.adapters.conftest import skip_without

pytestmark = pytest.mark.slow  # imports the framework

skip_without("dspy", "dspy")


def test_it_is_called_with_a_query(searcher: idx.LocalSearcher) -> None:
    from wikidx.retrievers.adapters.dspy import Retriever

    prediction = Retriever(searcher, k=2)("blue fox")
    hits = searcher.search(["blue fox"], k=2)[0]
    assert prediction.passages == ["A blue fox, blue and blue", "Fox | The red fox."]
    assert (prediction.ids, prediction.scores) == ([hit.id for hit in hits], [hit.score for hit in hits])
    assert len(Retriever(searcher)("blue fox", k=1).passages) == 1


def test_it_is_the_retrieval_model_of_a_program(searcher: idx.LocalSearcher) -> None:
    import dspy
    from dspy.utils import DummyLM

    from wikidx.retrievers.adapters.dspy import Retriever

    class Program(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.retrieve, self.answer = dspy.Retrieve(k=1), dspy.Predict("context, question -> answer")

        def forward(self, question: str) -> Any:  # noqa: ANN401
            return self.answer(context=self.retrieve(question).passages, question=question)

    model = DummyLM([{"answer": "blue"}])
    with dspy.context(lm=model, rm=Retriever(searcher).rm):
        assert Program()("Which colour has the whale?").answer == "blue"
    assert "Whale | The blue whale." in str(model.history[0]["messages"])
