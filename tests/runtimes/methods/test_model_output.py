"""Reading what models write: JSON in any state, labelled lines, lists."""

from __future__ import annotations

import json
import time

import pytest

from tests.conftest import read_rows
from wikidx.runtimes.methods.model_output import find_object, find_strings, first_line, parse_labels, parse_list, to_text

KEYS = ("answer", "note")


@pytest.mark.parametrize(
    ("text", "value", "state"),
    read_rows("runtimes/methods/objects.jsonl"),
)
def test_the_first_object_with_a_wanted_key_is_found_in_any_state(text: str, value: dict[str, object], state: str | None) -> None:
    found = find_object(text, KEYS)
    assert (found.value, found.state) == (value, state)


def test_half_a_surrogate_pair_does_not_survive() -> None:
    found = find_object('{"answer": "a\\ud800b \\ud83d\\ude00"}', KEYS)
    assert to_text(found.value["answer"]) == "a\N{REPLACEMENT CHARACTER}b \N{GRINNING FACE}"


@pytest.mark.parametrize("text", ["{" * 100_000, '{"answer": ' + "[" * 100_000, '{"answer": ' + "9" * 10_000 + "}", '{"a": 1} ' * 20_000])
def test_hostile_text_costs_little_and_breaks_nothing(text: str) -> None:
    started = time.perf_counter()
    assert find_object(text, KEYS).state is None
    assert time.perf_counter() - started < 5


def test_every_cut_of_an_object_is_read_as_far_as_it_goes() -> None:
    whole = {"note": ["é", {"x": 'q"q', "y": [1, 2.5, None]}], "answer": "Ada \\ Byron"}
    text = json.dumps(whole)
    answers = [find_object(text[:end], KEYS).value.get("answer", "") for end in range(len(text) + 1)]
    assert answers[-1] == "Ada \\ Byron"
    assert all(isinstance(answer, str) and "Ada \\ Byron".startswith(answer) for answer in answers)
    assert answers.index("Ada") == text.index("Ada") + 3


def test_labels_at_line_starts_and_in_python_dicts_are_scanned() -> None:
    text = "relevant: yes\n**Relevant reason**: because: so\n- cite content: 'x'\ncite-content: y\n\nmore of y\nAnswer: Ada"
    names = ("relevant", "relevant_reason", "cite_content", "answer")
    assert parse_labels(text, names) == [
        ("relevant", "yes"),
        ("relevant_reason", "because: so"),
        ("cite_content", "x"),
        ("cite_content", "y\n\nmore of y"),
        ("answer", "Ada"),
    ]
    assert parse_labels("{'relevant': True, 'answer': 'Ada'}", names) == [("relevant", "True"), ("answer", "Ada")]
    assert parse_labels("[{'cite_content': 'x', 'answer': 'so it is [1]'}]", names) == [("cite_content", "x"), ("answer", "so it is [1]")]
    assert parse_labels("answer: so it is [1]\n", names) == [("answer", "so it is [1]")]
    assert parse_labels("my answer: none at a line start", names) == []
    assert parse_labels("", names) == []


def test_lists_lose_bullets_numbers_repetitions_and_what_was_cut_off() -> None:
    text = "Here they are:\n1. Ada was born.\n2) Born in 1815\n- * x\n\n• ü\nAda  was BORN.\n1815 was a year\nhalf a sent"
    assert parse_list(text, is_cut=True) == ["Ada was born.", "Born in 1815", "x", "ü", "1815 was a year"]
    assert parse_list(text, is_cut=False)[-1] == "half a sent"
    assert parse_list('["a, b", "c", 3, ""]', is_cut=False) == ["a, b", "c"]
    assert parse_list('Fine:\n```json\n["a",\n "b"]\n```', is_cut=False) == ["a", "b"]
    assert parse_list('["a", "b", "c', is_cut=True) == ["a", "b"]
    assert parse_list("```text\n- a\n- b\n```", is_cut=False) == ["a", "b"]
    assert parse_list("(none)\n", is_cut=False) == []
    assert parse_list("None.", is_cut=False) == []
    assert parse_list("", is_cut=False) == []


def test_citations_in_a_list_are_no_list() -> None:
    text = "Ada was born in 1815 [1].\nByron was a poet [2, 3]."
    assert parse_list(text, is_cut=False) == text.splitlines()
    assert parse_list("[1, 2]\n[]", is_cut=False) == ["[1, 2]"]


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ('["a", "b"]', ["a", "b"]),
        ('so: {"n": [1], "query": ["a", 3, null, "b \\ud83d"]} and ["c"]', ["a", "b \ufffd"]),
        ('[["a"], "b"]', ["b"]),
        ('["a", "b", "c', ["a", "b"]),
        ('["a', []),
        ("as [1] says", []),
        ('[1} or ["a"]', ["a"]),
        ("[" * 100_000, []),
        ("", []),
    ],
)
def test_the_texts_of_the_first_array_that_has_any(text: str, texts: list[str]) -> None:
    assert find_strings(text) == texts


def test_values_as_text() -> None:
    assert [to_text(value) for value in (None, " a ", 3, True, ["a", 2], {"x": "ü"}, 1.5)] == [
        "",
        "a",
        "3",
        "true",
        "a, 2",
        '{"x": "ü"}',
        "1.5",
    ]
    assert first_line(" \n\n  second \nthird") == "second"
    assert first_line("") == ""
