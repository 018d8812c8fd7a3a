"""Files read piece by piece: the same records as the whole file parsed at once, their lines, and little memory."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtimes.questions.format_files import FORMAT_FILES
from wikidx.base.errors import InputError
from wikidx.corpora.reading import json_text
from wikidx.corpora.reading.json_text import JsonText
from wikidx.runtimes.questions import read_questions
from wikidx.runtimes.questions.queries import read_queries
from wikidx.runtimes.questions.records import read_records

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def open_in_pieces(data: bytes, sizes: random.Random) -> JsonText:
    """Return a text read in pieces of one to nine bytes, for any requested size."""
    file = io.BytesIO(data)
    return JsonText(lambda size: file.read(sizes.randint(1, 9)), "made")


@given(st.lists(JSON, max_size=5), st.sampled_from([None, 0, 1]), st.booleans(), st.randoms(use_true_random=False))
def test_values_come_whole_however_the_text_is_cut(values: list[Any], indent: int | None, ascii_only: bool, sizes: random.Random) -> None:
    encoded = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    try:
        encoded.decode()
    except UnicodeDecodeError:
        return  # half a surrogate pair, which UTF-8 does not have
    text = open_in_pieces(encoded, sizes)
    text.expect("[")
    parsed = list[Any]()
    while text.peek() != "]":
        if parsed:
            text.expect(",")
        parsed.append(text.parse_value())
    text.expect("]")
    assert (parsed, text.peek()) == (values, "")
    assert text.line == encoded.count(b"\n") + 1


@given(st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=3), min_size=1, max_size=5), st.sampled_from([None, 2]))
def test_an_array_and_its_lines(tmp_path_factory: pytest.TempPathFactory, values: list[dict[str, Any]], indent: int | None) -> None:
    file = tmp_path_factory.mktemp("made") / "file.json"
    file.write_text("\n\n" + json.dumps(values, indent=indent), encoding="utf-8")
    records = list(read_records(file))
    assert [record.value for record in records] == values
    assert [record.number for record in records] == list(range(1, len(values) + 1))
    lines = file.read_text(encoding="utf-8").split("\n")
    for record in records:
        line = int(record.position.partition("(line ")[2].rstrip(")"))
        assert "{" in lines[line - 1]
        if indent:
            assert lines[line - 1] in ("  {", "  {}", "  {},")


@given(
    st.lists(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0")), min_size=2, max_size=2), min_size=1, max_size=4)
)
def test_a_table_is_read_as_csv_is(tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, delimiter="\t").writerows([["a question", "first"], *rows])
    file = tmp_path_factory.mktemp("made") / "file.tsv"
    file.write_text(text.getvalue(), encoding="utf-8", newline="")
    expected = [tuple(row) for row in csv.reader(io.StringIO(text.getvalue(), newline=""), delimiter="\t") if any(map(str.strip, row))]
    if {"question", "message", "claim"} & set(expected[0]):
        return
    assert [one.value for one in read_records(file)] == expected


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=20).map(str.strip)
HEADERS = ("qid", "question", "answer"), ("", "query", "source url"), ("Question", "Best Answer", "text")
DIALECTS = st.tuples(*map(st.sampled_from, (HEADERS, (",", ";", "|", ", "), ("\n", "\r\n"), ("utf-8", "utf-8-sig"))))


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4), DIALECTS)
def test_csv_of_any_dialect_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], dialect: tuple[Any, ...]
) -> None:
    (header, delimiter, end, encoding), table = dialect, io.StringIO()
    numbered = [header, *((str(number), *row) for number, row in enumerate(rows))]
    if delimiter == ", ":
        table.write("".join(", ".join('"' + cell.replace('"', '""') + '"' for cell in row) + end for row in numbered))
    else:
        csv.writer(table, delimiter=delimiter, lineterminator=end).writerows(numbered)
    file = tmp_path_factory.mktemp("made") / "file.csv"
    file.write_text("\n\n" + table.getvalue(), encoding=encoding, newline="")
    records = list(read_records(file))
    assert [record.value for record in records] == [dict(zip(header, row, strict=True)) for row in numbered[1:]]
    assert records[0].position == "line 4"


@pytest.mark.parametrize("text", ["ocean, question of water\nhill\n", "who asks, and what is the, query\nhill\n"])
def test_a_line_of_text_is_no_header(text: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text, encoding="utf-8")
    assert [query.text for query in read_queries(tmp_path / "file")] == text.splitlines()


def test_questions_in_a_table_are_those_in_json(tmp_path: Path) -> None:
    """Of all files of records whose values have one type in each field, as a table needs it."""
    pa, feather = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.feather")
    n_read = 0
    for case in FORMAT_FILES:
        (tmp_path / "questions.json").write_text(case.content, encoding="utf-8")
        records = list(read_records(tmp_path / "questions.json"))
        if any(record.path or type(record.value) is not dict for record in records):
            continue
        with contextlib.suppress(pa.ArrowException):
            names = dict.fromkeys(name for record in records for name in record.value)
            table = pa.Table.from_pylist([{name: record.value.get(name) for name in names} for record in records])
            feather.write_feather(table, tmp_path / "table")
            found = [(one.text, one.golden_answers, one.gold) for one in read_questions(tmp_path / "table", case.format)]
            assert found == [(one.text, one.golden_answers, one.gold) for one in case.questions], case
            n_read += 1
    assert n_read > 10


def test_tables_of_parquet_are_read(shared_data: Path, tmp_path: Path) -> None:
    (question,) = read_questions(shared_data / "field" / "f_sr1.parquet")
    assert (question.text, question.golden_answers) == ("climate?", ("x",))
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"question": ["a"] * 3000 + [None]}), tmp_path / "file")
    with pytest.raises(InputError, match=r"file, row 3001: no field 'question' .*; it has no fields"):
        read_questions(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"PAR1\x15\4")
    with pytest.raises(InputError, match="file is no Parquet file that can be read: "):
        read_questions(tmp_path / "file")


def test_only_the_first_row_can_be_a_header(tmp_path: Path) -> None:
    (tmp_path / "file.tsv").write_text("0\tfirst\n\tquestion\nx\ty\n", encoding="utf-8")
    assert [one.value for one in read_records(tmp_path / "file.tsv")] == [("0", "first"), ("", "question"), ("x", "y")]


def test_json_lines_longer_than_what_decides(tmp_path: Path) -> None:
    """The first line, of 200,000 characters, is one record; so is the one object of a JSON array on one line."""
    long = {"question": "Who?", "answers": ["A"], "ctxs": [{"text": "x" * 200_000}]}
    file = tmp_path / "file"
    file.write_text(json.dumps(long) + "\n" + json.dumps(long), encoding="utf-8")
    assert [one.id for one in read_questions(file)] == ["1", "2"]
    file.write_text(json.dumps([long] * 3), encoding="utf-8")
    assert [one.id for one in read_questions(file)] == ["1", "2", "3"]
    file.write_text(
        json.dumps({"Domain": "Web", "Data": [{"Question": "Who?", "QuestionId": "q", "Pages": "x" * 200_000}]}), encoding="utf-8"
    )
    assert [one.id for one in read_questions(file)] == ["q"]


def test_memory_does_not_grow_with_what_is_not_kept(tmp_path: Path) -> None:
    """40 MB of contexts, of which nothing is kept, take less than 8 MB; parsed at once they take more than 40."""
    record = {"question": "Who?", "answers": ["A"], "positive_ctxs": [], "hard_negative_ctxs": [{"text": "x" * 100_000}]}
    file = tmp_path / "file.json.gz"
    with gzip.open(file, "wt", compresslevel=1, encoding="utf-8") as text:
        text.write("[" + ",\n".join([json.dumps(record)] * 400) + "]")
    tracemalloc.start()
    try:
        assert len(read_questions(file)) == 400
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_what_is_no_json_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value is given up behind ``MAX_VALUE_CHARACTERS`` characters, here a hundred thousand."""
    monkeypatch.setattr(json_text, "MAX_VALUE_CHARACTERS", 100_000)
    monkeypatch.setattr(json_text, "_CHUNK_BYTES", 1_000)
    n_read = 0
    file = io.BytesIO(b'[{"a": "' + b"x" * 10_000_000)

    def read(size: int) -> bytes:
        nonlocal n_read
        n_read += size
        return file.read(size)

    text = JsonText(read, "made")
    text.expect("[")
    with pytest.raises(InputError, match="made, line 1: not JSON \\(Unterminated string"):
        text.parse_value()
    assert n_read < 400_000
