"""IRCoT: which sentences are searched with, and in which words. What is asked, in order, stands in ``transcripts/``."""

from __future__ import annotations

import pytest

from tests.runtimes.methods.driving import drive, passages
from wikidx.runtimes.methods.ircot import IrcotOptions, ircot

FOUND = passages("one", "two")


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
    driven = drive(ircot("Who?", IrcotOptions(shots=0)), [FOUND, sentence, *[FOUND] * is_searched, "", "Answer: Ada"])
    assert driven.queries == [("Who?",), *[(sentence,)] * is_searched]


def test_question_words_are_left_out_of_queries() -> None:
    """As ``remove_wh_words`` in the authors' code does: whole words in any case, with nothing attached."""
    for question, query in (
        ("Which city is where Who? was, and how Does it do?", "city Who? was, and it do?"),
        ("Who is who", "Who is who"),
    ):
        assert drive(ircot(question, IrcotOptions()), [FOUND, "", "Answer: Ada"]).queries == [(query,)]
