"""Algorithm 1 of Self-Reasoning, the metric programs before it, and what can be read at all."""

from __future__ import annotations

import pytest

from tests.runtimes.training.responses import make_response
from tests.runtimes.training.trajectories import CLAIM, FIELDS, LONG, SHORT, Containing, reply, sample, trajectory
from wikidx.base.errors import InputError
from wikidx.runtimes.evaluation.by_models.citations import PRECISION, RECALL, AlceCitations
from wikidx.runtimes.evaluation.by_models.sentence_splitting import SIMPLE
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.questions import Question
from wikidx.runtimes.training.self_reasoning.samples import Sample, quality_control, read_sample, row_of
from wikidx.runtimes.training.self_reasoning.teacher import BuildOptions, CollectOptions, score_of, task_of, task_of_set
from wikidx.runtimes.training.sets import make_question_set

LEAST = BuildOptions()  # STR-EM 1, recall and precision 0.8


def least(str_em: float, recall: float, precision: float) -> BuildOptions:
    return BuildOptions(least_str_em=str_em, citation_recall=recall, citation_precision=precision)


def dropped(samples: list[Sample], nli: Containing | None = None, build_options: BuildOptions = LEAST) -> list[str | None]:
    return quality_control(samples, AlceCitations(nli or Containing(), SIMPLE), build_options)


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        ("Lord Byron", None),
        ("the poet lord byron", None),  # contained, in lower case
        ("Byron", "wrong answer"),
        ("LORD BYRON", "wrong answer"),  # the program is PopQA's
    ],
)
def test_a_short_answer_is_kept_if_it_holds_the_gold(answer: str, rule: str | None) -> None:
    assert dropped([sample(SHORT, "short", answer=answer)]) == [rule]


@pytest.mark.parametrize(
    ("answer", "rule"),
    [("SUPPORTS", None), ("supported", None), ("REFUTES", "wrong answer"), ("NOT ENOUGH INFO", "wrong answer")],
)
def test_a_verdict_is_kept_if_it_is_the_label(answer: str, rule: str | None) -> None:
    assert dropped([sample(CLAIM, "fever", answer=answer)]) == [rule]


def test_without_gold_nothing_is_correct() -> None:
    questions = [Question("1", "Who?"), Question("2", "Who?", gold={}), Question("3", "So.")]
    tasks = ["short", "long", "fever"]
    samples = [sample(question, task, answer="SUPPORTS") for question, task in zip(questions, tasks, strict=True)]
    assert dropped(samples) == ["no gold answer"] * 3


IS_CHILD = "His only legitimate child was Ada Lovelace"  # stands in document 1
ON_THAMES = "London is a city on the Thames"  # stands in document 2
ANNABELLA = "Byron and Annabella"  # stands nowhere


@pytest.mark.parametrize(
    ("analysis", "recall", "precision", "rule"),
    [
        # One reading of the question is Byron, the other Annabella: without both the answer is wrong, and its citations are not looked at.
        (f"{IS_CHILD} [1].", 1.0, 1.0, "wrong answer"),
        (f"{IS_CHILD} [1]. {ANNABELLA} [1].", 1 / 2, 1 / 2, "citation recall"),
        (f"{IS_CHILD} [1]. {ANNABELLA}.", 1 / 2, 1.0, "citation recall"),
        (f"{IS_CHILD} [1]. {ON_THAMES} [2]. {IS_CHILD} [1]. {ON_THAMES} [2]. {ANNABELLA} [1].", 4 / 5, 4 / 5, None),  # both exactly 0.8
        (f"{IS_CHILD} [1]. {ON_THAMES} [2]. {IS_CHILD} [1]. {ANNABELLA} [1].", 3 / 4, 3 / 4, "citation recall"),
        # The second citation of each sentence is of no use: four sentences of five entailed, four citations of nine of use.
        (
            f"{IS_CHILD} [1][2]. {IS_CHILD} [1][2]. {IS_CHILD} [1][2]. {IS_CHILD} [1][2]. {ANNABELLA} [1].",
            4 / 5,
            4 / 9,
            "citation precision",
        ),
    ],
)
def test_a_long_answer_is_kept_if_it_is_correct_and_its_citations_hold(
    analysis: str, recall: float, precision: float, rule: str | None
) -> None:
    one = sample(LONG, "long", analysis=analysis)
    assert dropped([one]) == [rule]
    values = AlceCitations(Containing(), SIMPLE).measure([row_of(one)], [LONG]).values
    assert (values[RECALL][0], values[PRECISION][0]) == pytest.approx((recall, precision))


@pytest.mark.parametrize(
    ("build_options", "rule"),
    [
        (least(1.0, 4 / 5, 4 / 9), None),
        (least(1.0, 4 / 5, 0.5), "citation precision"),
        (least(1.0, 0.81, 0.0), "citation recall"),
        (least(1.0, 0.0, 0.0), None),
    ],
)
def test_both_thresholds_are_least_values(build_options: BuildOptions, rule: str | None) -> None:
    analysis = f"{IS_CHILD} [1][2]. {IS_CHILD} [1][2]. {IS_CHILD} [1][2]. {IS_CHILD} [1][2]. {ANNABELLA} [1]."
    assert dropped([sample(LONG, "long", analysis=analysis)], build_options=build_options) == [rule]


def test_citations_of_short_answers_are_not_looked_at() -> None:
    """Algorithm 1: what is not long-form is kept if it is correct, whatever it cites; a wrong long answer costs no NLI either."""
    nli = Containing()
    samples = [
        sample(SHORT, "short", analysis="Nothing [9]."),
        sample(CLAIM, "fever", answer="SUPPORTS", analysis="Nothing [9]."),
        sample(LONG, "long", analysis="Nothing [1]."),
    ]
    assert dropped(samples, nli) == [None, None, "wrong answer"]
    assert nli.n_pairs == 0


def test_the_union_keeps_the_order() -> None:
    good = f"{IS_CHILD} [1]. {ON_THAMES} [2]. {IS_CHILD} [1]. {ON_THAMES} [2]. {ANNABELLA} [1]."
    samples = [sample(LONG, "long", analysis=good), sample(SHORT, "short"), sample(SHORT, "short", answer="x"), sample(LONG, "long")]
    assert dropped(samples) == [None, None, "wrong answer", "wrong answer"]


def test_a_long_answer_is_graded_on_one_line_and_without_its_citations() -> None:
    """As the method returns it and ALCE scores it: "Byr[1]on" in the model's text is no Byron, a second line counts."""
    one = sample(LONG, "long", analysis="Byron [1, 2].\n\nAnnabella [1]")
    assert one.graded_text == "Byron [1][2]. Annabella [1]"
    assert score_of("long", one.graded_text, LONG) == 1
    half = sample(LONG, "long", analysis="Byron [1]")
    assert score_of("long", half.graded_text, LONG) == 0.5
    assert [dropped([half], build_options=least(str_em, 0.0, 0.0)) for str_em in (0.5, 0.51)] == [[None], ["wrong answer"]]


def test_long_answers_without_anything_that_scores_citations() -> None:
    correct = sample(LONG, "long", analysis="Byron, Annabella")
    with pytest.raises(ValueError, match="1 long answers are correct, and nothing scores their citations"):
        quality_control([correct], None, LEAST)
    assert quality_control([sample(SHORT, "short")], None, LEAST) == [None]


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


def test_what_ended_at_its_limit_is_no_target() -> None:
    assert read_sample(reply(SHORT, "short", trajectory(), cut=True), CollectOptions()) == "cut off"


def test_a_verdict_that_is_none_is_no_target() -> None:
    assert read_sample(reply(CLAIM, "fever", trajectory(answer="hard to say")), CollectOptions()) == "incomplete"
    assert sample(CLAIM, "fever", answer="Supported.").fields["answer"] == "SUPPORTS"


def test_what_is_read_is_what_was_written() -> None:
    assert sample(SHORT, "short").fields == dict(FIELDS)
    assert list(sample(SHORT, "short").fields) == list(FIELDS)
    assert sample(SHORT, "short", cite_list=[], relevant=False).fields["cite_list"] == []


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
    assert [task_of(question) for question in (SHORT, LONG, CLAIM)] == ["short", "long", "fever"]
    assert task_of_set(make_question_set("asqa", [LONG]), "gold") == "long"
    assert task_of_set(make_question_set("asqa", [LONG, SHORT]), "short") == "short"
    with pytest.raises(InputError, match="the set 'mixed' has questions of several tasks, 'g' is long and 's' short"):
        task_of_set(make_question_set("mixed", [LONG, SHORT]), "gold")


def test_no_documents_at_all() -> None:
    nothing = make_response(SHORT, Answer(trajectory(), (), {"task": "short", "documents_of": "x", "is_negative": False, "is_cut": False}))
    read = read_sample(nothing, CollectOptions())
    assert isinstance(read, Sample)
    assert read.documents == ()
