"""``idx run`` on questions that take other forms of answers than short ones, or more steps than others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtimes.command_line import Command, without_times
from tests.runtimes.test_run import lines, questions
from wikidx.runtimes.cli.run import options_of_questions
from wikidx.runtimes.execution.runs import RUN, read_predictions
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.questions import read_questions

Script = Callable[..., str]


def test_questions_are_answered_in_the_form_that_they_take(
    idx: Command, script: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "claims.jsonl"
    claims = [{"id": 1, "claim": "It is.", "label": "SUPPORTS"}, {"id": 2, "claim": "It is not.", "label": "NOT ENOUGH INFO"}]
    file.write_text("".join(json.dumps(claim) + "\n" for claim in claims), encoding="utf-8")
    command = ("run", "direct", "--questions", file, "--llm", script({"match": "", "text": "True."}))
    idx(*command, "--out", tmp_path / "out")
    assert {name: record["answer"] for name, record in read_predictions(tmp_path / "out")} == {"1": "SUPPORTS", "2": "SUPPORTS"}
    assert json.loads((tmp_path / "out" / RUN).read_bytes())["settings"]["options"]["form"]["value"] == "fever"
    options_of_questions(find_method("direct"), read_questions(file), ())
    assert capsys.readouterr().err == "the questions take the form fever: a verdict on a claim (FEVER)\n"
    idx(*command, "--set", "form=short", "--out", tmp_path / "short")
    assert dict(read_predictions(tmp_path / "short"))["1"]["answer"] == "True."
    assert "form is 'fever': it should be 'short' or 'yes_no'" in idx(*command[:1], "self_ask", *command[2:], "--out", tmp_path, status=2)


def test_predictions_are_in_the_order_of_the_questions(idx: Command, script: Script, tmp_path: Path) -> None:
    """The first question takes more steps than the others. With a limit, or after an interruption, the file is the same in the end."""
    file = questions(tmp_path, "long?", "one?", "two?")
    parts = {"role": "decompose", "match": "long?", "text": "1. Who?\n2. When?"}
    model = script(parts, {"role": "decompose", "match": "", "text": "no parts"}, {"match": "", "text": "Ada"})
    asked = ("run", "least_to_most", "--questions", file, "--llm", model, "--set", "shots=0")
    for out, limits in (("whole", [()]), ("limited", [("--limit", "2"), ()])):
        for limit in limits:
            idx(*asked, *limit, "--out", tmp_path / out)
        assert [line["id"] for line in lines(tmp_path / out)] == ["q0", "q1", "q2"]
    assert [without_times(line) for line in lines(tmp_path / "whole")] == [without_times(line) for line in lines(tmp_path / "limited")]
