"""Documents shown to the teacher, and assignment of samples to files."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

import pytest

from tests.runtimes.methods.driving import Driven, drive
from tests.runtimes.training.responses import field_of, targets
from tests.runtimes.training.trajectories import CLAIM, LONG, SHORT, Containing, reply, trajectory
from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.runtimes.evaluation.by_models.citations import AlceCitations
from wikidx.runtimes.evaluation.by_models.sentence_splitting import SIMPLE
from wikidx.runtimes.llms.base import Gen, Generate, JsonSchema
from wikidx.runtimes.methods.base import list_options
from wikidx.runtimes.methods.templates import load_template
from wikidx.runtimes.questions import Question
from wikidx.runtimes.training.base import Dataset, Response
from wikidx.runtimes.training.self_reasoning import BUILDER, BuildOptions, CollectOptions
from wikidx.runtimes.training.self_reasoning.teacher import other_question
from wikidx.runtimes.training.sets import QuestionSet, make_question_set

DOCUMENTS = [Passage(f"d{number}", f"T{number}", "x") for number in range(5)]
SET = make_question_set("nq", [SHORT, *(Question(f"{number}", f"Question {number}?", ("x",)) for number in range(200))])


def drive_trajectory(question: str, seed: int = 0, question_set: QuestionSet = SET, **values: Any) -> Driven:  # noqa: ANN401 - any option
    collect_options = CollectOptions(**values)
    return drive(BUILDER.method(question_set, seed).run(question, collect_options), [DOCUMENTS, trajectory()])


def test_a_positive_sees_its_own_documents_in_random_order() -> None:
    driven = drive_trajectory(SHORT.text, negatives=0.0)
    assert driven.outline == [["retrieve"], ["teacher"]]
    assert driven.queries == [(SHORT.text,)]
    assert driven.answer.text == trajectory()
    assert driven.answer.detail == {"task": "short", "documents_of": SHORT.text, "is_negative": False, "is_cut": False}
    chance = random.Random(f"0:{SHORT.text}")
    chance.random()
    assert list(driven.answer.passages) == chance.sample(DOCUMENTS, 5)
    assert list(drive_trajectory(SHORT.text, negatives=0.0, shuffle=False).answer.passages) == DOCUMENTS
    orders = {tuple(drive_trajectory(question.text, negatives=0.0).answer.passages) for question in SET.questions}
    assert len(orders) > 50  # of 120


def test_a_negative_sees_another_questions_documents() -> None:
    driven = drive_trajectory(SHORT.text, negatives=1.0)
    ((query,),) = driven.queries
    assert query != SHORT.text
    assert query in SET.others
    assert driven.answer.detail["documents_of"] == query
    assert driven.answer.detail["is_negative"] is True
    (prompt,) = driven.prompts("teacher")
    assert prompt.endswith(f"Question: {SHORT.text}")
    assert f"[1] {driven.answer.passages[0].title}\n" in prompt


def test_half_are_negatives_and_a_seed_decides_which() -> None:
    def negatives(seed: int) -> list[bool]:
        return [drive_trajectory(question.text, seed).answer.detail["is_negative"] for question in SET.questions]

    first = negatives(0)
    assert first == negatives(0)
    assert first != negatives(1)
    assert 80 < sum(first) < 120  # of 201; five standard deviations are 35


def test_another_question_has_other_words() -> None:
    assert {other_question("Who is it?", ["who is IT", "Who?"], random.Random(seed)) for seed in range(20)} == {"Who?"}
    with pytest.raises(InputError, match="there is none but 'Who is it"):
        other_question("Who is it?", ["who is IT"], random.Random(0))


def test_the_teacher_is_held_to_the_fields_of_the_task() -> None:
    def call(question: Question, **values: Any) -> Generate:  # noqa: ANN401 - any option
        driven = drive_trajectory(question.text, question_set=make_question_set("one", [question]), negatives=0.0, **values)
        (found,) = [request for request in driven.requests if isinstance(request, Generate)]
        return found

    schema = call(CLAIM).schema
    assert isinstance(schema, JsonSchema)
    assert json.loads(schema.text)["properties"]["answer"]["enum"] == ["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"]
    assert call(SHORT, structured=False).schema is None
    decoding = call(LONG, max_tokens=99, temperature=0.5).decoding
    assert (decoding.max_tokens, decoding.temperature) == (99, 0.5)
    assert len(call(SHORT, shots=0).prompt) == 2
    assert len(call(SHORT).prompt) == 4


def test_a_truncated_reply_is_marked() -> None:
    collect_options = CollectOptions(negatives=0.0)
    driven = drive(BUILDER.method(SET, 0).run(SHORT.text, collect_options), [DOCUMENTS, Gen(text="{", finish="length")])
    assert driven.answer.detail["is_cut"] is True


def build_dataset(replies: list[Response], **build_options: Any) -> Dataset:  # noqa: ANN401 - any option
    return BUILDER.build(replies, CollectOptions(), BuildOptions(**build_options), 0, AlceCitations(Containing(), SIMPLE))


def short(name: str, *, negative: bool = False, **changes: Any) -> Response:  # noqa: ANN401 - any field
    return reply(SHORT._replace(id=name), "short", trajectory(**changes), negative=negative)


CITED = "His only legitimate child was Ada Lovelace [1]. London is a city on the Thames [2]. "
GOOD = CITED * 2 + "Byron and Annabella [1]."
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


def ids(result: Dataset, name: str) -> list[str]:
    return field_of(result.files[name], "question_id")


def test_what_is_kept_and_why_the_rest_is_not() -> None:
    result = build_dataset(REPLIES)
    told = {name: tally.to_json() for name, tally in result.tallies.items()}
    readable = {"short, positive": 3, "long, positive": 2, "fever, positive": 1, "fever, negative": 1}
    kept = {"short, positive": 1, "long, positive": 1, "fever, positive": 1}
    assert told == {
        "readable": {"in": 10, "kept": 7, "kinds": readable, "dropped": {"incomplete": 1, "unreadable": 1, "cut off": 1}},
        "quality control": {
            "in": 7,
            "kept": 3,
            "kinds": kept,
            "dropped": {"wrong answer": 2, "citation recall": 1, "no gold answer": 1},
        },
        "size": {"in": 3, "kept": 3, "kinds": kept, "dropped": {"over the size": 0}},
    }
    for name in ("stage1_rap", "stage2_rap_eap", "stage3_rap_eap_tap", "wo_gl", "llama2_ft"):
        assert ids(result, name) == ["right", "g", "c"], name


def test_every_file_is_described() -> None:
    result = build_dataset(REPLIES)
    assert list(result.files) == [
        "stage1_rap",
        "stage2_rap_eap",
        "stage3_rap_eap_tap",
        "wo_gl",
        "wo_qc_stage1_rap",
        "wo_qc_stage2_rap_eap",
        "wo_qc_stage3_rap_eap_tap",
        "llama2_ft",
    ]
    assert set(BUILDER.descriptions) == set(result.files)


def test_without_gradual_learning_is_the_last_stage_alone() -> None:
    result = build_dataset(REPLIES)
    assert result.files["wo_gl"] == result.files["stage3_rap_eap_tap"]
    assert [list(json.loads(target)) for target in targets(result.files["wo_gl"])] == [
        ["relevant", "relevant_reason", "cite_list", "analysis", "answer"]
    ] * 3


def test_without_quality_control_as_many_are_drawn_from_all() -> None:
    replies = [short(f"{number}", answer="Keats" if number % 5 else "Lord Byron") for number in range(60)]
    result = build_dataset(replies)
    draw_questions = ids(result, "wo_qc_stage1_rap")
    assert ids(result, "stage1_rap") == [f"{number}" for number in range(0, 60, 5)]
    assert len(set(draw_questions)) == len(draw_questions) == 12
    assert sorted(draw_questions, key=int) == draw_questions
    wrong = [target for target in targets(result.files["wo_qc_stage3_rap_eap_tap"]) if "Keats" in target]
    assert 5 <= len(wrong) <= 12
    assert draw_questions == ids(result, "wo_qc_stage2_rap_eap") == ids(result, "wo_qc_stage3_rap_eap_tap")


def test_a_set_has_its_size_at_most() -> None:
    replies = [short(f"{number}") for number in range(30)]
    result, again = build_dataset(replies, size=10), build_dataset(replies, size=10)
    assert len(ids(result, "stage1_rap")) == len(ids(result, "wo_qc_stage1_rap")) == 10
    assert ids(result, "stage1_rap") == ids(again, "stage1_rap") != [f"{number}" for number in range(10)]
    assert result.tallies["size"].dropped == {"over the size": 20}


def test_claims_with_anothers_documents() -> None:
    undecided = reply(CLAIM, "fever", trajectory(answer="NOT ENOUGH INFO", relevant=False), negative=True)
    decided = reply(CLAIM._replace(id="decided"), "fever", trajectory(answer="SUPPORTS"), negative=True)
    assert ids(build_dataset([undecided, decided]), "wo_gl") == ["decided"]


def test_sets_without_examples_are_refused() -> None:
    def check(*questions: Question, **values: Any) -> None:  # noqa: ANN401 - any option
        BUILDER.check([make_question_set("x", questions)], CollectOptions(**values), BuildOptions())

    check(SHORT, Question("2", "Else?"))
    check(LONG, negatives=0.0)
    with pytest.raises(InputError, match="the set 'x' has no gold for 'popqa_accuracy'"):
        check(Question("1", "Who?"), Question("2", "Else?"))
    with pytest.raises(InputError, match="no gold for 'alce_str_em'"):
        check(SHORT, Question("2", "Else?"), form="long")
    with pytest.raises(InputError, match="the set 'x' has one question"):
        check(SHORT)
    with pytest.raises(InputError, match="negatives is 1.5"):
        CollectOptions(negatives=1.5)


@pytest.mark.parametrize(("question", "task"), [(SHORT, "short"), (LONG, "long"), (CLAIM, "fever")])
def test_prompts_with_more_demonstrations_than_there_are(question: Question, task: str) -> None:
    sets, collect_options = [make_question_set("x", [question])], CollectOptions(negatives=0.0)
    with pytest.raises(InputError, match="the prompt 'self_reasoning/answer' has [0-9]+ demonstrations, not 99: ask for fewer"):
        BUILDER.check(sets, collect_options, BuildOptions(prompt_shots=99))
    BUILDER.check(sets, collect_options, BuildOptions(prompt_shots=len(load_template("self_reasoning", "answer", task).shots)))


@pytest.mark.parametrize("name", ["citation_recall", "citation_precision", "least_str_em"])
@pytest.mark.parametrize("value", [-0.1, 1.1, 7.0, float("nan")])
def test_thresholds_are_shares(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{name} is {value}: it should be "):
        BuildOptions(**{name: value})  # type: ignore[arg-type]


def test_a_long_answer_cannot_do_without_its_analysis() -> None:
    with pytest.raises(InputError, match="the set 'x' has long answers, which are the analysis"):
        BUILDER.check([make_question_set("x", [LONG])], CollectOptions(negatives=0.0), BuildOptions(without="tap"))


def test_only_long_answers_need_a_model_of_inference() -> None:
    assert BUILDER.citation_scorer([make_question_set("x", [SHORT])], CollectOptions(), BuildOptions(), "cpu") is None


def test_the_papers_figures_are_the_defaults() -> None:
    found = {one.name: (one.default, one.origin) for kind in (CollectOptions(), BuildOptions()) for one in list_options(kind)}
    expected = {"samples": 10_000, "k": 5, "max_tokens": 2048, "citation_recall": 0.8, "citation_precision": 0.8, "size": 2000}
    assert {name: found[name] for name in expected} == {name: (value, "paper") for name, value in expected.items()}
    names = [field.name for kind in (CollectOptions, BuildOptions) for field in dataclasses.fields(kind)]
    assert len(set(names)) == len(names)
