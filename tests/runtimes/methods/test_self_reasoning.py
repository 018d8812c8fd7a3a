"""Self-Reasoning, request by request (spec: the one pass of section 2.2, the ablations of 2.5, the open choices of 2.6)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.runtimes.methods.driving import drive
from tests.runtimes.methods.self_reasoning_driving import (
    FIELDS,
    FOUND,
    Q,
    call_of,
    one_pass,
    options,
    system_of,
    trajectory,
)
from wikidx.base.errors import InputError
from wikidx.runtimes.llms.base import JsonSchema, Message, prompt_text
from wikidx.runtimes.methods.base import list_options
from wikidx.runtimes.methods.self_reasoning import METHOD, SelfReasoningOptions, self_reasoning

# --- the pass


def test_one_retrieval_and_one_generation() -> None:
    driven = one_pass(trajectory())
    assert driven.outline == [["retrieve"], ["answer"]]
    assert driven.queries == [(Q,)]
    call = call_of(driven)
    assert (call.decoding.max_tokens, call.decoding.temperature) == (2048, 0.0)
    shown = "\n\n".join(f"[{number}] {passage.title}\n{passage.text}" for number, passage in enumerate(FOUND, 1))
    assert shown in prompt_text(call.prompt)
    assert f"Question: {Q}" in prompt_text(call.prompt)
    assert driven.answer.text == "Lord Byron"
    assert driven.answer.passages == tuple(FOUND)


def test_the_whole_trajectory_is_in_the_detail() -> None:
    detail = one_pass(trajectory()).answer.detail
    assert detail == {
        "read": ["b", "a", "o"],
        "relevant": True,
        "relevant_reason": "The first passage names her father.",
        "relevance": [],
        "cite_list": [
            {
                **{"cite": "1", "passage": "b", "cite_content": "His only legitimate child was Ada Lovelace."},
                **{"reason_for_cite": "It names him.", "verbatim": "exact"},
            },
            {
                **{"cite": "2", "passage": "a", "cite_content": "Ada Lovelace wrote the first program."},
                **{"reason_for_cite": "It says who she is.", "verbatim": "exact"},
            },
        ],
        "analysis": "Ada Lovelace was Lord Byron's child [1], and a programmer [2].",
        "answer": "Lord Byron",
        "answered_from": "passages",
        "parse": "whole",
        "parse_ok": True,
        "truncated": False,
        "asked_again": False,
    }
    assert json.loads(json.dumps(detail)) == detail


def test_the_schema_has_the_paper_s_fields_in_its_order_and_is_closed() -> None:
    schema = call_of(one_pass(trajectory())).schema
    assert isinstance(schema, JsonSchema)
    described = json.loads(schema.text)
    assert list(described["properties"]) == FIELDS
    assert described["properties"]["relevant"]["type"] == "boolean"
    item = described["properties"]["cite_list"]["items"]
    assert list(item["properties"]) == ["cite", "cite_content", "reason_for_cite"]
    for part in (described, item):
        assert part["required"] == list(part["properties"])
        assert part["additionalProperties"] is False
    assert call_of(one_pass(trajectory(), structured=False)).schema is None


def test_the_paper_s_other_temperature_is_a_switch() -> None:
    assert call_of(one_pass(trajectory(), temperature=0.2)).decoding.temperature == 0.2


@pytest.mark.parametrize("task", ["short", "long", "fever"])
def test_demonstrations_are_whole_trajectories_of_the_task(task: str) -> None:
    driven = one_pass(trajectory(), form=task, shots=2)
    said = [turn.content for turn in call_of(driven).prompt if isinstance(turn, Message) and turn.role == "assistant"]
    assert [list(json.loads(text)) for text in said] == [FIELDS] * 2
    assert [json.loads(text)["relevant"] for text in said] == [True, False]
    for text, asked in zip(said, [turn.content for turn in call_of(driven).prompt if isinstance(turn, Message)][1::2], strict=False):
        for cited in json.loads(text)["cite_list"]:
            assert cited["cite_content"] in asked
    assert SelfReasoningOptions().shots == 1


# --- ablations (section 2.5): a process is left out by leaving its fields out


@pytest.mark.parametrize(
    ("option", "left"),
    [
        ("rap", ["cite_list", "analysis", "answer"]),
        ("eap", ["relevant", "relevant_reason", "analysis", "answer"]),
        ("tap", ["relevant", "relevant_reason", "cite_list", "answer"]),
    ],
)
@pytest.mark.parametrize("task", ["short", "fever"])
def test_without_a_process_its_fields_are_neither_asked_for_nor_shown(option: str, left: list[str], task: str) -> None:
    driven = one_pass(
        trajectory(answer="SUPPORTS", **{name: ... for name in FIELDS if name not in left}), **{option: False}, shots=1, form=task
    )
    call = call_of(driven)
    assert isinstance(call.schema, JsonSchema)
    assert list(json.loads(call.schema.text)["properties"]) == left
    assert [f'"{name}"' in system_of(call) for name in FIELDS] == [name in left for name in FIELDS]
    (said,) = [turn.content for turn in call.prompt if isinstance(turn, Message) and turn.role == "assistant"]
    assert list(json.loads(said)) == left
    assert driven.answer.text == "SUPPORTS"


def test_without_relevance_no_rule_is_applied() -> None:
    driven = one_pass(trajectory(answer="SUPPORTS", relevant=False), rap=False, form="fever", irrelevant="closed-book")
    assert driven.answer.text == "SUPPORTS"
    assert driven.answer.detail["relevant"] is None
    empty = drive(self_reasoning(Q, options(rap=False, form="fever")), [[], trajectory(answer="SUPPORTS")])
    assert empty.answer.text == "SUPPORTS"


def test_a_long_answer_needs_the_analysis() -> None:
    refused: Callable[[], SelfReasoningOptions] = lambda: options(form="long", tap=False)  # noqa: E731 - one statement inside raises
    with pytest.raises(InputError, match="long"):
        refused()


# --- nothing relevant


def test_a_question_without_relevant_passages_is_answered_from_the_model_s_own_knowledge_in_the_same_pass() -> None:
    driven = one_pass(trajectory(relevant=False, cite_list=[], answer="Byron"))
    assert driven.outline == [["retrieve"], ["answer"]]
    assert driven.answer.text == "Byron"
    assert driven.answer.detail["answered_from"] == "own knowledge"


@pytest.mark.parametrize(("rule", "label"), [("rule", "NOT ENOUGH INFO"), ("closed-book", "NOT ENOUGH INFO"), ("as-written", "SUPPORTS")])
def test_a_claim_without_relevant_passages_lacks_information_whatever_is_written(rule: str, label: str) -> None:
    driven = one_pass(trajectory(relevant=False, answer="SUPPORTS"), form="fever", irrelevant=rule)
    assert driven.outline == [["retrieve"], ["answer"]]
    assert driven.answer.text == label
    assert driven.answer.detail["answer"] == "SUPPORTS"


@pytest.mark.parametrize(("task", "written"), [("short", " Byron\n"), ("long", "Byron was\nhis name. ")])
def test_the_closed_book_rule_asks_again_without_passages(task: str, written: str) -> None:
    driven = drive(
        self_reasoning(Q, options(irrelevant="closed-book", form=task)),
        [FOUND, trajectory(relevant=False, answer="x", analysis="x"), written],
    )
    assert driven.outline == [["retrieve"], ["answer"], ["answer"]]
    assert Q in prompt_text(call_of(driven).prompt)
    assert not any(passage.text in prompt_text(call_of(driven).prompt) for passage in FOUND)
    assert driven.answer.text == " ".join(written.split())
    assert driven.answer.detail["answered_from"] == "closed book"
    assert (driven.answer.passages, driven.answer.detail["read"]) == ((), ["b", "a", "o"])


def test_an_empty_retrieval_is_irrelevant_whatever_is_written() -> None:
    driven = drive(self_reasoning(Q, options(form="fever")), [[], trajectory(answer="SUPPORTS")])
    assert "Passages:" not in prompt_text(call_of(driven).prompt)
    assert driven.answer.text == "NOT ENOUGH INFO"
    assert driven.answer.passages == ()
    assert {item["passage"] for item in driven.answer.detail["cite_list"]} == {None}
    asked = drive(self_reasoning(Q, options(irrelevant="closed-book")), [[], trajectory(), "Byron"])
    assert asked.answer.text == "Byron"


def test_relevance_can_be_judged_passage_by_passage() -> None:
    def verdicts(*relevant: object) -> str:
        judged = [{"document": number, "relevant": value, "relevant_reason": "so"} for number, value in enumerate(relevant, 1)]
        return trajectory(relevant=..., relevant_reason=..., relevance=judged, answer="SUPPORTS")

    driven = one_pass(verdicts(False, True, False), form="fever", relevance="passage")
    call = call_of(driven)
    assert isinstance(call.schema, JsonSchema)
    assert list(json.loads(call.schema.text)["properties"]) == ["relevance", *FIELDS[2:]]
    assert driven.answer.text == "SUPPORTS"
    assert driven.answer.detail["relevant"] is True
    assert driven.answer.detail["relevance"][1] == {"document": "2", "passage": "a", "relevant": True, "relevant_reason": "so"}
    driven = one_pass(verdicts(False, "no", "Irrelevant"), form="fever", relevance="passage")
    assert driven.answer.text == "NOT ENOUGH INFO"
    driven = one_pass(verdicts("perhaps", None, ""), form="fever", relevance="passage")
    assert (driven.answer.detail["relevant"], driven.answer.text) == (None, "SUPPORTS")
    shown = one_pass(verdicts(True), relevance="passage", shots=1)
    (said,) = [turn.content for turn in call_of(shown).prompt if isinstance(turn, Message) and turn.role == "assistant"]
    assert list(json.loads(said)) == ["relevance", *FIELDS[2:]]


# --- the tasks


@pytest.mark.parametrize(
    ("written", "label", "ok"),
    [
        ("SUPPORTS", "SUPPORTS", True),
        ("Supported.", "SUPPORTS", True),
        ("true", "SUPPORTS", True),
        (True, "SUPPORTS", True),
        ("refuted", "REFUTES", True),
        ("False", "REFUTES", True),
        ("NotEnoughInfo", "NOT ENOUGH INFO", True),
        ("not enough information", "NOT ENOUGH INFO", True),
        ("The claim is REFUTED by passage 1.", "REFUTES", True),
        ("There is not enough to go by.", "NOT ENOUGH INFO", True),
        ("not supported", "NOT ENOUGH INFO", False),
        ("supported or refuted", "NOT ENOUGH INFO", False),
        ("", "NOT ENOUGH INFO", False),
        ("Lord Byron", "NOT ENOUGH INFO", False),
    ],
)
def test_verdicts_on_claims_are_told_in_many_words(written: object, label: str, ok: bool) -> None:
    driven = one_pass(trajectory(answer=written), form="fever")
    assert f"Claim: {Q}" in prompt_text(call_of(driven).prompt)
    assert driven.answer.text == label
    assert driven.answer.detail["parse_ok"] is ok


def test_the_labels_are_part_of_the_schema_for_claims() -> None:
    schema = call_of(one_pass(trajectory(), form="fever")).schema
    assert isinstance(schema, JsonSchema)
    assert json.loads(schema.text)["properties"]["answer"]["enum"] == ["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"]


def test_a_long_answer_is_the_analysis_with_its_citations_on_one_line() -> None:
    analysis = "Ada was the child of Byron [1, 2].\nShe lived in London [2][1]; see [3]."
    driven = one_pass(trajectory(analysis=analysis), form="long")
    assert driven.answer.text == "Ada was the child of Byron [1][2]. She lived in London [2][1]; see [3]."
    assert driven.answer.detail["citations"] == {"cited": [1, 2, 3], "missing": []}


def test_citations_of_passages_that_are_not_there_are_named() -> None:
    analysis = "Byron [1][9] did, in 1815 [0], London [4, 2]. Array[x] [a]"
    kept = one_pass(trajectory(analysis=analysis), form="long")
    assert kept.answer.text == "Byron [1][9] did, in 1815 [0], London [4][2]. Array[x] [a]"
    assert kept.answer.detail["citations"] == {"cited": [1, 2], "missing": [9, 0, 4]}
    huge = one_pass(trajectory(analysis="x [" + "9" * 5000 + "]"), form="long")
    assert huge.answer.detail["citations"] == {"cited": [], "missing": []}


# --- what is declared


def test_defaults_and_their_origins() -> None:
    stated = {option.name: option.value for option in list_options(SelfReasoningOptions()) if option.origin == "paper"}
    assert stated == {
        **{"k": 5, "form": "short", "max_tokens": 2048, "irrelevant": "rule"},
        **{"rap": True, "eap": True, "tap": True, "reader": False},
    }


def test_presets_are_the_paper_s() -> None:
    assert {name: (preset.corpus, preset.retriever) for name, preset in METHOD.presets.items()} == {
        "NQ": ("wiki2018", "dpr"),
        "PopQA": ("wiki2020", "contriever"),
        "ASQA": ("wiki2018", "gtr-xxl"),
    }
    assert METHOD.roles == ("answer", "trajectory")
