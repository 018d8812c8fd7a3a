"""Breakdowns of scores by what a method records: RA-ISF's modules, RetroRAG's inferences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from wikidx.runtimes.evaluation.outcomes import groups
from wikidx.runtimes.evaluation.predictions import load_predictions
from wikidx.runtimes.questions import Question

DETAILS: list[dict[str, Any]] = [
    {"tree": {"answered_from": "passages"}},
    {"tree": {"answered_from": "self_knowledge"}},
    {"entities": "", "rounds": [{"inferred": []}, {"query": "q", "inferred": [{"text": "t", "score": 1.0}]}]},
    {"entities": "", "rounds": [{"query": "q"}]},
    {"rounds": [{"query": "q", "inferred": "not of RetroRAG"}]},
    {"tree": "none", "entities": "", "rounds": None},
]


def test_questions_are_grouped_by_module_and_by_inferences(tmp_path: Path) -> None:
    lines = [json.dumps({"id": str(number), "answer": "x", "error": None, "detail": detail}) for number, detail in enumerate(DETAILS)]
    (tmp_path / "p.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = load_predictions(tmp_path / "p.jsonl").rows
    questions = [Question(name, "?", ("x",)) for name in rows]
    found = groups(list(rows.values()), questions, np.full(len(rows), np.nan))
    assert {name: {group: np.flatnonzero(mask).tolist() for group, mask in masks.items()} for name, masks in found.items()} == {
        "answered from": {"passages": [0], "self_knowledge": [1]},
        "inferences": {"none": [3], "some": [2]},
    }
