"""Least-to-most, request by request."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtimes.methods.driving import Driven, drive
from wikidx.runtimes.llms.base import Gen, Generate
from wikidx.runtimes.methods.least_to_most import LeastToMostOptions, least_to_most


def run(canned: list[Any], question: str = "Where was she born?", **values: Any) -> Driven:  # noqa: ANN401 - the options' values
    return drive(least_to_most(question, LeastToMostOptions(**{"shots": 0} | values)), canned)


def test_parts_are_answered_in_their_order_and_the_question_last() -> None:
    driven = run(["1. Who wrote it?\n2. What was her maiden name?", " Ada \n", "Byron", "London"])
    assert driven.outline == [["decompose"], ["answer"], ["answer"], ["answer"]]
    first, second, last = driven.prompts("answer")
    assert first.endswith("no explanation.\n\nQuestion: Who wrote it?\nAnswer:")
    assert second.endswith("Earlier questions:\n1. Who wrote it?\nAnswer: Ada\n\nQuestion: What was her maiden name?\nAnswer:")
    assert last.endswith(
        "Earlier questions:\n1. Who wrote it?\nAnswer: Ada\n2. What was her maiden name?\nAnswer: Byron\n\n"
        "Question: Where was she born?\nAnswer:"
    )
    assert [request.path for request in driven.requests] == [(), ("sub-question 1",), ("sub-question 2",), ()]
    assert driven.answer == (
        "London",
        (),
        {
            "sub_questions": [
                {"question": "Who wrote it?", "answer": "Ada"},
                {"question": "What was her maiden name?", "answer": "Byron"},
            ],
            "parse_ok": True,
        },
    )


def test_nothing_is_drawn_and_limits_are_the_options() -> None:
    driven = run(["1. Who?", "Ada", "London"], max_tokens=7, list_tokens=9)
    decodings = [call.decoding for call in driven.requests if isinstance(call, Generate)]
    assert [(one.max_tokens, one.temperature) for one in decodings] == [(9, 0), (7, 0), (7, 0)]


@pytest.mark.parametrize("reply", ["", "None needed.", "I cannot do that"])
def test_a_reply_without_a_list_leaves_the_question(reply: str) -> None:
    driven = run([reply, "London"])
    assert driven.outline == [["decompose"], ["answer"]]
    assert driven.answer == ("London", (), {"sub_questions": [], "parse_ok": False})


def test_the_question_itself_and_repeated_parts_are_asked_once() -> None:
    driven = run(["1. Who wrote it?\n2. WHO wrote it\n3. Where was she born?\n4. ", "Ada", "London"])
    assert driven.outline == [["decompose"], ["answer"], ["answer"]]
    assert driven.answer.detail["sub_questions"] == [{"question": "Who wrote it?", "answer": "Ada"}]


def test_a_list_that_only_repeats_the_question_was_read_all_the_same() -> None:
    driven = run(["1. Where was she born?", "London"])
    assert driven.answer == ("London", (), {"sub_questions": [], "parse_ok": True})


def test_an_endless_list_is_cut_off() -> None:
    endless = "\n".join(f"{number}. Question {number}?" for number in range(1, 200))
    driven = run([endless, "a", "b", "London"], max_sub_questions=2)
    assert driven.outline == [["decompose"], ["answer"], ["answer"], ["answer"]]
    assert [one["question"] for one in driven.answer.detail["sub_questions"]] == ["Question 1?", "Question 2?"]


def test_without_parts_only_the_question_is_asked() -> None:
    assert run(["1. Who?", "London"], max_sub_questions=0).outline == [["decompose"], ["answer"]]


def test_half_a_question_at_the_token_limit_is_left_out() -> None:
    driven = run([Gen(text="1. Who wrote it?\n2. What was her maid", finish="length"), "Ada", "London"])
    assert [one["question"] for one in driven.answer.detail["sub_questions"]] == ["Who wrote it?"]


def test_a_blank_answer_is_shown_as_unknown() -> None:
    driven = run(["1. Kto to napisał?", " \n", "Łódź"], question="Gdzie się urodziła?")
    assert driven.prompts("answer")[1].endswith("1. Kto to napisał?\nAnswer: unknown\n\nQuestion: Gdzie się urodziła?\nAnswer:")
    assert driven.answer.text == "Łódź"
    assert driven.answer.detail["sub_questions"] == [{"question": "Kto to napisał?", "answer": ""}]
