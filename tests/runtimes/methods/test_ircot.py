"""IRCoT, request by request."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtimes.methods.driving import Driven, drive, passages
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Generate, Message
from wikidx.runtimes.methods.ircot import IrcotOptions, ircot
from wikidx.runtimes.methods.requests import Retrieve

FOUND = passages("one", "two")


def other(number: int) -> Passage:
    return Passage(f"o{number}", f"O{number}", f"other {number}")


def run(canned: list[Any], question: str = "Who?", **values: Any) -> Driven:  # noqa: ANN401 - the options' values
    return drive(ircot(question, IrcotOptions(**{"shots": 0} | values)), canned)


def last_turn(request: object) -> Message:
    assert isinstance(request, Generate)
    turn = request.prompt[-1]
    assert isinstance(turn, Message)
    return turn


def test_each_sentence_is_searched_with_until_one_names_the_answer_and_a_reader_ends_it() -> None:
    driven = run(
        [
            FOUND,
            " Jaws was directed by Steven Spielberg. Spielberg was born in",
            [FOUND[1], other(1)],
            "He was born in the U.S. in 1946. More.",
            [other(2)],
            "So the answer is: 1946. And",
            "Spielberg was born in 1946. So the answer is: 18 December 1946.",
        ]
    )
    assert driven.outline == [["retrieve"], ["answer"]] * 3 + [["answer"]]
    assert driven.queries == [("Who?",), ("Jaws was directed by Steven Spielberg.",), ("He was born in the U.S. in 1946.",)]
    assert [request.k for request in driven.requests if isinstance(request, Retrieve)] == [6] * 3
    turns = [last_turn(request) for request in driven.requests if isinstance(request, Generate)]
    assert [turn.role for turn in turns] == ["user", "assistant", "assistant", "user"]
    assert turns[1].content == "Jaws was directed by Steven Spielberg."
    assert turns[2].content == "Jaws was directed by Steven Spielberg. He was born in the U.S. in 1946."
    assert turns[3].content.endswith("[3] O1\nother 1\n\n[4] O2\nother 2\n\nQuestion: Who?\nReasoning:")
    assert driven.answer == (
        "18 December 1946",
        (*FOUND, other(1), other(2)),
        {
            "chain": ["Jaws was directed by Steven Spielberg.", "He was born in the U.S. in 1946.", "So the answer is: 1946."],
            "queries": ["Who?", "Jaws was directed by Steven Spielberg.", "He was born in the U.S. in 1946."],
            "stop_reason": "answer",
            "reader": "Spielberg was born in 1946. So the answer is: 18 December 1946.",
            "parse_ok": True,
        },
    )


def test_a_sentence_that_judges_an_answer_does_not_end_the_chain() -> None:
    driven = run([FOUND, "Ada wrote it, but the answer is wrong.", FOUND, "So the answer is: Grace.", "So the answer is: Grace."])
    assert driven.answer.detail["chain"] == ["Ada wrote it, but the answer is wrong.", "So the answer is: Grace."]
    assert (driven.answer.text, driven.answer.detail["stop_reason"]) == ("Grace", "answer")


def test_a_conclusion_is_not_searched_with() -> None:
    driven = run([FOUND, "Ada wrote it.", FOUND, "Thus it is old.", "The answer is Ada.", "Answer: Ada"])
    assert driven.outline == [["retrieve"], ["answer"], ["retrieve"], ["answer"], ["answer"], ["answer"]]
    assert driven.queries == [("Who?",), ("Ada wrote it.",)]
    assert [one.text for one in driven.notes] == ["not searched again"]
    driven = run([FOUND, "Therefore it is old.", FOUND, "The answer is Ada.", "Answer: Ada"], conclusions="search")
    assert driven.queries == [("Who?",), ("Therefore it old.",)]


@pytest.mark.parametrize(
    ("sentence", "is_searched"),
    [
        ("So it was Ada.", False),
        ("so, Ada.", False),
        ("So-called crabs are spiders.", True),
        ("Thus, Ada.", False),
        ("Thusly said Ada.", True),
        ("That is, Ada.", False),
        ("Hence Ada.", False),
        ("She was 1,886 + 4 = 1,890 days old.", False),
        ("It has 1886 + 4 days.", True),
        ("He sold so much.", True),
    ],
)
def test_sentences_that_conclude_or_state_a_sum_are_no_queries(sentence: str, is_searched: bool) -> None:
    """As ``is_reasoning_sentence`` in the authors' code decides."""
    searches = [FOUND] if is_searched else []
    driven = run([FOUND, sentence, *searches, "", "Answer: Ada"])
    assert driven.queries == [("Who?",), *[(sentence,)] * is_searched]


def test_question_words_are_left_out_of_queries() -> None:
    """As ``remove_wh_words`` in the authors' code does: whole words in any case, with nothing attached."""
    question = "Which city is where Who? was, and how Does it do?"
    assert run([FOUND, "", "Answer: Ada"], question).queries == [("city Who? was, and it do?",)]
    assert run([FOUND, "", "Answer: Ada"], question, drop_question_words=False).queries == [(question,)]
    assert run([FOUND, "", "Answer: Ada"], "Who is who").queries == [("Who is who",)]


@pytest.mark.parametrize("blank", ["", " \n\n"])
def test_a_blank_sentence_ends_the_chain(blank: str) -> None:
    driven = run([FOUND, blank, "Answer: Ada"])
    assert driven.outline == [["retrieve"], ["answer"], ["answer"]]
    assert driven.answer.detail["stop_reason"] == "no_sentence"
    assert driven.answer.text == "Ada"


def test_a_model_that_begins_anew_is_taken_at_its_next_sentence() -> None:
    driven = run([FOUND, "Ada wrote it.", FOUND, "ada wrote it! It is old. More.", FOUND, "Ada wrote it. It is old.", "Answer: Ada"])
    assert driven.answer.detail["chain"] == ["Ada wrote it.", "It is old."]
    assert driven.answer.detail["stop_reason"] == "no_sentence"


def test_a_repeated_sentence_may_be_added_and_is_not_searched_with_again() -> None:
    driven = run([FOUND, "It is.", FOUND, "It is.", "It is.", "Answer: Ada"], if_repeated="add", max_sentences=3)
    assert driven.outline == [["retrieve"], ["answer"], ["retrieve"], ["answer"], ["answer"], ["answer"]]
    assert driven.answer.detail["chain"] == ["It is."] * 3
    assert driven.answer.detail["stop_reason"] == "max_sentences"


def test_ten_sentences_are_enough() -> None:
    steps = [step for number in range(10) for step in (FOUND, f"Fact {number}.")]
    driven = run([*steps, "Answer: Ada"])
    assert driven.outline == [["retrieve"], ["answer"]] * 10 + [["answer"]]
    assert driven.answer.detail["stop_reason"] == "max_sentences"


def test_fifteen_passages_are_enough() -> None:
    many = [[other(number) for number in range(start, start + 6)] for start in (0, 3, 9, 30)]
    driven = run([many[0], "A.", many[1], "Be it.", many[2], "Cee it.", "Dee it.", "Answer: Ada"], max_sentences=4)
    assert driven.answer.passages == tuple(other(number) for number in range(15))
    assert [one.text for one in driven.notes] == ["not searched: max_passages are collected"]
    driven = run([many[0], "A.", "Answer: Ada"], max_passages=4, max_sentences=1)
    assert driven.answer.passages == tuple(other(number) for number in range(4))


def test_passages_of_one_text_are_collected_once() -> None:
    twice = [Passage("1", "T", "The text."), Passage("2", "T", "the  text."), Passage("3", "U", "The text.")]
    assert [one.id for one in run([twice, "", "Answer: Ada"]).answer.passages] == ["1", "3"]


def test_passages_with_nearly_one_title_and_text_are_collected_once() -> None:
    text = "Ada Lovelace wrote the first program for a machine that was never built."
    found = [
        Passage("1", "Ada Lovelace", text),
        Passage("2", "Ada Lovelace.", text.replace("first", "First")),  # nearly the same
        Passage("3", "Charles Babbage", text),  # another title
        Passage("4", "Ada Lovelace", "She was born in London, and her father was the poet Lord Byron, whom she never met."),
    ]
    assert [one.id for one in run([found, "", "Answer: Ada"]).answer.passages] == ["1", "3", "4"]


def test_long_passages_are_read_from_their_start() -> None:
    long = [Passage("1", "T", " one two\nthree four five "), Passage("2", "U", "six"), Passage("3", "V", "")]
    for words, shown in ((3, "one two\nthree"), (5, "one two\nthree four five"), (0, "one two\nthree four five ")):
        driven = run([long, "", "Answer: Ada"], passage_words=words)
        for prompt in driven.prompts("answer"):
            assert f"[1] T\n {shown}\n\n[2] U\nsix\n\n[3] V\n\n\nQuestion:" in prompt
        assert driven.answer.passages == tuple(long)


def test_an_empty_retrieval_goes_on_with_what_the_model_knows() -> None:
    driven = run([[], "Żuławski nakręcił film.", [], "So the answer is: Żuławski.", "So the answer is: Żuławski."])
    assert driven.queries == [("Who?",), ("Żuławski nakręcił film.",)]
    assert "Passages:" not in driven.prompts("answer")[-1]
    assert driven.answer.text == "Żuławski"
    assert driven.answer.passages == ()


def test_the_reader_may_answer_directly_or_not_at_all() -> None:
    driven = run([FOUND, "The answer is Ada.", " Ada\n"], reader="direct")
    assert driven.prompts("answer")[-1].endswith("Question: Who?\nAnswer:")
    assert driven.answer.text == "Ada"
    driven = run([FOUND, "It is old.", FOUND, "The answer is Ada."], reader="none")
    assert driven.outline == [["retrieve"], ["answer"]] * 2
    assert driven.answer.text == "Ada"
    driven = run([FOUND, "It is old.", FOUND, ""], reader="none")
    assert (driven.answer.text, driven.answer.detail["parse_ok"]) == ("It is old.", False)
    assert run([FOUND, ""], reader="none").answer.text == ""


def test_passages_may_be_cut_for_the_prompt_to_fit() -> None:
    driven = run([FOUND, "A fact.", FOUND, "", "Answer: Ada"])
    for request in driven.requests:
        if isinstance(request, Generate):
            spans = [span for turn in request.prompt if isinstance(turn, Message) for span in turn.passages]
            assert len(spans) == 2
