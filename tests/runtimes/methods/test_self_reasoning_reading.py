"""Self-Reasoning: snippets held against passages, the other reader, the robustness figure, bad output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtimes.methods.driving import drive
from tests.runtimes.methods.self_reasoning_driving import (
    FOUND,
    Q,
    call_of,
    one_pass,
    options,
    trajectory,
)
from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Choice, Gen, Message, prompt_text
from wikidx.runtimes.methods.self_reasoning import self_reasoning

# --- the snippets


@pytest.mark.parametrize(
    ("cite", "snippet", "passage", "verbatim"),
    [
        (1, "George Gordon Byron was an English poet.", "b", "exact"),
        ("[1] Lord Byron", "Lord Byron\nGeorge Gordon", "b", "exact"),
        ("Document 2", "ada  LOVELACE wrote", "a", "folded"),
        ("[3]", "\uff2c\uff4f\uff4e\uff44\uff4f\uff4e is a city", "o", "folded"),
        (1, "London is a city", "b", "elsewhere"),
        (9, "London is a city", None, "elsewhere"),
        (0, "nowhere to be read", None, "no"),
        (True, "His only legitimate child", None, "elsewhere"),
        (None, "", None, "no"),
        (1, "George Gordon Byron ... English poet", "b", "no"),
        (1.0, "an English poet", "b", "exact"),
        ("Ada Lovelace", "She lived", "a", "exact"),
    ],
)
def test_snippets_are_looked_for_in_the_passage_that_they_cite(cite: object, snippet: str, passage: str | None, verbatim: str) -> None:
    driven = one_pass(trajectory(cite_list=[{"cite": cite, "cite_content": snippet, "reason_for_cite": "r"}]))
    (item,) = driven.answer.detail["cite_list"]
    assert (item["passage"], item["verbatim"]) == (passage, verbatim)
    assert driven.answer.text == "Lord Byron"


def test_an_endless_list_of_citations_is_cut() -> None:
    cited = [{"cite": 1, "cite_content": str(number), "reason_for_cite": "r"} for number in range(500)]
    driven = one_pass(trajectory(cite_list=cited), max_citations=7)
    assert [item["cite_content"] for item in driven.answer.detail["cite_list"]] == list("0123456")


# --- the trajectory handed to another reader


def test_another_reader_answers_from_the_passages_and_the_trajectory_without_its_answer() -> None:
    driven = drive(self_reasoning(Q, options(reader=True)), [FOUND, trajectory(answer="Shelley"), " Byron\n"])
    assert driven.outline == [["retrieve"], ["trajectory"], ["answer"]]
    asked = prompt_text(call_of(driven).prompt)
    assert all(passage.text in asked for passage in FOUND)
    assert trajectory(answer=...) in asked
    assert "Shelley" not in asked
    assert driven.answer.text == "Byron"
    assert driven.answer.detail["answered_from"] == "reader"
    assert driven.answer.detail["answer"] == "Shelley"


def test_a_reader_of_claims_chooses_a_label_even_where_nothing_is_relevant() -> None:
    run = self_reasoning(Q, options(reader=True, form="fever"))
    driven = drive(run, [FOUND, trajectory(relevant=False, answer="SUPPORTS"), "refuted"])
    assert driven.outline == [["retrieve"], ["trajectory"], ["answer"]]
    assert call_of(driven).schema == Choice(("SUPPORTS", "REFUTES", "NOT ENOUGH INFO"))
    assert driven.answer.text == "REFUTES"


def test_a_reader_of_long_answers_cites() -> None:
    run = self_reasoning(Q, options(reader=True, form="long"))
    driven = drive(run, [FOUND, trajectory(), "It was\nByron [1, 7]."])
    assert driven.answer.text == "It was Byron [1][7]."
    assert driven.answer.detail["citations"] == {"cited": [1], "missing": [7]}


def test_a_trajectory_that_cannot_be_read_is_handed_on_as_it_is() -> None:
    driven = drive(self_reasoning(Q, options(reader=True)), [FOUND, "I think it was Byron.", "Byron"])
    assert "I think it was Byron." in prompt_text(call_of(driven).prompt)
    assert (driven.answer.text, driven.answer.detail["parse_ok"]) == ("Byron", False)


# --- the robustness figure


def passages_named(name: str, n: int) -> list[Passage]:
    return [Passage(f"{name}{number}", name, f"text {name} {number}") for number in range(n)]


def read_with(seed: int, **values: Any) -> list[str]:  # noqa: ANN401 - any option
    canned = [passages_named("own", 5), *([passages_named("noise", 5)] if "noise" in values else []), trajectory()]
    driven = drive(self_reasoning(Q, options(k=5, seed=seed, **values)), canned)
    read: list[str] = driven.answer.detail["read"]
    assert [passage.id for passage in driven.answer.passages] == read
    return read


def test_shuffled_passages_are_the_same_ones_in_an_order_of_the_seed() -> None:
    orders = [read_with(seed, shuffle=True) for seed in range(20)]
    assert all(sorted(order) == [f"own{number}" for number in range(5)] for order in orders)
    assert len(set(map(tuple, orders))) > 10
    assert orders == [read_with(seed, shuffle=True) for seed in range(20)]
    assert read_with(0) == [f"own{number}" for number in range(5)]


@pytest.mark.parametrize(("noise", "n_replaced"), [(0.5, 3), (0.2, 1), (1.0, 5), (0.05, 0)])
def test_noise_replaces_a_share_of_the_passages_in_their_places(noise: float, n_replaced: int) -> None:
    readings = [read_with(seed, noise=noise, noise_questions=("Other?",)) for seed in range(20)]
    for read in readings:
        assert sum(id_.startswith("noise") for id_ in read) == n_replaced
        assert len(set(read)) == 5
        assert all(id_ == f"own{place}" for place, id_ in enumerate(read) if id_.startswith("own"))
    replaced = {place for read in readings for place, id_ in enumerate(read) if id_.startswith("noise")}
    assert replaced == (set(range(5)) if n_replaced else set())


def test_noise_comes_from_another_question_at_the_same_time() -> None:
    run = self_reasoning(Q, options(k=5, noise=0.5, noise_questions=(Q, "Other?", Q)))
    driven = drive(run, [passages_named("own", 5), passages_named("noise", 5), trajectory()])
    assert driven.outline == [["retrieve", "retrieve"], ["answer"]]
    assert driven.queries == [(Q,), ("Other?",)]
    assert sorted(driven.answer.detail["noise"]) == sorted(id_ for id_ in driven.answer.detail["read"] if id_.startswith("noise"))


def test_noise_that_the_question_finds_itself_is_none() -> None:
    own = passages_named("own", 4)
    run = self_reasoning(Q, options(k=4, noise=0.5, noise_questions=("Other?",)))
    driven = drive(run, [own, [*own[:3], Passage("new", "T", "x")], trajectory()])
    assert driven.answer.detail["noise"] == ["new"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"noise": 0.5}, "noise_questions"),
        ({"noise": 1.5, "noise_questions": ("Other?",)}, "noise is 1.5: it should be less than or equal to 1"),
        ({"noise": -0.1, "noise_questions": ("Other?",)}, "noise is -0.1: it should be greater than or equal to 0"),
        ({"k": 0}, "k is 0"),
        ({"max_citations": 0}, "max_citations is 0"),
    ],
)
def test_impossible_options_are_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        options(**values)


def test_noise_with_this_question_alone_is_refused() -> None:
    run = self_reasoning(Q, options(noise=0.5, noise_questions=(Q,)))
    with pytest.raises(InputError, match="another question"):
        drive(run, [])


# --- bad output


@pytest.mark.parametrize(
    ("written", "answer", "parse", "ok"),
    [
        (f"```json\n{trajectory()}\n```", "Lord Byron", "within", True),
        (trajectory()[:-2], "Lord Byron", "cut", True),
        (trajectory(answer="B")[: trajectory(answer="B").index("analysis") + 19], "Ada Lov", "cut", False),
        (trajectory(answer=None), "Ada Lovelace was Lord Byron's child [1], and a programmer [2].", "whole", False),
        (trajectory(answer=["Byron", "Gordon"]), "Byron, Gordon", "whole", True),
        ("relevant: yes\nrelevant reason: so\nanalysis: long\nAnswer: Byron", "Byron", "labels", True),
        ("I read the passages.\nIt was Byron.\n\n", "It was Byron.", "none", False),
        ("", "", "none", False),
        ("[[[[{{{{", "[[[[{{{{", "none", False),
    ],
)
def test_output_in_any_state_is_read_strictly_first_then_leniently(written: str, answer: str, parse: str, ok: bool) -> None:
    driven = one_pass(written)
    assert driven.answer.text == answer
    assert (driven.answer.detail["parse"], driven.answer.detail["parse_ok"]) == (parse, ok)


FREE = Gen(text=trajectory(answer=...), degraded=("no structured output: the text is unconstrained",))


@pytest.mark.parametrize(
    ("reply", "answer", "parse_ok"),
    [
        ("Lord Byron", "Lord Byron", True),  # the beginning is continued
        ('{"answer": "Lord Byron', "Lord Byron", True),  # a new object is begun
        (r"the \"Lord\" Byron", 'the "Lord" Byron', True),
        ("```json\n{'answer': 1}\n```\nAnswer: Byron", "Byron", True),
        ("Lord Byron\nHe was a poet.", "Lord Byron", True),
        ('{"reason": "none"}', "Ada Lovelace was Lord Byron's child [1], and a programmer [2].", False),
        ("", "Ada Lovelace was Lord Byron's child [1], and a programmer [2].", False),
    ],
)
def test_an_object_without_an_answer_is_asked_for_it_once(reply: str, answer: str, parse_ok: bool) -> None:
    driven = drive(self_reasoning(Q, options()), [FOUND, FREE, reply])
    assert (driven.answer.text, driven.answer.detail["parse_ok"], driven.answer.detail["asked_again"]) == (answer, parse_ok, True)
    first, again = call_of(driven, 1), call_of(driven, 2)
    assert again.prompt[:-3] == first.prompt
    *_, written, request, beginning = list(again.prompt)
    assert beginning == Message("assistant", '{"answer": "')
    assert written == Message("assistant", FREE.text, ((0, len(FREE.text)),))
    assert isinstance(request, Message)
    assert 'lacks the field "answer"' in request.content
    assert request.content.endswith(f"Question: {Q}")
    assert (again.decoding.max_tokens, again.decoding.stop) == (256, ('"}',))


@pytest.mark.parametrize(
    ("written", "values"),
    [
        (Gen(text=trajectory(), degraded=FREE.degraded), {}),
        (trajectory(answer=...), {"reader": True}),
        (trajectory(answer=...), {"structured": False, "form": "long"}),  # the analysis is the answer
    ],
)
def test_other_output_is_not_asked_for_again(written: str | Gen, values: dict[str, Any]) -> None:
    assert one_pass(written, **values).answer.detail["asked_again"] is False


def test_labelled_lines_hold_a_whole_trajectory() -> None:
    written = (
        "**Relevant**: no, not really\nRelevant reason: off topic\n"
        "1. cite: [2]\n   cite content: She lived in London.\n   reason for cite: place\n"
        "2. cite: 1\n   cite content: an English poet\n   reason for cite: trade\n"
        "Analysis: Both [1].\nAnswer: Byron"
    )
    detail = one_pass(written).answer.detail
    assert (detail["relevant"], detail["relevant_reason"], detail["analysis"]) == (False, "off topic", "Both [1].")
    assert [(item["passage"], item["verbatim"], item["reason_for_cite"]) for item in detail["cite_list"]] == [
        ("a", "exact", "place"),
        ("b", "exact", "trade"),
    ]


def test_a_long_answer_without_any_form_is_the_whole_text() -> None:
    driven = one_pass("Byron was her father [1].\nHe was a poet.", form="long")
    assert driven.answer.text == "Byron was her father [1]. He was a poet."
    assert driven.answer.detail["parse_ok"] is False


def test_output_cut_at_its_length_is_marked() -> None:
    driven = one_pass(Gen(text=trajectory()[:150], finish="length"))
    assert driven.answer.detail["truncated"] is True
    assert driven.answer.detail["parse"] == "cut"
    assert driven.answer.text == ""


def test_every_cut_of_a_trajectory_is_read() -> None:
    whole = trajectory(answer='バイロン卿 \\ "B"')
    for end in range(len(whole)):
        driven = one_pass(whole[:end])
        json.dumps(driven.answer.detail).encode()
        assert len(driven.answer.detail["cite_list"]) <= 2
    assert one_pass(whole).answer.text == 'バイロン卿 \\ "B"'


def test_wrong_types_everywhere_are_no_error() -> None:
    driven = one_pass(
        trajectory(relevant="YES.", relevant_reason=3, cite_list={"cite": 1, "cite_content": ["x"]}, analysis=[1, "b"], answer=1815)
    )
    detail = driven.answer.detail
    assert driven.answer.text == "1815"
    assert (detail["relevant"], detail["relevant_reason"], detail["analysis"]) == (True, "3", "1, b")
    assert [item["cite_content"] for item in detail["cite_list"]] == ["x"]
    assert one_pass(trajectory(cite_list="none", relevant=[])).answer.detail["cite_list"] == []
    assert one_pass(trajectory(cite_list=[1, None, "She lived in London."])).answer.detail["cite_list"] == [
        {"cite": "", "passage": None, "cite_content": "She lived in London.", "reason_for_cite": "", "verbatim": "elsewhere"}
    ]


@settings(deadline=None)
@given(
    st.text()
    | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner)).map(
        lambda v: trajectory(cite_list=v)
    )
)
def test_no_text_breaks_it_and_what_is_recorded_can_be_written(written: str) -> None:
    for task in ("short", "long", "fever"):
        answer = one_pass(written, form=task).answer
        json.dumps([answer.text, answer.detail], allow_nan=False, ensure_ascii=False).encode()
