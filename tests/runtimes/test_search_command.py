"""Output of ``idx search``: files of queries, whole passages, and bold words on a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
from pathlib import Path

from tests.conftest import ROOT
from tests.runtimes.test_cli import IDX, animals, error, found, idx

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
    assert """line 1: neither text nor JSON with "question", "query" or "text"; its fields are 'title'""" in error(
        "search", "animals", "--queries", queries
    )
    queries.write_text('{"text": "den", "_id": [1]}\n')
    assert "line 1: the id is [1], neither a text nor a whole number" in error("search", "animals", "--queries", queries)


def test_the_queries_of_beir_keep_their_ids(animals: Path, tmp_path: Path) -> None:
    idx("build", animals)
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"_id": "q1", "text": "den", "metadata": {}}\n{"id": null, "query": "zebra"}\n')
    lines = [json.loads(line) for line in idx("search", "animals", "--queries", queries, "-k", 1).out.splitlines()]
    assert [(line.get("id", "none"), line["query"]) for line in lines] == [("q1", "den"), ("none", "zebra")]
    assert [line["passages"] for line in lines] == [found("animals", line["query"], "-k", 1) for line in lines]


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
