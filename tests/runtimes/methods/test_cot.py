"""Chain of thought, request by request."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtimes.methods.driving import Driven, drive
from wikidx.runtimes.llms.base import Generate, Message
from wikidx.runtimes.methods.cot import CotOptions, cot


def run(canned: list[Any], question: str = "Who?", **values: Any) -> Driven:  # noqa: ANN401 - the options' values
    return drive(cot(question, CotOptions(**values)), canned)


def test_one_call_reasons_and_answers() -> None:
    driven = run(["Ada wrote it.\nShe was a countess.\nAnswer: Ada Lovelace\n"])
    assert driven.outline == [["answer"]]
    (call,) = driven.requests
    assert isinstance(call, Generate)
    assert (call.decoding.max_tokens, call.decoding.temperature) == (256, 0)
    assert driven.prompts("answer")[0].endswith("Question: Who?\nReasoning:")
    assert driven.answer == (
        "Ada Lovelace",
        (),
        {"reasoning": "Ada wrote it.\nShe was a countess.\nAnswer: Ada Lovelace", "parse_ok": True},
    )


def test_four_demonstrations_are_shown_unless_another_number_is_wanted() -> None:
    for shots, turns in ((4, 10), (0, 2)):
        (call,) = run(["x"], shots=shots).requests
        assert isinstance(call, Generate)
        assert isinstance(call.prompt, tuple)
        assert len(call.prompt) == turns
    (call,) = run(["x"]).requests
    assert isinstance(call, Generate)
    assert isinstance(call.prompt, tuple)
    assert len(call.prompt) == 10


@pytest.mark.parametrize(
    ("written", "answer", "parse_ok"),
    [
        ("So the answer is Ada.", "Ada", True),
        ("**Answer:** Ada", "Ada", True),
        ("Answer: Żuławski", "Żuławski", True),
        ("Answer: no\nwait\nFinal answer: yes", "yes", True),
        ("She wrote it.\nIt was Ada", "It was Ada", False),
        ("It was Ada.\nAnswer:", "It was Ada.", False),
        ("", "", False),
        (" \n", "", False),
        ("It is Arkansas, but the answer is wrong.", "It is Arkansas, but the answer is wrong.", False),
        ("The answer is wrong, it is X.", "The answer is wrong, it is X.", False),
        ("The answer is **not yet known**.", "The answer is **not yet known**.", False),
        ("The answer is not given in the passages.", "The answer is not given in the passages.", False),
        ("The answer is unclear: A or B", "The answer is unclear: A or B", False),
        ("So the answer is Ada. The answer is correct.", "Ada", True),
        ("So the answer is: unknown.", "unknown", True),  # IRCoT's form
        ("The answer is Wrong Turn.", "Wrong Turn", True),
        ("The answer is right ventricle.", "right ventricle", True),
        ("The answer is not enough info.", "not enough info", True),
    ],
)
def test_the_answer_is_what_the_reasoning_ends_with(written: str, answer: str, parse_ok: bool) -> None:
    driven = run([written])
    assert driven.answer.text == answer
    assert driven.answer.detail["parse_ok"] is parse_ok


def test_two_calls_take_the_answer_from_the_reasoning() -> None:
    driven = run([" Ada wrote it. \n", " Ada\n\nQuestion: more"], calls="two")
    assert driven.outline == [["answer"], ["answer"]]
    first, second = driven.requests
    assert isinstance(first, Generate)
    assert isinstance(second, Generate)
    assert isinstance(first.prompt, tuple)
    assert isinstance(second.prompt, tuple)
    assert len(first.prompt) == 3
    begun = first.prompt[-1]
    assert isinstance(begun, Message)
    assert begun.role == "assistant"
    assert second.prompt == (
        *first.prompt[:-1],
        Message("assistant", f"{begun.content} Ada wrote it.\nSo the answer is:"),
    )
    assert (first.decoding.max_tokens, second.decoding.max_tokens, second.decoding.stop) == (256, 32, ("\n\n",))
    assert driven.answer == ("Ada", (), {"reasoning": "Ada wrote it.", "parse_ok": True})


@pytest.mark.parametrize(
    ("reasons", "written", "answer", "parse_ok"),
    [
        ("Ada wrote it.", "So the answer is: Ada", "Ada", True),
        ("Ada wrote it.", "\nAda\nbecause", "Ada", True),
        ("Ada wrote it.", "", "", False),
        ("", "Ada", "Ada", False),
    ],
)
def test_a_second_call_is_read_leniently(reasons: str, written: str, answer: str, parse_ok: bool) -> None:
    driven = run([reasons, written], calls="two")
    assert driven.answer.text == answer
    assert driven.answer.detail == {"reasoning": reasons, "parse_ok": parse_ok}
