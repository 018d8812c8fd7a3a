"""``idx run`` on a part of a file: which questions are asked, what run.json says, and that another part is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtimes.command_line import Command
from tests.runtimes.questions.format_files import array, lines
from wikidx.corpora.known import sample as sample_corpus
from wikidx.runtimes.execution.identity import questions_digest
from wikidx.runtimes.execution.runs import read_predictions
from wikidx.runtimes.questions import read_questions, sample, sample_questions

Script = Callable[..., str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "questions.jsonl"
    file.write_text(lines(*({"question": f"question {n}?", "answer": [f"a{n}"]} for n in range(40))), encoding="utf-8")
    return file


@pytest.fixture
def model(script: Script) -> str:
    return script({"match": "", "text": "x"})


def settings(out: Path) -> dict[str, object]:
    value: dict[str, object] = json.loads((out / "run.json").read_text(encoding="utf-8"))["settings"]["questions"]
    return value


def test_a_sample_is_asked_and_recorded(idx: Command, file: Path, model: str, tmp_path: Path) -> None:
    out, every = tmp_path / "out", read_questions(file)
    command = ("run", "direct", "--questions", file, "--llm", model, "--out", out)
    idx(*command, "--sample", "6", "--sample-seed", "4")
    drawn = sample(every, 6, 4)
    assert sorted(dict(read_predictions(out))) == sorted(one.id for one in drawn)
    digest = questions_digest([(one.id, one.text, one.golden_answers) for one in drawn])
    assert settings(out) == {"sha256": digest, "n": 6, "sample": {"n": 6, "seed": 4}}
    before = (out / "predictions.jsonl").read_bytes()
    idx(*command, "--sample", "6", "--sample-seed", "4", "--format", "nq-open")
    for other in (("--sample", "7", "--sample-seed", "4"), ("--sample", "6"), ()):
        output = idx(*command, *other, status=2)
        assert "holds a run with other settings: questions." in output
    assert (out / "predictions.jsonl").read_bytes() == before


def test_all_questions_are_recorded_as_before(idx: Command, file: Path, model: str, tmp_path: Path) -> None:
    idx("run", "direct", "--questions", file, "--llm", model, "--out", tmp_path / "out", "--limit", "2")
    assert settings(tmp_path / "out") == {
        "sha256": questions_digest([(str(n + 1), f"question {n}?", (f"a{n}",)) for n in range(40)]),
        "n": 40,
    }


def test_a_protocol_is_followed_and_recorded(idx: Command, file: Path, model: str, tmp_path: Path) -> None:
    command = ("run", "direct", "--llm", model, "--questions")
    output = idx(*command, file, "--protocol", "retrorag-hotpotqa", "--out", tmp_path / "out", status=2)
    assert "the protocol 'retrorag-hotpotqa' is on the 7,405 questions of HotpotQA's dev set: this file has 40" in output
    assert not (tmp_path / "out").exists()
    idx(*command, file, "--protocol", "flashrag", "--sample", "3", "--out", tmp_path / "out")
    assert {name: value for name, value in settings(tmp_path / "out").items() if name != "sha256"} == {
        "n": 3,
        "protocol": "flashrag",
        "sample": {"n": 3, "seed": 0},
    }
    assert "unknown protocol 'flashrug'" in idx(*command, file, "--protocol", "flashrug", "--out", tmp_path / "new", status=2)


def test_a_format_is_forced(idx: Command, file: Path, model: str, tmp_path: Path) -> None:
    command = ("run", "direct", "--llm", model, "--out", tmp_path / "out", "--questions")
    assert "is not in the format kilt (" in idx(*command, file, "--format", "kilt", status=2)
    assert "unknown format 'kelt'" in idx(*command, file, "--format", "kelt", status=2)
    assert "the format kilt is of a file" in idx(*command, "sample", "--format", "kilt", status=2)
    (tmp_path / "hotpot.json").write_text(
        array({"_id": "a", "question": "Who?", "answer": "b", "supporting_facts": [["T", 0]]}), encoding="utf-8"
    )
    idx(*command, tmp_path / "hotpot.json", "--format", "hotpotqa")
    assert dict(read_predictions(tmp_path / "out"))["a"]["golden_answers"] == ["b"]


def test_the_sample_corpus_names_its_gold_passages() -> None:
    assert [one.gold["passages"] for one in sample_questions()] == [list(one.gold_ids) for one in sample_corpus.questions()]
