"""Output of ``idx search``: files of queries, pipes, whole passages, bold words on a terminal, outputs that are closed."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.retrievers.server.serving import serving
from tests.runtimes.command_line import IDX, Command
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.settings import Settings

pytestmark = pytest.mark.usefixtures("animals")


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    return tmp_path / "queries"


def searched(idx: Command, queries: Path, *more: object, status: int = 0) -> list[dict[str, Any]]:
    """Return the lines for a file of queries."""
    idx("search", "animals", "--queries", queries, "-k", 1, *more, status=status)
    return [json.loads(line) for line in idx.out.splitlines()]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('den\n\n{"question": "zebra", "id": 7}\nblue whale\n', [("none", "den"), (7, "zebra"), ("none", "blue whale")]),
        ("<top>\n<num> Number: 301\n<title> zebra\n</top>\n", [("301", "zebra")]),
        ('{"_id": "q1", "text": "den", "metadata": {}}\n{"id": null, "query": "zebra"}\n', [("q1", "den"), ("none", "zebra")]),  # BEIR
    ],
)
def test_each_query_of_a_file_has_a_line_of_json(idx: Command, queries: Path, content: str, expected: list[tuple[object, str]]) -> None:
    queries.write_text(content)
    lines = searched(idx, queries)
    assert [(line.get("id", "none"), line["query"]) for line in lines] == expected
    assert [line["passages"] for line in lines] == [idx.json("search", "animals", query, "-k", 1)["passages"] for _, query in expected]


def test_a_query_that_a_server_refuses_costs_only_itself(idx: Command, queries: Path) -> None:
    queries.write_text("den\na query that is too long\nblue whale\n")
    with serving(Settings(corpora=("animals",), port=0, limits=Limits(max_query_characters=10))) as url:
        lines = searched(idx, queries, "--url", url, status=2)
    assert [(line["query"], len(line["passages"])) for line in lines] == [("den", 1), ("a query that is too long", 0), ("blue whale", 1)]
    assert [line.get("error") for line in lines] == [None, "a query has 24 characters, 10 are allowed", None]
    assert idx.err.splitlines() == [
        "query 2 was not searched: a query has 24 characters, 10 are allowed",
        "error: 1 of 3 queries could not be searched; the others have been answered",
    ]


def test_a_broken_line_costs_only_itself(idx: Command, queries: Path) -> None:
    queries.write_bytes(b'{"query": "den\nden\ncaf\xe9\n')
    lines = searched(idx, queries, status=2)
    assert [(line["query"], len(line["passages"]), "error" in line) for line in lines] == [("", 0, True), ("den", 1, False), ("", 0, True)]
    assert lines[2]["error"].startswith(f"{queries}, line 3: neither text nor JSON in UTF-8")
    assert idx.err.splitlines()[-1] == "error: 2 of 3 queries could not be searched; the others have been answered"


@contextlib.contextmanager
def standard_input(content: bytes) -> Iterator[None]:
    """Let a pipe with some content be the standard input."""
    (reading, writing), before = os.pipe(), os.dup(0)
    os.write(writing, content)
    os.close(writing)
    os.dup2(reading, 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(reading)
        os.close(before)


def test_queries_questions_gold_passages_and_answers_come_from_pipes(idx: Command, tmp_path: Path) -> None:
    pytest.importorskip("ir_measures", reason="needs the extra 'eval'")
    script, questions = tmp_path / "script.jsonl", tmp_path / "questions.jsonl"
    script.write_text('{"match": "", "text": "fox"}')
    line = b'{"id": "1", "question": "Who digs a den?", "golden_answers": ["fox"]}\n'
    questions.write_bytes(line)
    retrieval = ("eval", "retrieval", "--corpus", "animals", "--json", "-k", "1")
    cases: list[tuple[bytes, tuple[object, ...], str]] = [
        (b"den\nzebra\n", ("search", "animals", "-"), '"query": "zebra"'),
        (b"den\nzebra\n", ("search", "animals", "--queries", "-"), '"query": "zebra"'),
        (b"den\nzebra\n", ("search", "animals", "--queries", "/dev/stdin"), '"query": "zebra"'),
        (line, (*retrieval, "--questions", "-"), '"answer@1"'),
        (b"1 0 a 1\n", (*retrieval, "--questions", questions, "--qrels", "/dev/stdin"), '"Success@1"'),
        (line, ("run", "direct", "--questions", "-", "--llm", f"scripted:{script}", "--out", tmp_path / "run"), "1 answered"),
        (b'{"id": "1", "answer": "fox"}', ("eval", "answers", "-", "--questions", questions), "squad_em      100.0"),
    ]
    for content, arguments, shown in cases:
        with standard_input(content):
            assert shown in idx(*arguments)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_nothing_is_said_when_the_reader_of_the_output_is_gone(unbuffered: str) -> None:
    """A full disk is said."""
    reading, writing = os.pipe()
    os.close(reading)
    command, variables = [*IDX, "list"], {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    ran = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, cwd=ROOT, env=variables, check=False)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (141, b"")
    with open("/dev/full", "wb") as full:
        ran = subprocess.run([*IDX, "--help"], stdout=full, stderr=subprocess.PIPE, cwd=ROOT, env=variables, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith(
        b"error: No space left on device: " + b"standard output: " * ran.stderr.count(b"standard") + b"free space there and"
    )


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("idx --version >&-", 2, "error: standard output is closed: give it a file, or >/dev/null\n"),
        ("idx search none of 2>&-", 2, ""),
    ],
)
def test_a_closed_output_is_told(tmp_path: Path, command: str, status: int, said: str) -> None:
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        command.replace("idx", shlex.join(IDX)), shell=True, stderr=subprocess.PIPE, cwd=tmp_path, env=variables, check=False
    )
    assert (ran.returncode, ran.stderr.decode()) == (status, said)


def test_passages_are_shown_whole_on_request(idx: Command, tmp_path: Path) -> None:
    path, text = tmp_path / "long.jsonl", "a fox. " * 100 + "\nthe end"
    path.write_text(json.dumps({"id": "a", "title": "Fox", "text": text}) + "\n")
    idx("build", path)
    assert idx("search", "long", "fox").endswith(" …\n")
    score = idx.json("search", "long", "fox")["passages"][0]["score"]
    assert idx("search", "long", "fox", "--full").split() == ["1", f"{score:.4f}", "Fox", "[a]", *text.split()]


def test_words_of_the_query_are_bold_on_a_terminal(idx: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name, value in (("TERM", "xterm"), ("NO_COLOR", "")):
        monkeypatch.setenv(name, value)
    printed = idx("search", "animals", "foxes digging")
    assert printed.startswith("\x1b[1m  1  ")
    assert "The red \x1b[1mfox\x1b[22m \x1b[1mdigs\x1b[22m a den." in printed
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert "\x1b" not in idx("search", "animals", "foxes digging")


def test_a_deleted_working_folder_is_named(idx: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, since in a new one a library may end before idx begins."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("IDX_HOME", "data")
    assert idx("list", status=2) == "error: No such file or directory: the working folder"
