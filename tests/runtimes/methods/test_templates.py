"""Prompts from text files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.runtimes.methods.driving import drive
from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import AskYesNo, Generate, MeanNll, Mix
from wikidx.runtimes.llms.prompts import Message
from wikidx.runtimes.methods import METHODS, find_method
from wikidx.runtimes.methods.forms import FORMS
from wikidx.runtimes.methods.requests import Compare, LookUpTitle, Request, Retrieve
from wikidx.runtimes.methods.templates import (
    Blocks,
    Template,
    format_passages,
    load_template,
    make_template,
    packaged_prompts,
    parse,
    parse_origin,
    prompt_hashes,
)

TEXT = """
[system]
Write JSON like {"answer": "…"}, {not a field} and {}.

[user]
{passages}

Question: {question}
[assistant]
So
"""


def test_turns_fields_and_other_braces() -> None:
    prompt = Template("made", parse(TEXT))(passages=Blocks(("one", "{question}")), question="Who {passages}?")
    assert prompt == (
        Message("system", 'Write JSON like {"answer": "…"}, {not a field} and {}.'),
        Message("user", "one\n\n{question}\n\nQuestion: Who {passages}?", ((0, 3), (3, 15))),
        Message("assistant", "So"),
    )


def test_a_value_for_every_field_and_no_other() -> None:
    made = Template("made", parse("[user]\n{question}"))
    with pytest.raises(ValueError, match=r"has the fields \['question'\], the values are \['passages', 'question'\]"):
        made(question="q", passages="p")
    with pytest.raises(ValueError, match=r"the values are \[\]"):
        made()


def test_demonstrations_come_between_the_system_s_turn_and_the_question() -> None:
    made = Template(
        "made", parse("[system]\ns\n[user]\nQ {question}"), ({"question": "1", "output": "one"}, {"question": "2", "output": "two"})
    )
    assert [message[:2] for message in made(question="3", shots=1)] == [
        ("system", "s"),
        ("user", "Q 1"),
        ("assistant", "one"),
        ("user", "Q 3"),
    ]
    with pytest.raises(InputError, match="the prompt 'made' has 2 demonstrations, not 3"):
        made(question="3", shots=3)


def test_a_prompt_may_state_its_origin_which_is_not_part_of_it() -> None:
    text = "[origin] authors' code: worded anew\n[user]\n{question}"
    assert (parse_origin(text), parse(text)) == ("authors' code: worded anew", (("user", "{question}"),))
    assert parse_origin("[user]\n[origin] paper\n") == ""


@pytest.mark.parametrize("text", ["", "words\n[user]\nmore", "[narrator]\nonce"])
def test_a_prompt_begins_with_a_turn(text: str) -> None:
    with pytest.raises(ValueError, match="a prompt begins with"):
        parse(text)


def test_passages_are_numbered() -> None:
    assert format_passages([Passage("9", "T", "x"), Passage("8", "U", "y")]) == (("[1] T\nx", "[2] U\ny"),)
    assert format_passages([]) == ((),)


@pytest.mark.parametrize(
    ("text", "values", "filled"),
    [
        ("Passages:\n\n{a}\n\nQuestion: {b}", {"a": Blocks(()), "b": "Who?"}, "Question: Who?"),
        ("Question: {b}\nEarlier answers:\n{a}\nAnswer:", {"a": "", "b": "Who?"}, "Question: Who?\nAnswer:"),
        ("Reference:\n\n{a}\n\n{c}\n\nQuestion: {b}", {"a": "x", "c": "", "b": "Who?"}, "Reference:\n\nx\n\nQuestion: Who?"),
        ("Question: {b}\n\nEvidence:\n{a}", {"a": "", "b": "Who?"}, "Question: Who?"),
        ("Entities: {a}\nQuestion: {b}", {"a": "", "b": "Who?"}, "Entities: \nQuestion: Who?"),  # part of a line
        ("Facts:\n{a}\n\nQuestion: {b}", {"a": "(none)", "b": "Who?"}, "Facts:\n(none)\n\nQuestion: Who?"),
    ],
)
def test_a_section_without_a_value_is_left_out_with_its_heading(text: str, values: dict[str, Any], filled: str) -> None:
    assert make_template("made", f"[user]\n{text}", "")(**values) == (Message("user", filled),)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("reply", ["(none)", " (None).\n", "Answer: (none)", '{"reason": "", "analysis": "", "answer": "(none)"}'])
def test_a_placeholder_is_never_an_answer(name: str, reply: str) -> None:
    method = find_method(name)
    others: dict[type, Any] = {Retrieve: [], LookUpTitle: [], AskYesNo: 0.1, MeanNll: 1.0}

    def canned(request: Request) -> Any:  # noqa: ANN401
        if isinstance(request, Compare):
            return [0.5] * len(request.others)
        return [reply] * request.n if isinstance(request, Generate | Mix) else others[type(request)]

    answer = drive(method.run("Who?", method.options()), canned).answer
    if "{" not in reply or name in ("self_reasoning", "retrorag", "metarag"):  # the others expect no JSON
        assert "(none)" not in answer.text.casefold()
        assert not answer.text or answer.text == "unknown"


def prompts() -> list[tuple[str, str]]:
    files = [(method, name) for method in METHODS for name in packaged_prompts(method)]
    return sorted((method, name.removesuffix(".txt")) for method, name in files if name.endswith(".txt"))


@pytest.mark.parametrize(("method", "name"), prompts())
def test_every_prompt_can_be_filled_with_all_its_demonstrations(method: str, name: str) -> None:
    made = load_template(method, name)
    values: dict[str, str | Blocks] = {field: f"<{field}>" for field in made.fields}
    filled = made(shots=len(made.shots), **values)
    for shot in made.shots:
        assert set(shot) == {*made.user_fields, "output"}
    for field in made.fields:
        assert any(f"<{field}>" in message.content for message in filled)


@pytest.mark.parametrize(
    ("method", "name", "pattern"),
    [
        ("ra_isf", "know", "yes|no"),
        ("ra_isf", "relevance", "yes|no"),
        ("ra_isf", "decompose", r"1\. .*\?\n2\. .*\?"),
        ("react", "solve", r"Thought 1: .*\nAction 1: Search\[.*: Finish\[[^\n]+\]"),
        ("self_ask", "ask", r"Are follow up questions needed here: .*\nSo the final answer is: [^\n]+"),
        ("self_ask", "context", r"Are follow up questions needed here: .*\nSo the final answer is: [^\n]+"),
        ("refeed", "initial_cot", r".*\nAnswer: [^\n]+"),
        ("refeed", "refine_cot", r".*\nAnswer: [^\n]+"),
        ("retrorag", "reason", r'\{"reason": ".*", "answer": ".*"\}'),
    ],
)
def test_demonstrations_are_what_methods_read(method: str, name: str, pattern: str) -> None:
    shots = load_template(method, name).shots
    assert len(shots) >= 4
    assert [shot["output"] for shot in shots if not re.fullmatch(pattern, shot["output"], re.DOTALL)] == []


def test_some_demonstrations_keep_an_earlier_answer_and_some_correct_it() -> None:
    def kept(shot: Mapping[str, str]) -> bool:
        return any(line.partition(". ")[2] == shot["output"] for line in shot["answers"].splitlines())

    assert {kept(shot) for shot in load_template("refeed", "refine_answer").shots} == {True, False}


def test_hashes_name_every_file() -> None:
    hashes = prompt_hashes(["direct"])
    content = (ROOT / "runtimes/methods/prompts/direct/answer.txt").read_bytes()
    assert hashes["direct/answer.txt"] == hashlib.sha256(content).hexdigest()
    forms = {"forms.json", *(f"{form}.shots.jsonl" for form in FORMS)}
    assert set(hashes) == {"direct/answer.txt", *(f"forms/{file}" for file in forms)}
