"""Metrics that are plug-ins: computed beside those of idx, recorded with their checksums, checked where they are used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtimes.command_line import Command
from wikidx.base.errors import InputError
from wikidx.base.plugins import VARIABLE
from wikidx.testing import check_metric

LENGTH = """
from wikidx.runtimes.evaluation.answers.metric import Metric

def score(answer, question):
    return {value}

SHORT = Metric({name!r}, "One over the number of letters, of ours.", score)
"""
VALUE = "1 / max(1, len(answer)) if question.golden_answers else None"

QUESTIONS = [("1", "which metal?", ["Hg"]), ("2", "who?", ["Ada"]), ("3", "why?", [])]


def write(folder: Path, value: str = VALUE, name: str = "short") -> str:
    (folder / "short.py").write_text(LENGTH.format(value=value, name=name))
    return f"{folder / 'short.py'}:SHORT"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """Write questions and predictions, and return the arguments of ``idx eval answers``; no plug-in is named yet."""
    monkeypatch.setenv(VARIABLE, "")
    questions, predictions = tmp_path / "questions.jsonl", tmp_path / "theirs.jsonl"
    lines = [json.dumps({"id": name, "question": text, "golden_answers": golds}) for name, text, golds in QUESTIONS]
    questions.write_text("\n".join(lines) + "\n")
    predictions.write_text('{"id": "1", "answer": "Hg"}\n{"id": "2", "answer": "Adam"}\n{"id": "3", "answer": "so"}\n')
    return ("eval", "answers", predictions, "--questions", questions)


def test_a_metric_of_a_file_is_computed_and_recorded(idx: Command, tmp_path: Path, asked: tuple[object, ...]) -> None:
    reference = write(tmp_path)
    found = json.loads(idx(*asked, "--metrics", f"squad_em,{reference}", "--json"))["metrics"]
    short = found.pop("short")
    assert (short["mean"], short["n"], short["not_defined"]) == ((1 / 2 + 1 / 4) / 2, 2, 1)
    assert short["metric_sha256"] == hashlib.sha256((tmp_path / "short.py").read_bytes()).hexdigest()
    assert (list(found), "metric_sha256" in found["squad_em"]) == (["squad_em"], False)
    assert f"short: One over the number of letters, of ours. {reference} (sha256 " in idx(*asked, "--metrics", "short")


@pytest.mark.parametrize(
    ("value", "name", "message"),
    [
        ("2", "short", "the question '1' has the value 2: return a number from 0 to 1, or None"),
        ("float('nan')", "short", "the question '1' has the value nan"),
        ("'x'", "short", "the question '1' has the value 'x'"),
        ("1 / 0", "short", "fails at the question '1', line 5: ZeroDivisionError: division by zero"),
        ("1", "squad_em", "is called 'squad_em', as the metric of idx is"),
        ("1", "tokens", "the metric 'tokens' is called as a cost or a recall of idx is"),
        ("1", "answer@5", "answer@5"),
    ],
)
def test_a_metric_that_cannot_be_used_is_told_in_one_line(
    idx: Command, tmp_path: Path, asked: tuple[object, ...], value: str, name: str, message: str
) -> None:
    assert message in idx(*asked, "--metrics", write(tmp_path, value, name), status=2)


@pytest.mark.usefixtures("sample_home")
def test_a_run_has_its_metrics_and_resumes_with_the_same_alone(
    idx: Command, script: Callable[..., str], tmp_path: Path, asked: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference, out = write(tmp_path), tmp_path / "out"
    line = ("run", "direct", "--questions", asked[-1], "--llm", script({"match": "", "text": "Hg"}), "--out", out, "--metrics")
    idx(*line, f"{reference},squad_em")
    sha256 = hashlib.sha256((tmp_path / "short.py").read_bytes()).hexdigest()
    assert json.loads((out / "run.json").read_text())["settings"]["metrics"] == {"short": {"metric_sha256": sha256}, "squad_em": {}}
    assert [*json.loads(idx("eval", "answers", out, "--json"))["metrics"]] == ["short", "squad_em"]
    assert [*json.loads(idx("eval", "answers", out, "--json", "--metrics", "dpr_em"))["metrics"]] == ["dpr_em"]
    idx(*line, f"{reference},squad_em")

    monkeypatch.setenv(VARIABLE, "")
    missing = f"records the metric 'short', a plug-in (sha256 {sha256[:12]}…): name this file again with --plugin FILE.py:NAME"
    assert missing in idx("eval", "answers", out, status=2)
    idx("--plugin", reference, "eval", "answers", out)
    write(tmp_path, f"0 * {VALUE}")
    assert missing in idx("--plugin", reference, "eval", "answers", out, status=2)
    assert "metric_sha256" in idx(*line, f"{reference},squad_em", status=2)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (VALUE, None),
        ("0.5", "all answers have the values {0.5}"),
        ("None", "all answers have the values {None}"),
        ("__import__('random').random()", "another value the second time"),
        ("-1.0", "return a number from 0 to 1, or None"),
    ],
)
def test_the_public_check_of_a_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, message: str | None) -> None:
    monkeypatch.setenv(VARIABLE, "")
    reference = write(tmp_path, value)
    if message is None:
        check_metric(reference)
        return
    with pytest.raises((AssertionError, InputError)) as raised:
        check_metric(reference)
    assert message in str(raised.value)
