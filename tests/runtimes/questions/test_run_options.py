"""``idx run`` on a part of a file: which questions are asked, what run.json says, and that another part is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtimes.command_line import Command
from tests.runtimes.questions.format_files import array, lines
from wikidx.runtimes.execution.identity import questions_digest
from wikidx.runtimes.execution.runs import read_predictions
from wikidx.runtimes.questions import read_questions, sample


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "questions.jsonl"
    file.write_text(lines(*({"question": f"question {n}?", "answer": [f"a{n}"]} for n in range(40))), encoding="utf-8")
    return file


@pytest.fixture
def asked(idx: Command, script: Callable[..., str], tmp_path: Path) -> Callable[..., str]:
    """Run a method on questions into the folder "out"."""
    model = script({"match": "", "text": "x"})

    def run(questions: object, *options: object, status: int = 0) -> str:
        return idx("run", "direct", "--llm", model, "--out", tmp_path / "out", "--questions", questions, *options, status=status)

    return run


def settings(folder: Path) -> dict[str, object]:
    value: dict[str, object] = json.loads((folder / "out" / "run.json").read_text(encoding="utf-8"))["settings"]["questions"]
    return value


def test_a_sample_is_asked_and_recorded(asked: Callable[..., str], file: Path, tmp_path: Path) -> None:
    asked(file, "--sample", "6", "--sample-seed", "4")
    drawn = sample(read_questions(file), 6, 4)
    assert sorted(dict(read_predictions(tmp_path / "out"))) == sorted(one.id for one in drawn)
    digest = questions_digest([(one.id, one.text, one.golden_answers) for one in drawn])
    assert settings(tmp_path) == {"sha256": digest, "n": 6, "sample": {"n": 6, "seed": 4}}
    before = (tmp_path / "out" / "predictions.jsonl").read_bytes()
    asked(file, "--sample", "6", "--sample-seed", "4", "--format", "nq-open")
    for other in (("--sample", "7", "--sample-seed", "4"), ("--sample", "6"), ()):
        assert "holds a run with other settings: questions." in asked(file, *other, status=2)
    assert (tmp_path / "out" / "predictions.jsonl").read_bytes() == before


def test_all_questions_are_recorded_although_some_are_asked(asked: Callable[..., str], file: Path, tmp_path: Path) -> None:
    asked(file, "--limit", "2")
    digest = questions_digest([(str(n + 1), f"question {n}?", (f"a{n}",)) for n in range(40)])
    assert settings(tmp_path) == {"sha256": digest, "n": 40}


def test_a_protocol_is_followed_and_recorded(asked: Callable[..., str], file: Path, tmp_path: Path) -> None:
    output = asked(file, "--protocol", "retrorag-hotpotqa", status=2)
    assert "the protocol 'retrorag-hotpotqa' is on the 7,405 questions of HotpotQA's dev set: this file has 40" in output
    assert "unknown protocol 'flashrug'" in asked(file, "--protocol", "flashrug", status=2)
    assert not (tmp_path / "out").exists()
    asked(file, "--protocol", "flashrag", "--sample", "3")
    assert settings(tmp_path).items() >= {"n": 3, "protocol": "flashrag", "sample": {"n": 3, "seed": 0}}.items()


def test_a_format_is_forced(asked: Callable[..., str], file: Path, tmp_path: Path) -> None:
    assert "is not in the format kilt (" in asked(file, "--format", "kilt", status=2)
    assert "unknown format 'kelt'" in asked(file, "--format", "kelt", status=2)
    assert "the format kilt is of a file" in asked("sample", "--format", "kilt", status=2)
    file.write_text(array({"_id": "a", "question": "Who?", "answer": "b", "supporting_facts": [["T", 0]]}), encoding="utf-8")
    asked(file, "--format", "hotpotqa")
    assert dict(read_predictions(tmp_path / "out"))["a"]["golden_answers"] == ["b"]
