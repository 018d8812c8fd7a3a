"""RA-ISF: verdicts in the words of models, and the depth limit of Algorithm 1. What is asked, in order, stands in ``transcripts/``."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtimes.methods.driving import Driven, drive, passages
from wikidx.runtimes.llms.base import Generate
from wikidx.runtimes.llms.prompts import Message
from wikidx.runtimes.methods.ra_isf import RaIsfOptions, ra_isf
from wikidx.runtimes.methods.ra_isf.replies import parse_relevant_numbers, parse_verdict
from wikidx.runtimes.methods.requests import Request, Retrieve

FIVE = passages("one", "two", "three", "four", "five")
ALL = {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("  **YES**\n", (True, True)),
        ("know", (True, True)),
        ("Ｙｅｓ", (True, True)),
        ("Yes, I know that; no need to search.", (True, True)),
        ("The answer is: yes", (True, True)),
        ("no.", (False, True)),
        ("unknow", (False, True)),
        ("No, I would say yes only after a search", (False, True)),
        ("yes\nno\n" * 500, (True, True)),
        ("relevance", (True, True)),
        ("irrelevance", (False, True)),
        ("The passage is relevant.", (True, True)),
        ("It is not relevant", (False, True)),
        ("The passage isn't really relevant.", (False, True)),
        ("Irrelevant, although Ada is relevant elsewhere", (False, True)),
        ("I don't know", (False, False)),
        ("Nothing", (False, False)),
        ("It names Ada.", (False, False)),
        ("да", (False, False)),
        ("", (False, False)),
    ],
)
def test_a_verdict_is_its_decisive_word(reply: str, verdict: tuple[bool, bool]) -> None:
    assert parse_verdict(reply)[:2] == verdict


def read(reply: str) -> tuple[set[int], bool]:
    numbers, is_readable = parse_relevant_numbers(reply, 5)
    return set(numbers), is_readable


@pytest.mark.parametrize(
    ("reply", "relevant"),
    [
        ("2, 4", {2, 4}),
        ("[1, 3]", {1, 3}),
        ("[4], [2] and [4].", {2, 4}),
        ('{"relevant": [3]}', {3}),
        ("Relevant paragraphs: [2] Żuławski is the director, born in 1971.", {2}),
        ("Passages 1 and 5 name the director.", {1, 5}),
        ("[1] is relevant, [2] is not relevant; [4] is relevant. Irrelevant: [3].", {1, 4}),
        ("Relevant: [1]. Paragraph [2] is not at all relevant.", {1}),
        ("No, [2] is about his brother.", set()),
        ("[1] and [2] are not relevant.", set()),
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
        ("Only 1 passage is relevant: [3]", {3}),
        ("none", set()),
        ("None of them but 2", {2}),
        ("No passage except 2 is relevant", {2}),
        ("all but 3", {1, 2, 4, 5}),
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


@pytest.mark.parametrize("reply", ["[7]", "[0]", "", "1971 1971 1971"])
def test_a_reply_without_a_number_of_a_passage_is_no_verdict(reply: str) -> None:
    assert read(reply) == (set(), False)


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


# The depth limit of Algorithm 1, and of the paper's text


def solve(decomposition: str, **values: Any) -> Driven:  # noqa: ANN401 - the options' values
    """Run RA-ISF where nothing is known, found or relevant; {} in a decomposition stands for the question."""

    def reply(request: Request) -> Any:  # noqa: ANN401 - a canned result
        if isinstance(request, Retrieve):
            return FIVE if "{}{}" in decomposition else []
        assert isinstance(request, Generate)
        turn = request.prompt[-1]
        assert isinstance(turn, Message)
        question = re.findall(r"Question: (.*)", turn.content)[-1]
        return {"decompose": decomposition.replace("{}", question.rstrip("?")), "answer": "unknown"}.get(request.role, "no")

    return drive(ra_isf("q?", RaIsfOptions(**values)), reply)


def depths(node: dict[str, Any]) -> list[tuple[int, str]]:
    return [(node["depth"], node["answered_from"]), *(pair for child in node["sub_questions"] for pair in depths(child))]


@pytest.mark.parametrize(
    ("depth_test", "n_tried", "n_decomposed", "deepest"),
    [("exceeded", 4, 4, 4), ("reached", 3, 3, 3), ("leaf", 4, 3, 3)],
)
def test_the_depth_limit_of_the_algorithm_and_of_the_text(depth_test: str, n_tried: int, n_decomposed: int, deepest: int) -> None:
    driven = solve("1. Deeper {}?", depth_test=depth_test)
    asked = [kind for level in driven.outline for kind in level]
    expected = {"know": n_tried, "retrieve": n_tried, "decompose": n_decomposed, "answer": n_decomposed}
    assert {kind: asked.count(kind) for kind in asked} == expected
    assert depths(driven.answer.detail["tree"]) == [*((depth, "synthesis") for depth in range(n_decomposed)), (deepest, "depth_limit")]
    assert f"1. {'Deeper ' * deepest}q?\nAnswer: unknown" in driven.prompts("answer")[0]


def test_the_stated_cost_of_a_question_that_is_never_answered() -> None:
    driven = solve("\n".join(f"{number}. {{}}{{}}{number}?" for number in range(1, 6)))
    searches = sum(isinstance(request, Retrieve) for request in driven.requests)
    assert (len(driven.requests) - searches, searches) == (1248, 156)
