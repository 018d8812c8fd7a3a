"""RA-ISF's sub-models: how replies are labelled, and that the method asks and reads just that."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtimes.methods.driving import drive
from tests.runtimes.training.replies import field_of, make_response, targets
from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Generate
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.ra_isf import RaIsfOptions, ra_isf
from wikidx.runtimes.methods.ra_isf.replies import parse_verdict
from wikidx.runtimes.methods.sub_questions import parse_sub_questions
from wikidx.runtimes.questions import Question
from wikidx.runtimes.training.base import Dataset
from wikidx.runtimes.training.ra_isf import BUILDER, BuildOptions, CollectOptions, check, draw
from wikidx.runtimes.training.sets import make_question_set

Q = Question("7", "Who wrote Hamlet?", ("Shakespeare", "William Shakespeare"))
FOUND = [Passage("a", "Hamlet", "A play by Shakespeare."), Passage("b", "Elsinore", "A town in Denmark.")]
NONE: dict[str, Any] = {"know": "off", "relevance": False, "decompose": False}


def build_dataset(detail: dict[str, Any], passages: tuple[Passage, ...] = (), question: Question = Q, **build_options: Any) -> Dataset:  # noqa: ANN401 - any option
    """Build the files from one reply, which answers what ``detail`` does not say."""
    detail = ({} if "known" in detail else {"own_answer": "x"}) | {"verdicts": [], "sub_questions": []} | detail
    options = CollectOptions(know="asked" if "known" in detail else "answers")
    return BUILDER.build([make_response(question, Answer("", passages, detail))], options, BuildOptions(**build_options), 0, None)


@pytest.mark.parametrize(
    ("detail", "golds", "expected", "dropped"),
    [
        ({"own_answer": "william shakespeare."}, Q.golden_answers, ["yes"], {}),
        ({"own_answer": "The play is by Shakespeare"}, Q.golden_answers, ["no"], {}),  # not the same
        ({"own_answer": ""}, Q.golden_answers, ["no"], {}),
        ({"own_answer": "x"}, (), [], {"no gold answer": 1}),
        ({"known": True}, (), ["yes"], {}),
        ({"known": False}, (), ["no"], {}),
        ({"known": None}, (), [], {"unreadable verdict": 1}),
    ],
)
def test_what_is_known_is_what_is_answered_as_the_gold_is_or_said_to_be(
    detail: dict[str, Any], golds: tuple[str, ...], expected: list[str], dropped: dict[str, int]
) -> None:
    result = build_dataset(detail, question=Q._replace(golden_answers=golds))
    assert targets(result.files["know"]) == expected
    assert field_of(result.files["know"], "label") == [target == "yes" for target in expected]
    assert result.tallies["know"].to_json() == {"in": 1, "kept": len(expected), "kinds": dict.fromkeys(expected, 1), "dropped": dropped}


def test_relevance_is_learned_passage_by_passage() -> None:
    result = build_dataset({"verdicts": [True, False, None]}, (*FOUND, Passage("c", "", "?")))
    examples = result.files["relevance"]
    assert targets(examples) == ["yes", "no"]
    assert [example.id for example in examples] == ["nq/7/relevance/a", "nq/7/relevance/b"]
    assert field_of(examples, "passage") == ["a", "b"]
    assert examples[1].messages[-2].content.startswith("Question: Who wrote Hamlet?\n\nPassage:\nElsinore\nA town in Denmark.\n")
    assert result.tallies["relevance"].to_json() == {"in": 3, "kept": 2, "kinds": {"yes": 1, "no": 1}, "dropped": {"unreadable verdict": 1}}


@pytest.mark.parametrize(
    ("listed", "values", "expected", "kinds"),
    [
        (["Who\nis it?", "When?"], {}, ["1. Who is it?\n2. When?"], {"2 sub-questions": 1}),
        (["Who\nis it?", "When?"], {"max_sub_questions": 1}, ["1. Who is it?"], {"1 sub-questions": 1}),
        (["Who\nis it?", "When?"], {"labels": "code"}, ['{"query": ["Who\\nis it?", "When?"]}'], {"2 sub-questions": 1}),
        ([], {}, [], {}),
    ],
)
def test_sub_questions_are_a_numbered_list(listed: list[str], values: dict[str, Any], expected: list[str], kinds: dict[str, int]) -> None:
    result = build_dataset({"sub_questions": listed}, **values)
    assert targets(result.files["decompose"]) == expected
    dropped = {} if expected else {"no sub-questions": 1}
    assert result.tallies["decompose"].to_json() == {"in": 1, "kept": len(expected), "kinds": kinds, "dropped": dropped}


WHOLE = {"own_answer": "Marlowe", "verdicts": [True, False], "sub_questions": ["Who was it?", "When was it?"]}


@pytest.mark.parametrize(
    ("labels", "know", "relevance"), [("words", ["no"], ["yes", "no"]), ("code", ["unknow"], ["relevance", "irrelevance"])]
)
def test_the_method_reads_what_is_learned(labels: str, know: list[str], relevance: list[str]) -> None:
    files = build_dataset(WHOLE, tuple(FOUND), labels=labels).files
    assert [targets(files[name]) for name in ("know", "relevance")] == [know, relevance]
    assert [parse_verdict(text)[:2] for text in (*know, *relevance)] == [(False, True), (True, True), (False, True)]
    (decompose,) = targets(files["decompose"])
    assert [one.text for one in parse_sub_questions(decompose)] == ["Who was it?", "When was it?"]


@pytest.mark.parametrize(("shots", "refer_back"), [(0, False), (2, True)])
def test_the_method_asks_what_is_learned(shots: int, refer_back: bool) -> None:
    """The prompts of the three files are those of the method's roles, word for word."""
    response = make_response(Q, Answer("", tuple(FOUND), WHOLE))
    result = BUILDER.build([response], CollectOptions(refer_back=refer_back), BuildOptions(prompt_shots=shots), 0, None)
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
