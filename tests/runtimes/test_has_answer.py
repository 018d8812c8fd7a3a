from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtimes.evaluation.has_answer import has_answer


@pytest.mark.parametrize(
    ("text", "answers", "expected"),
    [
        ("The capital is Paris.", ["Paris"], True),
        ("the capital is paris", ["PARIS"], True),
        ("The Parisian capital", ["Paris"], False),
        ("New York City", ["York City"], True),
        ("New York, City", ["York City"], False),
        ("a caf\u00e9", ["cafe\u0301"], True),
        ("a cafe", ["caf\u00e9"], False),
        ("U.S. troops", ["U.S."], True),
        ("anything", ["nothing", "anything"], True),
        ("anything", [], False),
        ("anything", [""], True),
        ("", [" "], True),
        ("", ["x"], False),
    ],
)
def test_an_answer_is_a_row_of_tokens(text: str, answers: list[str], expected: bool) -> None:
    assert has_answer(text, answers) is expected


def test_every_golden_case_agrees_with_the_official_evaluator(shared_data: Path) -> None:
    lines = (shared_data / "golden_metrics" / "has_answer.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [case for case in map(json.loads, lines) if "string" in case["expected"]]
    assert len(cases) > 150
    wrong = [case["case"] for case in cases if has_answer(case["inputs"]["text"], case["inputs"]["answers"]) != case["expected"]["string"]]
    assert wrong == []
