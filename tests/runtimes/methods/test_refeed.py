"""ReFeed, request by request, against section 3.1 of the paper and the variants of its section 4.3."""

from __future__ import annotations

import pytest

from tests.runtimes.methods.refeed_driving import FOUND, basic, calls, run, said, searches
from wikidx.runtimes.llms.base import Gen, MeanNll, Message, prompt_text

# The basic pipeline (section 3.1.1)


def test_the_basic_pipeline_answers_searches_with_the_answer_and_refines() -> None:
    driven = basic([" Ada\n", FOUND, " Grace "], ensemble=False)
    assert driven.outline == [["answer"], ["retrieve"], ["answer"]]
    (search,) = searches(driven)
    assert (search.queries, search.k) == (("Who? Ada",), 10)
    first, second = driven.prompts("answer")
    assert first.endswith("Question: Who?\nAnswer:")
    assert "[1] T1\none\n\n[2] T2\ntwo" in second
    assert second.endswith("Question: Who?\nEarlier answers:\n1. Ada\nAnswer:")
    assert [(call.decoding.temperature, call.n, call.logprobs) for call in calls(driven)] == [(0, 1, False)] * 2
    assert driven.answer.text == "Grace"
    assert driven.answer.passages == tuple(FOUND)
    assert driven.answer.detail == {
        "kept": "refined",
        "reason": "no ensemble",
        "initial": None,
        "refined": {"answer": "Grace", "text": "Grace", "nll": None, "parse_ok": True},
        "samples": [{"answer": "Ada", "text": "Ada", "nll": None, "parse_ok": True}],
        "retrieved": ["1", "2"],
        "parse_ok": True,
    }


def test_both_answers_are_scored_as_they_are_generated() -> None:
    driven = basic([said("Ada", 0.1), FOUND, said("Grace", 0.2)])
    assert driven.outline == [["answer"], ["retrieve"], ["answer"]]
    assert [call.logprobs for call in calls(driven)] == [True, True]


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ((0.1, 0.3), (0.3,), "initial"),
        ((0.3,), (0.1, 0.3), "refined"),
        ((0.25,), (0.25,), "refined"),
        ((2.0, 0.0, 0.0, 0.0), (0.6,), "initial"),  # the mean decides, not the sum
    ],
)
def test_the_ensemble_keeps_what_has_the_lower_mean_nll(before: tuple[float, ...], after: tuple[float, ...], kept: str) -> None:
    driven = basic([said("Ada", *before), FOUND, said("Grace", *after)])
    assert driven.answer.detail["kept"] == kept
    assert driven.answer.detail["reason"] == "mean NLL"
    assert driven.answer.detail["initial"]["nll"] == pytest.approx(sum(before) / len(before))
    assert driven.answer.detail["refined"]["nll"] == pytest.approx(sum(after) / len(after))
    assert (driven.answer.text, driven.answer.passages) == (("Ada", ()) if kept == "initial" else ("Grace", tuple(FOUND)))
    assert driven.answer.detail["retrieved"] == ["1", "2"]


@pytest.mark.parametrize(("first", "second"), [("Ada", said("Grace", 9.0)), (said("Ada", 0.1), "Grace"), ("Ada", "Grace")])
def test_without_log_probabilities_there_is_no_ensemble(first: Gen | str, second: Gen | str) -> None:
    driven = basic([first, FOUND, second])
    assert (driven.answer.text, driven.answer.detail["reason"]) == ("Grace", "no log-probabilities")
    assert [note.text for note in driven.notes] == ["no log-probabilities: the refined answer is kept"]


def test_a_blank_answer_never_wins() -> None:
    driven = basic([said("Ada", 3.0), FOUND, said(" \n", 0.0)])
    assert (driven.answer.text, driven.answer.detail["reason"]) == ("Ada", "the other is blank")
    driven = basic([said("", 0.0), FOUND, said("Grace", 3.0)])
    assert (driven.answer.text, driven.answer.detail["reason"]) == ("Grace", "the other is blank")
    assert driven.answer.detail["parse_ok"] is False


def test_a_blank_first_answer_searches_with_the_question_alone() -> None:
    driven = basic([" ", FOUND, "Grace"])
    assert driven.queries == [("Who?",)]
    assert driven.prompts("answer")[1].endswith("[2] T2\ntwo\n\nQuestion: Who?\nAnswer:")
    assert driven.answer.text == "Grace"


def test_two_blank_answers_are_a_blank_answer() -> None:
    driven = basic(["", FOUND, ""])
    assert (driven.answer.text, driven.answer.detail["parse_ok"]) == ("", False)


def test_an_empty_retrieval_is_refined_all_the_same() -> None:
    driven = basic([said("Ada", 0.1), [], said("Grace", 0.2)])
    assert "Documents:" not in driven.prompts("answer")[1]
    assert (driven.answer.text, driven.answer.detail["retrieved"]) == ("Ada", [])


# Diverse generation (section 3.1.2)


def test_diverse_answers_are_sampled_at_once_and_search_as_one_group() -> None:
    draws = [said("Ada", 0.5), said("Grace", 0.4), said("Ada Byron", 0.6)]
    driven = run("Who?", [draws, FOUND, said("Mary", 0.1)], samples=3)
    assert driven.outline == [["answer"], ["retrieve"], ["answer"]]
    first, second = calls(driven)
    assert (first.n, first.decoding.temperature, first.decoding.top_p, first.logprobs) == (3, 1.0, 0.95, True)
    assert (second.n, second.decoding.temperature, second.logprobs) == (1, 0, True)
    (search,) = searches(driven)
    assert search.queries == ("Who? Ada", "Who? Grace", "Who? Ada Byron")
    assert (search.k, search.merge, search.dedup) == (10, "max", "row")
    assert "Earlier answers:\n1. Ada\n2. Grace\n3. Ada Byron\nAnswer:" in prompt_text(second.prompt)
    assert driven.answer.text == "Mary"


def test_equal_and_blank_answers_count_once_and_never() -> None:
    draws = ["The Beatles", " the  beatles.", "", "Wings", " ", "Beatles"]
    driven = run("Who?", [draws, FOUND, "x"], samples=6)
    assert driven.queries == [("Who? The Beatles", "Who? Wings")]
    assert "Earlier answers:\n1. The Beatles\n2. Wings\nAnswer:" in driven.prompts("answer")[1]
    assert [drawn["answer"] for drawn in driven.answer.detail["samples"]] == ["The Beatles", "the  beatles.", "", "Wings", "", "Beatles"]


@pytest.mark.parametrize(
    ("refined", "answer"),
    [
        ("2. Grace Hopper", "Grace Hopper"),
        ("2) Grace", "Grace"),
        ("3. Mary", "3. Mary"),  # there is no third answer
        ("1. FC Köln", "1. FC Köln"),  # an earlier answer itself
        ("1.5 million", "1.5 million"),
        ("2.", "2."),
    ],
)
def test_a_number_of_the_list_is_no_part_of_the_answer(refined: str, answer: str) -> None:
    driven = run("Who?", [["1. FC Köln", "Grace"], FOUND, refined], samples=2, ensemble=False)
    assert driven.answer.text == answer


def test_answers_without_letters_are_told_apart() -> None:
    driven = run("Which sign?", [["+", "-", "+", "The"], FOUND, "+"], samples=4)
    assert driven.queries == [("Which sign? +", "Which sign? -", "Which sign? The")]


def test_only_blank_samples_are_retrieve_then_read() -> None:
    driven = run("Who?", [["", " "], FOUND, "Grace"], samples=2)
    assert driven.queries == [("Who?",)]
    assert driven.prompts("answer")[1].endswith("[2] T2\ntwo\n\nQuestion: Who?\nAnswer:")
    assert (driven.answer.text, driven.answer.detail["initial"]) == ("Grace", None)


def test_the_question_may_be_the_root_of_the_group() -> None:
    driven = run("Who?", [["a1", "b1"], FOUND, "x"], samples=2, search_question=True, merge="rrf", dedup="text", k=4)
    (search,) = searches(driven)
    assert (search.queries, search.k, search.merge, search.dedup) == (("Who?", "Who? a1", "Who? b1"), 4, "rrf", "text")


def test_a_query_is_one_line() -> None:
    assert run("Who?", [["Ada\nByron", "b1"], FOUND, "x"], samples=2).queries == [("Who? Ada Byron", "Who? b1")]


# Chain of thought (section 4.3.3)


def test_chain_of_thought_searches_with_the_answer_alone() -> None:
    first = "He was born in Turin.\nAnswer: Italy"
    second = "[1] says that Turin was then in Savoy.\nAnswer: Savoy"
    driven = basic([said(first, 0.5), FOUND, said(second, 0.1, 0.2)], output="cot")
    assert driven.outline == [["answer"], ["retrieve"], ["answer"]]
    assert driven.queries == [("Who? Italy",)]
    assert f"Earlier answers:\n1. {first}\n" in driven.prompts("answer")[1]
    assert (driven.answer.text, driven.answer.detail["kept"]) == ("Savoy", "refined")
    assert driven.answer.detail["refined"]["text"] == second
    assert driven.answer.detail["refined"]["nll"] == pytest.approx(0.15)
    assert driven.prompts("answer")[0] != basic([said(first, 0.5), FOUND, said(second, 0.1)]).prompts("answer")[0]


def test_the_answer_of_a_chain_of_thought_may_be_scored_alone() -> None:
    driven = basic(["He was.\nAnswer: Italy\n", FOUND, "Answer:  Savoy", 0.1, 0.2], output="cot", nll="answer")
    before, after = (call for call in driven.requests if isinstance(call, MeanNll))
    first, second = calls(driven)
    assert isinstance(first.prompt, tuple)
    assert isinstance(second.prompt, tuple)
    assert before.prompt == (*first.prompt, Message("assistant", "He was.\nAnswer:"))
    assert before.continuation == " Italy"
    assert after.prompt == (*second.prompt, Message("assistant", "Answer:"))
    assert after.continuation == "  Savoy"
    assert driven.answer.text == "Italy"


def test_an_answer_that_is_the_whole_text_is_scored_as_it_is() -> None:
    driven = basic(["Ada", FOUND, "Grace", 0.1, 0.2], nll="answer")
    before, after = (call for call in driven.requests if isinstance(call, MeanNll))
    assert (before.prompt, before.continuation) == (calls(driven)[0].prompt, "Ada")
    assert (after.prompt, after.continuation) == (calls(driven)[1].prompt, "Grace")


@pytest.mark.parametrize(
    ("text", "answer", "parse_ok"),
    [
        ("Because.\nAnswer: Savoy", "Savoy", True),
        ("Because.\n**Answer:** Savoy", "Savoy", True),
        ("Answer: Italy\nNo: it was Savoy.\nFinal answer: Savoy\n\n", "Savoy", True),
        ("Because of that the answer is Savoy.", "Savoy", True),
        ("So the answer is: the House of Savoy", "the House of Savoy", True),
        ("The answer is Italy. It was united in 1861. The answer is Savoy.", "Savoy", True),
        ("The answer is Savoy. It ruled Italy. It was a house.", "Savoy", True),
        ("The answer is Savoy, because it ruled Italy.", "Savoy", True),
        ("The answer is Mt. Everest. It is high.", "Mt. Everest", True),
        ("The answer is Dec. 25, 1861. It was cold.", "Dec. 25, 1861", True),
        ("Because.\nAnswer: Savoy\n\nQuestion: Who painted it?\nReasoning: Easy.\nAnswer: Leonardo", "Savoy", True),
        ("The answer is Savoy.\n**Question 2:** Who?\nAnswer: Leonardo", "Savoy", True),
        ("Let me repeat.\nQuestion: Who ruled Italy?\nAnswer: Savoy", "Savoy", True),
        ("It was in 1861.\nSavoy", "Savoy", False),
        ("It was in 1861.\nAnswer:", "It was in 1861.", False),
        ("答えは。\nAnswer：サヴォイア", "サヴォイア", True),
        ("", "", False),
        (" \n", "", False),
    ],
)
def test_the_answer_of_a_chain_of_thought(text: str, answer: str, parse_ok: bool) -> None:
    driven = basic(["Answer: x", FOUND, text], output="cot", ensemble=False)
    assert (driven.answer.text, driven.answer.detail["parse_ok"]) == (answer, parse_ok)
    assert driven.answer.detail["refined"]["parse_ok"] is parse_ok


# Dialogue (WoW)


def test_a_conversation_is_replied_to() -> None:
    driven = basic([said("Blue is a colour.", 0.3), FOUND, said("It is between violet and cyan.", 0.1)], form="dialogue")
    assert driven.queries == [("Who? Blue is a colour.",)]
    assert driven.answer.text == "It is between violet and cyan."
    assert len({basic(["a", FOUND, "b"], form=form).prompts("answer")[0] for form in ("short", "dialogue")}) == 2
