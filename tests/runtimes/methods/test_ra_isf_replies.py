"""Verdicts on all passages at once, in the words of models: accepted and denied passages in either order, elliptic denials, exceptions."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wikidx.runtimes.methods.ra_isf.replies import parse_relevant_numbers

ALL = {1, 2, 3, 4, 5}


def read(reply: str) -> tuple[set[int], bool]:
    numbers, is_readable = parse_relevant_numbers(reply, 5)
    return set(numbers), is_readable


@pytest.mark.parametrize(
    ("reply", "relevant"),
    [
        ("Passages 1 and 3 are relevant, passages 2 and 4 are not.", {1, 3}),
        ("2 and 4 are not relevant, but 1 and 3 are.", {1, 3}),
        ("1 and 3 are, 2 is not", {1, 3}),
        ("Passage 1 doesn't help, passage 2 does.", {2}),
        ("[1], [3] are relevant. [2] and [4] are also not", {1, 3}),
        ("[1] and [3] are relevant, but not passage [2]", {1, 3}),
        ("Neither 1 nor 2 is relevant; 3 is.", {3}),
        ("Not relevant: 2, 5. Relevant: 1 and 3.", {1, 3}),
        ("The irrelevant passages are 2 and 5; 1 is relevant", {1}),
        ("[1] yes\n[2] no\n[3] yes", {1, 3}),
        ("1. yes\n2. no", {1}),
        ("1: relevant\n2: not relevant", {1}),
        ("1. Passage 3 is relevant.", {3}),
        ("not relevant: 2, 5", set()),
        ("only 1", {1}),
        ("Only 1 passage is relevant: [3]", {3}),
        ("none", set()),
        ("None of them but 2", {2}),
        ("No passage except 2 is relevant", {2}),
        ("all but 3", {1, 2, 4, 5}),
        ("All passages are relevant except [2] and [4].", {1, 3, 5}),
        ("Everything except passage 4", {1, 2, 3, 5}),
        ("All of them are relevant.", ALL),
        ("All are irrelevant", set()),
        ("Not all passages are relevant: [1] and [3]", {1, 3}),
        ("[2] is not relevant, the others are", {1, 3, 4, 5}),
        ("[2] is relevant, the others are not", {2}),
        ("[1] is relevant because it does not lie", {1}),
        ("Passage 2 is about cats, not relevant. Passage 3 is relevant", {3}),
    ],
)
def test_a_verdict_names_the_relevant_passages(reply: str, relevant: set[int]) -> None:
    assert read(reply) == (relevant, True)


SUBJECTS = {"brackets": ("", "[{}]"), "nouns": ("passages ", "{}"), "bare": ("", "{}")}


def listed(numbers: set[int], kind: str, joint: str) -> str:
    noun, form = SUBJECTS[kind]
    *most, last = [form.format(number) for number in sorted(numbers)]
    return noun + (f"{', '.join(most)}{joint}{last}" if most else last)


@given(
    st.sets(st.sampled_from(sorted(ALL)), min_size=1, max_size=4),
    st.sampled_from(sorted(SUBJECTS)),
    st.sampled_from([" and ", ", and "]),
    st.sampled_from(
        [
            ("{} are relevant", "{} are not"),
            ("{} are relevant", "{} are not relevant"),
            ("{} are relevant", "{} are irrelevant"),
            ("{} are relevant", "{} aren't"),
            ("{} are", "{} are not relevant"),
            ("relevant: {}", "not relevant: {}"),
            ("relevant: {}", "irrelevant: {}"),
        ]
    ),
    st.sampled_from(["; ", ".\n", "\n", ". "]),
)
def test_made_up_verdicts_are_read_in_both_orders(relevant: set[int], kind: str, joint: str, sides: tuple[str, str], between: str) -> None:
    accepts, denies = sides[0].format(listed(relevant, kind, joint)), sides[1].format(listed(ALL - relevant, kind, joint))
    commas = (", ", ", but ", ", while ") if ":" not in accepts else ()
    for order, separator in itertools.product(((accepts, denies), (denies, accepts)), (between, *commas)):
        reply = separator.join(order).capitalize() + "."
        assert read(reply) == (relevant, True), reply


@given(st.sets(st.sampled_from(sorted(ALL)), min_size=1, max_size=4), st.sampled_from(sorted(SUBJECTS)))
def test_made_up_exceptions_are_read(named: set[int], kind: str) -> None:
    numbers = listed(named, kind, " and ")
    for reply in (f"All but {numbers}", f"all except {numbers}.", f"All passages are relevant except {numbers}"):
        assert read(reply) == (ALL - named, True), reply
    for reply in (f"Only {numbers}", f"Only {numbers} are relevant.", f"Yes: {numbers}", f"None but {numbers}"):
        assert read(reply) == (named, True), reply
