"""Corrupt files: any damage yields a one-line error that a user can act on."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtimes.questions.format_files import FORMAT_FILES, FormatFile, lines
from tests.runtimes.questions.test_records import JSON
from wikidx.base.errors import InputError
from wikidx.runtimes.questions import FORMATS, Question, read_questions

NAMES = sorted({name for case in FORMAT_FILES for line in case.content.splitlines() for name in line.split('"') if name.isidentifier()})
PIECES = [b"", b'"', b"[", b"}", b"\n", b"\t", b"null", b"\\ud83d", b"1e999"]


def read_or_refuse(file: Path, name: str | None = None) -> list[Question]:
    """Return a file's questions, none if it is refused; any other exception than ``InputError`` fails the test."""
    questions, message = list[Question](), ""
    try:
        questions = read_questions(file, name)
    except InputError as error:
        message = str(error)
    assert questions or str(file.parent) in message
    assert "\n" not in message
    for question in questions:
        json.dumps([question.id, question.text, question.golden_answers, dict(question.gold)], ensure_ascii=False).encode()
    return questions


def corrupt(content: bytes, rng: random.Random) -> bytes:
    """Return a content with some bytes deleted, doubled, replaced or moved."""
    for _ in range(rng.randint(1, 3)):
        start, n = rng.randrange(len(content) + 1), rng.choice([1, 1, 1, 4, 60])
        new = rng.choice([*PIECES, content[start : start + n] * 2, bytes([rng.randrange(256)])])
        content = content[:start] + new + content[start + n :]
    return content


@pytest.mark.parametrize("case", FORMAT_FILES, ids=str)
def test_damaged_bytes(tmp_path: Path, case: FormatFile) -> None:
    rng, file = random.Random(str(case)), tmp_path / "file"
    n_refused = 0
    for _ in range(40):
        file.write_bytes(corrupt(case.content.encode(), rng))
        n_refused += not read_or_refuse(file, rng.choice([None, case.format]))
    assert n_refused


@given(
    st.lists(st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=2), JSON, max_size=6), max_size=3),
    st.sampled_from([None, *FORMATS]),
    st.booleans(),
)
def test_records_of_any_types(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]], name: str | None, is_array: bool
) -> None:
    file = tmp_path_factory.mktemp("made") / "file"
    file.write_text(json.dumps(records) if is_array else lines(*records) or " ", encoding="utf-8", errors="backslashreplace")
    read_or_refuse(file, name)


@pytest.mark.parametrize("case", [case for case in FORMAT_FILES if case.content[0] in "[{"], ids=str)
def test_one_field_of_another_type(tmp_path: Path, case: FormatFile) -> None:
    """Each field of the first record, down to the innermost, replaced by a value of every other type."""
    file = tmp_path / "file"
    try:
        changed = change_one_value(json.loads(case.content))
    except ValueError:
        changed = change_one_value(json.loads(case.content.splitlines()[0]))
    for value in changed:
        file.write_text(json.dumps(value), encoding="utf-8")
        read_or_refuse(file, case.format)
        read_or_refuse(file)


def change_one_value(value: Any) -> list[Any]:  # noqa: ANN401 - JSON
    """Return values like this one, each with a part replaced."""
    others: list[Any] = [None, True, -1, 0.5, "", " ", "x", [], [None], [[]], {}, {"x": 1}]
    inner = list[Any]()
    if isinstance(value, dict):
        inner = [{**value, name: other} for name in value for other in change_one_value(value[name])]
        inner += [{other: item for other, item in value.items() if other != name} for name in value]
    elif isinstance(value, list):
        inner = [[*value[:index], other, *value[index + 1 :]] for index in range(len(value)) for other in change_one_value(value[index])]
    return others + inner


WHOLE = gzip.compress(json.dumps([{"question": f"{n}?", "answer": ["a"]} for n in range(2_000)]).encode())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "/file"),
        (b'[{"a":' * 50_000, "/file"),
        (b'{"question": ' + b"[" * 100_000 + b"\n", "/file"),
        (b'[{"id": ' + b"9" * 5_000 + b', "question": "a"}]', "/file"),
        (b"who\t['a']\nwho\t" + b"(" * 500 + b"\n", "/file"),
        (b"who\t['\\d']\nwhen\t[0x110000 * 'a']\n", "/file"),
        (b'"who\t' + b"x" * 200_000, "/file"),
        (b"who\t['a']\nwhen\t['\x00']\n", "/file"),
        (b"\x00\x00\x00", "/file"),
        (b"[null]\n[null]", "/file"),
        (b'{"question": "a"} {"question": "b"}', "/file"),
        (b"", "is empty"),
        *[(WHOLE[:end], "is corrupt: .*: fetch or compress it again") for end in (30, len(WHOLE) // 2, len(WHOLE) - 9)],
    ],
    ids=range(15),
)
def test_malformed_and_truncated_files(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert read_or_refuse(file) == []
    with pytest.raises(InputError, match=message):
        read_questions(file)
