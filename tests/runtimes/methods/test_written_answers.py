"""Answers in the texts of models: after a chain of thought, behind labels and numbers, and cut at the token limit."""

from __future__ import annotations

import pytest

from wikidx.runtimes.llms.base import Gen
from wikidx.runtimes.methods.written_answers import parse_draft


@pytest.mark.parametrize(
    ("text", "answer", "parse_ok"),
    [
        ("Because.\n**Answer:** Savoy", "Savoy", True),
        ("Answer: Italy\nNo: it was Savoy.\nFinal answer: Savoy\n\n", "Savoy", True),
        ("So the answer is: the House of Savoy", "the House of Savoy", True),
        ("The answer is Italy. It was united in 1861. The answer is Savoy.", "Savoy", True),
        ("The answer is Savoy. It ruled Italy. It was a house.", "Savoy", True),
        ("The answer is Savoy, because it ruled Italy.", "Savoy", True),
        ("The answer is Mt. Everest. It is high.", "Mt. Everest", True),
        ("The answer is Dec. 25, 1861. It was cold.", "Dec. 25, 1861", True),
        ("Because.\nAnswer: Savoy\n\nQuestion: Who painted it?\nReasoning: Easy.\nAnswer: Leonardo", "Savoy", True),
        ("The answer is Savoy.\n**Question 2:** Who?\nAnswer: Leonardo", "Savoy", True),
        ("Let me repeat.\nQuestion: Who ruled Italy?\nAnswer: Savoy", "Savoy", True),
        ("答えは。\nAnswer：サヴォイア", "サヴォイア", True),
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
        ("It was in 1861.\nSavoy", "Savoy", False),
        ("It was in 1861.\nAnswer:", "It was in 1861.", False),
        (" \n", "", False),
    ],
)
def test_the_answer_of_a_chain_of_thought(text: str, answer: str, parse_ok: bool) -> None:
    draft = parse_draft(Gen(text=text), "cot")
    assert (draft.answer, draft.parse_ok) == (answer, parse_ok)


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
        ("[1] Titan", "Titan"),
        ("1) Peter Jacob Hjelm", "Peter Jacob Hjelm"),
        ("1. FC Köln", "1. FC Köln"),
        ("12) ", "12)"),
        ("7)x", "7)x"),
    ],
)
def test_a_label_and_the_number_of_a_passage_are_no_part_of_an_answer(text: str, answer: str) -> None:
    assert parse_draft(Gen(text=text), "answer").answer == answer


@pytest.mark.parametrize(
    ("text", "output", "answer", "parse_ok"),
    [
        ("the Games in 1896\n\nQuestion: What is it?\nAnswer: the Interna", "answer", "the Games in 1896", True),
        ("The name of the metal that was named after a", "answer", "The name of the metal that was named after a", False),
        ("The answer is Titan. Titan is a moon of Sat", "cot", "Titan", True),
        ("Answer: Titan\n\nExplanation: Titan is a", "cot", "Titan", True),
        ("He was Gregor Mendel.\nAnswer: Gregor Men", "cot", "Gregor Men", False),
    ],
)
def test_an_answer_that_the_token_limit_cuts_is_not_read(text: str, output: str, answer: str, parse_ok: bool) -> None:
    draft = parse_draft(Gen(text=text, finish="length"), output)
    assert (draft.answer, draft.parse_ok) == (answer, parse_ok)
