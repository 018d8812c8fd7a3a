"""Files of queries: any file of questions, or one with a query on each line, as text or as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wikidx.base.errors import InputError
from wikidx.runtimes.questions import read_questions
from wikidx.runtimes.questions.queries import Query, read_queries


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("n", [1, 5_000], ids=["one", "longer than what decides"])
def test_a_text_for_each_id(file: Path, indent: int | None, n: int) -> None:
    texts = {f"q{number}": f"who is {number}" for number in range(n)}
    file.write_text(json.dumps(texts, indent=indent))
    assert {one.id: one.text for one in read_questions(file)} == texts
    assert {one.id: one.text for one in read_queries(file)} == texts


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("_id\ttext\nq1\tNile\n", [Query("Nile", "q1")]),
        ('qid\ttext\nq1\t"a ""b"""\n', [Query('a "b"', "q1")]),
        ("Query\tquery-id\nNile\tq1\n", [Query("Nile", "q1")]),
        ("topic_id\ttitle\nq1\tNile\n", [Query("Nile", "q1")]),
        ("qid\tpid\tquery\tpassage\nq1\tp1\tNile\tA river.\n", [Query("Nile", "q1")]),
        ("q1\ttext\nid\ttitle\n", [Query("text", "q1"), Query("title", "id")]),  # no header: the first line has another word
        (
            '1\t"open\n2\tplain\n3\t"a ""b"" c"\n4\t"x" y\n',
            [Query('"open', "1"), Query("plain", "2"), Query('a "b" c', "3"), Query('"x" y', "4")],
        ),
        ('["den", "blue \\"whale\\""]', [Query("den"), Query('blue "whale"')]),
        ('["den",\n"blue \\"whale\\""]\n', [Query("den"), Query('blue "whale"')]),
        ('[{"query": "den"}, "blue \\"whale\\""]', [Query("den"), Query('blue "whale"')]),
        ('"whole phrase" a\tb\n[CLS] ?\n\n<b> is a tag\n', [Query('"whole phrase" a\tb'), Query("[CLS] ?"), Query("<b> is a tag")]),
        (' {"text": "half \\ud83d", "id": 7}\n{"query": "x"}\n', [Query("half \ufffd", 7), Query("x")]),
        ('"caf\\u00e9"\n["Nile" river\n"\\d"\n', [Query("café"), Query('["Nile" river'), Query('"\\d"')]),
    ],
)
def test_queries_of_tables_lists_and_lines(file: Path, content: str, expected: list[Query]) -> None:
    file.write_text(content)
    assert read_queries(file) == expected


def test_gold_answers_that_cannot_be_read_cost_no_query(file: Path) -> None:
    file.write_text(
        '{"id": 1, "query": "who", "answer": [["a", "b"]]}\n{"question": "where", "answer": {"x": 1}}\n{"claim": "is", "label": "D"}\n'
    )
    assert read_queries(file) == [Query("who", 1), Query("where"), Query("is")]
    with pytest.raises(InputError, match=r"line 1: the field 'answer' is \[\['a', 'b'\]\], not a list of texts"):
        read_questions(file)


@pytest.mark.parametrize(
    ("content", "queries", "wrong"),
    [
        (
            b'{"id": "1", "query": "a"}\n{"id": 2, "query": null}\n{"id": "3"}\n{"id": "4", "query": ["b"]}\n',
            [("1", "a"), (2, ""), ("3", ""), ("4", "")],
            [2, 3, 4],
        ),
        (
            b'{\\em Nile} river\n{"id": 1, "query": "a"}\n{"id": 2, "query": "b\n{\'query\': 1}\n{query: 1}\ncaf\xe9\nd\n{}\x00\n',
            [(None, "{\\em Nile} river"), (1, "a"), *[(None, "")] * 4, (None, "d"), (None, "")],
            [3, 4, 5, 6, 8],
        ),
    ],
)
def test_a_line_that_is_no_query_costs_only_itself(file: Path, content: bytes, queries: list[tuple[object, str]], wrong: list[int]) -> None:
    file.write_bytes(content)
    found = read_queries(file)
    assert [(one.id, one.text) for one in found] == queries
    assert [one.error.split(": ")[0] for one in found if one.error] == [f"{file}, line {number}" for number in wrong]
    if b"\xe9" in content:
        assert "can't decode byte 0xe9" in found[5].error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"Riddle": "Which element has the symbol Au?", "Answer": "Gold"}\n', "line 1: .*'?Riddle'?, '?Answer'?"),
        (b'{"Riddle": "Which element has the symbol Au?", "Answer": "Gold"}\n' * 2, "line 1: .*'?Riddle'?, '?Answer'?"),
        ("first\nsecond\n".encode("utf-16"), "line 1: neither text nor JSON in UTF-8"),
    ],
)
def test_a_file_without_queries_is_refused(file: Path, content: bytes, message: str) -> None:
    file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_queries(file)
