"""Runs side by side, on values made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from wikidx.runtimes.evaluation.comparing import compare_pairs, find_examples, group_seeds, match_published
from wikidx.runtimes.evaluation.predictions import PredictionRow, Predictions
from wikidx.runtimes.evaluation.reports.comparison_report import compare, comparison_report, question_records
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
    (found,) = compare_pairs([run("a", [1, 1], ids="ab"), run("b", [0, 1], ids="xy")], Bootstrap())
    assert (found.test.n, found.n_unpaired, np.isnan(found.test.p)) == (0, 4, True)


def test_runs_are_compared_with_the_first_of_their_data_set_or_each_with_each() -> None:
    runs = [run("a", [1, 1, 1, 1]), run("x", [0, 0, 0, 0], dataset="FEVER"), run("b", [0, 0, 0, 0]), run("c", [1, 0, 1, 0])]
    assert [(item.first, item.second) for item in compare_pairs(runs, Bootstrap())] == [("b", "a"), ("c", "a")]
    assert [(item.first, item.second) for item in compare_pairs(runs, Bootstrap(), every_pair=True)] == [("b", "a"), ("c", "a"), ("c", "b")]
    assert list(compare_pairs([runs[0], run("d", [0, 0, 0, 0], metric="squad_em")], Bootstrap())) == []


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


def test_the_papers_figures_stand_beside_runs_of_their_method() -> None:
    runs = [run("ours", [1, 0, 0, 0]), run("again", [1, 1, 0, 0]), run("closed", [0, 0, 0, 0], method="direct")]
    results = match_published(runs, Bootstrap())
    assert {result.published.method for result in results} == {"rag", "direct"}
    of_rag = [one for one in results if (one.published.method, one.metric, one.published.paper) == ("rag", "dpr_em", "RA-ISF")]
    assert [round(100 * result.published.value, 1) for result in of_rag] == [31.7, 21.6]
    assert [(ours.run, ours.value.mean) for ours in of_rag[0].own_results] == [("ours", 0.25), ("again", 0.5)]
    assert any(result.published.method is None for result in match_published(runs, Bootstrap(), include_all=True))
    assert match_published([run("ours", [1, 0, 0, 0], dataset="mine")], Bootstrap()) == []
    of_time = [one for one in match_published([run("ours", [1], ids="a", method="self_reasoning")], Bootstrap()) if one.metric == "service"]
    assert [(one.published.value, one.own_results[0].value.mean) for one in of_time] == [(2.19, 2.0)]  # seconds


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


def test_runs_that_differ_in_the_seed_alone_are_a_group() -> None:
    def of_seed(name: str, seed: int, **settings: object) -> ScoredRun:
        found, record = run(name, [1, 0, 0, 0]), {"settings": {"method": "rag", "seed": seed, **settings}}
        return found._replace(predictions=found.predictions._replace(run_json=record), facts=found.facts._replace(seed=str(seed)))

    runs = [of_seed("s0", 0), of_seed("s1", 1), of_seed("s2", 2), of_seed("k3", 3, k=3), of_seed("k4", 3, k=4), of_seed("again", 3, k=4)]
    assert [[one.name for one in group] for group in group_seeds([*runs, run("file", [0, 0, 0, 0])])] == [["s0", "s1", "s2"]]


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
