"""Iter-RetGen, request by request."""

from __future__ import annotations

from typing import Any

from tests.runtimes.methods.driving import Driven, drive, passages
from wikidx.runtimes.methods.iter_retgen import IterRetGenOptions, iter_retgen
from wikidx.runtimes.methods.requests import Retrieve

ONE, TWO, THREE = passages("one"), passages("two", "zwei"), passages("three")


def run(canned: list[Any], question: str = "Who?", **values: Any) -> Driven:  # noqa: ANN401 - the options' values
    return drive(iter_retgen(question, IterRetGenOptions(**{"shots": 0} | values)), canned)


def test_three_rounds_each_search_with_the_last_output() -> None:
    driven = run([ONE, "It was Ada.\nAnswer: Ada", TWO, "She wrote it.\nAnswer: Ada Byron", THREE, "So.\nAnswer: Ada Lovelace"])
    assert driven.outline == [["retrieve"], ["answer"]] * 3
    assert driven.queries == [("Who?",), ("It was Ada. Answer: Ada Who?",), ("She wrote it. Answer: Ada Byron Who?",)]
    assert [request.k for request in driven.requests if isinstance(request, Retrieve)] == [5] * 3
    prompts = driven.prompts("answer")
    assert [f"[1] T1\n{text}\n" in prompt for prompt in prompts for text in ("one", "two", "three")] == [
        *(True, False, False),
        *(False, True, False),
        *(False, False, True),
    ]
    assert prompts[0].endswith("Question: Who?\nReasoning:")
    assert driven.answer.text == "Ada Lovelace"
    assert driven.answer.passages == tuple(THREE)
    assert driven.answer.detail["rounds"][1] == {
        "query": "It was Ada. Answer: Ada Who?",
        "passages": ["1", "2"],
        "output": "She wrote it.\nAnswer: Ada Byron",
        "parse_ok": True,
    }
    assert [request.path for request in driven.requests] == [(f"round {number}",) for number in (1, 1, 2, 2, 3, 3)]


def test_the_query_may_have_the_answer_alone() -> None:
    driven = run([ONE, "It was Ada.\nAnswer: Ada", TWO, "Answer: Byron"], query="answer", rounds=2)
    assert driven.queries == [("Who?",), ("Ada Who?",)]


def test_answers_may_be_written_without_reasoning() -> None:
    driven = run([ONE, " Ada\n", TWO, "Byron"], output="answer", rounds=2)
    assert driven.prompts("answer")[0].endswith("Question: Who?\nAnswer:")
    assert driven.queries == [("Who?",), ("Ada Who?",)]
    assert driven.answer.text == "Byron"


def test_one_round_is_retrieve_then_read() -> None:
    assert run([ONE, "Answer: Ada"], rounds=1).outline == [["retrieve"], ["answer"]]


def test_a_blank_output_leaves_the_question_for_the_next_query() -> None:
    driven = run([ONE, " \n", TWO, "", THREE, "Answer: Żuławski"])
    assert driven.queries == [("Who?",)] * 3
    assert driven.answer.text == "Żuławski"
    assert [one["parse_ok"] for one in driven.answer.detail["rounds"]] == [False, False, True]


def test_an_empty_retrieval_leaves_the_question() -> None:
    driven = run([[], "Answer: Ada"], rounds=1)
    assert "Passages:" not in driven.prompts("answer")[0]
    assert driven.answer.passages == ()


def test_output_without_an_answer_answers_with_its_last_line() -> None:
    driven = run([ONE, "Hm.\nAda it was"], rounds=1)
    assert driven.answer.text == "Ada it was"
    assert driven.answer.detail["parse_ok"] is False
