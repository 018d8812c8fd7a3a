"""Forms of answers: wording, demonstrations and reading, and the form that a set of questions takes."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from tests.conftest import read_rows
from tests.runtimes.methods.driving import drive, passages
from wikidx.base.errors import InputError, OptionError
from wikidx.runtimes.assignments import parse_assignments
from wikidx.runtimes.evaluation.answers.metrics import METRICS
from wikidx.runtimes.llms.base import Generate
from wikidx.runtimes.llms.prompts import Message
from wikidx.runtimes.methods import METHODS, find_method
from wikidx.runtimes.methods.base import RENAMED, list_options
from wikidx.runtimes.methods.forms import FORMS, FormName, form_of, gold_answer, parse_yes_no
from wikidx.runtimes.methods.templates import load_template
from wikidx.runtimes.questions import Question

FOUND = passages("one", "two")


@pytest.mark.parametrize("form", get_args(FormName))
def test_a_form_has_wording_demonstrations_and_metrics(form: FormName) -> None:
    template = load_template("rag", "answer", form)
    assert len(template.shots) >= 2
    assert set(FORMS[form].metrics) <= set(METRICS)
    for shot in template.shots:
        assert FORMS[form].read(shot["output"], shot["passages"].count("\n[") + 1).is_read
        assert not FORMS[form].choices or shot["output"] in FORMS[form].choices
    assert not FORMS[form].choices or {shot["output"] for shot in template.shots} == set(FORMS[form].choices)


@pytest.mark.parametrize(("form", "limit"), [("short", 256), ("long", 300), ("dialogue", 50)])
def test_a_form_has_its_own_limit(form: str, limit: int) -> None:
    for values, expected in (({}, limit), ({"max_tokens": 9}, 9)):
        rag = find_method("rag")
        call = drive(rag.run("Who?", rag.options(form=form, **values)), [FOUND, "x"]).requests[-1]
        assert isinstance(call, Generate)
        assert call.decoding.max_tokens == expected


def test_methods_show_the_same_demonstrations() -> None:
    """Numbers of demonstrations are comparable only if these are the same."""

    def asked(name: str, canned: list[Any]) -> list[str]:
        method = find_method(name)
        options = {"shots": 3} | ({"rounds": 1} if name == "iter_retgen" else {}) | ({"know": False} if name == "ra_isf" else {})
        driven = drive(method.run("Who?", method.options(**options)), canned)
        (chat,) = [call.prompt for call in driven.requests if isinstance(call, Generate) and call.role == "answer"]
        return [turn.content.partition("Question: ")[2].partition("\n")[0] for turn in chat[1:7:2] if isinstance(turn, Message)]

    expected = asked("direct", ["x"])
    assert len(set(expected)) == 3
    others: dict[str, list[Any]] = {
        "rag": [FOUND, "x"],
        "cot": ["x"],
        "iter_retgen": [FOUND, "x"],
        "ra_isf": [FOUND[:1], "yes", "x"],
        "genread": ["text", "x"],
    }
    assert {name: asked(name, canned) for name, canned in others.items()} == dict.fromkeys(others, expected)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Yes, it is.", ("yes", True)),
        ("No. He was not, yes.", ("no", True)),
        ("False", ("no", True)),
        ("The answer is yes", ("yes", True)),
        ("Perhaps yes, perhaps no", ("Perhaps yes, perhaps no", False)),
        (" Nobody knows ", ("Nobody knows", False)),
        ("", ("", False)),
    ],
)
def test_a_yes_or_a_no_is_read(text: str, read: tuple[str, bool]) -> None:
    assert parse_yes_no(text) == read


@pytest.mark.parametrize(
    ("written", "label", "is_read"),
    read_rows("runtimes/methods/claim_verdicts.jsonl"),
)
def test_verdicts_on_claims_are_told_in_many_words(written: str, label: str, is_read: bool) -> None:
    assert FORMS["fever"].read(written, 0)[:2] == (label, is_read)


@pytest.mark.parametrize(
    ("written", "text", "cited", "missing"),
    [
        ("Byron [1, 2].\nShe lived [2][1]; see [3].", "Byron [1][2]. She lived [2][1]; see [3].", [1, 2, 3], []),
        (
            "Byron [1][9], in 1815 [0], London [4, 2]. Array[x] [a]",
            "Byron [1][9], in 1815 [0], London [4][2]. Array[x] [a]",
            [1, 2],
            [9, 0, 4],
        ),
        ("x [" + "9" * 5000 + "]", "x [" + "9" * 5000 + "]", [], []),
    ],
)
def test_a_long_answer_is_one_line_with_its_citations(written: str, text: str, cited: list[int], missing: list[int]) -> None:
    read = FORMS["long"].read(written, 3)
    assert (read.text, read.record) == (text, {"citations": {"cited": cited, "missing": missing}})


CLAIM = Question("c", "It is.", ("REFUTES",), {"label": "REFUTES"})
ASQA = Question("a", "Who?", ("Ada", "Grace"), {"answer_groups": [["Ada"], ["Grace"]], "long_answers": ["Ada or Grace."]})
TURN = Question("w", "Hi!\nHello!", ("Nice.",), {"turns": 2, "long_answers": ["Nice."]})
SINGLE = Question("v", "Hi!", ("Hello.",), {"long_answers": ["Hello."]})
BOOLEAN, NAMED, OPEN = Question("b", "Is it?", ("no",)), Question("n", "Who?", ("Ada",)), Question("o", "Who?")


@pytest.mark.parametrize(
    ("questions", "form"),
    [
        ([CLAIM, OPEN], "fever"),
        ([ASQA], "long"),
        ([SINGLE, TURN], "dialogue"),
        ([BOOLEAN, OPEN], "yes_no"),
        ([BOOLEAN, NAMED], "short"),
        ([OPEN], "short"),
        ([], "short"),
    ],
)
def test_questions_take_the_form_of_their_answers(questions: list[Question], form: str) -> None:
    assert form_of(questions) == form


def test_demonstrations_are_drawn_in_their_form() -> None:
    assert (gold_answer(ASQA, "long"), gold_answer(ASQA, "short"), gold_answer(TURN, "dialogue")) == ("Ada or Grace.", "Ada", "Nice.")


def test_a_form_without_sense_is_refused() -> None:
    with pytest.raises(OptionError, match="form is 'dialogue': it should be 'short', 'yes_no' or 'fever'"):
        find_method("cot").options(form="dialogue")
    with pytest.raises(InputError, match="a chain of thought ends in the form short, yes_no, fever, not 'long': use output=answer"):
        find_method("refeed").options(form="long", output="cot")


@pytest.mark.parametrize(
    ("name", "assignment", "message"),
    [
        ("ra_isf", "answer_form=yes_no", "the option 'answer_form' is 'form' now"),
        ("refeed", "form=cot", "the option 'form=cot' is 'output=cot' now"),
        ("rag", "form=cot", "the option 'form' is 'cot': .*it should be 'short'"),
    ],
)
def test_an_option_by_its_old_name_is_refused(name: str, assignment: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_assignments(find_method(name).options, [assignment], noun="option", renamed=RENAMED)


def test_every_method_has_the_option() -> None:
    for name in METHODS:
        (form,) = (option for option in list_options(find_method(name).options()) if option.name == "form")
        assert form.default == "short"
        assert {"short", "yes_no"} <= {*form.choices} <= {*FORMS}
