from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import wikidx as idx
from tests.retrievers.adapters.conftest import skip_without
from wikidx.base.errors import UnknownNameError

pytestmark = pytest.mark.slow  # imports the framework

skip_without("pyterrier", "pyterrier")

COLUMNS = ["qid", "query", "docid", "docno", "rank", "score", "title", "text"]


@pytest.fixture
def adapter() -> Any:  # noqa: ANN401
    return import_module("wikidx.retrievers.adapters.pyterrier")


@pytest.fixture
def topics() -> Any:  # noqa: ANN401
    import pandas as pd

    return pd.DataFrame([("q1", "blue fox"), ("q2", "zebra"), ("q3", "whale")], columns=["qid", "query"])


def test_queries_become_results(searcher: idx.LocalSearcher, adapter: Any, topics: Any) -> None:  # noqa: ANN401
    results = adapter.Retriever(searcher)(topics.assign(kept=[1, 2, 3]))
    assert list(results.columns) == [*COLUMNS[:2], "kept", *COLUMNS[2:]]
    assert results[["qid", "query", "kept", "rank"]].to_numpy().tolist() == [
        *(["q1", "blue fox", 1, rank] for rank in range(3)),
        ["q3", "whale", 3, 0],
    ]
    hits = [hit for ranking in searcher.search(topics["query"].tolist()) for hit in ranking]
    assert results[["docid", "docno", "score", "text"]].to_numpy().tolist() == [[hit.row, hit.id, hit.score, hit.text] for hit in hits]


def test_nothing_found_has_the_columns_and_types_of_results(searcher: idx.LocalSearcher, adapter: Any, topics: Any) -> None:  # noqa: ANN401
    retriever = adapter.Retriever(searcher)
    found, nothing, no_queries = (retriever(frame) for frame in (topics, topics[1:2], topics[:0]))
    assert len(nothing) == len(no_queries) == 0
    assert dict(nothing.dtypes) == dict(no_queries.dtypes) == dict(found.dtypes)
    assert adapter.pt.inspect.transformer_outputs(retriever, ["qid", "query"]) == COLUMNS
    assert retriever.options.k == 1000


@pytest.mark.parametrize("options", [{}, {"k": 2}, {"rerank": "primary", "rerank_depth": 1}], ids=str)
def test_a_cutoff_is_that_of_the_whole_results(searcher: idx.LocalSearcher, adapter: Any, topics: Any, options: dict[str, Any]) -> None:  # noqa: ANN401
    whole = adapter.Retriever(searcher, **options)
    cut = (whole % 1).compile()
    assert isinstance(cut, adapter.Retriever)
    assert cut(topics).to_dict("records") == whole(topics).query("rank < 1").to_dict("records")
    assert whole.fuse_rank_cutoff(5000) is whole


def test_a_pipeline_reranks_and_an_experiment_takes_it(searcher: idx.LocalSearcher, adapter: Any, topics: Any, tmp_path: Path) -> None:  # noqa: ANN401
    from tests.retrievers.made_rerankers import save_classifier

    bm25, reranker = adapter.Retriever(searcher), adapter.Reranker(str(save_classifier(tmp_path / "checkpoint")), device="cpu")
    pipeline = bm25 % 2 >> reranker
    results, before = pipeline(topics), (bm25 % 2)(topics)
    assert set(results["docno"]) == set(before["docno"])
    assert results["score"].tolist() != before["score"].tolist()
    by_rank, by_score = results.sort_values(["qid", "rank"]), results.sort_values(["qid", "score"], ascending=[True, False])
    assert by_rank["docno"].tolist() == by_score["docno"].tolist()
    qrels = adapter.pd.DataFrame([("q1", "c", 1), ("q3", "b", 1)], columns=["qid", "docno", "label"])
    table = adapter.pt.Experiment([bm25, pipeline], topics, qrels, ["recip_rank"], plan="tree", names=["bm25", "reranked"])
    assert table.set_index("name")["recip_rank"]["bm25"] == 1
    assert len(reranker(before[:0])) == 0
    assert (repr(bm25), repr(pipeline.compile()[0])) == ("idx bm25", "idx bm25, k=2")


def test_a_query_without_text_costs_only_itself_and_is_logged(
    searcher: idx.LocalSearcher,
    adapter: Any,  # noqa: ANN401
    topics: Any,  # noqa: ANN401
    caplog: pytest.LogCaptureFixture,
) -> None:
    results = adapter.Retriever(searcher)(topics.assign(query=["blue fox", float("nan"), "whale"]))
    assert results["qid"].tolist() == ["q1", "q1", "q1", "q3"]
    assert caplog.messages == ["the query 'q2' was not searched: a query is a text, or a vector of finite numbers, not nan"]


def test_an_unknown_reranker_is_named(adapter: Any) -> None:  # noqa: ANN401
    with pytest.raises(UnknownNameError, match="unknown reranker 'minilm': did you mean 'minilm-msmarco'"):
        adapter.Reranker("minilm")
