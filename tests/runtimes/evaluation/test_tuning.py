"""Tuning of pipelines: metrics against trec_eval's, and the honesty of the held-out figure."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.retrievers.plain import hits
from tests.runtimes.command_line import Command
from wikidx.base.errors import InputError
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Scores
from wikidx.indexer.build import build_index
from wikidx.retrievers.fusion import to_lists
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.pipelines.notation import parse_pipeline
from wikidx.retrievers.pipelines.tree import Fused, Reranked
from wikidx.runtimes.evaluation.retrieval.rankings import gold_values
from wikidx.runtimes.evaluation.retrieval.tuning import (
    Judged,
    Metric,
    Trials,
    assign_folds,
    cross_validate,
    list_fusions,
    list_rerankings,
    score,
    tune,
)
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, FloatArray

N_ROWS = 40


def judged_rows(gains: Sequence[dict[int, int]]) -> Judged:
    keys = sorted((number * N_ROWS + row, gain) for number, each in enumerate(gains) for row, gain in each.items())
    return Judged(np.array([key for key, _ in keys]), np.array([float(gain) for _, gain in keys]), len(gains), N_ROWS)


@pytest.mark.parametrize("metric", ["nDCG@10", "nDCG@3", "R@5", "R@20", "Success@1", "Success@5"])
def test_metrics_are_those_of_trec_eval(metric: str) -> None:
    rng = np.random.default_rng(0)
    gains = [{int(row): int(rng.integers(1, 4)) for row in rng.permutation(N_ROWS)[: 1 + number % 15]} for number in range(60)]
    lines = [[(int(row), float(-rank)) for rank, row in enumerate(rng.permutation(N_ROWS)[: number % 25])] for number in range(60)]
    run = {str(number): {f"p{row:02}": value for row, value in line} for number, line in enumerate(lines)}
    qrels = {str(number): {f"p{row:02}": gain for row, gain in each.items()} for number, each in enumerate(gains)}
    expected = gold_values(run, qrels, list(qrels), [metric])[metric]
    assert score(to_lists(hits(*lines)), judged_rows(gains), Metric.parse(metric)) == pytest.approx(expected)


def test_an_overfitting_choice_is_exposed_by_the_held_out_figure() -> None:
    """Of 2,000 choices that know nothing, the best looks much better than chance on the questions that it was chosen on."""
    values = np.random.default_rng(1).integers(0, 2, (2000, 60)).astype(float)
    folds = assign_folds([str(number) for number in range(60)], 5, 0)
    validated = cross_validate(lambda choice: values[choice], range(2000), lambda choice: (), folds)
    assert values[validated.final].mean() > 0.69
    assert abs(validated.values.mean() - 0.5) < 0.1


def test_a_choice_that_is_better_everywhere_is_chosen_in_every_fold() -> None:
    """Its held-out figure is its mean, and refinements of the best are tried."""
    values: dict[str, FloatArray] = {"weak": np.full(20, 0.2), "good": np.tile([0.5, 0.7], 10), "refined": np.tile([0.6, 0.8], 10)}
    folds = assign_folds([str(number) for number in range(20)], 4, 0)
    validated = cross_validate(values.__getitem__, ["weak", "good"], lambda choice: ["refined"], folds)
    assert validated.choices == ["refined"] * 4
    assert validated.values.tolist() == values["refined"].tolist()


def test_equal_questions_share_a_fold_and_folds_are_of_equal_size() -> None:
    folds = assign_folds(["a", "b", "c", "d", "a", "a"], 2, 3)
    assert folds[0] == folds[4] == folds[5]
    assert sorted(np.bincount(folds[:4]).tolist()) == [2, 2]
    with pytest.raises(InputError, match="2 different questions cannot make 3 folds"):
        assign_folds(["a", "b", "a"], 3, 0)


def test_the_fusions_to_try_begin_with_the_simplest_and_are_distinct() -> None:
    fusions = [str(node) for node in list_fusions(["a", "b"], 100)]
    assert fusions[:3] == ["a", "b", "{a%100, b%100}rrf"]
    assert "{a%20:3, b%20:7}minmax" in fusions
    assert len(set(fusions)) == len(fusions) == 2 + 3 * 4 * 9
    assert {len(node.inputs) for node in list_fusions(["a", "b", "c"], 50) if isinstance(node, Fused)} == {2, 3}


class GoldReranker:
    """A reranker that knows which passages are relevant, and counts the pairs that it reads."""

    def __init__(self) -> None:
        self.n_pairs = 0

    def score(self, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
        self.n_pairs += len(queries)
        return np.array([f"gold for {query}" in passage.text for query, passage in zip(queries, passages, strict=True)], dtype=np.float32)


def test_the_rule_and_the_reranking_that_suit_the_questions_are_found(build: Callable[..., PassageStore]) -> None:
    """Retriever a has the gold passage at rank 30, b nowhere: reranking at least 50 of a finds it."""
    queries = [f"q{number}" for number in range(10)]
    store = build([Passage(f"p{row}", "", f"gold for q{row}" if row < 10 else f"other {row}") for row in range(200)])
    others = [[(row, 100.0 - row) for row in range(10 + number, 90)] for number in range(10)]
    a = [[*line[:29], (number, line[29][1] + 0.5), *line[29:]] for number, line in enumerate(others)]
    retrieved = {"a": to_lists(hits(*a)), "b": to_lists(hits(*others))}
    judged = Judged(np.arange(10) * 201, np.ones(10), 10, 200)
    reranker = GoldReranker()
    trials = Trials(queries, retrieved, judged, Metric.parse("nDCG@10"), store, {"gold": reranker})
    tuned = tune(trials, ["a", "b"], 60, "gold", assign_folds(queries, 5, 0), Bootstrap())
    assert isinstance(tuned.pipeline, Reranked)
    assert tuned.pipeline.source.keep in (50, 100)
    assert tuned.held_out.mean == tuned.training == 1
    assert len(tuned.folds) == 5
    assert reranker.n_pairs <= 10 * 90
    assert [str(node) for node in list_rerankings(parse_pipeline("a%60"), "m")] == [f"a%{n} >> m" for n in (10, 20, 50, 100)]


@pytest.mark.slow  # compiles two kernels
def test_a_tuned_pipeline_is_a_retriever(idx: Command, home: Path) -> None:
    idx("build", "sample", "--bm25")
    build_index("sample", "bm25-1.2-0.75", open_store("sample"))
    retrievers = ("--retriever", "bm25", "--retriever", "bm25-1.2-0.75")
    printed = idx("tune", "sample", "--questions", "sample", *retrievers, "--metric", "answer@5", "--name", "mine", "--depth", 30)
    for word in ("pipeline ", "held out ", "fold 5 ", "training ", "untuned ", "difference ", "saved as 'mine'"):
        assert word in printed
    record = tomllib.loads((home / "sample" / "pipelines" / "mine.toml").read_text())
    assert f"answer@5 {record['tuned']['held_out']:.4f}" in printed
    low, high = record["tuned"]["held_out_interval"]
    assert low <= record["tuned"]["held_out"] <= high
    again = json.loads(
        idx("tune", "sample", "--questions", "sample", *retrievers, "--metric", "answer@5", "--name", "mine", "--depth", 30, "--json")
    )
    assert again == {"corpus": "sample", "name": "mine", "pipeline": record["pipeline"], **record["tuned"]}
    searched = json.loads(idx("search", "sample", "chemical symbol Au", "--retriever", "mine", "--json", "--explain"))
    with open_searcher("sample", record["pipeline"]) as searcher:
        assert [hit["id"] for hit in searched["passages"]] == [hit.id for hit in searcher.search(["chemical symbol Au"])[0]]
    assert searched["stages"][-1]["stage"] == "passages"


def test_the_cutoff_of_the_metric_is_searched_to(idx: Command, built_sample: Path, home: Path) -> None:
    shutil.copytree(built_sample, home)  # the pipeline is saved
    tune_ = ("tune", "sample", "--questions", "sample", "--retriever", "bm25", "--metric", "R@100", "--json")
    shallow, deep = (json.loads(idx(*tune_, "--depth", depth))["training"] for depth in (1, 100))
    assert shallow == deep


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--retriever", "bm25", "--metric", "MRR"), "there is no metric 'MRR' to tune for: name it like nDCG@10"),
        ((), "name retrievers to choose from with --retriever"),
        (("--retriever", "bm25", "--name", "bm25"), "'bm25' is the name of an index"),
    ],
)
def test_what_cannot_be_tuned_is_said_in_a_line(idx: Command, sample_home: Path, options: tuple[str, ...], message: str) -> None:
    assert message in idx("tune", "sample", "--questions", "sample", *options, status=2)


def test_a_pipeline_that_cannot_be_saved_is_refused_before_any_work(idx: Command, home: Path) -> None:
    idx("build", "sample")
    (home / "sample" / "pipelines").touch()
    assert "File exists: " in idx("tune", "sample", "--questions", "none.jsonl", "--retriever", "bm25", status=2)
