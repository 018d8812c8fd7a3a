"""Replies of a small model, SmolLM2-135M-Instruct, as it wrote them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.runtimes.methods.driving import Driven, drive, passages
from wikidx.runtimes.llms.base import Gen, Generate, Message
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.methods.written_answers import parse_draft

FOUND = passages("one")
RAMBLING = Gen(text="The name of the metal that was named after a", finish="length")
NOT_AN_ANSWER_YET = Gen(text="The work of the monk who founded genetics was Gregor Mendel. He was a monk", finish="length")


@pytest.mark.parametrize(
    ("method", "canned"),
    [
        ("direct", [RAMBLING]),
        ("rag", [FOUND, RAMBLING]),
        ("cot", [NOT_AN_ANSWER_YET]),
        ("cot", [Gen(text="He was Gregor Mendel.\nAnswer: Gregor Men", finish="length")]),
        ("genread", ["The name of the metal that was named after a goblin.", RAMBLING]),
        ("least_to_most", ["1. Who became an Englishman?", "the English", RAMBLING]),
        ("least_to_most", ["1. Who became an Englishman?", RAMBLING, "the English"]),
        ("iter_retgen", [FOUND, "He is Titan.\nAnswer: Titan", FOUND, "Answer: Titan", FOUND, RAMBLING]),
        ("ra_isf", ["yes", RAMBLING]),
    ],
)
def test_an_answer_that_the_token_limit_cuts_is_not_read(method: str, canned: list[Any]) -> None:
    chosen = find_method(method)
    driven = drive(chosen.run("Who?", chosen.options()), canned)
    assert driven.answer.text
    assert driven.answer.detail["parse_ok"] is False


@pytest.mark.parametrize(
    ("text", "form", "answer"),
    [
        ("the Olympic Games in 1896\n\nQuestion: What is the Olympic Games?\nAnswer: the Interna", "answer", "the Olympic Games in 1896"),
        ("The answer is Titan. Titan is a moon of Sat", "cot", "Titan"),
        ("Answer: Titan\n\nExplanation: Titan is a", "cot", "Titan"),
    ],
)
def test_an_answer_that_is_whole_where_the_text_is_cut_is_read(text: str, form: str, answer: str) -> None:
    draft = parse_draft(Gen(text=text, finish="length"), form)
    assert (draft.answer, draft.parse_ok) == (answer, True)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("[1] Titan", "Titan"),
        ("1) Peter Jacob Hjelm", "Peter Jacob Hjelm"),
        ("1. FC Köln", "1. FC Köln"),
        ("12) ", "12)"),
        ("7)x", "7)x"),
    ],
)
def test_the_number_of_a_passage_is_no_part_of_an_answer(text: str, answer: str) -> None:
    assert parse_draft(Gen(text=text), "answer").answer == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is: Jane Eyre.", "Jane Eyre."),
        ("The answer is: [1] Albert Ghiorso", "Albert Ghiorso"),
        ("Answer: Paris", "Paris"),
        ('Final answer: "Paris"', '"Paris"'),
        ("The answer is no", "The answer is no"),
        ("Answer:", "Answer:"),
        ("Answered Prayers: a novel", "Answered Prayers: a novel"),
    ],
)
def test_the_label_of_an_answer_is_no_part_of_it(text: str, answer: str) -> None:
    assert parse_draft(Gen(text=text), "answer").answer == answer


# --- ReFeed copies the list of earlier answers


@pytest.mark.parametrize(
    ("reply", "answer", "parse_ok"),
    [
        (Gen(text="1. Why?\n2. Celsius\n3. Superior basin, Val", finish="length"), "Why?", True),
        (Gen(text="1. Mark White\n2. Celsius"), "Mark White", True),
        (Gen(text="2. Celsius"), "Celsius", True),
        (Gen(text="2. Celsius is the name of a", finish="length"), "Celsius is the name of a", False),
    ],
)
def test_of_a_copied_list_the_first_answer_is_kept(reply: Gen, answer: str, parse_ok: bool) -> None:
    refeed = find_method("refeed")
    samples = [Gen(text=text, logprobs=(-9.0,)) for text in ("Why?", "Celsius", "Superior basin")]
    refined = dataclasses.replace(reply, logprobs=(-1.0,))
    driven = drive(refeed.run("What is it called?", refeed.options(samples=3)), [samples, FOUND, refined])
    assert (driven.answer.text, driven.answer.detail["parse_ok"]) == (answer, parse_ok)


# --- ReAct


def test_a_long_invalid_action_is_shown_by_its_beginning() -> None:
    react = find_method("react")
    rambling = "I would look at " + "the Great Red Spot and " * 40
    replies = [f" I need it.\nAction 1: {rambling}", " So.\nAction 2: Finish[Titan]"]
    driven = drive(react.run("Which moon?", react.options()), replies)
    assert driven.answer.text == "Titan"
    shown = driven.prompts("answer")[1].rpartition("Action 1:")[2]
    assert shown.startswith(" I would look at the Great Red Spot")
    assert "\nObservation 1: Invalid action: I would look at the Great" in shown
    assert len(shown) < 400
    assert shown.count("…") == 2


@pytest.mark.parametrize(("at_limit", "parse_ok"), [("answer", True), ("empty", False)])
def test_an_answer_requested_after_the_last_step_is_read(at_limit: str, parse_ok: bool) -> None:
    react = find_method("react")
    replies: list[Any] = [" I need the lamp.\nAction 1: Search[Lamp]", FOUND, "tungsten]"]
    run = react.run("Which metal?", react.options(max_steps=1, at_limit=at_limit))
    driven = drive(run, replies if parse_ok else replies[:2])
    assert (driven.answer.text, driven.answer.detail["parse_ok"]) == ("tungsten" * parse_ok, parse_ok)


# --- Self-Reasoning and RetroRAG: JSON without an answer

FREE = ("no structured output: the text is unconstrained",)


def self_reasoning(*replies: Gen | str) -> Driven:
    method = find_method("self_reasoning")
    return drive(method.run("Who isolated chlorine?", method.options(shots=0)), [FOUND, *replies])


@pytest.mark.parametrize(
    ("written", "reply", "answer", "parse_ok"),
    [
        (
            '{"relevant": true, "relevant_reason": "Henri Moissan"}',
            Gen(text='The first passage names him.", "cite_list": [{"cite": 1, "cite_', finish="length"),
            "The first passage names him.",
            True,
        ),
        (
            '{"relevant": true, "relevant_reason": "the halogens"}',
            Gen(text='It is potassium."', finish="length"),
            "It is potassium.",
            True,
        ),
        (
            '{"relevant": true, "relevant_reason": "It was ma',
            Gen(text="The Brooklyn Bridge is the one that was made of", finish="length"),
            "The Brooklyn Bridge is the one that was made of",
            False,
        ),
        ('"Au" is Latin for "gold" in English.', "gold", "gold", True),
        ('"Au" is Latin for "gold" in English.', '{"reason": "none"}', '"Au" is Latin for "gold" in English.', False),
    ],
)
def test_self_reasoning_asks_again_for_an_answer(written: str, reply: Gen | str, answer: str, parse_ok: bool) -> None:
    driven = self_reasoning(Gen(text=written, degraded=FREE), reply)
    assert (driven.answer.text, driven.answer.detail["parse_ok"], driven.answer.detail["asked_again"]) == (answer, parse_ok, True)


def test_an_answer_cut_within_a_trajectory_is_not_read() -> None:
    beginning = '{"relevant": true, "relevant_reason": "so", "cite_list": [], "analysis": "so", "answer": "The Bro'
    for second in ("", Gen(text="The Brook", finish="length")):
        driven = self_reasoning(Gen(text=beginning, finish="length"), second)
        assert (driven.answer.text, driven.answer.detail["parse_ok"], driven.answer.detail["asked_again"]) == ("The Bro", False, True)
    driven = self_reasoning(Gen(text=f'{beginning}oklyn Bridge"', finish="length", degraded=FREE))
    assert (driven.answer.text, driven.answer.detail["parse_ok"]) == ("The Brooklyn Bridge", True)


def retrorag(*replies: Gen | str) -> Driven:
    method = find_method("retrorag")
    options = method.options(ellery=False, shots=0, assessor="off")
    return drive(method.run("Into which sea does the Murray flow?", options), list(replies))


@pytest.mark.parametrize(
    ("written", "answer"),
    [
        ('{"reason": "Passage 1 says so. The answer is the Murray River."}', "the Murray River"),
        ('{"reason": "It flows into the Indian Ocean." "answer": "Australia"}', "Australia"),
        ('{"reason": "It flows", "answer": "Australia"}', "Australia"),
    ],
)
def test_retrorag_reads_an_answer_that_the_reason_states_and_json_without_a_comma(written: str, answer: str) -> None:
    driven = retrorag(Gen(text=written, degraded=FREE))
    assert (driven.answer.text, driven.answer.detail["parse_ok"]) == (answer, True)


@pytest.mark.parametrize(
    ("reply", "answer", "parse_ok"),
    [
        ("Southern Ocean", "Southern Ocean", True),
        ('{"answer": "Southern Ocean', "Southern Ocean", True),
        (Gen(text="the ocean that", finish="length"), "the ocean that", False),
        ("", "It is on canvas, which is missing.", False),
    ],
)
def test_retrorag_asks_again_for_an_answer(reply: Gen | str, answer: str, parse_ok: bool) -> None:
    driven = retrorag(Gen(text='{"reason": "It is on canvas, which is missing."}', degraded=FREE), reply)
    assert (driven.answer.text, driven.answer.detail["parse_ok"]) == (answer, parse_ok)

    assert 'Your reply lacks the field "answer"' in driven.prompts("answer")[1]
    assert '{"answer": "' in driven.prompts("answer")[1]


NO_ANSWERS = [
    '{"reason": "It is on canvas."}',
    Gen(text='{"reason": "It is on canvas", "answer": "the the', finish="length"),
    Gen(text='{"reason": "It is on', finish="length"),
    Gen(text="It is on canvas.", degraded=FREE),
    '{"reason": "It is on canvas.", "answer": " "}',
    "",
]


@pytest.mark.parametrize("written", NO_ANSWERS)
@pytest.mark.parametrize("ask", [retrorag, self_reasoning])
def test_a_reply_without_an_answer_is_asked_again_however_it_came_about(ask: Callable[..., Driven], written: Gen | str) -> None:
    driven = ask(written, "Southern Ocean")
    assert (driven.answer.text, driven.answer.detail["parse_ok"]) == ("Southern Ocean", True)
    *_, again = driven.requests
    assert isinstance(again, Generate)
    assert all(message.content for message in again.prompt if isinstance(message, Message))  # no empty turn
