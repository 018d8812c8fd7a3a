"""Lists of sub-questions as models write them, for RA-ISF, least-to-most and Self-Ask."""

from __future__ import annotations

import pytest

from wikidx.runtimes.methods.sub_questions import parse_sub_questions


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("1. Who is A [1]?\n2. Who is B [2]?", [(1, "Who is A [1]?"), (2, "Who is B [2]?")]),
        ('[{"question": "Who is A?"}, {"question": "Who is B?"}]', [(1, "Who is A?"), (2, "Who is B?")]),
        ("1. Who is A?\n2. who is  A\n3. Who is B?", [(1, "Who is A?"), (3, "Who is B?")]),
        ("* Who is A?\n1. Who is B?", [(1, "Who is B?")]),
    ],
)
def test_sub_questions_have_the_numbers_of_their_list(text: str, read: list[tuple[int, str]]) -> None:
    assert parse_sub_questions(text) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Sub-questions:\n\n1) Who is A?\n\n2) Who is B?\n\nThese help.", ["Who is A?", "Who is B?"]),
        ("1. Who won in 1986? 2. Who is B?", ["Who won in 1986?", "Who is B?"]),
        ('{"query": ["Who is A?", 3, null, "Who is B?"]}', ["Who is A?", "Who is B?"]),
        ('```json\n["Who is A?", "Who is B?"]\n```', ["Who is A?", "Who is B?"]),
        ("- Who is A?\n* **Who is B?**", ["Who is A?", "Who is B?"]),
        ("We ask: Who is A? And then: Who is B? Done.", ["We ask: Who is A?", "And then: Who is B?"]),
        ('{"query": ["Who is A?", "Who is B?", "Who', ["Who is A?", "Who is B?"]),
        ("1.\n2. Who is A?\n3.   \n4. ???\n5. Who is B?", ["Who is A?", "Who is B?"]),
        ("1. Kto jest matką reżysera?\n2. 映画の監督は誰ですか？", ["Kto jest matką reżysera?", "映画の監督は誰ですか？"]),
        ("1. कि\n2. का", ["कि", "का"]),
        ("1. name of A\n2. name of B", ["name of A", "name of B"]),
        ('{"n": 1, "query": ["Who is A\\ud83d?"]}', ["Who is A\ufffd?"]),
        ("[" * 3000 + "\n1. Who is A?", ["Who is A?"]),
        ("[" + "9" * 5000 + "]\n1. Who is A?", ["Who is A?"]),
        *((text, []) for text in ("", "???", "I cannot do that.", "{}", "[[1, 2]]", "1.\n2.\n3.")),
    ],
)
def test_lists_in_many_forms(text: str, read: list[str]) -> None:
    assert [one.text for one in parse_sub_questions(text)] == read


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
