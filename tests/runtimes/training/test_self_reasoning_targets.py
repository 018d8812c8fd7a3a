"""Targets of Self-Reasoning's stages and its baseline; the method asks for and reads exactly these."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Literal

import pytest

from tests.runtimes.methods.driving import Driven, drive
from tests.runtimes.training.trajectories import BYRON, CLAIM, FIELDS, LONDON, LONG, SHORT, sample
from wikidx.runtimes.llms.base import Generate, Prompt
from wikidx.runtimes.methods.self_reasoning import SelfReasoningOptions, self_reasoning
from wikidx.runtimes.methods.self_reasoning.fields import requested_fields
from wikidx.runtimes.methods.self_reasoning.trajectory import parse_trajectory
from wikidx.runtimes.questions import Question
from wikidx.runtimes.training.self_reasoning.files import STAGES, Stage, plain_example, stage_example, stages_of
from wikidx.runtimes.training.self_reasoning.samples import Sample
from wikidx.runtimes.training.self_reasoning.teacher import BuildOptions, CollectOptions

OPTIONS = CollectOptions()
RAP = '{"relevant": true, "relevant_reason": "It names her “father”."'
EAP = ', "cite_list": [{"cite": 1, "cite_content": "His only legitimate child was Ada Lovelace.", "reason_for_cite": "It names him."}]'
TAP = ', "analysis": "Ada was Byron\'s child.", "answer": "Lord Byron"'


def target(stage: Stage, **build_options: Any) -> str:  # noqa: ANN401 - any option
    return stage_example(sample(SHORT, "short"), stage, OPTIONS, BuildOptions(**build_options)).messages[-1].content


def test_the_stages_learn_ever_more() -> None:
    assert target("rap") == RAP + "}"
    assert target("rap_eap") == RAP + EAP + "}"
    assert target("rap_eap_tap") == RAP + EAP + TAP + "}"


def test_the_stages_are_beginnings_of_the_whole_where_it_is_masked() -> None:
    assert target("rap", stages="cut") == RAP
    assert target("rap_eap", stages="cut") == RAP + EAP
    assert target("rap_eap_tap", stages="cut") == RAP + EAP + TAP + "}"


@pytest.mark.parametrize("stages", ["asked", "cut"])
@pytest.mark.parametrize("stage", list(STAGES))
def test_the_method_reads_what_each_stage_learns(stage: Stage, stages: str) -> None:
    read = parse_trajectory(target(stage, stages=stages), FIELDS, 10)
    assert read.parse == ("cut" if stages == "cut" and stage != "rap_eap_tap" else "whole")
    assert (read.relevant, read.relevant_reason) == (True, "It names her “father”.")
    cited = [] if stage == "rap" else ["His only legitimate child was Ada Lovelace."]
    assert [one.cite_content for one in read.cite_list] == cited
    assert (read.analysis, read.answer) == (("Ada was Byron's child.", "Lord Byron") if stage == "rap_eap_tap" else ("", ""))


def prompt_of(driven: Driven) -> Prompt:
    (call,) = [request for request in driven.requests if isinstance(request, Generate)]
    return call.prompt


def one_of(question: Question, task: Task) -> Sample:
    answer = {"short": "Lord Byron", "long": "Byron", "fever": "REFUTES"}[task]
    return sample(question, task, answer=answer, analysis="Byron [1][2].")


Task = Literal["short", "long", "fever"]
Process = Literal["rap", "eap", "tap"]
TASKS = [(SHORT, "short"), (LONG, "long"), (CLAIM, "fever")]


@pytest.mark.parametrize("shots", [0, 1])
@pytest.mark.parametrize(("question", "task"), TASKS)
def test_the_method_asks_for_the_last_stage_and_returns_what_it_learns(question: Question, task: Task, shots: int) -> None:
    """Driven with the target as the model's reply, the method finds every field that is in it."""
    one = one_of(question, task)
    example = stage_example(one, "rap_eap_tap", OPTIONS, BuildOptions(prompt_shots=shots))
    driven = drive(
        self_reasoning(question.text, SelfReasoningOptions(form=task, shots=shots)), [[BYRON, LONDON], example.messages[-1].content]
    )
    assert prompt_of(driven) == example.messages[:-1]
    detail = driven.answer.detail
    assert driven.answer.text == ("Byron [1][2]." if task == "long" else one.fields["answer"])
    assert (detail["parse"], detail["parse_ok"], detail["truncated"]) == ("whole", True, False)
    assert {name: detail[name] for name in ("relevant", "relevant_reason", "analysis", "answer")} == {
        name: value for name, value in one.fields.items() if name != "cite_list"
    }
    assert [(item["cite"], item["verbatim"]) for item in detail["cite_list"]] == [("1", "exact")]


@pytest.mark.parametrize("stages", ["asked", "cut"])
def test_earlier_stages_are_asked_for_what_they_learn_or_for_everything(stages: Literal["asked", "cut"]) -> None:
    def asked(stage: Stage) -> list[str]:
        example = stage_example(sample(SHORT, "short"), stage, OPTIONS, BuildOptions(stages=stages, prompt_shots=1))
        system, _, shot, *_ = example.messages
        fields = [line.split('"')[1] for line in system.content.splitlines() if line.startswith('- "')]
        assert list(json.loads(shot.content)) == fields
        return fields

    whole = list(FIELDS)
    assert asked("rap") == (whole[:2] if stages == "asked" else whole)
    assert asked("rap_eap") == (whole[:3] if stages == "asked" else whole)
    assert asked("rap_eap_tap") == whole


@pytest.mark.parametrize(("question", "task"), TASKS)
def test_the_baseline_learns_the_answer_without_a_trajectory(question: Question, task: Task) -> None:
    """The method, asked for nothing else, has the same prompt and reads the answer; of a long one the analysis is the answer."""
    one = one_of(question, task)
    example = plain_example(one, OPTIONS, BuildOptions())
    learned = json.loads(example.messages[-1].content)
    assert learned == {name: one.fields[name] for name in (("analysis", "answer") if task == "long" else ("answer",))}
    options = SelfReasoningOptions(form=task, shots=0, rap=False, eap=False, tap=task == "long")
    driven = drive(self_reasoning(question.text, options), [[BYRON, LONDON], example.messages[-1].content])
    assert prompt_of(driven) == example.messages[:-1]
    assert list(requested_fields(options)) == list(learned)
    assert driven.answer.text == ("Byron [1][2]." if task == "long" else one.fields["answer"])
    assert example.provenance["learned"] == "answer"


@pytest.mark.parametrize(
    ("without", "fields", "stages"),
    [
        ("rap", ["cite_list", "analysis", "answer"], ["rap_eap", "rap_eap_tap"]),
        ("eap", ["relevant", "relevant_reason", "analysis", "answer"], ["rap", "rap_eap_tap"]),
        ("tap", ["relevant", "relevant_reason", "cite_list", "answer"], ["rap", "rap_eap", "rap_eap_tap"]),
    ],
)
def test_a_process_is_left_out_as_the_method_leaves_it_out(without: Process, fields: list[str], stages: list[str]) -> None:
    build_options = BuildOptions(without=without)
    assert stages_of(build_options) == stages
    example = stage_example(sample(SHORT, "short"), "rap_eap_tap", OPTIONS, build_options)
    assert list(json.loads(example.messages[-1].content)) == fields
    options = replace(SelfReasoningOptions(shots=0), rap=without != "rap", eap=without != "eap", tap=without != "tap")
    driven = drive(self_reasoning(SHORT.text, options), [[BYRON, LONDON], example.messages[-1].content])
    assert prompt_of(driven) == example.messages[:-1]
    assert (driven.answer.text, driven.answer.detail["parse"]) == ("Lord Byron", "whole")


def test_verdicts_on_each_document_are_learned_in_the_first_stage() -> None:
    collect_options = CollectOptions(relevance="passage")
    verdict = {"document": 1, "relevant": True, "relevant_reason": "a"}
    one = sample(SHORT, "short", options=collect_options, relevance=[verdict])
    example = stage_example(one, "rap", collect_options, BuildOptions())
    assert json.loads(example.messages[-1].content) == {"relevance": [verdict]}
    whole = stage_example(one, "rap_eap_tap", collect_options, BuildOptions())
    options = SelfReasoningOptions(relevance="passage", shots=0)
    driven = drive(self_reasoning(SHORT.text, options), [[BYRON, LONDON], whole.messages[-1].content])
    assert prompt_of(driven) == whole.messages[:-1]
    assert driven.answer.detail["relevant"] is True


def test_where_an_example_comes_from() -> None:
    one = sample(SHORT, "short", negative=True)
    example = stage_example(one._replace(response=one.response._replace(set="popqa")), "rap", OPTIONS, BuildOptions())
    assert example.id == "popqa/s"
    assert example.provenance == {
        "set": "popqa",
        "question_id": "s",
        "question": "Who was Ada's father?",
        "task": "short",
        "learned": "rap",
        "negative": True,
        "documents_of": "Else?",
        "documents": ["b", "l"],
    }
