"""Dumps: each reader yields the records of a plain reading of the whole file, and refuses exactly the files that it cannot read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.corpora.made_documents import docx, epub, write_zip
from tests.fuzz.mutating import COMPRESSIONS, check_refusal, compressed_mutations, examples, mutations, read_or_refuse
from wikidx.base.errors import InputError
from wikidx.corpora.known.custom import ReadOptions, custom_corpus
from wikidx.corpora.passage import BadRecord, Passage
from wikidx.corpora.reading.readers import READERS, detect_format, read


def zipped(members: dict[str, str]) -> bytes:
    """Return a zip archive of some members."""
    packed = io.BytesIO()
    write_zip(packed, members)
    return packed.getvalue()


TSV = b'id\ttext\ttitle\n1\t"say ""hi"" now"\tThe "Nile"\n2\ta\tb\n\n"3"\t"two\nlines"\t\n'
JSONL = b'{"id": "1", "title": "T", "text": "one"}\n\n{"id": 2, "title": null, "text": "\\u00e9", "section": "S"}\n'
BEIR = b'{"_id": "1", "title": "T", "text": "one", "metadata": {}}\n{"_id": "2", "text": "two"}\n'
CONTENTS = b'{"id": "0", "contents": "\\"Title\\"\\ntext"}\n{"id": "1", "contents": "no title"}\n'
DOCS = (
    b'<doc id="1" url="?curid=1" title="A &amp; B">\nA &amp; B\n\nWords of it &lt;here&gt;.\n\n</doc>\n'
    b'<doc id="2" title="C">\nC\n\nMore.\n</doc>\n'
)
ARTICLES = b'{"id": "1", "revid": "9", "url": "?curid=1", "title": "A", "text": "A &quot;text&quot;"}\n'
RECORDS = b'{"docid": 1, "headline": "T", "passage": "a"}\n\n{"docid": 2, "passage": "\\u00e9"}\n'
TABLE = b'docid;body;name\n1;"a ""b""; c";T\n"2";"two\nlines";\n'
COLLECTION = b'1\tsay "hi"\n2\t"b"\n'
JSON = b'[{"id": 1, "text": "a"},\n {"id": "2", "title": "T", "text": "\\u00e9"}]\n'
SEEDS = {"tsv": TSV, "jsonl": JSONL, "contents": CONTENTS, "beir": BEIR, "wikiextractor": DOCS, "wikiextractor-json": ARTICLES}
SEEDS |= {"records": RECORDS, "csv": TABLE, "msmarco": COLLECTION, "json": JSON}
SEEDS |= {"text": b"One.\n\nTwo words.\n", "markdown": b"# T\n\n| a | b |\n|---|---|\n| `c` | [d](e) |\n\n<p>f</p>\n"}
SEEDS |= {"rst": b"T\n=\n\n.. note::\n\n   A :role:`word`.\n\n* b\n", "html": b"<title>T</title><h1>a</h1><table><tr><td>b<td>c</table>\n"}
SEEDS |= {"pdf": b"%PDF-1.4\n" + JSON, "docx": zipped(docx(("berschrift1", "T"), ("", "a b"))), "epub": zipped(epub("<h1>a</h1>", "b"))}
SEEDS |= {"parquet": b"PAR1" + JSON, "arrow": b"ARROW1\0\0" + JSON}  # no mutation of these is a table


def is_csv(cell: str) -> bool:
    """Return whether strict CSV takes a cell."""
    try:
        return len(list(csv.reader([cell], delimiter="\t", strict=True))) < 2
    except csv.Error:
        return not cell.startswith('"')


def tsv_rows(text: str) -> list[Passage]:
    """Read a table whole, with Python's own reader, but for quotes that are none of CSV; ``ValueError``: a row is none."""
    lines, rows = (text + "\nend").split("\n"), list[list[str]]()
    reader, n_read = csv.reader(io.StringIO(text + "\nend", newline="\n"), delimiter="\t"), 0
    for row in reader:
        cells = lines[n_read].removesuffix("\r").split("\t")
        is_line = reader.line_num == n_read + 1 and len(cells) == len(row)
        rows.append([value if is_csv(raw) else raw for value, raw in zip(row, cells, strict=True)] if is_line else row)
        n_read = reader.line_num
    if rows.pop() != ["end"]:
        raise ValueError("a quote is never closed")
    rows = [row for row in rows if len(row) == 3 or "".join(row).strip()]
    if any(len(row) != 3 for row in rows):
        raise ValueError("not three columns")
    places = {"id": 0, "text": 1, "title": 2}
    if rows and set(rows[0]) == set(places):
        places = {name: rows[0].index(name) for name in places}
        del rows[0]
    return [Passage(row[places["id"]], row[places["title"]], row[places["text"]]) for row in rows]


def of_type(value: object, *kinds: type) -> Any:  # noqa: ANN401 - JSON
    if type(value) not in kinds:
        raise ValueError(f"{value!r:.40} has another type")
    return value


def plain_record(record: dict[str, Any]) -> Passage:
    title = of_type(record.get("title"), str, type(None)) or ""
    if record.get("section"):
        title += ": " + of_type(record["section"], str)
    return Passage(str(of_type(record["id"], str, int)), title, of_type(record["text"], str))


def beir_record(record: dict[str, Any]) -> Passage:
    return plain_record({"id": record["_id"], "title": record.get("title"), "text": record["text"]})


def contents_record(record: dict[str, Any]) -> Passage:
    id_, contents = str(of_type(record["id"], str, int)), of_type(record["contents"], str)
    if "\n" not in contents:
        return Passage(id_, "", contents)
    title, text = contents.split("\n", 1)
    return Passage(id_, title[1:-1] if len(title) > 1 and title.startswith('"') and title.endswith('"') else title, text)


def json_rows(fields: Callable[[dict[str, Any]], Passage]) -> Callable[[str], list[Passage]]:
    def rows(text: str) -> list[Passage]:
        return [fields(of_type(json.loads(line), dict)) for line in text.split("\n") if line and not line.isspace()]

    return rows


PLAIN = {"tsv": tsv_rows, "jsonl": json_rows(plain_record), "beir": json_rows(beir_record), "contents": json_rows(contents_record)}


def read_whole(content: bytes, file_format: str) -> list[Passage] | None:
    """Return the records of a plain reading; None if it cannot read the file."""
    try:
        return PLAIN[file_format](content.decode().removeprefix("\ufeff"))
    except (ValueError, KeyError, RecursionError, csv.Error):
        return None


@pytest.mark.parametrize("file_format", PLAIN)
@examples()
@given(data=st.data(), compression=st.sampled_from(list(COMPRESSIONS)))
def test_records_are_those_of_a_plain_reading(file: Path, file_format: str, data: st.DataObject, compression: str) -> None:
    content = data.draw(
        mutations(SEEDS[file_format]).filter(lambda content: not content.startswith((b"\x1f\x8b", b"BZh", b"PK", b"\xfd7z")))
    )
    file.write_bytes(COMPRESSIONS[compression](content))
    expected = read_whole(content, file_format) if content or compression != "none" else None
    found = read_or_refuse(lambda: [one.passage for one in read(file, file_format)], file)
    assert found == expected


@pytest.mark.parametrize("file_format", READERS)
@examples()
@given(data=st.data())
def test_damage_is_refused_or_counted(file: Path, file_format: str, data: st.DataObject) -> None:
    """With bad records skipped, the rest are lines of the file, in order, and no line is both good and bad."""
    content = data.draw(compressed_mutations(SEEDS[file_format]))
    file.write_bytes(content)
    bad = list[BadRecord]()
    good = read_or_refuse(lambda: list(read(file, file_format, bad.append)), file)
    for record in bad:
        check_refusal(InputError(record.reason))
    numbers = [one.line for one in good or ()]
    assert numbers == sorted(set(numbers))
    if file_format != "wikiextractor":  # of which one line may end an article and the same record be complained of
        assert not set(numbers) & {record.line for record in bad}
    read_or_refuse(lambda: list(read(file, file_format)), file)


RULES = ["none", "words:{}", "dpr:{}", "sections:{}", "sentences:{}", "headings", "pages"]


@examples()
@given(content=compressed_mutations(*SEEDS.values()), rule=st.sampled_from(RULES), n_words=st.integers(1, 5))
@example(content=b'{"id": "1"', rule="none", n_words=1)
def test_files_of_a_users_own(file: Path, content: bytes, rule: str, n_words: int) -> None:
    file.write_bytes(content)
    found = read_or_refuse(lambda: detect_format(file), file)
    assert found is None or found in READERS
    passages = read_or_refuse(
        lambda: list(custom_corpus(file, "mine", ReadOptions(split=rule.format(n_words))).read([file], _ignore)), file
    )
    assert ":" not in rule or all(0 < len(one.passage.text.split()) <= n_words for one in passages or ()) or rule[0] == "s"


def _ignore(bad: BadRecord) -> None:
    check_refusal(InputError(f"{bad.file}, line {bad.line}: {bad.reason}"), bad.file)
