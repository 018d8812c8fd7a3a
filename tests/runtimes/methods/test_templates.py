"""Prompts from text files."""

from __future__ import annotations

import hashlib

import pytest

from wikidx.corpora.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Message
from wikidx.runtimes.methods import METHODS, templates
from wikidx.runtimes.methods.templates import Blocks, Template, format_passages, load_template, parse, prompt_hashes

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


@pytest.mark.parametrize("text", ["", "words\n[user]\nmore", "[narrator]\nonce"])
def test_a_prompt_begins_with_a_turn(text: str) -> None:
    with pytest.raises(ValueError, match="a prompt begins with"):
        parse(text)


def test_passages_are_numbered() -> None:
    assert format_passages([Passage("9", "T", "x"), Passage("8", "U", "y")]) == (("[1] T\nx", "[2] U\ny"),)
    assert format_passages([]) == (("(none)",),)


def prompts() -> list[tuple[str, str]]:
    files = [(method, file.name) for method in METHODS for file in templates._folder(method).iterdir()]
    return sorted((method, name.removesuffix(".txt")) for method, name in files if name.endswith(".txt"))


@pytest.mark.parametrize(("method", "name"), prompts())
def test_every_prompt_can_be_filled_with_all_its_demonstrations(method: str, name: str) -> None:
    made = load_template(method, name)
    by_role = [(role, field) for role, text in made.turns for field in templates._FIELD.findall(text)]
    fields = {field for _, field in by_role}
    values: dict[str, str | Blocks] = {field: f"<{field}>" for field in fields}
    filled = made(shots=len(made.shots), **values)
    for shot in made.shots:
        assert set(shot) == {field for role, field in by_role if role == "user"} | {"output"}
    for field in fields:
        assert any(f"<{field}>" in message.content for message in filled)


def test_hashes_name_every_file() -> None:
    hashes = prompt_hashes(["direct"])
    content = (templates._folder("direct") / "answer.txt").read_bytes()
    assert hashes["direct/answer.txt"] == hashlib.sha256(content).hexdigest()
    assert set(hashes) == {"direct/answer.txt", "direct/answer.shots.jsonl"}
