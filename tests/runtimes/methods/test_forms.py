"""Forms of answers: wording, demonstrations and reading in every method, and the form that a set of questions takes."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from tests.runtimes.methods.driving import Driven, drive, passages
from wikidx.base.errors import InputError, OptionError
from wikidx.runtimes.assignments import parse_assignments
from wikidx.runtimes.evaluation.answers.metrics import METRICS
from wikidx.runtimes.llms.base import Choice, Generate, Message
from wikidx.runtimes.methods import METHODS, find_method
from wikidx.runtimes.methods.base import RENAMED, list_options
from wikidx.runtimes.methods.forms import FORMS, FormName, form_of, gold_answer, parse_yes_no
from wikidx.runtimes.methods.templates import load_template
from wikidx.runtimes.questions import Question

FOUND = passages("one", "two")
CITED = {"citations": {"cited": [2, 1], "missing": [7]}}
FEVER = "Give the verdict alone: SUPPORTS if the claim is true, REFUTES if it is false, NOT ENOUGH INFO if neither can be told."


def run(name: str, canned: Any, **values: Any) -> Driven:  # noqa: ANN401
    method = find_method(name)
    return drive(method.run("Who?", method.options(**values)), canned)


def refeed(*canned: Any, **values: Any) -> Driven:  # noqa: ANN401
    return run("refeed", canned, diverse=False, ensemble=False, **values)


@pytest.mark.parametrize("form", get_args(FormName))
def test_a_form_has_wording_demonstrations_and_metrics(form: FormName) -> None:
    template = load_template("rag", "answer", form)
    assert len(template.shots) >= 2
    assert set(FORMS[form].metrics) <= set(METRICS)
    for shot in template.shots:
        assert FORMS[form].read(shot["output"], shot["passages"].count("\n[") + 1).is_read
        assert not FORMS[form].choices or shot["output"] in FORMS[form].choices
    assert not FORMS[form].choices or {shot["output"] for shot in template.shots} == set(FORMS[form].choices)


def test_direct_in_every_form() -> None:
    prompts = {form: run("direct", ["Yes [1]."], form=form, shots=1).prompts("answer")[0] for form in FORMS}
    assert len(set(prompts.values())) == len(FORMS)
    assert prompts["fever"].startswith(f"You judge claims of fact. {FEVER}\n\nClaim: Marie Curie")
    assert prompts["fever"].endswith("Verdict:\n\nREFUTES\n\nClaim: Who?\nVerdict:")
    assert prompts["dialogue"].endswith("\n\nConversation:\nWho?\n\nNext turn:")
    assert "with 8,849 metres. Measured" in prompts["long"]  # no passages, so no citations are demonstrated
    answers = {form: run("direct", ["Yes [1]."], form=form).answer for form in ("yes_no", "fever", "long")}
    assert answers["yes_no"] == ("yes", (), {"parse_ok": True})
    assert answers["fever"] == ("NOT ENOUGH INFO", (), {"parse_ok": False})
    assert answers["long"] == ("Yes [1].", (), {"citations": {"cited": [], "missing": [1]}, "parse_ok": True})


def test_a_long_answer_cites_the_passages_that_rag_read() -> None:
    driven = run("rag", [FOUND, "One [2].\nTwo [1, 7]."], form="long", k=2, shots=1)
    (prompt,) = driven.prompts("answer")
    assert "from the passages that come with them. Write three to five sentences" in prompt
    assert "such as [1] or [1][3]. If the passages do not say it, write what you think right, without numbers." in prompt
    assert "with 8,849 metres [2]. Measured" in prompt
    assert driven.answer == ("One [2]. Two [1][7].", tuple(FOUND), {**CITED, "parse_ok": True})


@pytest.mark.parametrize(("form", "limit"), [("short", 256), ("long", 300), ("dialogue", 50)])
def test_a_form_has_its_own_limit(form: str, limit: int) -> None:
    def limits(**values: Any) -> list[int]:  # noqa: ANN401 - an option
        calls = run("rag", [FOUND, "x"], form=form, **values).requests[1:]
        return [call.decoding.max_tokens for call in calls if isinstance(call, Generate)]

    assert (limits(), limits(max_tokens=9)) == ([limit], [9])


@pytest.mark.parametrize(("form", "wanted", "limit"), [("fever", "whether it is true", 10), ("dialogue", "a fact to go on with", 50)])
def test_genread_writes_a_text_on_a_claim_or_a_conversation(form: str, wanted: str, limit: int) -> None:
    driven = run("genread", ["A text.", "Refuted."], form=form, shots=1)
    assert f"somebody would find {wanted}:" in driven.prompts("document")[0]
    assert driven.prompts("answer")[0].startswith(
        ("You judge claims of fact from background", "You continue conversations from background")
    )
    assert driven.answer.text == ("REFUTES" if form == "fever" else "Refuted.")
    assert [call.decoding.max_tokens for call in driven.requests if isinstance(call, Generate)] == [300, limit]


@pytest.mark.parametrize("form", ["yes_no", "fever"])
@pytest.mark.parametrize(("name", "role"), [("cot", "answer"), ("iter_retgen", "answer"), ("ircot", "answer")])
def test_chains_of_thought_conclude_in_a_form(name: str, role: str, form: str) -> None:
    said = "Because.\nAnswer: No, he did not."
    canned = {"cot": [said], "iter_retgen": [FOUND, said], "ircot": [FOUND, "So the answer is: no.", said]}[name]
    values = {"rounds": 1} if name == "iter_retgen" else {}
    driven = run(name, canned, form=form, shots=1, **values)
    assert driven.answer.text == {"yes_no": "no", "fever": "NOT ENOUGH INFO"}[form]
    assert driven.answer.detail["parse_ok"] is (form == "yes_no")
    assert FORMS[form].choices[0].lower() in driven.prompts(role)[-1].lower()  # type: ignore[index]


def test_parts_of_a_question_have_short_answers() -> None:
    driven = run("least_to_most", ["1. a?", "A", "True."], form="yes_no", shots=2)
    part, whole = driven.prompts("answer")
    assert "in as few words as name it exactly" in part
    assert "with one word, yes or no" in whole
    assert (driven.answer.text, driven.answer.detail["sub_questions"]) == ("yes", [{"question": "a?", "answer": "A"}])


def test_react_finishes_with_a_label() -> None:
    driven = run("react", ["Thought 1: I know.\nAction 1: Finish[supported]"], form="fever", shots=3)
    (prompt,) = driven.prompts("answer")
    assert "Finish[answer] ends the search with the answer, with one of SUPPORTS (" in prompt
    assert all(f"Finish[{label}]" in prompt for label in FORMS["fever"].choices)
    assert driven.answer.text == "SUPPORTS"
    assert run("react", ["Thought 1: I know.\nAction 1: Finish[No.]"], form="yes_no").answer.text == "no"


def test_self_ask_and_retrorag_say_yes_or_no() -> None:
    driven = run("self_ask", ["So the final answer is: Yes, both were."], form="yes_no")
    assert "with one word, yes or no" in driven.prompts("answer")[0]
    assert driven.answer.text == "yes"
    said = '{"reason": "r", "answer": "No, he was not."}'
    driven = run("retrorag", [FOUND[:1], 0.9, said, "no", '{"judgement": "correct"}', 0.9], form="yes_no")
    assert "with one word, yes or no" in driven.prompts("answer")[0]
    assert "with one word, yes or no" in driven.prompts("monitor")[0]
    assert driven.answer.text == "no"


def test_ra_isf_judges_a_claim_and_answers_its_sub_questions() -> None:
    driven = run("ra_isf", ["no", [], "1. a?", "yes", "A", "The claim is refuted."], form="fever", shots=1)
    part, whole = driven.prompts("answer")
    assert "Question: a?\nReply in as few words as name it exactly." in part
    assert "Claim: Who?\nReply with one of SUPPORTS (" in whole
    assert driven.answer.text == "REFUTES"


def test_refeed_checks_claims_and_continues_conversations() -> None:
    driven = refeed("true", FOUND, "Not enough information.", form="fever", shots=3)
    initial, refined = driven.prompts("answer")
    assert initial.startswith(f"You judge claims of fact from what you know. {FEVER}")
    assert "If they do not settle the matter, the verdict is NOT ENOUGH INFO." in refined
    assert driven.answer.text == "NOT ENOUGH INFO"
    driven = refeed("Hello!", FOUND, "Nice!", form="dialogue")
    assert driven.prompts("answer")[1].endswith("Conversation:\nWho?\n\nEarlier answers:\n1. Hello!\nNext turn:")
    with pytest.raises(InputError, match="a chain of thought ends in the form short, yes_no, fever, not 'long': use output=answer"):
        find_method("refeed").options(form="long", output="cot")


def test_self_reasoning_answers_yes_or_no() -> None:
    said = '{"relevant": true, "relevant_reason": "r", "cite_list": [], "analysis": "a", "answer": "yes"}'
    driven = run("self_reasoning", [FOUND, said], form="yes_no")
    (prompt,) = driven.prompts("answer")
    assert '- "answer": the result, yes or no' in prompt
    assert "Is the Danube longer than the Rhine?" in prompt
    assert driven.answer.text == "yes"
    read = run("self_reasoning", [FOUND, said, "no"], form="yes_no", reader=True).requests[-1]
    assert isinstance(read, Generate)
    assert read.schema == Choice(("yes", "no"))


def test_methods_show_the_same_demonstrations() -> None:
    """Numbers of demonstrations are comparable only if these are the same."""

    def asked(name: str, canned: list[Any]) -> list[list[str]]:
        method = find_method(name)
        options = {"shots": 3} | ({"rounds": 1} if name == "iter_retgen" else {}) | ({"know": False} if name == "ra_isf" else {})
        driven = drive(method.run("Who?", method.options(**options)), canned)
        chats = [call.prompt for call in driven.requests if isinstance(call, Generate) and call.role == "answer"]
        return [
            [turn.content.partition("Question: ")[2].partition("\n")[0] for turn in chat[1:7:2] if isinstance(turn, Message)]
            for chat in chats
        ]

    (expected,) = asked("direct", ["x"])
    assert len(set(expected)) == 3
    for name, canned in (("rag", [FOUND, "x"]), ("cot", ["x"]), ("iter_retgen", [FOUND, "x"]), ("ra_isf", [FOUND[:1], "yes", "x"])):
        assert asked(name, canned) == [expected]
    assert asked("genread", ["a text", "x"]) == [expected]


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


@pytest.mark.parametrize(
    ("name", "assignment", "message"),
    [
        ("ra_isf", "answer_form=yes_no", "the option 'answer_form' is 'form' now"),
        ("self_reasoning", "task=fever", "the option 'task' is 'form' now"),
        ("refeed", "form=cot", "the option 'form=cot' is 'output=cot' now"),
        ("iter_retgen", "form=answer", "the option 'form=answer' is 'output=answer' now"),
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
