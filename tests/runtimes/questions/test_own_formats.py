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


@pytest.fixture(autouse=True)
def none_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], str]:
    """Write a plug-in; return its reference. The file of questions is beside it."""
    (tmp_path / "cards.txt").write_text(LINES)

    def write(code: str) -> str:
        (tmp_path / "cards.py").write_text(code)
        return f"{tmp_path / 'cards.py'}:CARDS"

    return write


def test_its_questions_are_read(written: Callable[[str], str], tmp_path: Path) -> None:
    name = plug(written(CARDS), "question_format").name
    file = tmp_path / "cards.txt"
    assert read_questions(file, name) == [
        Question("1", "Which metal is liquid?", ("mercury",)),
        Question("2", "Which planet is red?", ("Mars",)),
    ]
    (given,) = read_questions(file, name, with_passages=True)[0].passages
    assert isinstance(given, GivenPassage)
    assert given.passage.text == "Which metal is liquid?"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"cards"', '"hotpotqa"', "is called 'hotpotqa', as the question_format of idx is: give it another name"),
        ('" | "', '" ; "', r"the plug-in .*cards.py fails at record 1 of .*cards.txt, line 8: ValueError: not enough values to unpack"),
        ("str(number)", "number", r"yields Question\(id=1, .* as record 1 of .*cards.txt: yield Question\(id, text, golden_answers\)"),
        ("str(number)", '"same"', "yields two questions of .*cards.txt with the id 'same': give each its own"),
        ("(answer,)", "[answer]", "as record 1 of .*: yield Question"),
        ("splitlines(), 1", "splitlines()[:0], 1", "cards.py:CARDS finds no questions in .*cards.txt"),
    ],
)
def test_mistakes_are_named(old: str, new: str, message: str, written: Callable[[str], str], tmp_path: Path) -> None:
    assert old in CARDS
    name = plug(written(CARDS.replace(old, new)), "question_format").name
    with pytest.raises(InputError, match=message):
        read_questions(tmp_path / "cards.txt", name)


def test_an_unknown_name_is_told_beside_those_that_are_known(written: Callable[[str], str], tmp_path: Path) -> None:
    plug(written(CARDS))
    with pytest.raises(UnknownNameError, match="unknown format 'card': did you mean 'cards'"):
        read_questions(tmp_path / "cards.txt", "card")


def test_a_run_records_it_and_is_not_resumed_with_another_version(
    written: Callable[[str], str], tmp_path: Path, idx: Command, script: Callable[..., str]
) -> None:
    reference, out = written(CARDS), tmp_path / "run"
    command = ("run", "direct", "--questions", tmp_path / "cards.txt", "--llm", script(*[{"text": "mercury"}] * 2), "--out", out)
    idx(*command, "--format", reference)
    run_json = json.loads((out / "run.json").read_text())
    sha256 = run_json["settings"]["questions"]["question_format_sha256"]
    assert sha256 == hashlib.sha256(CARDS.encode()).hexdigest()
    assert run_json["sessions"][0]["source"]["format"] == "cards"
    idx(*command, "--format", reference)
    written(CARDS + "# another version\n")
    assert "holds a run with other settings: questions" in idx(*command, "--format", reference, status=2)


def test_the_check_tells_a_format_whose_questions_change(written: Callable[[str], str], tmp_path: Path) -> None:
    check_question_format(written(CARDS), tmp_path / "cards.txt")
    changing = CARDS.replace("str(number), text", 'f"{number}-{id(object())}-{time.time_ns()}", text').replace("\n", "\nimport time\n", 1)
    with pytest.raises(AssertionError, match="the same file has other questions the second time"):
        check_question_format(written(changing), tmp_path / "cards.txt")
