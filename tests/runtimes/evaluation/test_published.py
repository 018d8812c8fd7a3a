"""The papers' figures: all of them, unchanged, and found beside ours."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from wikidx.runtimes.evaluation.answers.metrics import METRICS
from wikidx.runtimes.evaluation.published import comparable_results, detect_dataset, published_figures
from wikidx.runtimes.methods import METHODS
from wikidx.runtimes.training.self_reasoning.teacher import PROGRAM

METHODS_ALONE = {"ReAct", "RECOMP"}  # where the table says no more than a method
ROW_METRICS = {"alce_citation_recall", "alce_citation_precision", "retrorag_judge", "halluqa_judge", "service"}


def shown(metric: str, value: float) -> float:
    return value if metric == "latency_s" else round(100 * value, 6)


def named(model: str) -> str:
    """Return a language model's name without the remarks after it."""
    return re.split(r" \(|; ", model)[0]


def test_every_figure_is_the_papers(shared_data: Path) -> None:
    file = shared_data.parent / "spec" / "results.json"
    if not file.is_file():
        pytest.skip(f"needs the papers' tables at {file}")
    theirs = json.loads(file.read_text(encoding="utf-8"))
    ours = Counter(
        (one.paper, one.table, named(one.model), one.setting, one.system, one.dataset, one.metric, shown(one.metric, one.value))
        for one in published_figures()
        if one.setting != "in the proceedings only"
    )
    fields = ("paper", "table", "backbone", "setting", "system", "dataset", "metric", "value")
    rows = [{**row, "backbone": "not stated" if row["backbone"] in METHODS_ALONE else named(row["backbone"])} for row in theirs]
    assert ours == Counter(tuple(row[field] for field in fields) for row in rows)


def test_headline_figures() -> None:
    """Read off the papers' main tables by eye."""
    assert len(published_figures()) == 506 + 5
    found = {(one.paper, one.model, one.system, one.dataset, one.metric): one for one in published_figures() if one.table == "T1"}
    assert found["Self-Reasoning", "Self-Reasoning-13B", "Self-Reasoning-13B", "FEVER", "acc"].value == pytest.approx(0.839)
    one = found["RetroRAG", "GLM4-9B-chat", "RetroRAG", "HotpotQA", "f1"]
    assert one.value == pytest.approx(0.549)
    assert (one.method, one.retriever, one.k) == ("retrorag", "BM25 and SimLM", 5)
    assert one.source == "RetroRAG, T1 (arXiv 2501.05475)"
    one = found["RA-ISF", "llama2-13b", "Vanilla LM", "NQ", "em"]
    assert (one.method, one.retriever, one.corpus, one.k) == ("direct", "", "", 0)
    latencies = [one.value for one in published_figures() if one.metric == "latency_s" and one.system == "Self-Reasoning-7B"]
    assert latencies == [2.19, 2.32]


def test_names_are_those_of_our_methods_and_metrics() -> None:
    assert {one.method for one in published_figures()} - {None} <= set(METHODS)
    assert {name for one in published_figures() for name in one.own_metrics} <= {*METRICS, *ROW_METRICS}
    no_models = {(one.paper, one.table, one.system) for one in published_figures() if one.model in {*METHODS_ALONE, "not stated"}}
    assert no_models == {("Self-Reasoning", "T1", name) for name in METHODS_ALONE}
    unmeasured = {(one.dataset, one.metric) for one in published_figures() if not one.own_metrics}
    assert unmeasured == {("AVG", "em"), ("SUB_rel", "acc"), ("SUB_decom", "acc"), ("SUB_know", "acc")}


def test_figures_that_can_stand_beside_ours() -> None:
    found = comparable_results("2WikiMQA", ["twowiki_em", "squad_em"], ["ircot"])
    assert [(one.paper, one.system, round(100 * one.value, 1), metric) for one, metric in found] == [
        ("RA-ISF", "IRCoT", 31.1, "twowiki_em"),
        ("RA-ISF", "IRCoT", 21.9, "twowiki_em"),
        ("RetroRAG", "IR-CoT", 25.6, "twowiki_em"),
    ]
    assert {metric for _, metric in comparable_results("2WikiMQA", ["squad_em"], None)} == {"squad_em"}
    assert comparable_results("2WikiMQA", ["popqa_accuracy"], None) == []
    assert comparable_results("sample", ["squad_em"], None) == []


def test_the_closest_metric_is_taken_and_repeated_figures_come_once() -> None:
    found = comparable_results("NQ", ["squad_em", "dpr_em"], None)
    assert {metric for _, metric in found} == {"dpr_em"}
    refeed = [one for one, _ in found if one.system == "ReFeed"]
    assert Counter(one.table for one in refeed) == {"T1-zero-shot": 1, "T2-few-shot": 2}  # Table 3 repeats one of them
    assert any(one.system == "w/o diversifying generation" for one, _ in found)


def test_answers_of_self_reasoning_are_measured_as_its_training_data_are() -> None:
    def measured(paper: str, metric: str, *datasets: str) -> set[str]:
        return {
            one.own_metrics[0] for one in published_figures() if one.paper == paper and one.metric == metric and one.dataset in datasets
        }

    assert measured("Self-Reasoning", "acc", "NQ", "PopQA") == {PROGRAM["short"]}
    assert measured("Self-Reasoning", "acc", "FEVER") == {PROGRAM["fever"]}
    assert measured("Self-Reasoning", "em_recall", "ASQA") == {PROGRAM["long"]}


@pytest.mark.parametrize(
    ("file", "dataset"),
    [
        ("data/nq-test.qa.csv", "NQ"),
        ("NQ-open.efficientqa.dev.1.1.sample.jsonl", "NQ"),
        ("2wikimultihopqa-dev.json.gz", "2WikiMQA"),
        ("trivia-test.qa.csv", "TriviaQA"),
        ("asqa_eval_gtr_top100.json", "ASQA"),
        ("/nq/questions.jsonl", None),
        ("unique.jsonl", None),
    ],
)
def test_data_sets_are_known_by_their_files_names(file: str, dataset: str | None) -> None:
    assert detect_dataset(file) == dataset
