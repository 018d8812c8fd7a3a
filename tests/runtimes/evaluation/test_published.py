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
        (
            one.paper,
            one.table,
            named(one.model),
            one.setting,
            one.system,
            one.dataset,
            one.metric,
            shown(one.metric, one.value),
        )
        for one in published_figures()
        if one.setting != "in the proceedings only"
    )
    assert ours == Counter(
        (
            row["paper"],
            row["table"],
            "not stated" if row["backbone"] in METHODS_ALONE else named(row["backbone"]),
            row["setting"],
            row["system"],
            row["dataset"],
            row["metric"],
            row["value"],
        )
        for row in theirs
    )


def test_headline_figures() -> None:
    """Read off the papers' main tables by eye."""
    assert len(published_figures()) == 506 + 5
    found = {(one.paper, one.model, one.system, one.dataset, one.metric): one for one in published_figures() if one.table == "T1"}
    assert found["RA-ISF", "llama2-13b", "RA-ISF", "NQ", "em"].value == pytest.approx(0.313)
    assert found["Self-Reasoning", "Self-Reasoning-13B", "Self-Reasoning-13B", "FEVER", "acc"].value == pytest.approx(0.839)
    retrorag = found["RetroRAG", "GLM4-9B-chat", "RetroRAG", "HotpotQA", "f1"]
    assert retrorag.value == pytest.approx(0.549)
    assert (retrorag.method, retrorag.retriever, retrorag.k) == ("retrorag", "BM25 and SimLM", 5)
    assert retrorag.source == "RetroRAG, T1 (arXiv 2501.05475)"
    closed_book = found["RA-ISF", "llama2-13b", "Vanilla LM", "NQ", "em"]
    assert (closed_book.method, closed_book.retriever, closed_book.corpus, closed_book.k) == ("direct", "", "", 0)
    assert [one.value for one in published_figures() if one.metric == "latency_s" and one.system == "Self-Reasoning-7B"] == [
        2.19,
        2.32,
    ]


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


def test_short_answers_of_self_reasoning_are_measured_as_its_training_data_are() -> None:
    found = {
        one.own_metrics[0]
        for one in published_figures()
        if one.paper == "Self-Reasoning" and one.metric == "acc" and one.dataset in ("NQ", "PopQA")
    }
    assert found == {PROGRAM["short"]}
    assert {one.own_metrics[0] for one in published_figures() if one.metric == "acc" and one.dataset == "FEVER"} == {PROGRAM["fever"]}
    assert {one.own_metrics[0] for one in published_figures() if one.metric == "em_recall"} == {PROGRAM["long"]}


@pytest.mark.parametrize(
    ("file", "dataset"),
    [
        ("data/nq-test.qa.csv", "NQ"),
        ("NQ-open.efficientqa.dev.1.1.sample.jsonl", "NQ"),
        ("hotpot_dev_fullwiki_v1.json", "HotpotQA"),
        ("2wikimultihopqa-dev.json.gz", "2WikiMQA"),
        ("trivia-test.qa.csv", "TriviaQA"),
        ("asqa_eval_gtr_top100.json", "ASQA"),
        ("wow-dev-kilt.jsonl", "WoW"),
        ("/nq/questions.jsonl", None),
        ("unique.jsonl", None),
        ("wowed.jsonl", None),
    ],
)
def test_data_sets_are_known_by_their_files_names(file: str, dataset: str | None) -> None:
    assert detect_dataset(file) == dataset
