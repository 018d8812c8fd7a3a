"""RA-ISF, request by request: memory, passages, ablations and verdicts, against Algorithm 1 and sections 4.3 and 5.2 of the paper."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtimes.methods.ra_isf_driving import FIVE, MISSING, NOT_RELEVANT, asked, run, tree
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Choice, Generate, Message
from wikidx.runtimes.methods.requests import Retrieve

# Self-knowledge


def test_what_the_model_knows_is_answered_without_retrieval() -> None:
    driven = run("When was it passed?", ["Yes.", " November 6, 1986\n"])
    assert driven.outline == [["know"], ["answer"]]
    assert driven.answer.text == "November 6, 1986"
    assert driven.answer.passages == ()
    assert tree(driven) == {
        "question": "When was it passed?",
        "depth": 0,
        "answered_from": "self_knowledge",
        "answer": "November 6, 1986",
        "known": True,
        "verdicts": [],
        "sub_questions": [],
        "parse_ok": True,
    }
    assert driven.answer.detail["parse_ok"] is True


def test_every_generation_is_greedy() -> None:
    driven = run("Who?", [*NOT_RELEVANT, "1. When?", "yes", "1986", "Ada"])
    calls = [call for call in driven.requests if isinstance(call, Generate)]
    assert {(call.decoding.temperature, call.n) for call in calls} == {(0, 1)}


# Relevant passages


def test_what_it_does_not_know_is_answered_from_the_relevant_passages_alone() -> None:
    driven = run("Who?", ["No", FIVE, "no", "Yes", "no", "yes.", "no", "Ada"])
    assert driven.outline == [["know"], ["retrieve"], ["relevance"] * 5, ["answer"]]
    assert driven.queries == [("Who?",)]
    assert [request.k for request in driven.requests if isinstance(request, Retrieve)] == [5]
    (prompt,) = driven.prompts("answer")
    assert "[1] T2\ntwo\n\n[2] T4\nfour" in prompt
    assert all(text not in prompt for text in ("one\n", "three", "five"))
    assert driven.answer.text == "Ada"
    assert driven.answer.passages == (FIVE[1], FIVE[3])
    assert tree(driven)["answered_from"] == "passages"
    assert tree(driven)["known"] is False
    assert tree(driven)["verdicts"] == [
        {"id": str(number), "relevant": number in (2, 4), "score": None, "parse_ok": True} for number in range(1, 6)
    ]


def test_line_18_of_the_algorithm_reads_all_passages() -> None:
    driven = run("Who?", ["No", FIVE, "no", "Yes", "no", "no", "no", "Ada"], answer_from="all")
    assert "[1] T1\none\n\n[2] T2\ntwo\n\n[3] T3\nthree" in driven.prompts("answer")[0]
    assert driven.answer.passages == tuple(FIVE)


def test_relevance_prompts_differ_only_from_the_passage_on() -> None:
    driven = run("Who wrote it?", ["No", FIVE, "no", "Yes", "no", "no", "no", "Ada"], shots=2)
    first, *others = driven.prompts("relevance")
    shared = first[: first.index("T1\none")]
    assert "Who wrote it?" in shared
    assert [prompt[: len(shared)] for prompt in others] == [shared] * 4


def test_the_answering_passages_and_the_judged_ones_may_be_cut_to_fit() -> None:
    driven = run("Who?", ["No", FIVE[:2], "yes", "Yes", "Ada"])
    for call in [*asked(driven, "relevance"), *asked(driven, "answer")]:
        turn = call.prompt[-1]
        assert isinstance(turn, Message)
        shown = [turn.content[start:end] for start, end in turn.passages]
        assert shown in (["T1\none"], ["T2\ntwo"], ["[1] T1\none", "\n\n[2] T2\ntwo"])


# The joint form of relevance (appendix E)


@pytest.mark.parametrize(
    ("reply", "relevant"),
    [
        ("[2]", [2]),
        ("2, 4", [2, 4]),
        ("[4], [2] and [4].", [2, 4]),
        ("[1, 3]", [1, 3]),
        ("Relevant paragraphs: [2] Żuławski is the director, born in 1971.", [2]),
        ("Passages 1 and 5 name the director.", [1, 5]),
        ('{"relevant": [3]}', [3]),
        ("Relevant paragraphs: [1], [3], [4]\nNot relevant: [2], [5]", [1, 3, 4]),
        ("[1] is relevant, [2] is not relevant; [4] is relevant. Irrelevant: [3].", [1, 4]),
        ("Relevant: [1]. Paragraph [2] is not at all relevant.", [1]),
    ],
)
def test_the_joint_form_asks_once_for_the_numbers_of_the_relevant(reply: str, relevant: list[int]) -> None:
    driven = run("Who?", ["No", FIVE, reply, "Ada"], relevance="joint")
    assert driven.outline == [["know"], ["retrieve"], ["relevance"], ["answer"]]
    assert "[1] T1\none\n\n[2] T2\ntwo" in driven.prompts("relevance")[0]
    assert [int(passage.id) for passage in driven.answer.passages] == relevant
    assert [verdict["relevant"] for verdict in tree(driven)["verdicts"]] == [number in relevant for number in range(1, 6)]
    assert tree(driven)["parse_ok"] is True


@pytest.mark.parametrize(
    ("reply", "parse_ok"),
    [
        ("No.", True),
        ("None", True),
        ("No, [2] is about his brother.", True),
        ("[1] and [2] are not relevant.", True),
        ("[7]", False),
        ("[0]", False),
        ("", False),
        ("1971 1971 1971", False),
    ],
)
def test_the_joint_form_decomposes_where_no_number_is_named(reply: str, parse_ok: bool) -> None:
    driven = run("Who?", ["No", FIVE, reply, "1. When?", "yes", "1986", "Ada"], relevance="joint")
    assert driven.outline == [["know"], ["retrieve"], ["relevance"], ["decompose"], ["know"], ["answer"], ["answer"]]
    assert tree(driven)["parse_ok"] is parse_ok
    assert driven.answer.detail["parse_ok"] is parse_ok


def test_the_joint_form_is_not_asked_about_nothing() -> None:
    driven = run("Who?", ["No", [], "1. When?", "yes", "1986", "Ada"], relevance="joint")
    assert driven.outline == [["know"], ["retrieve"], ["decompose"], ["know"], ["answer"], ["answer"]]


# Ablations (section 5.2)


def test_no_skm_always_retrieves() -> None:
    driven = run("Who?", [FIVE, "no", "Yes", "no", "no", "no", "Ada"], know=False)
    assert driven.outline == [["retrieve"], ["relevance"] * 5, ["answer"]]
    assert tree(driven)["known"] is None


def test_no_skm_decomposes_too() -> None:
    driven = run("q?", [[], "1. a?", FIVE[:1], "yes", "b", "x"], know=False)
    assert driven.outline == [["retrieve"], ["decompose"], ["retrieve"], ["relevance"], ["answer"], ["answer"]]


def test_no_prm_decomposes_what_is_not_known_and_never_retrieves() -> None:
    driven = run("q?", ["no", "1. a?\n2. b?", "yes", "no", "A", "1. c?", "yes", "C", "B", "x"], relevance="off")
    assert driven.outline == [
        ["know"],
        ["decompose"],
        ["know", "know"],
        ["answer", "decompose"],
        ["know"],
        ["answer"],
        ["answer"],
        ["answer"],
    ]
    assert driven.answer.text == "x"
    assert driven.answer.passages == ()


def test_no_qdm_is_unknown_where_nothing_is_relevant() -> None:
    driven = run("Who?", NOT_RELEVANT, decompose=False)
    assert driven.outline == [["know"], ["retrieve"], ["relevance"] * 5]
    assert (driven.answer.text, tree(driven)["answered_from"]) == ("unknown", "no_decomposition")
    assert driven.answer.passages == ()


def test_no_qdm_answers_what_it_knows_or_finds() -> None:
    assert run("Who?", ["yes", "Ada"], decompose=False).answer.text == "Ada"
    assert run("Who?", ["no", FIVE[:1], "yes", "Ada"], decompose=False).answer.text == "Ada"


# Verdicts


@pytest.mark.parametrize(
    ("reply", "known", "parse_ok"),
    [
        ("yes", True, True),
        ("Yes.", True, True),
        ("  **YES**\n", True, True),
        ("know", True, True),
        ("Ｙｅｓ", True, True),
        ("Yes, I know that; no need to search.", True, True),
        ("The answer is: yes", True, True),
        ("No", False, True),
        ("no.", False, True),
        ("unknow", False, True),
        ("No, I would say yes only after a search", False, True),
        ("I don't know", False, False),
        ("Nothing", False, False),
        ("", False, False),
        ("Ada Lovelace", False, False),
        ("да", False, False),
        ("yes\nno\n" * 500, True, True),
    ],
)
def test_the_verdict_on_what_is_known(reply: str, known: bool, parse_ok: bool) -> None:
    driven = run("Who?", [reply, "Ada"] if known else [reply, []], decompose=False)
    assert tree(driven)["known"] is known
    assert driven.answer.detail["parse_ok"] is parse_ok


@pytest.mark.parametrize(
    ("reply", "relevant", "parse_ok"),
    [
        ("relevance", True, True),
        ("relevant", True, True),
        ("irrelevance", False, True),
        ("It is irrelevant.", False, True),
        ("It is not relevant", False, True),
        ("The passage isn't really relevant.", False, True),
        ("The passage is relevant.", True, True),
        ("Relevant: it names him.", True, True),
        ("Irrelevant, although Ada is relevant elsewhere", False, True),
        ("It names Ada.", False, False),
        ("", False, False),
    ],
)
def test_the_verdict_on_a_passage(reply: str, relevant: bool, parse_ok: bool) -> None:
    driven = run("Who?", ["no", FIVE[:1], reply, *(["Ada"] if relevant else [])], decompose=False)
    assert tree(driven)["verdicts"] == [{"id": "1", "relevant": relevant, "score": None, "parse_ok": parse_ok}]
    assert tree(driven)["parse_ok"] is parse_ok


def test_verdicts_by_choice_hold_the_model_to_two_words() -> None:
    driven = run("Who?", ["no", FIVE[:1], "yes", "Ada"], verdicts="choice")
    assert [call.schema for call in (*asked(driven, "know"), *asked(driven, "relevance"))] == [Choice(("yes", "no"))] * 2
    assert [call.schema for call in asked(run("Who?", ["yes", "Ada"]), "know")] == [None]


def test_verdicts_by_probability_have_a_threshold_each() -> None:
    values: dict[str, Any] = {"verdicts": "probability", "know_threshold": 0.7, "relevance_threshold": 0.4}
    driven = run("Who?", [0.6, FIVE[:3], 0.39, 0.4, MISSING, "Ada"], **values)
    assert driven.outline == [["know?"], ["retrieve"], ["relevance?"] * 3, ["answer"]]
    assert tree(driven)["known"] is False
    assert tree(driven)["verdicts"] == [
        {"id": "1", "relevant": False, "score": pytest.approx(0.39), "parse_ok": True},
        {"id": "2", "relevant": True, "score": pytest.approx(0.4), "parse_ok": True},
        {"id": "3", "relevant": False, "score": None, "parse_ok": False},
    ]
    assert run("Who?", [0.7, "Ada"], **values).outline == [["know?"], ["answer"]]


def test_a_missing_probability_of_knowing_retrieves() -> None:
    driven = run("Who?", [MISSING, []], verdicts="probability", decompose=False)
    assert driven.outline == [["know?"], ["retrieve"]]
    assert driven.answer.detail["parse_ok"] is False


def test_the_joint_form_is_generated_whatever_the_verdicts() -> None:
    driven = run("Who?", [0.1, FIVE, "[2]", "Ada"], verdicts="probability", relevance="joint")
    assert driven.outline == [["know?"], ["retrieve"], ["relevance"], ["answer"]]


# Retrieval (section 4.3)


def test_the_query_is_the_last_64_tokens_of_the_question() -> None:
    words = [f"w{number}" for number in range(100)]
    question = " ".join(words) + "?"
    driven = run(question, ["no", []], decompose=False)
    assert driven.queries == [(" ".join([*words[36:99], "w99?"]),)]
    assert question in driven.prompts("know")[0]
    assert run(question, ["no", []], decompose=False, max_query_tokens=0).queries == [(question,)]


def test_passages_that_contain_the_question_are_replaced_by_the_next() -> None:
    quiz = Passage("9", "Quiz", "17. Who wrote  DRACULA, and when? Bram Stoker.")
    titled = Passage("8", "Who wrote Dracula", "and when: an essay")
    found = [FIVE[0], quiz]
    more = [FIVE[0], quiz, titled, FIVE[1], FIVE[2]]
    driven = run("who wrote Dracula and when?", ["no", found, more, "no", "yes", "Bram"], k=2)
    assert driven.outline == [["know"], ["retrieve"], ["retrieve"], ["relevance"] * 2, ["answer"]]
    assert [request.k for request in driven.requests if isinstance(request, Retrieve)] == [2, 4]
    assert [verdict["id"] for verdict in tree(driven)["verdicts"]] == ["1", "2"]
    assert [(said.text, dict(said.data)) for said in driven.notes] == [("left out, because they contain the question", {"ids": ["9", "8"]})]


def test_nothing_is_searched_again_where_there_is_no_more_to_find() -> None:
    quiz = Passage("9", "Quiz", "Who wrote Dracula?")
    driven = run("Who wrote Dracula?", ["no", [quiz, FIVE[0]], "yes", "Bram"], k=3)
    assert driven.outline == [["know"], ["retrieve"], ["relevance"], ["answer"]]
    assert driven.answer.passages == (FIVE[0],)


def test_nothing_is_searched_again_where_no_passage_contains_the_question() -> None:
    near = Passage("9", "Dracula", "Who wrote Dracula, and when and where?")
    driven = run("when and who wrote Dracula", ["no", [near], "yes", "x"], k=1)
    assert driven.queries == [("when and who wrote Dracula",)]
    assert run("a cat?", ["no", [Passage("1", "", "a catalogue")], "yes", "x"], k=1).answer.passages[0].text == "a catalogue"


def test_the_removed_question_is_the_one_that_was_asked_not_its_sub_questions() -> None:
    quiz = Passage("9", "Quiz", "Who is A? Also: q?")
    driven = run("r?", ["no", [], "1. Who is A?", "no", [quiz], "yes", "x", "y"], k=1)
    assert tree(driven)["sub_questions"][0]["verdicts"][0]["id"] == "9"
    driven = run("q?", ["no", [], "1. Who is A?", "no", [quiz], [quiz], "1. B?", "yes", "x", "y", "z"], k=1)
    assert tree(driven)["sub_questions"][0]["verdicts"] == []


def test_the_removal_can_be_left_out() -> None:
    quiz = Passage("9", "Quiz", "Who?")
    driven = run("Who?", ["no", [quiz], "yes", "x"], remove_question=False)
    assert driven.answer.passages == (quiz,)


@pytest.mark.parametrize("question", ["?", "…"])
def test_a_question_without_words_is_contained_in_nothing(question: str) -> None:
    assert run(question, ["no", FIVE[:1], "yes", "x"]).answer.passages == (FIVE[0],)
