from __future__ import annotations

import gzip
import html
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import read_rows
from wikidx.base.errors import InputError
from wikidx.corpora.passage import BadRecord, Passage
from wikidx.corpora.reading import containers
from wikidx.corpora.reading.readers import detect_format, read

GOOD_JSON = '{"id": "g", "title": "Good", "text": "good"}\n'
GOOD_DOC = '<doc id="g" url="?curid=g" title="Good">\nGood\n\nIt is good.\n\n</doc>\n'
GOOD_ARTICLE = Passage("g", "Good", "Good\n\nIt is good.\n\n")

Rows = list[tuple[int, Passage]]


def made_file(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "made"
    path.write_bytes(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)
    return path


def rows_of(path: Path, file_format: str) -> Rows:
    located = list(read(path, file_format))
    assert {found.file for found in located} <= {str(path)}
    return [(found.line, found.passage) for found in located]


def rows_and_bad(path: Path, file_format: str) -> tuple[Rows, list[tuple[int, str]]]:
    bad: list[BadRecord] = []
    rows = [(found.line, found.passage) for found in read(path, file_format, bad.append)]
    assert {record.file for record in bad} <= {str(path)}
    return rows, [(record.line, record.reason) for record in bad]


@pytest.mark.parametrize(("file_format", "content", "expected"), read_rows("corpora/records.jsonl"))
def test_records_are_read(tmp_path: Path, file_format: str, content: str, expected: list[Any]) -> None:
    path = made_file(tmp_path, content)
    assert detect_format(path) == file_format
    assert rows_of(path, file_format) == [(line, Passage(*fields)) for line, fields in expected]


DEEP, HUGE = "the JSON is nested too deeply", "a number in the JSON has too many digits"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [*read_rows("corpora/undetected.jsonl"), ('{"a":' * 100_000, f"line 1: {DEEP}"), ('{"id": ' + "9" * 5000 + "}", f"line 1: {HUGE}")],
)
def test_format_that_cannot_be_detected_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    with pytest.raises(InputError, match=rf"made\b.*{complaint}"):
        detect_format(made_file(tmp_path, content))


GOOD = {
    "tsv": ("g\tgood\tGood\n", Passage("g", "Good", "good")),
    "jsonl": (GOOD_JSON, Passage("g", "Good", "good")),
    "wikiextractor": (GOOD_DOC, GOOD_ARTICLE),
}
DEEPLY: list[tuple[str, str, str]] = [("jsonl", "[" * 100_000 + "\n", DEEP), ("jsonl", '{"id": ' + "9" * 5000 + ', "text": "a"}\n', HUGE)]


@pytest.mark.parametrize(("file_format", "content", "reason"), [*read_rows("corpora/bad_records.jsonl"), *DEEPLY])
def test_a_bad_record_is_refused_with_its_place_or_passed_over(tmp_path: Path, file_format: str, content: str, reason: str) -> None:
    """It stands between two good ones."""
    good, passage = GOOD[file_format]
    path, line = made_file(tmp_path, good + content + good), good.count("\n") + 1
    assert rows_and_bad(path, file_format) == ([(1, passage), (line + content.count("\n"), passage)], [(line, reason)])
    with pytest.raises(InputError) as caught:
        list(read(path, file_format))
    assert str(caught.value) == f"{path}, line {line}: {reason}; correct the file, or skip unusable records with --on-error skip"


def test_quote_that_swallows_rows_costs_its_own_row_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "MAX_RECORD_BYTES", 131_072)
    good = [f"{n}\t{'text ' * 20}\tT\n" for n in range(3000)]
    path = made_file(tmp_path, "".join([*good[:10], 'x\t"never closed\tT\n', *good[10:]]))
    rows, bad = rows_and_bad(path, "tsv")
    assert [passage.id for _, passage in rows] == [str(n) for n in range(3000)]
    assert bad == [(11, "not a row of a table: field larger than field limit (131072) (a quote that is never closed?)")]
    assert [line for line, _ in rows] == [*range(1, 11), *range(12, 3002)]


@pytest.mark.parametrize(
    ("file_format", "content", "rows", "bad"),
    [
        ("tsv", b'1\t"a\n\xff\nb"\tT\n2\tc\tU\n', [(4, ("2", "U", "c"))], (2, "byte 1 of the line is not UTF-8 (0xff)")),
        (
            "wikiextractor",
            b'<doc id="1" title="A">\nA\n\xff\nText.\n</doc>\n' + GOOD_DOC.encode(),
            [(6, GOOD_ARTICLE)],
            (3, "byte 1 of the line is not UTF-8 (0xff)"),
        ),
        ("wikiextractor", GOOD_DOC + '<doc id="1" title="A">\nA\n', [(1, GOOD_ARTICLE)], (7, "this <doc> is never closed")),
    ],
)
def test_what_has_a_bad_line_or_no_end_is_left_out_whole(
    tmp_path: Path, file_format: str, content: str | bytes, rows: Rows, bad: tuple[int, str]
) -> None:
    assert rows_and_bad(made_file(tmp_path, content), file_format) == (rows, [bad])


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""])
def test_line_over_the_limit_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: bytes) -> None:
    monkeypatch.setattr(containers, "MAX_RECORD_BYTES", 2 << 20)
    longest = GOOD_JSON.rstrip().encode() + b" " * ((2 << 20) - len(GOOD_JSON)) + b"\n"
    assert len(longest) == 2 << 20
    path = made_file(tmp_path, longest + b" " + longest + GOOD_JSON.encode() + b"[" * (5 << 20) + ending)
    good = Passage("g", "Good", "good")
    too_long = "the line is longer than 2 MiB"
    assert rows_and_bad(path, "jsonl") == ([(1, good), (3, good)], [(2, too_long), (4, too_long)])


def json_of(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def one_line_or_title(record: dict[str, str]) -> Passage:
    title, newline, text = record["contents"].partition("\n")
    return Passage(record["id"], re.sub('^"(.*)"$', r"\1", title), text) if newline else Passage(record["id"], "", title)


@pytest.mark.parametrize(
    ("name", "file_format", "n_records", "expected"),
    [
        ("dpr_union/passages.jsonl.gz", "jsonl", 33_888, lambda record: Passage(record["id"], record["title"], record["text"])),
        ("wiki_intro/passages.jsonl.gz", "jsonl", 1000, lambda record: Passage(record["id"], record["title"], record["text"])),
        ("flashrag/sample_data.jsonl.gz", "contents", 1000, one_line_or_title),
        ("cacm/cacm.json.gz", "contents", 3204, one_line_or_title),
        ("nfcorpus/nfcorpus.zip", "beir", 3633, lambda record: Passage(record["_id"], record["title"], record["text"])),
    ],
)
def test_real_records_come_out_as_they_stand(
    shared_data: Path, tmp_path: Path, name: str, file_format: str, n_records: int, expected: Callable[[dict[str, str]], Passage]
) -> None:
    path = shared_data / name
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            (tmp_path / "made").write_bytes(gzip.compress(archive.read("nfcorpus/corpus.jsonl"), 1))
        path = tmp_path / "made"
    assert detect_format(path) == file_format
    passages = [found.passage for found in islice(read(path, file_format), n_records)]
    assert len(passages) == n_records
    assert passages == [expected(record) for record in islice(json_of(path), n_records)]


def test_real_wikiextractor_articles(shared_data: Path) -> None:
    path = shared_data / "wikiextractor" / "wiki_00.gz"
    assert detect_format(path) == "wikiextractor"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        docs = [doc.split("\n", 2) for doc in html.unescape(file.read()).split("</doc>\n")[:-1]]
    assert len(docs) == 1530
    expected = [(opening, f"{title}\n{text}") for opening, title, text in docs if text.strip()]
    passages = [passage for _, passage in rows_of(path, "wikiextractor")]
    assert [(f'<doc id="{p.id}" url="?curid={p.id}" title="{p.title}">', p.text) for p in passages] == expected
