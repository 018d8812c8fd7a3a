from __future__ import annotations

import gzip
import html
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from wikidx.base.errors import InputError
from wikidx.corpora.passage import BadRecord, Passage
from wikidx.corpora.reading import containers
from wikidx.corpora.reading.readers import detect_format, read

HEADER = "id\ttext\ttitle\n"
GOOD_JSON = '{"id": "g", "title": "Good", "text": "good"}\n'
GOOD_DOC = '<doc id="g" url="?curid=g" title="Good">\nGood\n\nIt is good.\n\n</doc>\n'
GOOD_ARTICLE = Passage("g", "Good", "Good\n\nIt is good.\n\n")

Rows = list[tuple[int, Passage]]


def made_file(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "made"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
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


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("1\ta\tT\n2\tb\tU\n", [(1, ("1", "T", "a")), (2, ("2", "U", "b"))], id="without header"),
        pytest.param(HEADER + "1\ta\tT\n", [(2, ("1", "T", "a"))], id="with header"),
        pytest.param("title\tid\ttext\nT\t1\ta\n", [(2, ("1", "T", "a"))], id="header in another order"),
        pytest.param("docid\ttitle\ttext\n1\tT\ta\n", [(2, ("1", "T", "a"))], id="header of another id"),
        pytest.param("contents\tdoc_id\tTitle\na\t1\tT\n", [(2, ("1", "T", "a"))], id="header of other names"),
        pytest.param("id\tbody\ttitle\n", [(1, ("id", "title", "body"))], id="no header with an unknown name"),
        pytest.param('"id"\t"text"\t"title"\n1\ta\tT\n', [(2, ("1", "T", "a"))], id="quoted header"),
        pytest.param("\n" + HEADER + "1\ta\tT\n", [(3, ("1", "T", "a"))], id="header behind a blank line"),
        pytest.param("1\ta\tT\n" + HEADER, [(1, ("1", "T", "a")), (2, ("id", "title", "text"))], id="no header after the first row"),
        pytest.param('1\t"say ""hi"" now"\t"T"\n', [(1, ("1", "T", 'say "hi" now'))], id="doubled quotes"),
        pytest.param('1\tsay "hi"\tT\n', [(1, ("1", "T", 'say "hi"'))], id="quotes inside a bare column"),
        pytest.param(
            '1\t"Up" is a film\t"Up"\n2\ta\t"T" b\n', [(1, ("1", "Up", '"Up" is a film')), (2, ("2", '"T" b', "a"))], id="quotes of a text"
        ),
        pytest.param('1\t"a\tb"\tT\n', [(1, ("1", "T", "a\tb"))], id="tab inside quotes"),
        pytest.param('1\t"a\n\nb"\tT\n2\tc\tU\n', [(1, ("1", "T", "a\n\nb")), (4, ("2", "U", "c"))], id="newlines inside quotes"),
        pytest.param('1\t"a\rb"\tT\n', [(1, ("1", "T", "a\rb"))], id="carriage return inside quotes"),
        pytest.param("1\ta\tT\n\n \n2\tb\tU\n\n", [(1, ("1", "T", "a")), (4, ("2", "U", "b"))], id="blank lines"),
        pytest.param("1\ta\u2028b\x85c\x0cd\tT\n", [(1, ("1", "T", "a\u2028b\x85c\x0cd"))], id="other line separators"),
        pytest.param("1\ta\0b\tT\n", [(1, ("1", "T", "a\0b"))], id="NUL"),
        pytest.param("1\ta\tT\n2\t\t\n", [(1, ("1", "T", "a")), (2, ("2", "", ""))], id="empty columns"),
    ],
)
def test_tsv_rows(tmp_path: Path, content: str, expected: Rows) -> None:
    path = made_file(tmp_path, content)
    assert detect_format(path) == "tsv"
    assert rows_of(path, "tsv") == expected


@pytest.mark.parametrize(
    ("file_format", "record", "expected"),
    [
        pytest.param("jsonl", {"id": "1", "title": "T", "text": "a\nb"}, ("1", "T", "a\nb"), id="plain"),
        pytest.param("jsonl", {"id": 17, "title": "T", "text": "a"}, ("17", "T", "a"), id="integer id"),
        pytest.param("jsonl", {"id": 10**20 + 1, "score": 0.5, "text": "a"}, ("100000000000000000001", "", "a"), id="large id"),
        pytest.param("jsonl", {"id": "007", "text": "a"}, ("007", "", "a"), id="no title"),
        pytest.param("jsonl", {"id": "1", "title": "T", "section": "S", "text": "a"}, ("1", "T: S", "a"), id="Atlas section"),
        pytest.param("jsonl", {"id": "1", "title": "T", "section": "", "text": "a"}, ("1", "T", "a"), id="Atlas lead"),
        pytest.param("jsonl", {"id": "1", "text": "a\0é😀", "more": [1]}, ("1", "", "a\0é😀"), id="escapes and more fields"),
        pytest.param("contents", {"id": "1", "contents": '"T "x""\na\nb'}, ("1", 'T "x"', "a\nb"), id="FlashRAG"),
        pytest.param("contents", {"id": 0, "contents": "T\na"}, ("0", "T", "a"), id="title without quotes"),
        pytest.param("contents", {"id": "1", "contents": '"\na'}, ("1", '"', "a"), id="title of one quote"),
        pytest.param("contents", {"id": "1", "title": "T", "contents": "a\nb"}, ("1", "T", "a\nb"), id="contents beside a title"),
        pytest.param("contents", {"id": "1", "title": "T", "contents": '"T"\na\nb'}, ("1", "T", "a\nb"), id="contents with the title"),
        pytest.param("contents", {"id": "1", "title": "T", "contents": "T"}, ("1", "T", "T"), id="contents of the title alone"),
        pytest.param("contents", {"id": "1", "contents": '"T" is a letter'}, ("1", "", '"T" is a letter'), id="contents of one line"),
        pytest.param("beir", {"_id": "MED-1", "title": "T", "text": "a", "metadata": {}}, ("MED-1", "T", "a"), id="BEIR"),
        pytest.param("beir", {"_id": 3, "text": "a"}, ("3", "", "a"), id="BEIR without title"),
        pytest.param(
            "wikiextractor-json",
            {"id": "1", "revid": "2", "url": "", "title": "&lt;T", "text": "a &amp; b"},
            ("1", "<T", "a & b"),
            id="WikiExtractor --json",
        ),
    ],
)
def test_json_record(tmp_path: Path, file_format: str, record: dict[str, object], expected: Passage) -> None:
    path = made_file(tmp_path, json.dumps(record) + "\n")
    assert detect_format(path) == file_format
    assert rows_of(path, file_format) == [(1, expected)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(GOOD_DOC, [(1, GOOD_ARTICLE)], id="the title stays as first line"),
        pytest.param(
            '<doc id="1" url="u" title="AT&amp;T &quot;A&quot;">\nAT&amp;T &quot;A&quot;\n\n1 &lt; 2 &amp;gt; &copy &nbsp;\n</doc>\n',
            [(1, ("1", 'AT&T "A"', 'AT&T "A"\n\n1 < 2 &gt; &copy &nbsp;\n'))],
            id="entities",
        ),
        pytest.param('<doc id="1" title="The "A" Team">\nText\n</doc>\n', [(1, ("1", 'The "A" Team', "Text\n"))], id="quotes in the title"),
        pytest.param('<doc title="a="b" c" id="1">\nText\n</doc>\n', [(1, ("1", 'a="b" c', "Text\n"))], id="attributes in another order"),
        pytest.param('<doc id="1" title="A">\nA\n\n\n</doc>\n' + GOOD_DOC, [(6, GOOD_ARTICLE)], id="title alone is passed over"),
        pytest.param('<doc id="1" title="A &amp; B">\nA &amp; B\n</doc>\n' + GOOD_DOC, [(4, GOOD_ARTICLE)], id="escaped title alone"),
        pytest.param('<doc id="1" title="A">\n</doc>\n\n' + GOOD_DOC, [(4, GOOD_ARTICLE)], id="nothing is passed over"),
        pytest.param("\ufeff\n" + GOOD_DOC + "\n" + GOOD_DOC, [(2, GOOD_ARTICLE), (9, GOOD_ARTICLE)], id="blank lines between articles"),
    ],
)
def test_wikiextractor_articles(tmp_path: Path, content: str, expected: Rows) -> None:
    path = made_file(tmp_path, content)
    assert detect_format(path) == "wikiextractor"
    assert rows_of(path, "wikiextractor") == expected


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param('[{"id": 1}]', r"begins with '\[\{.*one record a line is needed", id="JSON array"),
        pytest.param('\n{\n "id": 1\n}\n', "line 2: not JSON: .* at column 2 .one record a line is needed", id="JSON over several lines"),
        pytest.param('{"_id": 1, "body": "b"}', "line 1: has the fields _id, body; needed are id, title, text", id="other fields"),
        pytest.param("{}", "line 1: has the fields none; needed are", id="no fields"),
        pytest.param('{"a":' * 100_000, "line 1: the JSON is nested too deeply", id="deep JSON"),
        pytest.param('{"id": ' + "9" * 5000 + "}", "line 1: a number in the JSON has too many digits", id="huge number"),
        pytest.param("It was a dark night.\n", "begins with 'It was a dark night.', which is none of the formats tsv, jsonl,", id="prose"),
        pytest.param('{"id": 1}'.encode("utf-16"), r"line 1: byte 1 of the line is not UTF-8 \(0xff\).* skip$", id="UTF-16"),
        pytest.param(" \n\t\n", "holds only blank lines", id="blank lines"),
        pytest.param(b"", "is empty", id="empty"),
    ],
)
def test_format_that_cannot_be_detected_is_refused(tmp_path: Path, content: str | bytes, complaint: str) -> None:
    with pytest.raises(InputError, match=rf"made\b.*{complaint}"):
        detect_format(made_file(tmp_path, content))


BAD_TSV: list[tuple[str, str | bytes, str]] = [
    ("too few columns", "1\ta\n", "2 columns instead of 3 (id, text, title): if no line has a title, end each with a tab"),
    ("too many columns", "1\ta\tT\tx\n", "4 columns instead of 3 (id, text, title)"),
    ("spaces for tabs", "1 a T\n", "1 columns instead of 3 (id, text, title)"),
    ("not UTF-8", b"1\t\xff\tT\n", "byte 3 of the line is not UTF-8 (0xff)"),
    ("carriage return", "1\ta\rb\tT\n", "a carriage return outside quotes"),
    ("quote open to the end", '1\t"a\tT\n', "a quote is opened here and never closed"),
    ("quote open in the last column", '1\ta\t"T\n', "a quote is opened here and never closed"),
]
BAD_JSON: list[tuple[str, str | bytes, str]] = [
    ("not JSON", "{'id': 1}\n", "not JSON: Expecting property name enclosed in double quotes at column 2"),
    ("cut JSON", '{"id": "1", "text": "a\n', "not JSON: Invalid control character at column 23"),
    ("bare NUL", '{"id": "1", "text": "\0"}\n', "not JSON: Invalid control character at column 22"),
    ("more behind the object", '{"id": "1", "text": "a"} b\n', "not JSON: Extra data at column 26"),
    ("not UTF-8", b'{"id": "1", "text": "\xe9"}\n', "byte 22 of the line is not UTF-8 (0xe9)"),
    ("no id", '{"text": "a"}\n', "the field 'id' is missing"),
    ("no text", '{"id": "1", "title": "T"}\n', "the field 'text' is missing"),
    ("text null", '{"id": "1", "text": null}\n', "the field 'text' is null, not a string"),
    ("text array", '{"id": "1", "text": ["a"]}\n', "the field 'text' is an array, not a string"),
    ("title number", '{"id": "1", "title": 1984, "text": "a"}\n', "the field 'title' is a number, not a string"),
    ("section object", '{"id": "1", "title": "T", "section": {"a": 1}, "text": "a"}\n', "the field 'section' is an object, not a string"),
    ("id true", '{"id": true, "text": "a"}\n', "the field 'id' is true or false, not a string"),
    ("id fraction", '{"id": 1.5, "text": "a"}\n', "the field 'id' is a number, not a string"),
    ("null", "null\n", "null instead of a JSON object"),
    ("array", "[1]\n", "an array instead of a JSON object"),
    ("number", "17\n", "a number instead of a JSON object"),
    ("string", '"a"\n', "a string instead of a JSON object"),
    ("deep", "[" * 100_000 + "\n", "the JSON is nested too deeply"),
    ("huge integer", '{"id": ' + "9" * 5000 + ', "text": "a"}\n', "a number in the JSON has too many digits"),
]
BAD_DOCS: list[tuple[str, str | bytes, str]] = [
    ("never closed", '<doc id="1" title="A">\nA\n\nText.\n', "this <doc> is not closed before the next one begins"),
    ("no title", '<doc id="1">\nA\n\nText.\n</doc>\n', "<doc …> without id and title"),
    ("header cut", '<doc id="1" title="A\nA\n\nText.\n</doc>\n', "<doc …> without id and title"),
    ("outside", "Text.\n", "text outside <doc> … </doc>"),
    ("header not UTF-8", b'<doc id="1" title="\xff">\nText.\n</doc>\n', "byte 20 of the line is not UTF-8 (0xff)"),
]
GOOD = {
    "tsv": ("g\tgood\tGood\n", Passage("g", "Good", "good")),
    "jsonl": (GOOD_JSON, Passage("g", "Good", "good")),
    "wikiextractor": (GOOD_DOC, GOOD_ARTICLE),
}
BAD = [
    pytest.param(file_format, content, reason, id=f"{file_format}: {name}")
    for file_format, cases in (("tsv", BAD_TSV), ("jsonl", BAD_JSON), ("wikiextractor", BAD_DOCS))
    for name, content, reason in cases
]


@pytest.mark.parametrize(("file_format", "content", "reason"), BAD)
def test_a_bad_record_is_refused_with_its_place_or_passed_over(tmp_path: Path, file_format: str, content: str | bytes, reason: str) -> None:
    """It stands between two good ones."""
    bad, (good, passage) = content.encode() if isinstance(content, str) else content, GOOD[file_format]
    path, line = made_file(tmp_path, good.encode() + bad + good.encode()), good.count("\n") + 1
    assert rows_and_bad(path, file_format) == ([(1, passage), (line + bad.count(b"\n"), passage)], [(line, reason)])
    with pytest.raises(InputError) as caught:
        list(read(path, file_format))
    assert str(caught.value) == f"{path}, line {line}: {reason}; correct the file, or skip unusable records with --on-error skip"


def test_quote_that_swallows_rows_costs_its_own_row_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "MAX_RECORD_BYTES", 131_072)
    good = [f"{n}\t{'text ' * 20}\tT\n" for n in range(3000)]
    path = made_file(tmp_path, "".join([*good[:10], 'x\t"never closed\tT\n', *good[10:]]))
    rows, bad = rows_and_bad(path, "tsv")
    assert [passage.id for _, passage in rows] == [str(n) for n in range(3000)]
    assert bad == [(11, "not a tab-separated row: field larger than field limit (131072) (a quote that is never closed?)")]
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
