"""Searches by pipelines, against their definition: one query at a time, with dictionaries."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.retrievers.conftest import PIPELINE, some_passages
from tests.retrievers.plain import Pairs, best_first, found_by, plain_merge, plain_scaled
from tests.retrievers.retrieving import build_corpus
from tests.retrievers.worded import dense_over
from wikidx.base.errors import InputError, UnknownNameError
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Scores
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.base import Rankings, Retriever
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.opening import open_retriever, open_searcher
from wikidx.retrievers.pipelines.notation import parse_pipeline
from wikidx.retrievers.pipelines.saved import read_pipeline, saved_pipelines, write_pipeline
from wikidx.retrievers.pipelines.tree import Fused, Node, Source
from wikidx.retrievers.searcher import LocalSearcher

QUERIES = ["whale ocean number 7", "naïve café 3", "ship number 40", "xyzzy river", "book"]


class LengthReranker:
    """A reranker that prefers short texts, and texts whose length is near that of the query."""

    def score(self, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
        pairs = zip(queries, passages, strict=True)
        return np.array([-abs(len(passage.text) - len(query)) for query, passage in pairs], dtype=np.float32)


@pytest.fixture
def store(made: Path) -> PassageStore:
    return open_store("made")


@pytest.fixture
def retrievers(store: PassageStore) -> dict[str, Retriever]:
    return {"bm25": open_retriever("made", "bm25", store), "minilm": dense_over(store)}


def plain_run(node: Node, query: str, retrievers: Mapping[str, Retriever], store: PassageStore, depth: int) -> Pairs:
    if isinstance(node, Source):
        found = found_by(retrievers[node.name], query, depth)
    elif isinstance(node, Fused):
        lists = [plain_run(below, query, retrievers, store, depth) for below in node.inputs]
        is_rrf = node.rule == "rrf"
        found = plain_merge(lists, "rrf", node.weights, node.k) if is_rrf else plain_scaled(lists, node.weights, node.rule)
    else:
        numbers = [row for row, _ in plain_run(node.source, query, retrievers, store, depth)]
        scores = LengthReranker().score([query] * len(numbers), store.get_many(numbers))
        found = best_first(dict(zip(numbers, scores.tolist(), strict=True)))
    return found[: node.keep]


def pairs(rankings: Rankings) -> list[Pairs]:
    return [[(hit.row, hit.score) for hit in ranking] for ranking in rankings]


def searcher(text: str, retrievers: Mapping[str, Retriever], store: PassageStore) -> LocalSearcher:
    name = RetrieverName.parse(text)
    return LocalSearcher(store, {part: retrievers[part] for part in name.parts}, None, name.pipeline, {"length": LengthReranker()})


@pytest.mark.parametrize(
    "text",
    [
        "minilm%7",
        "{bm25, minilm}rrf",
        "{bm25:3, minilm}rrf(k=7)%9",
        "{bm25:0.3, minilm:0.7}minmax",
        "{minilm, bm25:2}zscore%20",
        "{bm25:0.1, minilm}weighted",
        "bm25 >> length",
        "{bm25, minilm}rrf%15 >> length%5",
        "{bm25%5 >> length, {bm25:2, minilm%30}minmax%10}zscore",
    ],
)
def test_a_pipeline_gives_what_its_definition_gives(text: str, retrievers: dict[str, Retriever], store: PassageStore) -> None:
    rankings = searcher(text, retrievers, store).search(QUERIES, k=40, depth=25)
    expected = [plain_run(parse_pipeline(text), query, retrievers, store, 40)[:40] for query in QUERIES]
    assert [[row for row, _ in line] for line in pairs(rankings)] == [[row for row, _ in line] for line in expected]
    for line, plain in zip(pairs(rankings), expected, strict=True):
        assert [score for _, score in line] == pytest.approx([score for _, score in plain], rel=1e-6, abs=1e-6)


def test_a_plus_is_rrf_with_the_same_bits(retrievers: dict[str, Retriever], store: PassageStore) -> None:
    groups = [QUERIES[:2], QUERIES[2:]]
    plus = searcher("bm25+minilm", retrievers, store).search_groups(groups, k=30, merge="sum")
    braces = searcher("{bm25, minilm}rrf", retrievers, store).search_groups(groups, k=30, merge="sum")
    assert plus.to_dict() == braces.to_dict()
    assert {match.retriever for ranking in braces for hit in ranking for match in hit.provenance} == {"bm25", "minilm"}


def test_the_queries_of_a_group_go_through_the_pipeline_alone_and_are_merged(retrievers: dict[str, Retriever], store: PassageStore) -> None:
    text = "{bm25, minilm}minmax%10 >> length"
    (ranking,) = searcher(text, retrievers, store).search_groups([QUERIES], k=12, merge="max")
    lists = [plain_run(parse_pipeline(text), query, retrievers, store, 100) for query in QUERIES]
    assert [(hit.row, hit.score) for hit in ranking] == plain_merge(lists, "max")[:12]


def test_each_stage_reports_its_candidates_and_its_time(retrievers: dict[str, Retriever], store: PassageStore) -> None:
    made = searcher("{bm25%20, minilm}rrf%15 >> length%5", retrievers, store)
    rankings = made.search(["river", "whale"], k=3, depth=30, explain=True)
    stages = {stage.stage: stage for stage in rankings.stages}
    assert list(stages) == [*sorted(("bm25", "minilm"), key=list(stages).index), "rrf%15", ">> length%5", "merge max", "passages"]
    counts = {name: (stage.candidates_in, stage.candidates_out) for name, stage in stages.items()}
    assert counts["bm25"] == (0, 40)
    assert counts["minilm"] == (0, 60)
    assert counts["rrf%15"] == (100, 30)
    assert counts[">> length%5"] == (30, 10)
    assert counts["merge max"] == (10, 6)
    assert counts["passages"] == (6, 6)
    assert all(0 <= stage.seconds < 60 for stage in rankings.stages)
    assert made.search(["river"]).stages == ()


def test_options_that_a_pipeline_excludes_are_refused(retrievers: dict[str, Retriever], store: PassageStore) -> None:
    made = searcher("{bm25, minilm}minmax", retrievers, store)
    with pytest.raises(InputError, match=re.escape("fuse is 'weighted', but the pipeline '{bm25, minilm}minmax' says how to fuse")):
        made.search(["a"], fuse="weighted")
    with pytest.raises(InputError, match="rerank is 'primary', which no pipeline knows"):
        made.search(["a"], SearchOptions(rerank="primary"))


@pytest.fixture
def path(home: Path) -> Path:
    """A pipeline that is saved as 'mine', in a home of this test."""
    build_corpus("made", some_passages(30), "bm25", "bm25-1.2-0.75")
    tuned = {"metric": "R@5", "interval": [0.25, float("nan")], "n": 3}
    return write_pipeline("made", "mine", parse_pipeline(PIPELINE), 'made "by hand"\n', tuned)


def test_a_named_pipeline_stands_where_a_retriever_does(path: Path) -> None:
    assert read_pipeline(path) == parse_pipeline(PIPELINE)
    assert saved_pipelines("made") == {"mine": path}
    with open_searcher("made", "mine") as named, open_searcher("made", PIPELINE) as written:
        assert named.search(QUERIES).to_dict() == written.search(QUERIES).to_dict()
    inner = RetrieverName.parse("{mine%10, bm25}rrf", "made")
    assert str(inner) == "{{bm25:3, bm25-1.2-0.75}minmax%10, bm25}rrf"
    assert str(RetrieverName.parse("mine", "made")) == "mine"
    with pytest.raises(UnknownNameError, match=r"unknown retriever 'mien': did you mean 'mine'.* mine \(built here\)"):
        open_searcher("made", "mien")
    with pytest.raises(InputError, match="'bm25' is the name of an index"):
        write_pipeline("made", "bm25", parse_pipeline(PIPELINE), "", {})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("pipeline = ", "is not TOML"),
        ("pipeline = " + "[" * 100_000, "is not TOML"),
        ('pipeline = "bm25"\nweights = 1', "has a field 'weights': its fields are name, pipeline, description, tuned"),
        ('name = "mine"', "has no text 'pipeline'"),
        ('pipeline = "{bm25"', "mine.toml: pipeline '{bm25', character 6"),
    ],
)
def test_an_unusable_file_is_named_with_its_problem(path: Path, content: str, message: str) -> None:
    path.write_text(content)
    with pytest.raises(InputError, match=re.escape(message)):
        open_searcher("made", "mine")
