"""Formats of questions that are plug-ins: what they read, how their mistakes are told, and what a run records of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtimes.command_line import Command
from wikidx.base.errors import InputError, UnknownNameError
from wikidx.base.plugins import VARIABLE, plug
from wikidx.corpora.passage import Passage
from wikidx.runtimes.questions import GivenPassage, Question, read_questions
from wikidx.testing import check_question_format

CARDS = """
from wikidx.corpora.passage import Passage
from wikidx.runtimes.questions import GivenPassage, Question, QuestionFormat


def read(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text, answer = line.split(" | ")
        yield Question(str(number), text, (answer,), passages=(GivenPassage(Passage("p", "", text)),))


CARDS = QuestionFormat(name="cards", questions=read)
"""
LINES = "Which metal is liquid? | mercury\nWhich planet is red? | Mars\n"


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Write a plug-in; return its reference. The file of questions is beside it."""
    monkeypatch.setenv(VARIABLE, "")
    (tmp_path / "cards.txt").write_text(LINES)

    def write(code: str) -> str:
        (tmp_path / "cards.py").write_text(code)
        return f"{tmp_path / 'cards.py'}:CARDS"

    return write


def test_its_questions_are_read(written: Callable[[str], str], tmp_path: Path) -> None:
    name = plug(written(CARDS), "question_format").name
    given = GivenPassage(Passage("p", "", "Which metal is liquid?"))
    first, second = read_questions(tmp_path / "cards.txt", name, with_passages=True)
    assert first == Question("1", "Which metal is liquid?", ("mercury",), passages=(given,))
    assert read_questions(tmp_path / "cards.txt", name) == [first._replace(passages=()), second._replace(passages=())]
    with pytest.raises(UnknownNameError, match="unknown format 'card': did you mean 'cards'"):
        read_questions(tmp_path / "cards.txt", "card")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"cards"', '"hotpotqa"', "is called 'hotpotqa', as the question_format of idx is"),
        ('" | "', '" ; "', r"the plug-in .*cards.py fails at record 1 of .*cards.txt, line 8: ValueError"),
        ("str(number)", "number", r"yields Question\(id=1, .* as record 1 of .*cards.txt: yield Question\(id, text, golden_answers\)"),
        ("str(number)", '"same"', "yields two questions of .*cards.txt with the id 'same'"),
        ("(answer,)", "[answer]", "as record 1 of .*: yield Question"),
        ("splitlines(), 1", "splitlines()[:0], 1", "cards.py:CARDS finds no questions in .*cards.txt"),
    ],
)
def test_mistakes_are_named(old: str, new: str, message: str, written: Callable[[str], str], tmp_path: Path) -> None:
    name = plug(written(CARDS.replace(old, new)), "question_format").name
    with pytest.raises(InputError, match=message):
        read_questions(tmp_path / "cards.txt", name)


def test_a_run_records_it_and_is_not_resumed_with_another_version(
    written: Callable[[str], str], tmp_path: Path, idx: Command, script: Callable[..., str]
) -> None:
    reference, out = written(CARDS), tmp_path / "run"
    given = ("--questions", tmp_path / "cards.txt", "--format", reference)
    command = ("run", "direct", *given, "--llm", script(*[{"text": "mercury"}] * 2), "--out", out)
    idx(*command)
    run_json = json.loads((out / "run.json").read_text())
    assert run_json["settings"]["questions"]["question_format_sha256"] == hashlib.sha256(CARDS.encode()).hexdigest()
    assert run_json["sessions"][0]["source"]["format"] == "cards"
    idx(*command)
    written(CARDS + "# another version\n")
    assert "holds a run with other settings: questions" in idx(*command, status=2)


@pytest.mark.usefixtures("sample_home")
def test_training_data_record_it_and_are_not_resumed_with_another_version(
    written: Callable[[str], str], tmp_path: Path, idx: Command, script: Callable[..., str]
) -> None:
    reference, out, model = written(CARDS), tmp_path / "data", script({"role": "answer", "match": "", "text": "mercury"})
    only_know = [argument for name in ("relevance", "decompose") for argument in ("--set", f"{name}=false")]
    command = ("train-data", "ra_isf", "--questions", tmp_path / "cards.txt", "--llm", model, "--corpus", "sample", *only_know)
    command = (*command, "--leaks", "keep", "--out", out)
    idx(*command, "--format", reference)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["sets"]["cards"]["question_format_sha256"] == hashlib.sha256(CARDS.encode()).hexdigest()
    idx(*command, "--format", reference)
    written(CARDS + "# another version\n")
    assert "sets.cards.question_format_sha256 was" in idx(*command, "--format", reference, status=2)


def test_the_check_tells_a_format_whose_questions_change(written: Callable[[str], str], tmp_path: Path) -> None:
    check_question_format(written(CARDS), tmp_path / "cards.txt")
    changing = CARDS.replace("str(number), text", 'f"{number}-{id(object())}-{time.time_ns()}", text').replace("\n", "\nimport time\n", 1)
    with pytest.raises(AssertionError, match="the same file has other questions the second time"):
        check_question_format(written(changing), tmp_path / "cards.txt")
