"""Problems of predictions and groups of questions, on cases made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wikidx.runtimes.evaluation.answers.metrics import METRICS
from wikidx.runtimes.evaluation.outcomes import DO_NOT_HOLD, HOLD, count_replies, find_answers, problem_masks, problems
from wikidx.runtimes.evaluation.predictions import PredictionRow, load_predictions
from wikidx.runtimes.evaluation.reports.answers_report import answers_json, answers_report, question_records
from wikidx.runtimes.evaluation.reports.report import select_tables
from wikidx.runtimes.evaluation.reports.tables import Table
from wikidx.runtimes.evaluation.run_questions import RunQuestions
from wikidx.runtimes.evaluation.scoring import ScoredRun, score_run
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, Interval
from wikidx.runtimes.questions import Question
from wikidx.runtimes.questions.base import gold

PASSAGE = {"id": "1", "title": "Metals", "text": "Mercury is a liquid."}
COST = {"calls": 1, "prompt_tokens": 30, "completion_tokens": 5}


def line(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A line of ``predictions.jsonl`` without any problem, except for the given fields."""
    whole: dict[str, Any] = {
        "question": f"{name}?",
        "answer": "mercury",
        "error": None,
        "passages": [PASSAGE],
        "degraded": [],
        "cost": COST,
    }
    record = {"parse_ok": True}
    replies = {"texts": 2, "cut": 0, "empty": 0}
    return {"id": name, **whole, "detail": record, "replies": replies, "timing": {"seconds": 9.0, "service": 0.5}, **fields}


LINES = [
    line("right"),
    line("failed", answer="", error="LLMError: gone", replies={}),
    line("empty", answer=" ", detail={"parse_ok": False}, replies={"texts": 2, "cut": 0, "empty": 1}),
    line("cut", answer="merc", detail={"parse_ok": False}, replies={"texts": 2, "cut": 2, "empty": 0}),
    line("unsure", passages=[], yes_no={"asked": 2, "mass": 0.25}, degraded=["no logprobs: …"]),
    line("sure", answer="iron", passages=[{**PASSAGE, "text": "Iron is none."}], yes_no={"asked": 1, "mass": 0.75}),
]
HOPS = [1, 1, 2, 2, 1, 2]
WRONG = {
    "right": set(),
    "failed": {"failed"},
    "empty": {"empty", "unparsed"},
    "cut": {"cut", "unparsed"},
    "unsure": {"unsure", "degraded"},
    "sure": set(),
    "never asked": {"unanswered"},
}


@pytest.fixture
def scored(tmp_path: Path) -> ScoredRun:
    (tmp_path / "predictions.jsonl").write_text("".join(json.dumps(item) + "\n" for item in LINES))
    settings = {"method": "rag", "seed": 0, "models": {"answer": {"backend": "openai", "model": "qwen"}}}
    sessions = [{"questions": 7, "seconds": 2.0, "models": ["qwen-2"]}, {"questions": 7, "seconds": 3.0}]
    (tmp_path / "run.json").write_text(json.dumps({"format": 2, "settings": settings, "sessions": sessions}))
    names = [*(item["id"] for item in LINES), "never asked"]
    questions = tuple(Question(name, f"{name}?", ("Mercury",), gold(hops=n)) for name, n in zip(names, [*HOPS, 2], strict=True))
    return score_run("run", load_predictions(tmp_path), RunQuestions(questions, "", "here"), [METRICS["squad_em"]])


def table(run: ScoredRun, title: str) -> Table:
    (found,) = (each for section in select_tables(answers_report(run, Bootstrap()), [title]).sections for each in section.tables)
    return found


def test_every_problem_of_a_prediction(scored: ScoredRun) -> None:
    assert {row.id: problems(row) for row in scored.rows} == WRONG
    assert {item["id"]: set(item["problems"]) for item in question_records(scored)} == WRONG


def test_the_table_of_what_went_wrong(scored: ScoredRun) -> None:
    rows = {row[0]: tuple(row[1:5]) for row in table(scored, "What went wrong").rows}
    # ten texts: two of each question but the failed one and the one that was never asked
    assert rows == {
        "failed": (1, 1 / 7, None, None),
        "unanswered": (1, 1 / 7, None, None),
        "empty": (1, 1 / 7, 1, 0.1),
        "cut": (1, 1 / 7, 2, 0.2),
        "unparsed": (2, 2 / 7, None, None),
        "degraded": (1, 1 / 7, None, None),
        "unsure": (1, 1 / 7, None, None),
        "none of these": (2, 2 / 7, None, None),
    }
    means = {row[0]: row[5] for row in table(scored, "What went wrong").rows}
    assert isinstance(clean := means["none of these"], Interval)
    assert clean.mean == 0.5  # "right" is, "sure" says iron
    values = answers_json(scored, Bootstrap())
    assert values["problems"] == {"failed": 1, "unanswered": 1, "empty": 1, "cut": 1, "unparsed": 2, "degraded": 1, "unsure": 1}
    assert values["replies"] == {"texts": 10, "cut": 2, "empty": 1}


def test_what_another_program_does_not_record_is_unknown() -> None:
    rows = [PredictionRow("1", "x"), PredictionRow("2", None)]
    assert {name: mask.tolist() for name, mask in problem_masks(rows).items()} == {
        "failed": [False, False],
        "unanswered": [False, True],
        "empty": [False, False],
    }
    assert count_replies(rows) == {}


def test_an_unfinished_run_is_marked_in_the_scores(scored: ScoredRun) -> None:
    (row,) = table(scored, "Scores").rows
    assert row[0] == "squad_em"
    assert isinstance(row[1], Interval)
    assert isinstance(row[2], Interval)
    assert [row[1].mean, row[2].mean] == pytest.approx([2 / 7, 2 / 5])
    assert row[-1] == "5 of 7"


def test_accuracy_by_group(scored: ScoredRun) -> None:
    means = {
        name: {group: by["squad_em"]["mean"] for group, by in groups.items()}
        for name, groups in answers_json(scored, Bootstrap())["groups"].items()
    }
    assert means == {
        "hops": {"1": pytest.approx(2 / 3), "2": 0.0},
        # "right", "empty" and "cut" have the passage; "unsure" has no passage, "sure" another; the rest have no answer
        "passages": {HOLD: pytest.approx(1 / 3), DO_NOT_HOLD: 0.5},
        "yes and no": {"below 0.5": 1.0, "from 0.5": 0.0},
    }
    sizes = {tuple(row[:2]): row[2] for row in table(scored, "By group").rows}
    assert sizes == {
        ("hops", "1"): 3,
        ("hops", "2"): 3,  # without the one that was never asked
        ("passages", HOLD): 3,
        ("passages", DO_NOT_HOLD): 2,
        ("yes and no", "below 0.5"): 1,
        ("yes and no", "from 0.5"): 1,
    }


@pytest.mark.parametrize(
    ("golds", "passages", "value"),
    [
        (("liquid",), [PASSAGE], 1.0),
        (("metals",), [PASSAGE], 1.0),  # in the title
        (("quid",), [PASSAGE], 0.0),  # whole words
        (("mercury", "yes"), [{}, PASSAGE], 1.0),
        (("yes",), [PASSAGE], np.nan),
        ((), [PASSAGE], np.nan),
        (("liquid",), [], np.nan),  # no prediction has passages
    ],
)
def test_whether_passages_hold_an_answer(golds: tuple[str, ...], passages: list[dict[str, str]], value: float) -> None:
    (found,) = find_answers([PredictionRow("1", "x", tuple(passages))], [Question("1", "?", golds)])
    np.testing.assert_equal(found, value)


def test_service_wall_time_throughput_and_the_model_that_answered(scored: ScoredRun) -> None:
    values = answers_json(scored, Bootstrap())
    assert (values["model"], values["answered_by"]) == ("qwen", "qwen-2")
    assert (values["costs"]["service"]["sum"], values["costs"]["seconds"]["sum"]) == (3.0, 54.0)
    assert values["throughput"] == {
        "wall_s": 5.0,
        "questions_per_s": 1.0,
        "prompt_tokens_per_s": 36.0,  # six predictions of 30 tokens in 5 s
        "completion_tokens_per_s": 6.0,
        "requests_at_a_time": pytest.approx(0.6),
    }
    assert [row[0] for row in table(scored, "Throughput").rows] == [5.0]


def test_examples_say_whether_the_passages_hold_an_answer(scored: ScoredRun) -> None:
    outcomes = {row[1]: (row[0], row[-1]) for row in table(scored, "Examples").rows}
    assert outcomes == {
        "right": ("right", None),
        "unsure": ("right", "degraded, unsure"),
        "empty": ("wrong, the passages hold an answer", "empty, unparsed"),
        "cut": ("wrong, the passages hold an answer", "cut, unparsed"),
        "sure": ("wrong, the passages hold none", None),
    }
