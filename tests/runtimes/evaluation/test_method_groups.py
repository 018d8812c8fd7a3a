"""Breakdowns of runs by what a method records: RA-ISF's modules and sub-questions, RetroRAG's inferences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wikidx.runtimes.evaluation.answers.metrics import METRICS
from wikidx.runtimes.evaluation.outcomes import groups
from wikidx.runtimes.evaluation.predictions import load_predictions
from wikidx.runtimes.evaluation.reports.answers_report import answers_json, answers_report
from wikidx.runtimes.evaluation.reports.report import select_tables, to_csv, to_text
from wikidx.runtimes.evaluation.run_questions import RunQuestions
from wikidx.runtimes.evaluation.scoring import score_run
from wikidx.runtimes.evaluation.uncertainty import Bootstrap
from wikidx.runtimes.questions import Question

DETAILS: list[dict[str, Any]] = [
    {"tree": {"answered_from": "passages"}},
    {"tree": {"answered_from": "self_knowledge"}},
    {"entities": "", "rounds": [{"inferred": []}, {"query": "q", "inferred": [{"text": "t", "score": 1.0}]}]},
    {"entities": "", "rounds": [{"query": "q"}]},
    {"rounds": [{"query": "q", "inferred": "not of RetroRAG"}]},
    {"tree": "none", "entities": "", "rounds": None},
]


def write(folder: Path, details: Sequence[object]) -> Path:
    lines = [json.dumps({"id": str(number), "answer": "x", "error": None, "detail": detail}) for number, detail in enumerate(details)]
    (folder / "p.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "p.jsonl"


def test_questions_are_grouped_by_module_and_by_inferences(tmp_path: Path) -> None:
    rows = load_predictions(write(tmp_path, DETAILS)).rows
    questions = [Question(name, "?", ("x",)) for name in rows]
    found = groups(list(rows.values()), questions, np.full(len(rows), np.nan))
    assert {name: {group: np.flatnonzero(mask).tolist() for group, mask in masks.items()} for name, masks in found.items()} == {
        "answered from": {"passages": [0], "self_knowledge": [1]},
        "inferences": {"none": [3], "some": [2]},
    }


def node(source: str, *sub_questions: object, answer: object = "A") -> dict[str, Any]:
    return {"question": "?", "answered_from": source, "answer": answer, "sub_questions": list(sub_questions)}


LIMIT = node("depth_limit", answer="unknown")
TREES = [
    node("self_knowledge"),
    node("synthesis", node("passages"), node("synthesis", node("self_knowledge"), LIMIT, answer="Unknown.")),
    node("synthesis", LIMIT, node("passages", answer=""), node("fallback_closed_book")),
    {"answered_from": "passages", "sub_questions": ["no question"]},
    node("synthesis", LIMIT, node("synthesis")),
    node("synthesis", node("synthesis", LIMIT, answer="unknown")),
]


def test_questions_and_sub_questions_are_counted_by_the_module_that_answered(tmp_path: Path) -> None:
    """Trees of 1, 5, 4, 2, 3 and 3 questions, the fourth without answers, and a prediction of another method."""
    predictions = load_predictions(write(tmp_path, [*({"tree": tree} for tree in TREES), {}]))
    questions = tuple(Question(name, "?", ("x",)) for name in predictions.rows)
    run = score_run("run", predictions, RunQuestions(questions, "q", "q"), [METRICS["squad_em"]])
    assert run.costs["sub_questions"][:6].tolist() == [0, 4, 3, 1, 2, 2]
    assert np.isnan(run.costs["sub_questions"][6])
    by_hand = {"self-knowledge": 2, "passage relevance": 1, "decomposition": 3, "fallback": 3, "unanswered": 9}
    assert run.modules == by_hand

    found = answers_json(run, Bootstrap())
    assert found["modules"] == {module: {"n": n, "share": n / 18} for module, n in by_hand.items()}
    assert (found["costs"]["sub_questions"]["mean"], found["costs"]["sub_questions"]["n"]) == (2.0, 6)
    report = select_tables(answers_report(run, Bootstrap()), ["Questions and sub-questions by RA-ISF's module"])
    assert ["18", "11.1", "5.6", "16.7", "16.7", "50.0"] in [line.split() for line in to_text(report).splitlines()]
    assert to_csv(report).splitlines()[-1] == "18,11.11111111,5.555555556,16.66666667,16.66666667,50"
