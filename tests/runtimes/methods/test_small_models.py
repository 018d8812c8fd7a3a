"""Replies of a small model, SmolLM2-135M-Instruct, as it wrote them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtimes.methods.driving import drive, passages
from wikidx.runtimes.llms.base import Gen
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
