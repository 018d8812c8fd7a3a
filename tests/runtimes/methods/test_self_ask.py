"""Self-Ask: answers and follow-up questions as models mark them. What is asked, in order, stands in ``transcripts/``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtimes.methods.driving import Driven, drive, passages
from wikidx.runtimes.methods.self_ask import SelfAskOptions, self_ask

ONE, TWO = passages("one", "first"), passages("one", "second", "third")


def run(canned: list[Any], **values: Any) -> Driven:  # noqa: ANN401 - the options' values
    return drive(self_ask("Where was she born?", SelfAskOptions(shots=0, **values)), canned)


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
    assert (driven.answer.text, driven.answer.detail["stop_reason"]) == (answer, "answer")


@pytest.mark.parametrize(
    ("text", "query"),
    [
        (" Yes.\nFollow up: Who wrote it?\nFollow up: When?", "Who wrote it?"),
        ("**Follow up:** Who wrote it?", "Who wrote it?"),
        ("1. Follow-up question: Who wrote it", "Who wrote it"),
        ("Are follow up questions needed here: Yes.\nFollow up: Who wrote it?", "Who wrote it?"),
        (" Yes.\n1. Who wrote it?\n2. When?", "Who wrote it?"),
        ("Kto to napisał?", "Kto to napisał?"),
    ],
)
def test_follow_up_questions_are_found_however_they_are_marked(text: str, query: str) -> None:
    assert run([text, ONE, "Ada", "So the final answer is: London"]).queries == [(query,)]


@pytest.mark.parametrize("text", ["", " Yes.", "I do not know.", "Follow up:", "Follow up: ?!\nhm"])
def test_without_follow_up_or_answer_the_final_answer_is_asked_for(text: str) -> None:
    driven = run([text, " London \n\nQuestion"])
    assert driven.answer == ("London", (), {"follow_ups": [], "stop_reason": "no_follow_up", "parse_ok": False})


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
