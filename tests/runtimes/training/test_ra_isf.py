"""RA-ISF's sub-models: what is asked, how it is labelled, and that the method asks and reads just that."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtimes.methods.driving import Driven, drive
from tests.runtimes.training.responses import field_of, make_response, targets
from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Gen, Generate
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.ra_isf import RaIsfOptions, ra_isf
from wikidx.runtimes.methods.ra_isf.replies import parse_verdict
from wikidx.runtimes.methods.sub_questions import parse_sub_questions
from wikidx.runtimes.questions import Question
from wikidx.runtimes.training.base import Dataset
from wikidx.runtimes.training.ra_isf import BUILDER, BuildOptions, CollectOptions, check, collect, draw
from wikidx.runtimes.training.sets import make_question_set

Q = Question("7", "Who wrote Hamlet?", ("Shakespeare", "William Shakespeare"))
FOUND = [Passage("a", "Hamlet", "A play by Shakespeare."), Passage("b", "Elsinore", "A town in Denmark.")]
NONE: dict[str, Any] = {"know": "off", "relevance": False, "decompose": False}


def drive_collect(*canned: object, **values: Any) -> Driven:  # noqa: ANN401 - any option
    options: dict[str, Any] = {"shots": 0, "max_query_tokens": 0, **values}
    return drive(collect(Q.text, CollectOptions(**options)), list(canned))


def build_dataset(answer: Answer, question: Question = Q, collect_options: CollectOptions | None = None, **build_options: Any) -> Dataset:  # noqa: ANN401 - any option
    return BUILDER.build([make_response(question, answer)], collect_options or CollectOptions(), BuildOptions(**build_options), 0, None)


def test_everything_about_a_question_is_asked_at_the_same_time() -> None:
    driven = drive_collect("Shakespeare.", FOUND, "1. Who?\n2. What?", "Yes", "no")
    assert driven.outline == [["answer", "retrieve", "decompose"], ["relevance", "relevance"]]
    assert driven.queries == [(Q.text,)]
    assert driven.answer == Answer(
        "Shakespeare.", tuple(FOUND), {"own_answer": "Shakespeare.", "verdicts": [True, False], "sub_questions": ["Who?", "What?"]}
    )


def test_the_own_answer_is_asked_for_without_passages_and_with_demonstrations() -> None:
    driven = drive_collect("Shakespeare", **{**NONE, "know": "answers", "shots": 2})
    (prompt,) = driven.prompts("answer")
    assert prompt.endswith("Question: Who wrote Hamlet?\nReply in as few words as name it exactly.\nAnswer:")
    assert prompt.count("\nAnswer:") == 3
    assert driven.answer.detail == {"own_answer": "Shakespeare"}


def test_a_yes_or_no_question_is_answered_so() -> None:
    driven = drive_collect("yes", **{**NONE, "know": "answers", "form": "yes_no"})
    assert "Reply with one word, yes or no." in driven.prompts("answer")[0]


@pytest.mark.parametrize(("reply", "known"), [("Yes", True), ("no.", False), ("perhaps", None)])
def test_a_model_is_asked_whether_it_knows(reply: str, known: bool | None) -> None:
    driven = drive_collect(reply, **{**NONE, "know": "asked"})
    assert driven.outline == [["know"]]
    assert driven.answer.detail == {"known": known}


def test_a_cut_list_loses_its_last_item() -> None:
    driven = drive_collect(Gen(text="1. Who?\n2. Wh", finish="length"), **{**NONE, "decompose": True})
    assert driven.answer.detail == {"sub_questions": ["Who?"]}


def test_passages_that_contain_the_question_are_left_out() -> None:
    quiz = Passage("q", "Quiz", "Round 3: who wrote Hamlet? Answer below.")
    driven = drive_collect([quiz, *FOUND], "yes", "no", **{**NONE, "relevance": True})
    assert [passage.id for passage in driven.answer.passages] == ["a", "b"]


@pytest.mark.parametrize(
    ("own", "target"),
    [
        ("william shakespeare.", "yes"),
        ("Shakespeare", "yes"),
        ("The play is by Shakespeare", "no"),  # not the same
        ("Marlowe", "no"),
        ("", "no"),
    ],
)
def test_what_is_known_is_what_is_answered_as_the_gold_is(own: str, target: str) -> None:
    result = build_dataset(Answer(own, (), {"own_answer": own, "verdicts": [], "sub_questions": ["x?"]}))
    assert targets(result.files["know"]) == [target]
    assert field_of(result.files["know"], "labelled_by") == ["the model's own answer, by squad_em"]
    assert field_of(result.files["know"], "label") == [target == "yes"]
    assert result.tallies["know"].to_json() == {"in": 1, "kept": 1, "kinds": {target: 1}, "dropped": {}}


def test_a_question_without_gold_has_no_label() -> None:
    result = build_dataset(Answer("", (), {"own_answer": "x", "verdicts": [], "sub_questions": []}), Question("7", "Who?"))
    assert result.files["know"] == []
    assert result.tallies["know"].to_json() == {"in": 1, "kept": 0, "kinds": {}, "dropped": {"no gold answer": 1}}


@pytest.mark.parametrize(("known", "expected"), [(True, ["yes"]), (False, ["no"]), (None, [])])
def test_labels_that_a_model_gives_itself(known: bool | None, expected: list[str]) -> None:
    collect_options = CollectOptions(know="asked", relevance=False, decompose=False)
    result = build_dataset(Answer("", (), {"known": known}), collect_options=collect_options)
    assert targets(result.files["know"]) == expected
    assert list(result.files) == ["know"]
    assert result.tallies["know"].dropped == ({} if expected else {"unreadable verdict": 1})


def test_relevance_is_learned_passage_by_passage() -> None:
    three = (*FOUND, Passage("c", "", "?"))
    result = build_dataset(Answer("", three, {"own_answer": "x", "verdicts": [True, False, None], "sub_questions": []}))
    examples = result.files["relevance"]
    assert targets(examples) == ["yes", "no"]
    assert [example.id for example in examples] == ["nq/7/relevance/a", "nq/7/relevance/b"]
    assert field_of(examples, "passage") == ["a", "b"]
    assert examples[1].messages[-2].content.startswith("Question: Who wrote Hamlet?\n\nPassage:\nElsinore\nA town in Denmark.\n")
    assert result.tallies["relevance"].to_json() == {"in": 3, "kept": 2, "kinds": {"yes": 1, "no": 1}, "dropped": {"unreadable verdict": 1}}


def test_sub_questions_are_a_numbered_list() -> None:
    answer = Answer("", (), {"own_answer": "x", "verdicts": [], "sub_questions": ["Who\nis it?", "When?", "Where?"]})
    assert targets(build_dataset(answer).files["decompose"]) == ["1. Who is it?\n2. When?\n3. Where?"]
    assert targets(build_dataset(answer, max_sub_questions=2).files["decompose"]) == ["1. Who is it?\n2. When?"]
    assert targets(build_dataset(answer, labels="code").files["decompose"]) == ['{"query": ["Who\\nis it?", "When?", "Where?"]}']
    assert build_dataset(answer).tallies["decompose"].kept == {"3 sub-questions": 1}


def test_nothing_broken_down_is_dropped() -> None:
    result = build_dataset(Answer("", (), {"own_answer": "x", "verdicts": [], "sub_questions": []}))
    assert result.tallies["decompose"].to_json() == {"in": 1, "kept": 0, "kinds": {}, "dropped": {"no sub-questions": 1}}


WHOLE = Answer("", tuple(FOUND), {"own_answer": "Marlowe", "verdicts": [True, False], "sub_questions": ["Who was it?", "When was it?"]})


@pytest.mark.parametrize(
    ("labels", "know", "relevance", "decompose"),
    [
        ("words", ["no"], ["yes", "no"], ["1. Who was it?\n2. When was it?"]),
        ("code", ["unknow"], ["relevance", "irrelevance"], ['{"query": ["Who was it?", "When was it?"]}']),
    ],
)
def test_the_method_reads_what_is_learned(labels: str, know: list[str], relevance: list[str], decompose: list[str]) -> None:
    result = build_dataset(WHOLE, labels=labels)
    found = {name: targets(examples) for name, examples in result.files.items()}
    assert found == {"know": know, "relevance": relevance, "decompose": decompose}
    assert [(one.is_yes, one.is_readable) for one in map(parse_verdict, [*know, *relevance])] == [
        (False, True),
        (True, True),
        (False, True),
    ]
    assert [one.text for one in parse_sub_questions(decompose[0])] == ["Who was it?", "When was it?"]


@pytest.mark.parametrize("shots", [0, 2])
@pytest.mark.parametrize("refer_back", [False, True])
def test_the_method_asks_what_is_learned(shots: int, refer_back: bool) -> None:
    """The prompts of the three files are those of the method's roles, word for word."""
    collect_options = CollectOptions(refer_back=refer_back)
    result = build_dataset(WHOLE, collect_options=collect_options, prompt_shots=shots)
    options = RaIsfOptions(shots=shots, refer_back=refer_back, max_query_tokens=0, max_depth=0)
    driven = drive(ra_isf(Q.text, options), ["no", FOUND, "no", "no", "nothing", "unknown"])
    calls = [call for call in driven.requests if isinstance(call, Generate)]
    for role, examples in result.files.items():
        assert [call.prompt for call in calls if call.role == role] == [example.messages[:-1] for example in examples]


def test_what_is_drawn_and_what_cannot_be() -> None:
    sets = [make_question_set("nq", [Q, Question("8", "Who else?")]), make_question_set("tqa", [Question("9", "And who?")])]
    assert [len(one.questions) for one in draw(sets, CollectOptions(per_set=1), 0)] == [1, 1]
    check(sets, CollectOptions(), BuildOptions())
    with pytest.raises(InputError, match="no question has gold answers"):
        check(sets[1:], CollectOptions(), BuildOptions())
    check(sets[1:], CollectOptions(know="asked"), BuildOptions())


@pytest.mark.parametrize("name", ["know", "relevance", "decompose"])
def test_prompts_with_more_demonstrations_than_there_are(name: str) -> None:
    collect_options = CollectOptions(**{**NONE, name: "asked" if name == "know" else True})
    with pytest.raises(InputError, match=f"the prompt 'ra_isf/{name}' has [0-9]+ demonstrations, not 99: ask for fewer"):
        check([make_question_set("nq", [Q])], collect_options, BuildOptions(prompt_shots=99))
    check([make_question_set("nq", [Q])], CollectOptions(**NONE), BuildOptions(prompt_shots=99))
