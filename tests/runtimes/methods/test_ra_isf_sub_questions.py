"""RA-ISF, request by request: sub-questions and the depth limit, against Algorithm 1 of the paper and its text."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.runtimes.methods.driving import Driven, passages
from tests.runtimes.methods.ra_isf_driving import FIVE, NOT_RELEVANT, asked, by_role, run, tree
from wikidx.runtimes.llms.base import Gen
from wikidx.runtimes.methods.requests import Retrieve
from wikidx.runtimes.methods.templates import load_template

# Decomposition


def test_sub_questions_are_solved_side_by_side_and_put_together() -> None:
    second = passages("six", "seven")
    driven = run(
        "Did he refuse?",
        [
            *NOT_RELEVANT,
            "1. Which gang is his?\n2. Which gang is its rival?",
            "yes",
            "no",
            "Crips",  # the known one answers while the other searches
            second,
            "no",
            "yes",
            "Bloods",
            "no",
        ],
    )
    assert driven.outline == [
        ["know"],
        ["retrieve"],
        ["relevance"] * 5,
        ["decompose"],
        ["know", "know"],
        ["answer", "retrieve"],
        ["relevance"] * 2,
        ["answer"],
        ["answer"],
    ]
    assert driven.queries == [("Did he refuse?",), ("Which gang is its rival?",)]
    assert [request.path for request in driven.levels[4]] == [("sub-question 1",), ("sub-question 2",)]
    final = driven.prompts("answer")[-1]
    assert "1. Which gang is his?\nAnswer: Crips\n2. Which gang is its rival?\nAnswer: Bloods" in final
    assert "Question: Did he refuse?" in final
    assert driven.answer.text == "no"
    assert driven.answer.passages == (second[1],)
    root = tree(driven)
    assert (root["answered_from"], root["depth"], len(root["verdicts"])) == ("synthesis", 0, 5)
    assert [(node["question"], node["depth"], node["answered_from"], node["answer"]) for node in root["sub_questions"]] == [
        ("Which gang is his?", 1, "self_knowledge", "Crips"),
        ("Which gang is its rival?", 1, "passages", "Bloods"),
    ]


def test_a_sub_question_sees_neither_its_parent_nor_its_siblings() -> None:
    driven = run("ROOT?", [*NOT_RELEVANT, "1. LEFT?\n2. RIGHT?", "yes", "yes", "a", "b", "c"])
    left, right = driven.prompts("know")[1:]
    assert "LEFT?" in left
    assert "RIGHT?" in right
    assert "ROOT?" not in left + right
    assert "RIGHT?" not in left


def test_an_empty_retrieval_decomposes() -> None:
    driven = run("Who?", ["No", [], "1. When?", "yes", "1986", "Ada"])
    assert driven.outline == [["know"], ["retrieve"], ["decompose"], ["know"], ["answer"], ["answer"]]
    assert tree(driven)["verdicts"] == []


LISTS = [
    ("1. Who is A?\n2. Who is B?", ["Who is A?", "Who is B?"]),
    ("Sub-questions:\n\n1) Who is A?\n\n2) Who is B?\n\nThese help.", ["Who is A?", "Who is B?"]),
    ("1. Who won in 1986? 2. Who is B?", ["Who won in 1986?", "Who is B?"]),
    ('{"query": ["Who is A?", "Who is B?"]}', ["Who is A?", "Who is B?"]),
    ('```json\n["Who is A?", "Who is B?"]\n```', ["Who is A?", "Who is B?"]),
    ("- Who is A?\n* **Who is B?**", ["Who is A?", "Who is B?"]),
    ("We ask: Who is A? And then: Who is B? Done.", ["We ask: Who is A?", "And then: Who is B?"]),
    ('{"query": ["Who is A?", "Who is B?", "Who', ["Who is A?", "Who is B?"]),
    ("1.\n2. Who is A?\n3.   \n4. ???\n5. Who is B?", ["Who is A?", "Who is B?"]),
    ("1. Who is A?\n2. who is  A\n3. Who is B?", ["Who is A?", "Who is B?"]),
    ("1. Kto jest matką reżysera?\n2. 映画の監督は誰ですか？", ["Kto jest matką reżysera?", "映画の監督は誰ですか？"]),
    ("1. name of A\n2. name of B", ["name of A", "name of B"]),
    ('{"query": ["Who is A?", 3, null, "Who is B?"]}', ["Who is A?", "Who is B?"]),
    ('{"n": 1, "query": ["Who is A\\ud83d?"]}', ["Who is A\ufffd?"]),
    ("[" * 3000 + "\n1. Who is A?", ["Who is A?"]),
    ("[" + "9" * 5000 + "]\n1. Who is A?", ["Who is A?"]),
]


@pytest.mark.parametrize(("text", "questions"), LISTS)
def test_lists_in_many_forms_are_read(text: str, questions: list[str]) -> None:
    driven = run("Who?", ["no", [], text, *["yes" for _ in questions], *["a" for _ in questions], "Ada"])
    assert [node["question"] for node in tree(driven)["sub_questions"]] == questions
    assert driven.answer.detail["parse_ok"] is True


@pytest.mark.parametrize("text", ["", "  \n", "???", "I cannot do that.", "{}", "[[1, 2]]", "1.\n2.\n3."])
def test_without_sub_questions_the_question_stands_alone(text: str) -> None:
    driven = run("Who?", ["no", [], text, "Ada"])
    assert driven.outline == [["know"], ["retrieve"], ["decompose"], ["answer"]]
    assert "Simpler questions and their answers:" not in driven.prompts("answer")[0]
    assert (tree(driven)["answered_from"], tree(driven)["sub_questions"]) == ("synthesis", [])
    assert driven.answer.text == "Ada"
    assert driven.answer.detail["parse_ok"] is False


def test_an_endless_list_is_cut() -> None:
    text = "\n".join(f"{number}. Who is number {number}?" for number in range(1, 500))
    driven = run("Who?", by_role(know=lambda turn: "no" if "Who?" in turn else "yes", decompose=text, answer="x"), max_sub_questions=3)
    assert [node["question"] for node in tree(driven)["sub_questions"]] == [f"Who is number {number}?" for number in (1, 2, 3)]
    assert len(tree(run("Who?", by_role(know=lambda t: "no" if "Who?" in t else "yes", decompose=text, answer="x")))["sub_questions"]) == 5


def test_a_last_sub_question_that_was_cut_off_is_left_out() -> None:
    cut = Gen(text="1. Who is A?\n2. Who is the moth", finish="length")
    driven = run("Who?", ["no", [], cut, "yes", "a", "Ada"])
    assert [node["question"] for node in tree(driven)["sub_questions"]] == ["Who is A?"]
    whole = Gen(text="1. Who is A?\n2. Who is B?", finish="length")
    driven = run("Who?", ["no", [], whole, "yes", "yes", "a", "b", "Ada"])
    assert len(tree(driven)["sub_questions"]) == 2


# The depth limit


def endless(depth_test: str, **values: Any) -> Driven:  # noqa: ANN401 - the options' values
    """Nothing is ever known or found, and every question has one sub-question."""
    replies = by_role(know="no", decompose=lambda turn: "1. Deeper " + re.findall(r"Question: (.*)", turn)[-1], answer="x")
    return run("q?", replies, depth_test=depth_test, **values)


def depths(node: dict[str, Any]) -> list[tuple[int, str]]:
    return [(node["depth"], node["answered_from"]), *(pair for child in node["sub_questions"] for pair in depths(child))]


@pytest.mark.parametrize(
    ("depth_test", "tried", "decomposed", "deepest"),
    [("exceeded", 4, 4, 4), ("reached", 3, 3, 3), ("leaf", 4, 3, 3)],
)
def test_the_depth_limit_of_the_algorithm_and_of_the_text(depth_test: str, tried: int, decomposed: int, deepest: int) -> None:
    driven = endless(depth_test)
    assert (len(asked(driven, "know")), len(driven.queries), len(asked(driven, "decompose"))) == (tried, tried, decomposed)
    assert depths(tree(driven)) == [*((depth, "synthesis") for depth in range(decomposed)), (deepest, "depth_limit")]
    deepest_synthesis = driven.prompts("answer")[0]
    assert f"1. {'Deeper ' * deepest}q?\nAnswer: unknown" in deepest_synthesis
    assert len(driven.prompts("answer")) == decomposed


@pytest.mark.parametrize(
    ("depth_test", "outline"),
    [
        ("exceeded", [["know"], ["retrieve"], ["decompose"], ["answer"]]),
        ("reached", []),
        ("leaf", [["know"], ["retrieve"]]),
    ],
)
def test_a_limit_of_zero(depth_test: str, outline: list[list[str]]) -> None:
    driven = endless(depth_test, max_depth=0)
    assert driven.outline == outline
    assert driven.answer.text == ("x" if outline and "answer" in outline[-1] else "unknown")


def test_the_limit_holds_for_every_branch_by_itself() -> None:
    def decompose(turn: str) -> str:
        return "1. left?\n2. right?"

    driven = run("q?", by_role(know="no", decompose=decompose, answer="x"), max_depth=1)
    assert depths(tree(driven)) == [
        (0, "synthesis"),
        *[(1, "synthesis"), (2, "depth_limit"), (2, "depth_limit")] * 2,
    ]
    assert driven.outline == [
        ["know"],
        ["retrieve"],
        ["decompose"],
        ["know"] * 2,
        ["retrieve"] * 2,
        ["decompose"] * 2,
        ["answer"] * 2,
        ["answer"],
    ]


# A decomposition that repeats its question


def test_a_repeated_question_is_solved_to_the_limit_as_the_algorithm_has_it() -> None:
    driven = run("q?", by_role(know="no", decompose="1. Q", answer="x"), max_depth=2)
    assert depths(tree(driven)) == [(0, "synthesis"), (1, "synthesis"), (2, "synthesis"), (3, "depth_limit")]


# When no sub-question is answered


UNANSWERED = ["no", FIVE[:1], "no", "1. a?\n2. b?"]


def test_all_unknown_sub_answers_are_put_together_as_the_paper_has_it() -> None:
    driven = run("q?", [*UNANSWERED, "x"], max_depth=0)
    assert "1. a?\nAnswer: unknown\n2. b?\nAnswer: unknown" in driven.prompts("answer")[0]
    assert driven.answer.text == "x"


def test_all_unknown_sub_answers_may_make_the_answer_unknown() -> None:
    driven = run("q?", UNANSWERED, max_depth=0, if_none_answered="unknown")
    assert driven.outline == [["know"], ["retrieve"], ["relevance"], ["decompose"]]
    assert (driven.answer.text, tree(driven)["answered_from"]) == ("unknown", "none_answered")


def test_all_unknown_sub_answers_may_fall_back_to_what_the_model_knows() -> None:
    driven = run("q?", [*UNANSWERED, "x"], max_depth=0, if_none_answered="closed_book")
    assert driven.outline[-1] == ["answer"]
    assert "unknown" not in driven.prompts("answer")[0]
    assert "T1" not in driven.prompts("answer")[0]
    assert (driven.answer.text, driven.answer.passages, tree(driven)["answered_from"]) == ("x", (), "fallback_closed_book")


def test_all_unknown_sub_answers_may_fall_back_to_the_passages() -> None:
    driven = run("q?", [*UNANSWERED, "x"], max_depth=0, if_none_answered="passages")
    assert "[1] T1\none" in driven.prompts("answer")[0]
    assert (driven.answer.text, driven.answer.passages, tree(driven)["answered_from"]) == ("x", (FIVE[0],), "fallback_passages")


def test_a_fall_back_to_passages_without_any_is_closed_book() -> None:
    driven = run("q?", ["no", [], "", "x"], if_none_answered="passages")
    assert tree(driven)["answered_from"] == "fallback_closed_book"
    assert driven.prompts("answer") == run("q?", ["yes", "x"]).prompts("answer")


@pytest.mark.parametrize("nothing", ["Unknown.", "UNKNOWN", "", " \n"])
def test_a_sub_answer_that_says_unknown_counts_as_none(nothing: str) -> None:
    driven = run("q?", ["no", [], "1. a?\n2. b?", "yes", "yes", nothing, nothing], if_none_answered="unknown")
    assert (driven.answer.text, tree(driven)["answered_from"]) == ("unknown", "none_answered")


def test_one_answer_is_enough_to_put_together() -> None:
    driven = run("q?", ["no", [], "1. a?\n2. b?", "yes", "yes", "", "known", "x"], if_none_answered="unknown")
    assert "1. a?\nAnswer: unknown\n2. b?\nAnswer: known" in driven.prompts("answer")[-1]
    assert driven.answer.text == "x"


@pytest.mark.parametrize("sub_answer", ["🎬", "%", "not unknown", "未知"])
def test_an_answer_needs_no_letters(sub_answer: str) -> None:
    driven = run("q?", ["no", [], "1. a?", "yes", sub_answer, "x"], if_none_answered="unknown")
    assert f"1. a?\nAnswer: {sub_answer}" in driven.prompts("answer")[-1]


def test_sub_questions_that_differ_in_marks_alone_are_two() -> None:
    driven = run("q?", ["no", [], "1. कि\n2. का", "yes", "yes", "a", "b", "x"])
    assert [node["question"] for node in tree(driven)["sub_questions"]] == ["कि", "का"]


# Sub-questions that refer to earlier ones


def test_sub_questions_may_refer_to_earlier_answers() -> None:
    driven = run(
        "q?",
        [
            "no",
            [],
            "1. Who directed it?\n2. Who is the mother of #1?\n3. When was #2 born, and #7?",
            "yes",
            "Xawery",
            "yes",
            "Małgorzata",
            "yes",
            "1947",
            "x",
        ],
        refer_back=True,
    )
    assert driven.outline == [["know"], ["retrieve"], ["decompose"], *[["know"], ["answer"]] * 3, ["answer"]]
    assert [node["question"] for node in tree(driven)["sub_questions"]] == [
        "Who directed it?",
        "Who is the mother of Xawery?",
        "When was Małgorzata born, and #7?",
    ]
    assert "#1" in driven.prompts("decompose")[0]
    assert "#1" not in run("q?", ["no", [], "1. a?", "yes", "b", "x"]).prompts("decompose")[0]


def test_references_count_as_the_list_does_and_unknown_answers_stay_references() -> None:
    driven = run(
        "q?",
        ["no", [], "1. a?\n2. a\n3. b?\n4. c of #3 and #1?", "yes", "unknown", "yes", "B", "yes", "C", "x"],
        refer_back=True,
    )
    assert [node["question"] for node in tree(driven)["sub_questions"]] == ["a?", "b?", "c of B and #1?"]


def test_an_answer_comes_from_sub_answers_alone_unless_recall_is_asked_for() -> None:
    """Equation 4 has no fallback to the model's own knowledge, which M_know has just denied."""
    canned = [*NOT_RELEVANT, "1. a?", "yes", "b", "Ada"]
    (_, strict), (_, recalled) = (run("Who?", canned, synthesis=kind).prompts("answer") for kind in ("answers", "recall"))
    assert "what you know" not in strict
    assert "where they leave something open, use what you know" in recalled
    assert all("unknown" not in shot["pairs"] for shot in load_template("ra_isf", "synthesise").shots)


def test_the_number_of_sub_questions_may_be_unlimited() -> None:
    eight = "\n".join(f"{number}. {'abcdefgh'[number - 1]}?" for number in range(1, 9))
    for limit, n_asked in ((5, 5), (0, 8)):
        driven = run("Who?", [*NOT_RELEVANT, eight, *["yes"] * n_asked, *["b"] * n_asked, "Ada"], max_sub_questions=limit)
        assert len(tree(driven)["sub_questions"]) == n_asked


def test_the_stated_cost_of_a_question_that_is_never_answered() -> None:
    five = "\n".join(f"{number}. {{}}{number}?" for number in range(1, 6))
    replies = by_role(know="no", relevance="no", decompose=lambda turn: five.replace("{}", turn[10:40].split("?")[0]), answer="unknown")
    driven = run("q?", lambda request: FIVE if isinstance(request, Retrieve) else replies(request))
    searches = sum(isinstance(request, Retrieve) for request in driven.requests)
    assert (len(driven.requests) - searches, searches) == (1248, 156)
