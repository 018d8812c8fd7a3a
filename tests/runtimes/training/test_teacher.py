"""Self-Reasoning's teacher: whose documents it is shown, and what can be read of its replies; ``transcripts`` hold what it is asked."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.runtimes.methods.driving import drive
from tests.runtimes.training.replies import BYRON, CLAIM, FIELDS, LONG, SHORT, reply, sample, trajectory
from wikidx.base.errors import InputError
from wikidx.runtimes.methods.templates import load_template
from wikidx.runtimes.questions import Question
from wikidx.runtimes.training.self_reasoning import BUILDER, BuildOptions, CollectOptions
from wikidx.runtimes.training.self_reasoning.samples import read_sample
from wikidx.runtimes.training.self_reasoning.teacher import other_question, task_of_set
from wikidx.runtimes.training.sets import make_question_set

SET = make_question_set("nq", [SHORT, *(Question(f"{number}", f"Question {number}?", ("x",)) for number in range(200))])


def test_half_are_negatives_and_a_seed_decides_which() -> None:
    def negatives(seed: int) -> list[bool]:
        runs = [BUILDER.method(SET, seed).run(question.text, CollectOptions()) for question in SET.questions]
        return [drive(run, [[BYRON], trajectory()]).answer.detail["is_negative"] for run in runs]

    first, again, other = negatives(0), negatives(0), negatives(1)
    assert first == again != other
    assert 80 < sum(first) < 120  # of 201; five standard deviations are 35


def test_another_question_has_other_words() -> None:
    assert {other_question("Who is it?", ["who is IT", "Who?"], random.Random(seed)) for seed in range(20)} == {"Who?"}
    with pytest.raises(InputError, match="there is none but 'Who is it"):
        other_question("Who is it?", ["who is IT"], random.Random(0))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no idea", "unreadable"),
        ("", "unreadable"),
        (trajectory(relevant="perhaps"), "incomplete"),
        (trajectory(relevant_reason=...), "incomplete"),
        (trajectory(analysis=""), "incomplete"),
        (trajectory(answer=...), "incomplete"),
        (trajectory(cite_list=[{"cite": "the first", "cite_content": "x", "reason_for_cite": "y"}]), "incomplete"),
        (trajectory(cite_list=[{"cite": 1, "cite_content": "", "reason_for_cite": "y"}]), "incomplete"),
        (trajectory(cite_list=[{"cite": 1, "cite_content": "x"}]), "incomplete"),
    ],
)
def test_what_cannot_be_a_target(text: str, why: str) -> None:
    assert read_sample(reply(SHORT, "short", text), CollectOptions()) == why


def test_what_is_read_is_what_was_written() -> None:
    assert list(sample(SHORT, "short").fields.items()) == list(FIELDS.items())
    assert sample(SHORT, "short", cite_list=[], relevant=False).fields["cite_list"] == []
    assert read_sample(reply(SHORT, "short", trajectory(), cut=True), CollectOptions()) == "cut off"
    assert read_sample(reply(CLAIM, "fever", trajectory(answer="hard to say")), CollectOptions()) == "incomplete"
    assert sample(CLAIM, "fever", answer="Supported.").fields["answer"] == "SUPPORTS"


def test_documents_are_named_by_numbers() -> None:
    cites = ["Lord Byron", "2", "[1]", "9", 0]
    written = [{"cite": cite, "cite_content": "x", "reason_for_cite": "y"} for cite in cites]
    read = [item["cite"] for item in sample(SHORT, "short", cite_list=written).fields["cite_list"]]
    assert read == [1, 2, 1, 9, 0]  # numbers beyond the documents stay: Algorithm 1 has no rule for them


def test_relevance_may_be_judged_for_each_document() -> None:
    collect_options = CollectOptions(relevance="passage")
    verdicts = [
        {"document": 1, "relevant": False, "relevant_reason": "a"},
        {"document": "London", "relevant": True, "relevant_reason": "b"},
    ]
    one = sample(SHORT, "short", options=collect_options, relevant=..., relevant_reason=..., relevance=verdicts)
    assert list(one.fields) == ["relevance", "cite_list", "analysis", "answer"]
    assert [item["document"] for item in one.fields["relevance"]] == [1, 2]
    none = [{**verdict, "relevant": None} for verdict in verdicts]
    assert read_sample(reply(SHORT, "short", trajectory(relevance=none)), collect_options) == "incomplete"


def test_tasks_follow_from_the_gold() -> None:
    assert [task_of_set(make_question_set("x", [question]), "gold") for question in (SHORT, LONG, CLAIM)] == ["short", "long", "fever"]
    assert task_of_set(make_question_set("asqa", [LONG, SHORT]), "short") == "short"
    with pytest.raises(InputError, match="the set 'mixed' has questions of several tasks, 'g' is long and 's' short"):
        task_of_set(make_question_set("mixed", [LONG, SHORT]), "gold")


@pytest.mark.parametrize(
    ("questions", "values", "built", "message"),
    [
        ([SHORT, Question("2", "Else?")], {}, {}, None),
        ([LONG], {"negatives": 0.0}, {}, None),
        ([Question("1", "Who?"), Question("2", "Else?")], {}, {}, "the set 'x' has no gold for 'popqa_accuracy'"),
        ([SHORT, Question("2", "Else?")], {"form": "long"}, {}, "no gold for 'alce_str_em'"),
        ([SHORT], {}, {}, "the set 'x' has one question"),
        ([LONG], {"negatives": 0.0}, {"without": "tap"}, "the set 'x' has long answers, which are the analysis"),
        ([CLAIM], {"negatives": 0.0}, {"prompt_shots": 99}, "the prompt 'self_reasoning/answer' has [0-9]+ demonstrations, not 99"),
        ([SHORT], {"negatives": 0.0}, {"prompt_shots": len(load_template("self_reasoning", "answer").shots)}, None),
    ],
)
def test_sets_without_examples_are_refused(
    questions: list[Question], values: dict[str, Any], built: dict[str, Any], message: str | None
) -> None:
    sets = [make_question_set("x", questions)]
    if message is None:
        BUILDER.check(sets, CollectOptions(**values), BuildOptions(**built))
        return
    with pytest.raises(InputError, match=message):
        BUILDER.check(sets, CollectOptions(**values), BuildOptions(**built))


def test_shares_are_shares_and_only_long_answers_need_a_model_of_inference() -> None:
    with pytest.raises(InputError, match="negatives is 1.5"):
        CollectOptions(negatives=1.5)
    for name in ("citation_recall", "citation_precision", "least_str_em"):
        for value in (-0.1, 1.1, float("nan")):
            with pytest.raises(InputError, match=f"{name} is {value}: it should be "):
                BuildOptions(**{name: value})  # type: ignore[arg-type]
    assert BUILDER.citation_scorer([make_question_set("x", [SHORT])], CollectOptions(), BuildOptions(), "cpu") is None
