"""Lists of sub-questions as models write them; that RA-ISF, least-to-most and Self-Ask read them is tested with these."""

from __future__ import annotations

import pytest

from wikidx.runtimes.methods.sub_questions import parse_sub_questions


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("1. Who is A [1]?\n2. Who is B [2]?", [(1, "Who is A [1]?"), (2, "Who is B [2]?")]),
        ('[{"question": "Who is A?"}, {"question": "Who is B?"}]', [(1, "Who is A?"), (2, "Who is B?")]),
        ("1. Who is A?\n2. who is A\n3. Who is B?", [(1, "Who is A?"), (3, "Who is B?")]),
        ("* Who is A?\n1. Who is B?", [(1, "Who is B?")]),
        ("nothing to ask", []),
    ],
)
def test_lists_in_many_forms(text: str, read: list[tuple[int, str]]) -> None:
    assert parse_sub_questions(text) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("1. Who is A?\n2. Who is the moth", ["Who is A?"]),
        ('["Who is A?", "Who is the moth', ["Who is A?"]),
        ("1. Who is A?\n2. 誰？", ["Who is A?", "誰？"]),
        ("1. Who is the moth", []),
    ],
)
def test_a_last_one_that_was_cut_off_is_left_out(text: str, read: list[str]) -> None:
    assert [one.text for one in parse_sub_questions(text, is_cut=True)] == read


def test_a_line_without_end_and_without_a_question_takes_one_pass() -> None:
    assert parse_sub_questions("a " * 500_000) == []
    assert [one.text for one in parse_sub_questions('so "' + "a " * 500_000 + '" then who? Why？ Because')] == ["then who?", "Why？"]
