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

from tests.runtimes.questions.made import MADE, Made
from tests.runtimes.questions.test_records import JSON
from wikidx.corpora.errors import InputError
from wikidx.runtimes.questions import FORMATS, Question, read_questions

NAMES = sorted({name for made in MADE for line in made.content.splitlines() for name in line.split('"') if name.isidentifier()})


def read_or_refused(file: Path, name: str | None = None) -> list[Question]:
    """Return a file's questions, none if it is refused; any other exception than ``InputError`` fails the test."""
    found, message = list[Question](), ""
    try:
        found = read_questions(file, name)
    except InputError as error:
        message = str(error)
    assert found or str(file.parent) in message
    assert "\n" not in message
    for one in found:
        json.dumps([one.id, one.text, one.golden_answers, dict(one.gold)], ensure_ascii=False).encode()
    return found


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return a content with some bytes deleted, doubled, replaced or moved."""
    for _ in range(chance.randint(1, 3)):
        at, n = chance.randrange(len(content) + 1), chance.choice([1, 1, 1, 4, 60])
        new = chance.choice(
            [b"", content[at : at + n] * 2, bytes([chance.randrange(256)]), b'"', b"[", b"}", b"\n", b"\t", b"null", b"\\ud83d", b"1e999"]
        )
        content = content[:at] + new + content[at + n :]
    return content


@pytest.mark.parametrize("made", MADE, ids=lambda made: f"{made.format} {made.file}")
def test_damaged_files(tmp_path: Path, made: Made) -> None:
    chance = random.Random(f"{made.format} {made.file}")
    file = tmp_path / "file"
    n_refused = 0
    for _ in range(40):
        file.write_bytes(damaged(made.content.encode(), chance))
        n_refused += not read_or_refused(file, chance.choice([None, made.format]))
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
    file.write_text(json.dumps(records) if is_array else "\n".join(map(json.dumps, records)) or " ", encoding="utf-8")
    read_or_refused(file, name)


@pytest.mark.parametrize("made", [made for made in MADE if made.content[0] in "[{"], ids=lambda made: f"{made.format} {made.file}")
def test_one_field_of_another_type(tmp_path: Path, made: Made) -> None:
    """Each field of each record, down to the innermost, replaced by a value of every other type."""
    file = tmp_path / "file"
    try:
        changed = list(map(json.dumps, with_one_changed(json.loads(made.content))))
    except ValueError:
        records = list(map(json.loads, made.content.splitlines()))
        changed = [
            "\n".join(map(json.dumps, [*records[:at], other, *records[at + 1 :]]))
            for at in range(len(records))
            for other in with_one_changed(records[at])
        ]
    for content in changed:
        file.write_text(content, encoding="utf-8")
        read_or_refused(file)
        read_or_refused(file, made.format)


def with_one_changed(value: Any) -> list[Any]:  # noqa: ANN401 - JSON
    """Return values like this one, each with a part replaced."""
    others: list[Any] = [None, True, -1, 0.5, "", " ", "x", [], [None], [[]], {}, {"x": 1}]
    inner = list[Any]()
    if isinstance(value, dict):
        inner = [{**value, name: other} for name in value for other in with_one_changed(value[name])]
        inner += [{other: one for other, one in value.items() if other != name} for name in value]
    elif isinstance(value, list):
        inner = [[*value[:at], other, *value[at + 1 :]] for at in range(len(value)) for other in with_one_changed(value[at])]
    return others + inner


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'[{"a":' * 50_000,
        b'{"question": ' + b"[" * 100_000 + b"\n",
        b'{"id": ' + b"9" * 5_000 + b', "question": "a"}',
        b'[{"id": ' + b"9" * 5_000 + b', "question": "a"}]',
        b"who\t" + b"[" * 5_000 + b"\n",
        b"who\t['a']\nwho\t" + b"(" * 500 + b"\n",
        b"who\t['\\d']\nwhen\t[0x110000 * 'a']\n",
        b'"who\t' + b"x" * 200_000,
        b"who\t['a']\nwhen\t['\x00']\n",
        b"\xff\xfe[\x00]\x00",
        b"\x00\x00\x00",
        b"[1, 2]",
        b"[null]\n[null]",
        b'"question"',
        b"null",
        b'{"question": "a"} {"question": "b"}',
    ],
    ids=range(17),
)
def test_odd_files(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert read_or_refused(file) == []


def test_a_file_that_breaks_off(tmp_path: Path) -> None:
    """Wherever a compressed array breaks off, the file is called damaged."""
    whole = gzip.compress(json.dumps([{"question": f"{n}?", "answer": ["a"]} for n in range(2_000)]).encode())
    file = tmp_path / "file.json.gz"
    for end in (30, len(whole) // 2, len(whole) - 9):
        file.write_bytes(whole[:end])
        with pytest.raises(InputError, match="is damaged: .*: fetch or compress it again"):
            read_questions(file)
