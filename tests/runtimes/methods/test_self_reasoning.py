"""Self-Reasoning: its fields, snippets held against passages, and output in any state. The pass itself stands in ``transcripts/``."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtimes.methods.self_reasoning_driving import one_pass, trajectory
from wikidx.base.errors import InputError
from wikidx.runtimes.llms.base import Generate
from wikidx.runtimes.llms.prompts import JsonSchema, Message
from wikidx.runtimes.methods.self_reasoning import SelfReasoningOptions

FIELDS = ["relevant", "relevant_reason", "cite_list", "analysis", "answer"]


def test_the_schema_has_the_paper_s_fields_in_its_order_and_is_closed() -> None:
    call = one_pass(trajectory()).requests[-1]
    assert isinstance(call, Generate)
    assert isinstance(call.schema, JsonSchema)
    described = json.loads(call.schema.text)
    assert list(described["properties"]) == FIELDS
    item = described["properties"]["cite_list"]["items"]
    assert list(item["properties"]) == ["cite", "cite_content", "reason_for_cite"]
    for part in (described, item):
        assert (part["required"], part["additionalProperties"]) == (list(part["properties"]), False)


@pytest.mark.parametrize("form", ["short", "long", "fever"])
@pytest.mark.parametrize("left_out", ["", "rap", "eap"])
def test_demonstrations_have_the_fields_that_are_asked_for_and_cite_their_own_passages(form: str, left_out: str) -> None:
    call = one_pass(trajectory(), form=form, shots=2, **({left_out: False} if left_out else {})).requests[1]
    assert isinstance(call, Generate)
    assert isinstance(call.schema, JsonSchema)
    turns = [turn.content for turn in call.prompt if isinstance(turn, Message)]
    for asked, said in zip(turns[1:-1:2], turns[2::2], strict=True):
        assert list(json.loads(said)) == list(json.loads(call.schema.text)["properties"])
        assert all(cited["cite_content"] in asked for cited in json.loads(said).get("cite_list", ()))


def test_a_long_answer_needs_the_analysis() -> None:
    with pytest.raises(InputError, match="long"):
        SelfReasoningOptions(form="long", tap=False)


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


def test_every_cut_of_a_trajectory_is_read() -> None:
    whole = trajectory(answer='バイロン卿 \\ "B"')
    for end in range(len(whole)):
        driven = one_pass(whole[:end])
        json.dumps(driven.answer.detail).encode()
        assert len(driven.answer.detail["cite_list"]) <= 2
    assert one_pass(whole).answer.text == 'バイロン卿 \\ "B"'


@given(
    st.text()
    | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner)).map(
        lambda v: trajectory(cite_list=v)
    ),
    st.sampled_from(["short", "long", "fever"]),
)
def test_no_text_breaks_it_and_what_is_recorded_can_be_written(written: str, form: str) -> None:
    answer = one_pass(written, form=form).answer
    json.dumps([answer.text, answer.detail], allow_nan=False, ensure_ascii=False).encode()
