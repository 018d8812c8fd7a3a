"""RetroRAG: the choices that the paper leaves open (spec, section 3.6), bad output, empty retrieval, other scripts."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tests.runtimes.methods.driving import drive
from tests.runtimes.methods.retrorag_rounds import (
    FIRST,
    FIRST_OUTLINE,
    NO_WORD,
    SECOND,
    SECOND_OUTLINE,
    A,
    B,
    Q,
    options,
    reasoned,
    rejected,
)
from wikidx.runtimes.llms.base import Gen, Generate, Message, YesNo, prompt_text
from wikidx.runtimes.methods.retrorag import RetroRAGOptions, retrorag

# --- choices that the paper leaves open (section 3.6)


@pytest.mark.parametrize(("source", "shown"), [("capitals", "Ada; Lord Byron"), ("none", "the question")])
def test_entities_without_a_call(source: str, shown: str) -> None:
    question = "Who was Ada's father, Lord Byron?"
    driven = drive(retrorag(question, options(entities=source)), [*FIRST[:6], *FIRST[7:], *SECOND])
    assert "entities" not in {call.role for call in driven.requests if isinstance(call, Generate)}
    assert shown in driven.prompts("inference")[0]


def test_missing_probabilities_have_the_stated_score() -> None:
    canned = [[A, B], NO_WORD, 0.4, reasoned("r", "Byron"), "Byron", NO_WORD]
    driven = drive(retrorag(Q, options(max_rounds=1)), canned)
    assert driven.answer.passages == (A, B)  # 0.5 is above 0.4
    assert driven.answer.detail["accepted"] is False
    assert driven.answer.detail["yes_no"] == {"calls": 3, "missing": 2, "degraded": 0, "mean_mass": pytest.approx(1 / 3)}
    as_yes = drive(retrorag(Q, options(max_rounds=1, missing_score=1.0)), canned)
    assert as_yes.answer.detail["accepted"] is True
    as_no = drive(retrorag(Q, options(max_rounds=1, missing_score=0.0)), canned)
    assert as_no.answer.passages == (B, A)


def test_a_missing_gate_holds_the_inference_back() -> None:
    driven = drive(retrorag(Q, options()), [*FIRST[:8], NO_WORD, 0.1, 0.1, 0.9, 0.9, 0.9, "Lord Byron daughter", *SECOND])
    assert driven.outline == [*FIRST_OUTLINE[:7], ["query"], *SECOND_OUTLINE]
    assert "Inferences:" not in driven.prompts("answer")[1]


def test_words_in_place_of_probabilities_are_counted() -> None:
    word = YesNo(p_positive=1.0, p_negative=0.0, degraded=("no logprobs",))
    driven = drive(retrorag(Q, options()), [[A], word, reasoned("r", "Byron"), "Byron", word])
    assert driven.answer.detail["accepted"] is True
    assert driven.answer.detail["yes_no"]["degraded"] == 2


CORRECT = json.dumps({"judgement": "correct", "feedback": ""})
WORDY = json.dumps({"judgement": "redundant", "feedback": "Name him only."})


def test_the_assessor_before_acceptance_has_the_answer_given_again_once() -> None:
    run = retrorag(Q, options(assessor="before"))
    driven = drive(run, [[A], 0.9, reasoned("r", "It was Byron"), "Byron", WORDY, reasoned("r2", "Byron"), 0.9])
    assert driven.outline == [["retrieve"], ["evidence?"], ["answer", "monitor"], ["assessor"], ["answer"], ["consistency?"]]
    again = driven.requests[-2]
    assert isinstance(again, Generate)
    assert isinstance(again.prompt, tuple)
    assert [message.role for message in again.prompt if isinstance(message, Message)] == ["system", "user", "assistant", "user"]
    assert "Name him only." in prompt_text(again.prompt)
    assert driven.answer.text == "Byron"


@pytest.mark.parametrize("judgement", [CORRECT, "", "no idea", '{"judgement": "redundant"}', '{"judgement": "corr'])
def test_an_assessor_that_finds_nothing_or_says_nothing_changes_nothing(judgement: str) -> None:
    driven = drive(retrorag(Q, options(assessor="before")), [[A], 0.9, reasoned("r", "Byron"), "Byron", judgement, 0.9])
    assert driven.answer.text == "Byron"


def test_the_assessor_is_on_by_default_and_sees_what_metarag_s_does() -> None:
    """MetaRAG's check is given question and answer, not the reason."""
    values = {name: value for name, value in dataclasses.asdict(options()).items() if name != "assessor"}
    driven = drive(retrorag(Q, RetroRAGOptions(**values)), [[A], 0.9, reasoned("THE REASON", "Byron"), "Byron", CORRECT, 0.9])
    assert driven.outline == [["retrieve"], ["evidence?"], ["answer", "monitor"], ["assessor"], ["consistency?"]]
    (prompt,) = driven.prompts("assessor")
    assert prompt.endswith(f"Question: {Q}\nAnswer: Byron")
    assert "THE REASON" not in prompt


def test_the_assessor_after_acceptance_sees_the_final_answer_only() -> None:
    driven = drive(retrorag(Q, options(assessor="after")), [*FIRST, *SECOND, WORDY, reasoned("r3", "George")])
    assert driven.outline == [*FIRST_OUTLINE, *SECOND_OUTLINE, ["assessor"], ["answer"]]
    assert "Lord Byron" in driven.prompts("assessor")[0]
    assert driven.answer.text == "George"


@pytest.mark.parametrize(
    "revised",
    ["", "Unknown.", "It can't be determined", "I cannot determine him", "one two three four five six seven eight nine ten eleven"],
)
def test_a_revision_that_is_empty_long_or_unknown_is_not_taken(revised: str) -> None:
    driven = drive(
        retrorag(Q, options(assessor="before")),
        [[A], 0.9, reasoned("r", "It was Byron"), "Byron", WORDY, reasoned("r2", revised), 0.9],
    )
    assert driven.answer.text == "It was Byron"


@pytest.mark.parametrize(
    ("rule", "searched"),
    [("search", [(Q,), (Q,)]), ("perturb", [(Q,), (f"{Q} Byron",)])],
)
def test_a_repeated_query_is_searched_again_or_changed(rule: str, searched: list[tuple[str, ...]]) -> None:
    driven = drive(retrorag(Q, options(repeated_query=rule)), [*FIRST[:-1], f" {Q.upper()}\n", *SECOND])
    assert [tuple(query.casefold() for query in group) for group in driven.queries] == [
        tuple(query.casefold() for query in group) for group in searched
    ]


def test_a_repeated_query_can_end_the_question() -> None:
    driven = drive(retrorag(Q, options(repeated_query="stop")), [*FIRST[:-1], Q])
    assert driven.outline == FIRST_OUTLINE
    assert driven.answer.text == "Byron"
    assert driven.answer.detail["accepted"] is False


def test_the_query_is_its_first_line_without_marks() -> None:
    written = '\nQuery: "Lord Byron daughter"\nBecause it is missing.'
    driven = drive(retrorag(Q, options()), [*FIRST[:-1], written, *SECOND])
    assert driven.queries[1] == ("Lord Byron daughter",)


def test_demonstrations_precede_the_answerer_s_question() -> None:
    driven = drive(retrorag(Q, options(shots=4, ellery=False)), [reasoned("r", "Byron")])
    (call,) = driven.requests
    assert isinstance(call, Generate)
    assert isinstance(call.prompt, tuple)
    said = [message.content for message in call.prompt if isinstance(message, Message) and message.role == "assistant"]
    assert [list(json.loads(text)) for text in said] == [["reason", "answer"]] * 4
    assert RetroRAGOptions().shots == 4


# --- bad output, empty retrieval, other scripts


@pytest.mark.parametrize(
    ("written", "reason", "answer", "ok"),
    [
        ('```json\n{"reason": "r", "answer": "Byron"}\n```', "r", "Byron", True),
        ("Reason: because.\nAnswer: Byron", "because.", "Byron", True),
        ("So the answer is Byron.", "So the answer is Byron.", "Byron", True),
        ('{"reason": "it goes on and', "it goes on and", "it goes on and", False),
        ('{"reason": "r", "answer": ["Byron", 6]}', "r", "Byron, 6", True),
        ('{"reason": null, "answer": "バイロン卿"}', "", "バイロン卿", True),
    ],
)
def test_answers_in_any_form_are_read(written: str, reason: str, answer: str, ok: bool) -> None:
    driven = drive(retrorag(Q, options()), [[A], 0.9, written, "Byron", *([] if ok else [""]), 0.9])
    assert driven.answer.text == answer
    assert driven.answer.detail["rounds"][0]["reason"] == reason
    assert driven.answer.detail["parse_ok"] is ok


@pytest.mark.parametrize(("written", "monitor"), [("", "Byron"), (reasoned("r", " "), "Byron"), (reasoned("r", "Byron"), " \n")])
def test_an_empty_answer_is_never_accepted_nor_compared(written: str, monitor: str) -> None:
    again = [] if "Byron" in written else [""]
    driven = drive(retrorag(Q, options(max_rounds=1)), [[A], 0.9, written, monitor, *again])
    assert driven.outline == [["retrieve"], ["evidence?"], ["answer", "monitor"], *[["answer"] for _ in again]]
    assert driven.answer.detail["accepted"] is False


def test_an_empty_retrieval_infers_nothing_and_asks_again() -> None:
    driven = drive(retrorag(Q, options(max_rounds=2)), [[], *rejected("one", 0.1), "better query", [], *rejected("two", 0.1)])
    assert driven.outline == [["retrieve"], ["answer", "monitor"], ["consistency?"], ["query"]] + [
        ["retrieve"],
        ["answer", "monitor"],
        ["consistency?"],
    ]
    assert driven.queries == [(Q,), ("better query",)]
    assert driven.answer == ("two", (), driven.answer.detail)


@pytest.mark.parametrize("written", ["", "\n\n", "none", "(none)"])
def test_no_inferences_no_gates(written: str) -> None:
    driven = drive(retrorag(Q, options()), [*FIRST[:7], written, "Lord Byron daughter", *SECOND])
    assert driven.outline == [*FIRST_OUTLINE[:6], ["query"], *SECOND_OUTLINE]


def test_an_empty_query_falls_back_to_the_question() -> None:
    driven = drive(retrorag(Q, options()), [*FIRST[:-1], " \n", *SECOND])
    assert driven.queries == [(Q,), (Q,)]


def test_an_endless_list_is_cut_and_its_half_item_left_out() -> None:
    endless = Gen(text="\n".join(f"Fact {number}" for number in range(100)) + "\nhalf", finish="length")
    driven = drive(
        retrorag(Q, options(max_inferences=3)), [*FIRST[:7], endless, *[0.9] * 6, *(0.1, 0.3, 0.2), "Lord Byron daughter", *SECOND]
    )
    assert len(driven.prompts("relevance")) == 3
    assert "- Fact 1\n- Fact 2\n\n" in driven.prompts("answer")[1]
    unlimited = drive(retrorag(Q, options(max_inferences=0)), [*FIRST[:7], endless, *[0.1] * 200, "Lord Byron daughter", *SECOND])
    assert len(unlimited.prompts("relevance")) == 100
    short = Gen(text="Fact 1\nhalf of fa", finish="length")
    driven = drive(retrorag(Q, options()), [*FIRST[:7], short, 0.9, 0.9, 0.1, "Lord Byron daughter", *SECOND])
    assert ["half of fa" in prompt for prompt in driven.prompts("relevance")] == [False]


def test_inferences_that_cite_passages_are_read_whole() -> None:
    written = "Ada was Byron's child [1].\nByron was a poet [1, 2]."
    driven = drive(retrorag(Q, options()), [*FIRST[:7], written, *[0.9] * 4, *(0.1, 0.3), "Lord Byron daughter", *SECOND])
    assert "- Byron was a poet [1, 2].\n- Ada was Byron's child [1].\n" in driven.prompts("answer")[1]


def test_inferences_in_other_scripts_are_told_apart_and_repeated_ones_are_not() -> None:
    written = "エイダは詩人の娘である。\nエイダは詩人の娘である。\nÉ is so.\ne\u0301 IS so.\nバイロンは詩人である。"
    driven = drive(retrorag(Q, options()), [*FIRST[:7], written, *[0.9] * 6, *(0.1, 0.3, 0.2), "バイロン卿", *SECOND])
    assert len(driven.prompts("relevance")) == 3
    assert driven.queries[1] == ("バイロン卿",)
