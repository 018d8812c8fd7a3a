"""Self-Ask, request by request."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtimes.methods.driving import Driven, drive, passages
from wikidx.runtimes.llms.base import Generate, Message
from wikidx.runtimes.methods.requests import Retrieve
from wikidx.runtimes.methods.self_ask import SelfAskOptions, self_ask

NEEDED = "Are follow up questions needed here:"
ONE, TWO = passages("one", "first"), passages("one", "second", "third")


def run(canned: list[Any], question: str = "Where was she born?", **values: Any) -> Driven:  # noqa: ANN401 - the options' values
    return drive(self_ask(question, SelfAskOptions(**{"shots": 0} | values)), canned)


def begun(driven: Driven, role: str = "answer") -> list[str]:
    """Return the turns that the model was to go on from."""
    turns = [call.prompt[-1] for call in driven.requests if isinstance(call, Generate) and call.role == role]
    assert all(isinstance(turn, Message) and turn.role == "assistant" for turn in turns)
    return [turn.content for turn in turns if isinstance(turn, Message)]


# A reader answers


def test_follow_up_questions_are_searched_and_read_until_the_final_answer() -> None:
    driven = run(
        [
            " Yes.\nFollow up: Who wrote it?\n",
            ONE,
            " Ada\nbecause",
            "\nFollow up: Where was Ada born?",
            TWO,
            "London",
            "\nSo the final answer is: London\n",
        ]
    )
    assert driven.outline == [["answer"], ["retrieve"], ["reader"], ["answer"], ["retrieve"], ["reader"], ["answer"]]
    assert driven.queries == [("Who wrote it?",), ("Where was Ada born?",)]
    assert [request.k for request in driven.requests if isinstance(request, Retrieve)] == [5, 5]
    assert begun(driven) == [
        NEEDED,
        f"{NEEDED} Yes.\nFollow up: Who wrote it?\nIntermediate answer: Ada",
        f"{NEEDED} Yes.\nFollow up: Who wrote it?\nIntermediate answer: Ada\nFollow up: Where was Ada born?\nIntermediate answer: London",
    ]
    assert driven.prompts("reader")[0].endswith("[1] T1\none\n\n[2] T2\nfirst\n\nQuestion: Who wrote it?\nAnswer:")
    assert driven.answer == (
        "London",
        tuple(dict.fromkeys([*ONE, *TWO])),
        {
            "follow_ups": [
                {"question": "Who wrote it?", "answer": "Ada", "passages": ["1", "2"]},
                {"question": "Where was Ada born?", "answer": "London", "passages": ["1", "2", "3"]},
            ],
            "stop_reason": "answer",
            "parse_ok": True,
        },
    )


def test_generation_stops_before_the_intermediate_answer() -> None:
    driven = run([" Yes.\nFollow up: Who?", ONE, "Ada", "\nSo the final answer is: x"], max_tokens=99, reader_tokens=9)
    calls = [call for call in driven.requests if isinstance(call, Generate)]
    stop = ("\nIntermediate answer:", "\nQuestion:")
    assert [(call.decoding.max_tokens, call.decoding.stop) for call in calls] == [(99, stop), (9, ()), (99, stop)]


def test_the_question_may_need_no_follow_up() -> None:
    driven = run([" No.\nSo the final answer is: London"])
    assert driven.outline == [["answer"]]
    assert driven.answer == ("London", (), {"follow_ups": [], "stop_reason": "answer", "parse_ok": True})


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("So the final answer is London.", "London."),
        ("**Final answer:** London", "London"),
        ("The final answer is: *London*", "London"),
        ("So the final answer is:\nŁódź\nmore", "Łódź"),
        ("Final answer： 東京", "東京"),
        ("Follow up: Who?\nSo the final answer is: London", "London"),
        ("So the final answer is: Paris. No!\nSo the final answer is: London", "London"),
    ],
)
def test_the_final_answer_is_found_however_it_is_marked(text: str, answer: str) -> None:
    driven = run([text])
    assert driven.answer.text == answer
    assert driven.answer.detail["stop_reason"] == "answer"


@pytest.mark.parametrize(
    ("text", "query"),
    [
        (" Yes.\nFollow up: Who wrote it?\nFollow up: When?", "Who wrote it?"),
        ("**Follow up:** Who wrote it?", "Who wrote it?"),
        ("1. Follow-up question: Who wrote it", "Who wrote it"),
        (f"{NEEDED} Yes.\nFollow up: Who wrote it?", "Who wrote it?"),
        (" Yes.\n1. Who wrote it?\n2. When?", "Who wrote it?"),
        ("Kto to napisał?", "Kto to napisał?"),
    ],
)
def test_follow_up_questions_are_found_however_they_are_marked(text: str, query: str) -> None:
    driven = run([text, ONE, "Ada", "So the final answer is: London"])
    assert driven.queries == [(query,)]


@pytest.mark.parametrize("text", ["", " Yes.", "I do not know.", "Follow up:", "Follow up: ?!\nhm"])
def test_without_follow_up_or_answer_the_final_answer_is_asked_for(text: str) -> None:
    driven = run([text, " London \n\nQuestion"])
    assert driven.outline == [["answer"], ["answer"]]
    assert begun(driven)[1] == f"{NEEDED} No.\nSo the final answer is:"
    assert driven.answer == ("London", (), {"follow_ups": [], "stop_reason": "no_follow_up", "parse_ok": False})


def test_a_model_that_begins_its_final_answer_anew_is_read_all_the_same() -> None:
    assert run(["", "So the final answer is: London"]).answer.text == "London"
    assert run(["", " \n"]).answer.text == ""


def test_a_repeated_follow_up_question_ends_the_asking() -> None:
    driven = run(["Follow up: Who wrote it?", ONE, "Ada", "Follow up: WHO wrote it??", "London"])
    assert driven.outline == [["answer"], ["retrieve"], ["reader"], ["answer"], ["answer"]]
    assert begun(driven)[-1] == f"{NEEDED} Yes.\nFollow up: Who wrote it?\nIntermediate answer: Ada\nSo the final answer is:"
    assert driven.answer.detail["stop_reason"] == "repeated"
    assert driven.answer.text == "London"


def test_it_may_be_answered_again_as_long_as_there_may_be_more() -> None:
    driven = run(["Follow up: Who?", ONE, "Ada"] * 3 + ["Follow up: Who?", "London"], if_repeated="again", max_follow_ups=3)
    assert driven.queries == [("Who?",)] * 3
    assert driven.answer.detail["stop_reason"] == "max_follow_ups"
    assert driven.answer.text == "London"


def test_no_follow_up_question_may_be_allowed() -> None:
    driven = run(["Follow up: Who?", "London"], max_follow_ups=0)
    assert driven.outline == [["answer"], ["answer"]]
    assert driven.answer.detail["stop_reason"] == "max_follow_ups"


def test_an_empty_retrieval_and_a_blank_answer_are_said_to_the_model() -> None:
    driven = run(["Follow up: Who?", [], " \n", "So the final answer is: London"])
    assert "Passages:" not in driven.prompts("reader")[0]
    assert begun(driven)[1].endswith("Intermediate answer: unknown")
    assert driven.answer.passages == ()


# The model answers, with passages in front of the question


def test_passages_may_go_in_front_and_the_model_answer() -> None:
    driven = run(
        [
            " Yes.\nFollow up: Who wrote it?",
            ONE,
            " Ada\nFollow up: Where was Ada born?",
            TWO,
            " London\nSo the final answer is: London",
        ],
        answered_by="context",
    )
    assert driven.outline == [["answer"], ["retrieve"], ["answer"], ["retrieve"], ["answer"]]
    assert begun(driven) == [
        NEEDED,
        f"{NEEDED} Yes.\nFollow up: Who wrote it?\nIntermediate answer:",
        f"{NEEDED} Yes.\nFollow up: Who wrote it?\nIntermediate answer: Ada\nFollow up: Where was Ada born?\nIntermediate answer:",
    ]
    first, second, third = driven.prompts("answer")
    assert "Passages:" not in first
    assert "Passages:\n\n[1] T1\none\n\n[2] T2\nfirst\n\nQuestion: Where" in second
    assert "Passages:\n\n[1] T1\none\n\n[2] T2\nsecond\n\n[3] T3\nthird\n\n[4] T2\nfirst\n\nQuestion: Where" in third
    assert driven.answer.text == "London"
    assert [one["answer"] for one in driven.answer.detail["follow_ups"]] == ["Ada", "London"]
    assert len(driven.answer.passages) == 4


@pytest.mark.parametrize(
    ("text", "answer", "query"),
    [
        ("\nIntermediate answer: Ada\nFollow up: When?", "Ada", "When?"),
        (" Was it Ada?\nFollow up: When?", "Was it Ada?", "When?"),
        (" Ada\nWhen was she born?", "Ada", "When was she born?"),
        ("\n\nAda\nFollow up: When?", "Ada", "When?"),
        ("Follow up: When?", "unknown", "When?"),
    ],
)
def test_the_model_s_own_intermediate_answer_is_read_leniently(text: str, answer: str, query: str) -> None:
    driven = run(["Follow up: Who?", ONE, text, TWO, " 1815\nSo the final answer is: London"], answered_by="context")
    assert driven.queries == [("Who?",), (query,)]
    assert [one["answer"] for one in driven.answer.detail["follow_ups"]] == [answer, "1815"]


def test_a_pending_answer_is_unknown_where_the_model_falls_silent() -> None:
    driven = run(["Follow up: Who?", ONE, "", "London"], answered_by="context")
    assert begun(driven)[-1] == f"{NEEDED} Yes.\nFollow up: Who?\nIntermediate answer: unknown\nSo the final answer is:"
    assert driven.answer.detail["stop_reason"] == "no_follow_up"


# The model answers from memory


def test_without_retrieval_the_model_writes_it_all_at_once() -> None:
    text = " Yes.\nFollow up: Who wrote it?\nIntermediate answer: Ada\nFollow up: Where was Ada born?\nIntermediate answer: London\n"
    driven = run([f"{text}So the final answer is: London"], answered_by="model")
    assert driven.outline == [["answer"]]
    (call,) = driven.requests
    assert isinstance(call, Generate)
    assert call.decoding.stop == ("\nQuestion:",)
    assert driven.answer.text == "London"
    assert driven.answer.detail["follow_ups"] == [
        {"question": "Who wrote it?", "answer": "Ada", "passages": []},
        {"question": "Where was Ada born?", "answer": "London", "passages": []},
    ]


def test_without_retrieval_a_missing_final_answer_is_asked_for_after_what_was_written() -> None:
    endless = "".join(f"Follow up: Question {number}?\nIntermediate answer: {number}\n" for number in range(99))
    driven = run([endless + "Follow up: Cut", "London"], answered_by="model", max_follow_ups=2)
    assert driven.outline == [["answer"], ["answer"]]
    assert begun(driven)[-1] == (
        f"{NEEDED} Yes.\nFollow up: Question 0?\nIntermediate answer: 0\nFollow up: Question 1?\nIntermediate answer: 1\n"
        "So the final answer is:"
    )
    assert driven.answer.detail["stop_reason"] == "no_answer"
    assert run(["Follow up: Who?", "London"], answered_by="model").answer.detail["follow_ups"][0]["answer"] is None


@pytest.mark.parametrize("answered_by", ["reader", "context"])
def test_demonstrations_end_with_the_final_answer(answered_by: str) -> None:
    (call,) = run([" No.\nSo the final answer is: x"], shots=4, answered_by=answered_by).requests
    assert isinstance(call, Generate)
    shown = [turn.content for turn in call.prompt[:-1] if isinstance(turn, Message) and turn.role == "assistant"]
    assert len(shown) == 4
    for text in shown:
        assert text.startswith(NEEDED)
        assert "\nSo the final answer is: " in text
