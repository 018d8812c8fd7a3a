"""Self-Reasoning's files: targets of the stages, which the method asks for and reads, quality control, and what goes into which file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import pytest

from tests.runtimes.methods.driving import Driven, drive
from tests.runtimes.training.replies import (
    BYRON,
    CLAIM,
    FIELDS,
    LONDON,
    LONG,
    SHORT,
    Containing,
    field_of,
    reply,
    sample,
    trajectory,
)
from wikidx.runtimes.evaluation.by_models.citations import PRECISION, RECALL, AlceCitations
from wikidx.runtimes.evaluation.by_models.sentence_splitting import SIMPLE
from wikidx.runtimes.llms.base import Generate
from wikidx.runtimes.llms.prompts import Prompt
from wikidx.runtimes.methods.base import list_options
from wikidx.runtimes.methods.self_reasoning import SelfReasoningOptions, self_reasoning
from wikidx.runtimes.methods.self_reasoning.trajectory import parse_trajectory
from wikidx.runtimes.questions import Question
from wikidx.runtimes.training.base import Dataset, Response
from wikidx.runtimes.training.self_reasoning import BUILDER, BuildOptions, CollectOptions
from wikidx.runtimes.training.self_reasoning.files import Stage, plain_example, stage_example, stages_of
from wikidx.runtimes.training.self_reasoning.samples import Sample, quality_control, row_of
from wikidx.runtimes.training.self_reasoning.teacher import score_of

Task = Literal["short", "long", "fever"]
OPTIONS = CollectOptions()
TASKS = [(SHORT, "short"), (LONG, "long"), (CLAIM, "fever")]
RAP = '{"relevant": true, "relevant_reason": "It names her “father”."'
EAP = ', "cite_list": [{"cite": 1, "cite_content": "His only legitimate child was Ada Lovelace.", "reason_for_cite": "It names him."}]'
TAP = ', "analysis": "Ada was Byron\'s child.", "answer": "Lord Byron"}'


@pytest.mark.parametrize(
    ("stage", "stages", "target", "requested"),
    [
        ("rap", "asked", RAP + "}", 2),
        ("rap_eap", "asked", RAP + EAP + "}", 3),
        ("rap_eap_tap", "asked", RAP + EAP + TAP, 5),
        ("rap", "cut", RAP, 5),
        ("rap_eap", "cut", RAP + EAP, 5),
        ("rap_eap_tap", "cut", RAP + EAP + TAP, 5),
    ],
)
def test_the_stages_learn_ever_more_or_beginnings_of_the_whole(stage: Stage, stages: Any, target: str, requested: int) -> None:  # noqa: ANN401
    example = stage_example(sample(SHORT, "short"), stage, OPTIONS, BuildOptions(stages=stages, prompt_shots=1))
    assert example.messages[-1].content == target
    system, _, shot, *_ = example.messages
    assert [line.split('"')[1] for line in system.content.splitlines() if line.startswith('- "')] == list(FIELDS)[:requested]
    assert list(json.loads(shot.content)) == list(FIELDS)[:requested]
    read = parse_trajectory(target, FIELDS)
    assert read.parse == ("whole" if target.endswith("}") else "cut")
    assert (read.relevant, len(read.cite_list), read.answer) == (True, EAP in target, "Lord Byron" if TAP in target else "")


def ask_method(question: Question, options: SelfReasoningOptions, written: str) -> tuple[Driven, Prompt]:
    """Run the method with a target as its model's reply; return with it what the model was asked."""
    driven = drive(self_reasoning(question.text, options), [[BYRON, LONDON], written])
    (call,) = [request for request in driven.requests if isinstance(request, Generate)]
    return driven, call.prompt


def one_of(question: Question, task: Task) -> Sample:
    answer = {"short": "Lord Byron", "long": "Byron", "fever": "REFUTES"}[task]
    return sample(question, task, answer=answer, analysis="Byron [1][2].")


@pytest.mark.parametrize("shots", [0, 1])
@pytest.mark.parametrize(("question", "task"), TASKS)
def test_the_method_asks_for_the_last_stage_and_returns_what_it_learns(question: Question, task: Task, shots: int) -> None:
    one = one_of(question, task)
    example = stage_example(one, "rap_eap_tap", OPTIONS, BuildOptions(prompt_shots=shots))
    driven, asked = ask_method(question, SelfReasoningOptions(form=task, shots=shots), example.messages[-1].content)
    assert asked == example.messages[:-1]
    detail = driven.answer.detail
    assert driven.answer.text == ("Byron [1][2]." if task == "long" else one.fields["answer"])
    assert (detail["parse"], detail["parse_ok"], detail["truncated"]) == ("whole", True, False)
    learned = {name: value for name, value in one.fields.items() if name != "cite_list"}
    assert {name: detail[name] for name in learned} == learned
    assert [(item["cite"], item["verbatim"]) for item in detail["cite_list"]] == [("1", "exact")]


@pytest.mark.parametrize(("question", "task"), TASKS)
def test_the_baseline_learns_the_answer_without_a_trajectory(question: Question, task: Task) -> None:
    """The method, asked for nothing else, has the same prompt and reads the answer; of a long one the analysis is the answer."""
    one = one_of(question, task)
    example = plain_example(one, OPTIONS, BuildOptions())
    target = example.messages[-1].content
    assert json.loads(target) == {name: one.fields[name] for name in (("analysis", "answer") if task == "long" else ("answer",))}
    options = SelfReasoningOptions(form=task, shots=0, rap=False, eap=False, tap=task == "long")
    driven, asked = ask_method(question, options, target)
    assert asked == example.messages[:-1]
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
def test_a_process_is_left_out_as_the_method_leaves_it_out(without: Any, fields: list[str], stages: list[str]) -> None:  # noqa: ANN401
    build_options = BuildOptions(without=without)
    assert stages_of(build_options) == stages
    example = stage_example(sample(SHORT, "short"), "rap_eap_tap", OPTIONS, build_options)
    target = example.messages[-1].content
    assert list(json.loads(target)) == fields
    driven, asked = ask_method(
        SHORT, SelfReasoningOptions(shots=0, rap=without != "rap", eap=without != "eap", tap=without != "tap"), target
    )
    assert asked == example.messages[:-1]
    assert (driven.answer.text, driven.answer.detail["parse"]) == ("Lord Byron", "whole")


def test_verdicts_on_each_document_are_learned_in_the_first_stage() -> None:
    collect_options = CollectOptions(relevance="passage")
    verdict = {"document": 1, "relevant": True, "relevant_reason": "a"}
    one = sample(SHORT, "short", options=collect_options, relevance=[verdict])
    example = stage_example(one, "rap", collect_options, BuildOptions())
    assert json.loads(example.messages[-1].content) == {"relevance": [verdict]}
    whole = stage_example(one, "rap_eap_tap", collect_options, BuildOptions())
    driven, asked = ask_method(SHORT, SelfReasoningOptions(relevance="passage", shots=0), whole.messages[-1].content)
    assert asked == whole.messages[:-1]
    assert driven.answer.detail["relevant"] is True


def test_where_an_example_comes_from() -> None:
    one = sample(SHORT, "short", negative=True)
    example = stage_example(one._replace(response=one.response._replace(set="popqa")), "rap", OPTIONS, BuildOptions())
    assert example.id == "popqa/s"
    assert example.provenance == {
        **{"set": "popqa", "question_id": "s", "question": "Who was Ada's father?", "task": "short", "learned": "rap"},
        **{"negative": True, "documents_of": "Else?", "documents": ["b", "l"]},
    }


# Algorithm 1: quality control


def dropped(samples: list[Sample], thresholds: Mapping[str, Any] | None = None, nli: Containing | None = None) -> list[str | None]:
    return quality_control(samples, AlceCitations(nli or Containing(), SIMPLE), BuildOptions(**(thresholds or {})))


@pytest.mark.parametrize(
    ("question", "task", "answer", "rule"),
    [
        (SHORT, "short", "the poet lord byron", None),  # contained, in lower case
        (SHORT, "short", "Byron", "wrong answer"),
        (SHORT, "short", "LORD BYRON", "wrong answer"),  # the program is PopQA's
        (CLAIM, "fever", "supported", None),
        (CLAIM, "fever", "NOT ENOUGH INFO", "wrong answer"),
        (Question("1", "Who?"), "short", "x", "no gold answer"),
        (Question("2", "Who?", gold={}), "long", "x", "no gold answer"),
        (Question("3", "So."), "fever", "SUPPORTS", "no gold answer"),
    ],
)
def test_an_answer_is_kept_if_it_holds_the_gold(question: Question, task: Task, answer: str, rule: str | None) -> None:
    assert dropped([sample(question, task, answer=answer)]) == [rule]


IS_CHILD = "His only legitimate child was Ada Lovelace"  # stands in document 1
ON_THAMES = "London is a city on the Thames"  # stands in document 2
ANNABELLA = "Byron and Annabella"  # stands nowhere
TWICE = f"{IS_CHILD} [1][2]. " * 4 + f"{ANNABELLA} [1]."  # the second citation of a sentence is of no use: 4 of 9 are
GOOD = f"{IS_CHILD} [1]. {ON_THAMES} [2]. " * 2 + f"{ANNABELLA} [1]."


@pytest.mark.parametrize(
    ("analysis", "thresholds", "recall", "precision", "rule"),
    [
        # One reading of the question is Byron, the other Annabella: without both the answer is wrong, and its citations are not looked at.
        (f"{IS_CHILD} [1].", {}, 1.0, 1.0, "wrong answer"),
        (f"{IS_CHILD} [1]. {ANNABELLA}.", {}, 1 / 2, 1.0, "citation recall"),
        (GOOD, {}, 4 / 5, 4 / 5, None),  # both exactly 0.8
        (f"{IS_CHILD} [1]. {ON_THAMES} [2]. {IS_CHILD} [1]. {ANNABELLA} [1].", {}, 3 / 4, 3 / 4, "citation recall"),
        (TWICE, {}, 4 / 5, 4 / 9, "citation precision"),
        (TWICE, {"citation_precision": 4 / 9}, 4 / 5, 4 / 9, None),
        (TWICE, {"citation_precision": 0.5}, 4 / 5, 4 / 9, "citation precision"),
        (TWICE, {"citation_recall": 0.81, "citation_precision": 0.0}, 4 / 5, 4 / 9, "citation recall"),
    ],
)
def test_a_long_answer_is_kept_if_it_is_correct_and_its_citations_hold(
    analysis: str, thresholds: dict[str, float], recall: float, precision: float, rule: str | None
) -> None:
    one = sample(LONG, "long", analysis=analysis)
    assert dropped([one], thresholds) == [rule]
    values = AlceCitations(Containing(), SIMPLE).measure([row_of(one)], [LONG]).values
    assert (values[RECALL][0], values[PRECISION][0]) == pytest.approx((recall, precision))


def test_citations_of_short_answers_are_not_looked_at_and_the_union_keeps_the_order() -> None:
    """Algorithm 1: what is not long-form is kept if it is correct, whatever it cites; a wrong long answer costs no NLI either."""
    nli = Containing()
    short = [sample(SHORT, "short", analysis="Nothing [9]."), sample(CLAIM, "fever", answer="SUPPORTS", analysis="Nothing [9].")]
    assert dropped([*short, sample(LONG, "long", analysis="Nothing [1].")], nli=nli) == [None, None, "wrong answer"]
    assert nli.n_pairs == 0
    good = sample(LONG, "long", analysis=GOOD)
    assert dropped([good, short[0], sample(LONG, "long"), good]) == [None, None, "wrong answer", None]
    with pytest.raises(ValueError, match="1 long answers are correct, and nothing scores their citations"):
        quality_control([good], None, BuildOptions())
    assert quality_control(short, None, BuildOptions()) == [None, None]


def test_a_long_answer_is_graded_on_one_line_and_without_its_citations() -> None:
    """As the method returns it and ALCE scores it: "Byr[1]on" in the model's text is no Byron, a second line counts."""
    one = sample(LONG, "long", analysis="Byron [1, 2].\n\nAnnabella [1]")
    assert one.graded_text == "Byron [1][2]. Annabella [1]"
    assert score_of("long", one.graded_text, LONG) == 1
    half, loose = sample(LONG, "long", analysis="Byron [1]"), {"citation_recall": 0.0, "citation_precision": 0.0}
    assert [dropped([half], {"least_str_em": least, **loose}) for least in (0.5, 0.51)] == [[None], ["wrong answer"]]


# Which samples go into which file


def build_dataset(replies: list[Response], **build_options: Any) -> Dataset:  # noqa: ANN401 - any option
    return BUILDER.build(replies, OPTIONS, BuildOptions(**build_options), 0, AlceCitations(Containing(), SIMPLE))


def ids(result: Dataset, name: str) -> list[str]:
    return field_of(result.files[name], "question_id")


def short(name: str, **changes: Any) -> Response:  # noqa: ANN401 - any field
    return reply(SHORT._replace(id=name), "short", trajectory(**changes))


REPLIES = [
    short("right"),
    short("wrong", answer="Keats"),
    short("half", answer=...),
    reply(SHORT._replace(id="nothing"), "short", "I do not know"),
    reply(SHORT._replace(id="cut"), "short", trajectory(), cut=True),
    reply(LONG, "long", trajectory(analysis=GOOD)),
    reply(LONG._replace(id="uncited"), "long", trajectory(analysis="Byron and Annabella.")),
    reply(CLAIM, "fever", trajectory(answer="SUPPORTS")),
    reply(CLAIM._replace(id="undecided"), "fever", trajectory(answer="NOT ENOUGH INFO", relevant=False), negative=True),
    reply(SHORT._replace(id="ungolden", golden_answers=()), "short", trajectory()),
]


def test_what_is_kept_and_why_the_rest_is_not() -> None:
    result = build_dataset(REPLIES)
    readable = {"short, positive": 3, "long, positive": 2, "fever, positive": 1, "fever, negative": 1}
    kept = {"short, positive": 1, "long, positive": 1, "fever, positive": 1}
    rules = {"wrong answer": 2, "citation recall": 1, "no gold answer": 1}
    assert {name: tally.to_json() for name, tally in result.tallies.items()} == {
        "readable": {"in": 10, "kept": 7, "kinds": readable, "dropped": {"incomplete": 1, "unreadable": 1, "cut off": 1}},
        "quality control": {"in": 7, "kept": 3, "kinds": kept, "dropped": rules},
        "size": {"in": 3, "kept": 3, "kinds": kept, "dropped": {"over the size": 0}},
    }
    stages = ["stage1_rap", "stage2_rap_eap", "stage3_rap_eap_tap"]
    assert list(result.files) == [*stages, "wo_gl", *(f"wo_qc_{stage}" for stage in stages), "llama2_ft"]
    assert set(BUILDER.descriptions) == set(result.files)
    assert [ids(result, name) for name in (*stages, "wo_gl", "llama2_ft")] == [["right", "g", "c"]] * 5
    assert result.files["wo_gl"] == result.files["stage3_rap_eap_tap"]


def test_without_quality_control_as_many_are_drawn_from_all() -> None:
    result = build_dataset([short(f"{number}", answer="Keats" if number % 5 else "Lord Byron") for number in range(60)])
    drawn = ids(result, "wo_qc_stage1_rap")
    assert ids(result, "stage1_rap") == [f"{number}" for number in range(0, 60, 5)]
    assert len(set(drawn)) == len(drawn) == 12
    assert sorted(drawn, key=int) == drawn
    assert 5 <= sum(int(name) % 5 > 0 for name in drawn)
    assert drawn == ids(result, "wo_qc_stage2_rap_eap") == ids(result, "wo_qc_stage3_rap_eap_tap")


def test_a_set_has_its_size_at_most() -> None:
    replies = [short(f"{number}") for number in range(30)]
    result, again = build_dataset(replies, size=10), build_dataset(replies, size=10)
    assert len(ids(result, "stage1_rap")) == len(ids(result, "wo_qc_stage1_rap")) == 10
    assert ids(result, "stage1_rap") == ids(again, "stage1_rap") != [f"{number}" for number in range(10)]
    assert result.tallies["size"].dropped == {"over the size": 20}


def test_the_papers_figures_are_the_defaults() -> None:
    found = {one.name: (one.default, one.origin) for kind in (CollectOptions(), BuildOptions()) for one in list_options(kind)}
    expected = {"samples": 10_000, "k": 5, "max_tokens": 2048, "citation_recall": 0.8, "citation_precision": 0.8, "size": 2000}
    assert {name: found[name] for name in expected} == {name: (value, "paper") for name, value in expected.items()}
