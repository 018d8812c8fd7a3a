"""Corrupt replies of language models and endpoints: every reader terminates, and its result can be serialised."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.mutating import check_refusal, examples, mutations
from tests.runtimes.questions.test_records import JSON
from tests.runtimes.test_bad_output import predicted
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.evaluation.by_models.judge import RULES, read_vote
from wikidx.runtimes.execution.rehearsal import StandInSearcher
from wikidx.runtimes.llms import openai_answers, openai_refusals
from wikidx.runtimes.llms.base import AskYesNo, Generate, MeanNll
from wikidx.runtimes.llms.openai_answers import Answer
from wikidx.runtimes.llms.openai_connection import _validate
from wikidx.runtimes.llms.prompts import Decoding, Message
from wikidx.runtimes.methods import METHODS, model_output
from wikidx.runtimes.methods.ra_isf.replies import parse_relevant_numbers, parse_verdict
from wikidx.runtimes.methods.sub_questions import parse_sub_questions

OBJECT = {"relevant": "yes", "cite_list": [{"cite": "[1]", "cite_content": "text", "reason_for_cite": "r"}], "answer": "Paris", "n": 1}
TEXTS = (
    json.dumps(OBJECT).encode(),
    b"```json\n" + json.dumps(OBJECT, indent=1).encode() + b"\n```\nThat is all.",
    b'["Who was it?", "When was it?"]',
    b"1. Who was it?\n2. When was it?\n",
    b"Follow up: Who was it?\nIntermediate answer: He.\nSo the final answer is: He.",
    b"Thought 1: I need it.\nAction 1: Search[Nile]\nThought 2: found.\nAction 2: Finish[Egypt]",
    b"Answer: Paris\nReason: as it is\nScore: 0.9",
    b"Passages [1], [2] and 3 are relevant.",
)


def texts() -> st.SearchStrategy[str]:
    return mutations(*TEXTS).map(lambda content: content.decode("utf-8", "replace"))


@examples()
@given(text=texts(), is_cut=st.booleans())
def test_readers_of_replies(text: str, is_cut: bool) -> None:
    found = model_output.find_object(text, ("relevant", "answer"))
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, dict) and {"relevant", "answer"} & whole.keys() and len(text) < 1_000 and "NaN" not in text:
        assert found == (model_output.fold_keys(whole), "whole")
    read = [
        found.value and model_output.to_text(list(found.value.values())),
        model_output.parse_labels(text, ["answer", "reason"]),
        model_output.parse_list(text, is_cut=is_cut),
        model_output.first_line(text),
        [one._asdict() for one in parse_sub_questions(text, is_cut=is_cut)],
        parse_verdict(text).is_yes,
        sorted(parse_relevant_numbers(text, 5)[0]),
        [read_vote(text, rule).vote for rule in RULES.values()],
    ]
    json.dumps(read, ensure_ascii=False).encode()


@pytest.mark.parametrize("name", METHODS)
@examples(0.05)
@given(text=texts())
def test_methods_come_to_an_end(name: str, text: str) -> None:
    prediction = predicted(name, text, StandInSearcher())
    assert prediction.error is None
    assert prediction.cost.calls < 300
    json.dumps([prediction.answer, dict(prediction.detail)], ensure_ascii=False).encode()


TOKEN = {"token": "yes", "logprob": -0.1, "top_logprobs": [{"token": "no", "logprob": -2.5}, {"token": "yes", "logprob": -0.1}]}
CHAT = {"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop", "logprobs": {"content": [TOKEN]}}
TEXT = {
    "text": "yes",
    "finish_reason": "length",
    "logprobs": {"tokens": ["y", "es"], "token_logprobs": [None, -0.5], "text_offset": [0, 1], "top_logprobs": [{"yes": -0.5, "no": -1}]},
}
TURNS = (Message("user", "q"),)


def replaced(value: object) -> st.SearchStrategy[Any]:
    """JSON like this, of which any part may be any other."""
    if isinstance(value, dict):
        alike: st.SearchStrategy[Any] = st.fixed_dictionaries({}, optional={name: replaced(one) for name, one in value.items()})
    elif isinstance(value, list):
        alike = st.lists(st.one_of([replaced(one) for one in value]), max_size=3)
    else:
        alike = st.just(value)
    odd = JSON | st.sampled_from([float("nan"), float("inf"), -float("inf"), 1e9, 10**400, -(10**400), True])
    return st.one_of(alike, alike, alike, alike, odd)


@examples()
@given(answer=replaced({"choices": [CHAT, TEXT], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}))
def test_answers_of_endpoints(answer: Mapping[str, Any]) -> None:
    try:
        checked = Answer(_validate(answer), ())
    except ValueError as error:  # which is told as a failure of the endpoint's, and the call repeated
        check_refusal(LLMError(str(error)))
        return
    assert all(type(n) in (int, bool) for n in checked.tokens)
    for choice in checked.choices:
        gen = openai_answers.parse_gen(choice, Generate(prompt=TURNS, decoding=Decoding(max_tokens=4), logprobs=True), ())
        json.dumps([gen.text, gen.logprobs], ensure_ascii=False, allow_nan=False).encode()
        asked = openai_answers.parse_yes_no(choice, AskYesNo(prompt=TURNS))
        assert asked is None or 0 <= asked.p_positive < 1e3
        scored = openai_answers.parse_echo_nll(choice, MeanNll(prompt="", continuation="yes"), "")
        assert scored is None or (0 <= scored[0] < float("inf") and scored[1] > 0)


@examples()
@given(status=st.integers(400, 599), body=replaced({"error": {"message": "too long", "code": "c", "param": "p"}}))
@example(status=400, body="\n")
def test_refusals_of_endpoints(status: int, body: object) -> None:
    said = openai_refusals.parse_refusal(status, body)
    check_refusal(LLMError(said.message))
    assert isinstance(said.means("too_long"), bool)
    said.refused_parameter({"stop": ["x"], "logprobs": True})
