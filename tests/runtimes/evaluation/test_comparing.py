"""Runs side by side, on values made by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest

from wikidx.runtimes.evaluation.comparing import compare_pairs, find_examples, group_seeds, match_published
from wikidx.runtimes.evaluation.predictions import PredictionRow, Predictions
from wikidx.runtimes.evaluation.reports.answers_report import answers_report
from wikidx.runtimes.evaluation.reports.comparison_report import compare, comparison_json, comparison_report, question_records
from wikidx.runtimes.evaluation.reports.report import to_text
from wikidx.runtimes.evaluation.run_facts import RunFacts
from wikidx.runtimes.evaluation.run_questions import RunQuestions
from wikidx.runtimes.evaluation.scoring import COSTS, ScoredRun
from wikidx.runtimes.evaluation.uncertainty import Bootstrap
from wikidx.runtimes.questions import Question


def run(
    name: str, values: Sequence[float], *, dataset: str = "NQ", ids: Sequence[str] = "abcd", method: str = "rag", metric: str = "dpr_em"
) -> ScoredRun:
    questions = tuple(Question(item, f"{item}?", (item,)) for item in ids)
    rows = tuple(PredictionRow(item, f"{name} {item}") for item in ids)
    costs = {cost: np.full(len(ids), np.nan if cost == "depth" else 2.0) for cost in COSTS}
    read = Predictions(Path(name), {row.id: row for row in rows}, {})
    source, facts = RunQuestions(questions, "", ""), RunFacts(method, "Qwen", "bm25", "wiki2018", "0")
    return ScoredRun(name, dataset, facts, read, source, rows, {metric: np.array(values, np.float64)}, costs, [], {})


def test_differences_are_on_the_questions_of_both() -> None:
    first, second = run("first", [1, 0, 0, np.nan]), run("second", [1, 1, 1, 0, 1], ids="dcbaz")
    (found,) = compare_pairs([first, second], Bootstrap())
    # second minus first on a: 0 - 1, b: 1 - 0, c: 1 - 0; d is not defined for the first, z is not among its questions
    assert (found.first, found.second, found.dataset, found.metric, found.n_unpaired) == ("second", "first", "NQ", "dpr_em", 1)
    paired = found.test
    assert paired.difference == pytest.approx(1 / 3)
    assert (paired.n, paired.wins, paired.losses, paired.ties, paired.p) == (3, 2, 1, 0, 1.0)


def test_runs_are_compared_with_the_first_of_their_data_set_or_each_with_each() -> None:
    runs = [run("a", [1, 1, 1, 1]), run("x", [0, 0, 0, 0], dataset="FEVER"), run("b", [0, 0, 0, 0]), run("c", [1, 0, 1, 0])]
    assert [(item.first, item.second) for item in compare_pairs(runs, Bootstrap())] == [("b", "a"), ("c", "a")]
    assert [(item.first, item.second) for item in compare_pairs(runs, Bootstrap(), every_pair=True)] == [("b", "a"), ("c", "a"), ("c", "b")]
    other = run("d", [0, 0, 0, 0], metric="squad_em")
    assert list(compare_pairs([runs[0], other], Bootstrap())) == []


def test_runs_without_a_common_question() -> None:
    (found,) = compare_pairs([run("a", [1, 1], ids="ab"), run("b", [0, 1], ids="xy")], Bootstrap())
    assert (found.test.n, found.n_unpaired) == (0, 4)
    assert np.isnan(found.test.p)


def on(found: ScoredRun, *texts: str) -> ScoredRun:
    """A run whose questions have other texts."""
    questions = tuple(item._replace(text=text) for item, text in zip(found.questions, texts, strict=True))
    return found._replace(source=found.source._replace(questions=questions))


def test_different_questions_under_one_id_are_not_paired() -> None:
    first = on(run("dev", [1, 0], ids="12"), "where is Paris?", "who?")
    second = on(run("test", [0, 1], ids="12"), "when was it?", "Who")
    (found,) = compare_pairs([first, second], Bootstrap())
    assert (found.test.n, found.test.difference, found.n_unpaired) == (1, 1.0, 2)
    assert [(item["question"], set(item["answers"])) for item in question_records([first, second])] == [
        ("where is Paris?", {"dev"}),
        ("Who", {"dev", "test"}),
        ("when was it?", {"test"}),
    ]
    said = to_text(comparison_report(compare([first, second], Bootstrap())))
    assert "not in both: questions of only one run, and different questions under the same id" in said


def row_metrics(found: ScoredRun, metric: str, about: Mapping[str, Any]) -> ScoredRun:
    return found._replace(row_metrics={"Measure": {"values": [metric], **about, "counts": {"failed": 7}}})


def test_the_model_that_a_figure_is_by_stands_beside_it() -> None:
    nli = {"origin": "ALCE.", "nli": {"model": "small-nli", "revision": "abc", "max_tokens": None}}
    metric = "alce_citation_recall"
    ours = row_metrics(run("ours", [1, 0, 0, 0], dataset="ASQA", metric=metric, method="self_reasoning"), metric, nli)
    comparison = compare([ours], Bootstrap())
    assert {
        item.own_results[0].differences.split("; ")[-1] for item in comparison.published if item.metric == metric and item.own_results
    } == {"NLI: google/t5_xxl_true_nli_mixture / small-nli"}
    values = comparison_json(comparison)["runs"][0]
    assert values["metrics"][metric]["origin"] == "ALCE; NLI small-nli"
    for text in (to_text(comparison_report(comparison)), to_text(answers_report(ours, Bootstrap()))):
        assert "nli model small-nli, nli revision abc, counts failed 7" in text
    judged = {"origin": "RetroRAG", "llm": "openai:gpt-4o"}
    ours = row_metrics(run("ours", [1, 0, 0, 0], dataset="HotpotQA", metric="retrorag_judge"), "retrorag_judge", judged)
    comparison = compare([ours], Bootstrap())
    assert "judge: gpt-4 / openai:gpt-4o" in next(
        item.own_results[0].differences for item in comparison.published if item.metric == "retrorag_judge"
    )
    assert comparison_json(comparison)["runs"][0]["metrics"]["retrorag_judge"]["origin"] == "RetroRAG; judge openai:gpt-4o"


@pytest.mark.parametrize(("k", "is_listed"), [("3", True), ("5", False), ("", False)])
def test_the_papers_k_stands_beside_another_of_ours(k: str, is_listed: bool) -> None:
    ours = run("ours", [1, 0, 0, 0])
    results = match_published([ours._replace(facts=ours.facts._replace(k=k))], Bootstrap())
    text = next(result.own_results[0].differences for result in results if result.published.paper == "RA-ISF" and result.metric == "dpr_em")
    assert ("passages a search: 5 / 3" in text) == is_listed == ("passages a search" in text)


def test_the_papers_figures_stand_beside_runs_of_their_method() -> None:
    runs = [run("ours", [1, 0, 0, 0]), run("again", [1, 1, 0, 0]), run("closed", [0, 0, 0, 0], method="direct")]
    results = match_published(runs, Bootstrap())
    assert {result.published.method for result in results} == {"rag", "direct"}
    of_rag = [
        result
        for result in results
        if result.published.method == "rag" and result.metric == "dpr_em" and result.published.paper == "RA-ISF"
    ]
    assert [round(100 * result.published.value, 1) for result in of_rag] == [31.7, 21.6]
    assert [(ours.run, ours.value.mean) for ours in of_rag[0].own_results] == [("ours", 0.25), ("again", 0.5)]
    assert of_rag[0].own_results[0].differences == (
        "LLM: gpt-3.5 (text-davinci-003) / Qwen; questions: 7,830 questions / 4 questions; retriever: Contriever-MS-MARCO / bm25; "
        "corpus: Wikipedia, December 2018, 100 words / wiki2018"
    )
    assert any(result.published.method is None for result in match_published(runs, Bootstrap(), include_all=True))
    assert match_published([run("ours", [1, 0, 0, 0], dataset="mine")], Bootstrap()) == []


def test_latency_is_quoted_in_seconds() -> None:
    results = [
        result
        for result in match_published([run("ours", [1, 0, 0, 0], method="self_reasoning")], Bootstrap())
        if result.metric == "service"
    ]
    assert [(result.published.value, result.own_results[0].value.mean) for result in results] == [(2.19, 2.0)]


def test_a_report_says_whose_each_figure_is() -> None:
    comparison = compare([run("ours", [1, 0, 0, 0]), run("other", [0, 1, 1, 1], method="ra_isf")], Bootstrap())
    text = to_text(comparison_report(comparison))
    line = next(line for line in text.splitlines() if "RA-ISF, T1" in line and "llama2-13b" in line and " RAG " in line)
    assert re.split(r"  +", line)[-5:] == ["em, our dpr_em", "21.6", "25.0 [0.0, 75.0]", "–", "no: questions: 7,830 questions / 4"]
    assert "the paper's: the value in the paper's table" in text
    assert "other - ours  +50.0 [" in text
    values = json.loads(json.dumps(comparison_json(comparison), allow_nan=False))
    assert {item["note"] for item in values["papers"]} == {"the paper's own figure"}
    assert values["differences"][0]["difference"] == 0.5
    assert values["runs"][0]["costs"]["depth"]["mean"] is None


def test_every_question_with_every_answer() -> None:
    first, second = run("first", [1, np.nan], ids="ab"), run("second", [0, 1], ids="bc")
    assert list(question_records([first, second])) == [
        {
            "dataset": "NQ",
            "id": name,
            "question": f"{name}?",
            "golden_answers": [name],
            "answers": {run: f"{run} {name}" for run in values},
            "metrics": {"dpr_em": values},
        }
        for name, values in (("a", {"first": 1.0}), ("b", {"first": None, "second": 0.0}), ("c", {"second": 1.0}))
    ]


def test_wins_and_losses_with_the_largest_difference_first() -> None:
    first, second = run("first", [0.5, 1, 0, np.nan, 0.2], ids="abcde"), run("second", [1, 0, 0.9, 0, 0.2], ids="cbade")
    # by id: a 0.5 - 0.9, b 1 - 0, c 0 - 1; d is not defined, e is equal
    found = find_examples(first, second, "dpr_em", 2)
    assert [(item.outcome, item.question.id, item.answers) for item in found] == [
        ("win", "b", ("first b", "second b")),
        ("loss", "c", ("first c", "second c")),
        ("loss", "a", ("first a", "second a")),
    ]
    assert [item.question.id for item in find_examples(first, second, "dpr_em", 1)] == ["b", "c"]


def of_seed(name: str, values: Sequence[float], seed: int, **settings: object) -> ScoredRun:
    found = run(name, values)
    record = {"settings": {"method": "rag", "seed": seed, **settings}}
    return found._replace(predictions=found.predictions._replace(run_json=record), facts=found.facts._replace(seed=str(seed)))


def test_runs_that_differ_in_the_seed_alone_are_one_row_with_a_deviation() -> None:
    seeds = [of_seed("s0", [1, 0, 0, 0], 0), of_seed("s1", [1, 1, 0, 0], 1), of_seed("s2", [1, 1, 1, np.nan], 2)]
    others = [of_seed("k3", [1, 1, 1, 1], 3, k=3), of_seed("twice", [0, 0, 0, 0], 3, k=4), run("file", [0, 0, 0, 0])]
    comparison = compare([*seeds, *others, of_seed("again", [1, 0, 0, 0], 3, k=4)], Bootstrap())
    assert [[one.name for one in group] for group in group_seeds(comparison.runs)] == [["s0", "s1", "s2"]]
    (found,) = comparison_json(comparison)["seeds"]
    means = [0.25, 0.5, 1]
    assert (found["runs"], found["seeds"]) == (["s0", "s1", "s2"], ["0", "1", "2"])
    assert found["metrics"] == {"dpr_em": {"mean": pytest.approx(fmean(means)), "deviation": pytest.approx(stdev(means)), "n": 3}}
    assert "s0, s1, s2  NQ        0, 1, 2       3  4 of 4    58.3 ± 38.2" in to_text(comparison_report(comparison))


def test_an_unfinished_run_is_marked_where_it_is_compared() -> None:
    whole, killed = of_seed("whole", [1, 1, 0, 0], 0), of_seed("killed", [1, 0, 0, 0], 1)
    rows = (*killed.rows[:1], *(row._replace(answer=None) for row in killed.rows[1:]))
    report = to_text(comparison_report(compare([whole, killed._replace(rows=rows)], Bootstrap())))
    assert "4 of 4, 1 of 4  37.5 ± 17.7" in report
    assert "killed has answered 1 of 4 questions: the others count 0" in report
    assert "whole has answered" not in report


ALL = 3610  # NQ's test questions, as ReFeed has them


@pytest.mark.parametrize(
    ("corpus", "n", "missing", "obstacles"),
    [
        ("wiki2018", ALL, 0, ""),
        ("sample", ALL, 0, "corpus: Wikipedia / sample"),
        ("", 4, 0, "questions: 3,610 test questions / 4; corpus: Wikipedia / unknown"),
        ("wiki2018", ALL - 10, 10, "reached: all / 3,600"),
    ],
)
def test_a_papers_figure_that_is_not_comparable_is_marked_in_its_row(corpus: str, n: int, missing: int, obstacles: str) -> None:
    found = run("ours", [1.0] * n, metric="genread_f1", ids=[f"q{number}" for number in range(n)])
    ours = found._replace(facts=found.facts._replace(corpus=corpus), source=found.source._replace(n_missing=missing))
    comparison = compare([ours], Bootstrap())
    (own,) = {own.obstacles for result in comparison.published if result.published.paper == "ReFeed" for own in result.own_results}
    assert own == obstacles
    lines = [line for line in to_text(comparison_report(comparison)).splitlines() if "ReFeed" in line and "Retrieve-then-Read" in line]
    assert lines
    assert all(line.endswith(f"  no: {obstacles}" if obstacles else "  yes") for line in lines)


def test_a_question_that_failed_is_reached_and_one_without_a_prediction_is_not() -> None:
    found = run("ours", [1, 0, 0, 0])
    rows = (*found.rows[:2], PredictionRow("c", None, error="LLMError: gone"), PredictionRow("d", None))
    (own, *_) = (own for result in match_published([found._replace(rows=rows)], Bootstrap()) for own in result.own_results)
    assert own.obstacles.endswith("; reached: all / 3")
