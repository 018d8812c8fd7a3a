"""Output of ``idx search``: files of queries, whole passages, and bold words on a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.retrievers.server.serving import serving
from tests.runtimes.test_cli import IDX, animals, error, found, idx
from wikidx.retrievers.server.limits import Limits
from wikidx.retrievers.server.settings import Settings
from wikidx.runtimes.cli import main

__all__ = ["animals"]  # a fixture


def on_terminal(*arguments: object, **environment: str) -> str:
    """Run the command line on a pseudo-terminal, and return its output."""
    terminal, end = pty.openpty()
    variables = {**os.environ, "TERM": "xterm", "NO_COLOR": "", **environment}
    subprocess.run([*IDX, *map(str, arguments)], stdout=end, stderr=subprocess.PIPE, check=True, cwd=ROOT, env=variables)
    os.close(end)
    printed = b""
    with contextlib.suppress(OSError):  # Linux's report that the other end is closed
        while part := os.read(terminal, 4096):
            printed += part
    os.close(terminal)
    return printed.decode()


def test_each_query_of_a_file_has_a_line_of_json(animals: Path, tmp_path: Path) -> None:
    idx("build", animals)
    queries = tmp_path / "queries.txt"
    queries.write_text('den\n\n{"question": "zebra", "id": 7}\nblue whale\n')
    lines = [json.loads(line) for line in idx("search", "animals", "--queries", queries, "-k", 1).out.splitlines()]
    assert [line["query"] for line in lines] == ["den", "zebra", "blue whale"]
    assert [line.get("id", "none") for line in lines] == ["none", 7, "none"]
    assert [line["passages"] for line in lines] == [found("animals", line["query"], "-k", 1) for line in lines]
    assert "give one query or several, or a file" in error("search", "animals")
    assert "not both" in error("search", "animals", "den", "--queries", queries)
    queries.write_text('{"title": "den"}\n')
    assert "or 'question_stem'; it has the fields 'title'" in error("search", "animals", "--queries", queries)
    queries.write_text("<top>\n<num> Number: 301\n<title> zebra\n</top>\n")
    (line,) = map(json.loads, idx("search", "animals", "--queries", queries, "-k", 1).out.splitlines())
    assert (line["id"], line["query"], line["passages"]) == ("301", "zebra", found("animals", "zebra", "-k", 1))
    queries.write_text('{"text": "den", "_id": [1]}\n')
    assert "line 1: the id is [1], neither a text nor a whole number" in error("search", "animals", "--queries", queries)


def test_a_query_that_a_server_refuses_costs_only_itself(animals: Path, tmp_path: Path) -> None:
    idx("build", animals)
    queries = tmp_path / "queries.txt"
    queries.write_text("den\na query that is too long\nblue whale\n")
    settings = Settings(corpora=("animals",), port=0, limits=Limits(max_query_characters=10))
    with serving(settings) as url:
        ran = idx("search", "animals", "--queries", queries, "-k", 1, "--url", url, status=2)
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert [(line["query"], len(line["passages"])) for line in lines] == [("den", 1), ("a query that is too long", 0), ("blue whale", 1)]
    assert [line.get("error") for line in lines] == [None, "a query has 24 characters, 10 are allowed", None]
    assert ran.err.splitlines() == [
        "query 2 was not searched: a query has 24 characters, 10 are allowed",
        "error: 1 of 3 queries could not be searched; the others have been answered",
    ]


def test_a_broken_line_costs_only_itself(animals: Path, tmp_path: Path) -> None:
    idx("build", animals)
    queries = tmp_path / "queries"
    queries.write_bytes(b'{"query": "den\nden\ncaf\xe9\n')
    ran = idx("search", "animals", "--queries", queries, "-k", 1, status=2)
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert [(line["query"], len(line["passages"]), "error" in line) for line in lines] == [("", 0, True), ("den", 1, False), ("", 0, True)]
    assert lines[2]["error"].startswith(f"{queries}, line 3: neither text nor JSON in UTF-8")
    assert ran.err.splitlines()[-1] == "error: 2 of 3 queries could not be searched; the others have been answered"


def test_the_queries_of_beir_keep_their_ids(animals: Path, tmp_path: Path) -> None:
    idx("build", animals)
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"_id": "q1", "text": "den", "metadata": {}}\n{"id": null, "query": "zebra"}\n')
    lines = [json.loads(line) for line in idx("search", "animals", "--queries", queries, "-k", 1).out.splitlines()]
    assert [(line.get("id", "none"), line["query"]) for line in lines] == [("q1", "den"), ("none", "zebra")]
    assert [line["passages"] for line in lines] == [found("animals", line["query"], "-k", 1) for line in lines]


@pytest.mark.parametrize("names", [("-",), ("--queries", "-"), ("--queries", "/dev/stdin")])
def test_queries_come_from_a_pipe(animals: Path, names: tuple[str, ...]) -> None:
    idx("build", animals)
    ran = subprocess.run([*IDX, "search", "animals", *names], input=b"den\nzebra\n", capture_output=True, cwd=ROOT, check=True)
    assert [json.loads(line)["query"] for line in ran.stdout.splitlines()] == ["den", "zebra"]


def test_questions_gold_passages_and_answers_come_from_pipes(animals: Path, tmp_path: Path) -> None:
    pytest.importorskip("ir_measures", reason="needs the extra 'eval'")
    idx("build", animals)
    (tmp_path / "script.jsonl").write_text('{"match": "", "text": "fox"}')
    line = b'{"id": "1", "question": "Who digs a den?", "golden_answers": ["fox"]}\n'
    (tmp_path / "questions.jsonl").write_bytes(line)
    retrieval = ("eval", "retrieval", "--corpus", "animals", "--json", "-k", "1")
    for content, arguments, shown in (
        (line, (*retrieval, "--questions", "-"), b'"answer@1"'),
        (b"1 0 a 1\n", (*retrieval, "--questions", tmp_path / "questions.jsonl", "--qrels", "/dev/stdin"), b'"Success@1"'),
        (
            line,
            ("run", "direct", "--questions", "-", "--llm", f"scripted:{tmp_path}/script.jsonl", "--out", tmp_path / "run"),
            b"1 answered",
        ),
        (b'{"id": "1", "answer": "fox"}', ("eval", "answers", "-", "--questions", tmp_path / "questions.jsonl"), b"squad_em      100.0"),
    ):
        ran = subprocess.run([*IDX, *map(str, arguments)], input=content, capture_output=True, cwd=ROOT, check=True)
        assert shown in ran.stdout + ran.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [("search", "animals", "fox"), ("--help",)])
def test_nothing_is_said_when_the_reader_of_the_output_is_gone(animals: Path, arguments: tuple[str, ...], unbuffered: str) -> None:
    idx("build", animals)
    reading, writing = os.pipe()
    os.close(reading)
    variables = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    ran = subprocess.run([*IDX, *arguments], stdout=writing, stderr=subprocess.PIPE, cwd=ROOT, env=variables, check=False)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (141, b"")
    with open("/dev/full", "wb") as full:
        ran = subprocess.run([*IDX, *arguments], stdout=full, stderr=subprocess.PIPE, cwd=ROOT, env=variables, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith(
        b"error: No space left on device: " + b"standard output: " * ran.stderr.count(b"standard") + b"free space there and"
    )


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("idx --version >&-", 2, "error: standard output is closed: give it a file, or >/dev/null\n"),
        ("idx list >&- 2>&-", 2, ""),
        ("idx search none of 2>&-", 2, ""),
        ("idx --version 2>&-", 0, ""),
    ],
)
def test_a_closed_output_is_told(tmp_path: Path, command: str, status: int, said: str) -> None:
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        command.replace("idx", shlex.join(IDX)), shell=True, stderr=subprocess.PIPE, cwd=tmp_path, env=variables, check=False
    )
    assert (ran.returncode, ran.stderr.decode()) == (status, said)


def test_passages_are_shown_whole_on_request(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    text = "a fox. " * 100 + "\nthe end"
    path.write_text(json.dumps({"id": "a", "title": "Fox", "text": text}) + "\n")
    idx("build", path)
    assert idx("search", "long", "fox").out.endswith(" …\n")
    assert idx("search", "long", "fox", "--full").out.split() == [
        "1",
        found("long", "fox")[0]["score"].__format__(".4f"),
        "Fox",
        "[a]",
        *text.split(),
    ]


def test_words_of_the_query_are_bold_on_a_terminal(animals: Path) -> None:
    idx("build", animals)
    printed = on_terminal("search", "animals", "foxes digging")
    assert "\x1b[1m  1  " in printed
    assert "The red \x1b[1mfox\x1b[22m \x1b[1mdigs\x1b[22m a den." in printed
    assert "\x1b[1m" not in on_terminal("search", "animals", "foxes", NO_COLOR="1")


def test_a_deleted_working_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In this process, since in a new one a library may end before idx begins."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("IDX_HOME", "data")
    monkeypatch.setattr(sys, "argv", ["idx", "list"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (2, "error: No such file or directory: the working folder\n")
