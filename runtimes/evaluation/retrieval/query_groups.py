"""Groups of queries for the questions of a set: expansions such as GAR's, sub-questions, sampled answers.

A file of groups is JSON Lines, plain or compressed: ``{"id": "7", "queries": ["…", "…"]}``. The queries are asked beside the question of
that id, as one group.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from wikidx.corpora.artifacts.durable import json_value
from wikidx.corpora.errors import InputError
from wikidx.corpora.reading.compression import lines_of, reading
from wikidx.runtimes.llms.text import whole_characters


def read_groups(path: Path) -> dict[str, list[str]]:
    """Return the queries of each question by its id.

    Raises:
        InputError: the file cannot be read or holds no group, a line is none, or two are for one question.
    """
    groups: dict[str, list[str]] = {}
    for where, line in _lines(path):
        question, queries = _group(line, where)
        if question in groups:
            raise InputError(f"{where}: the question '{question}' has a group before: write one line for each question")
        groups[question] = queries
    if not groups:
        raise InputError(f"{path} has no groups")
    return groups


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    with reading(path) as file:
        for number, line in enumerate(lines_of(file, str(path)), 1):
            if line.strip():
                yield f"{path}, line {number}", line


def _group(line: bytes, where: str) -> tuple[str, list[str]]:
    try:
        record = json_value(line.decode("utf-8-sig"))
    except ValueError as error:
        raise InputError(f'{where}: not JSON in UTF-8 ({error}): each line is {{"id", "queries"}}') from error
    question, queries = (record.get("id"), record.get("queries")) if isinstance(record, dict) else (None, None)
    if isinstance(question, bool) or not isinstance(question, str | int):
        raise InputError(f"{where}: the id is {question!r:.40}, neither a text nor a whole number")
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise InputError(f"{where}: the field 'queries' is {queries!r:.40}, not a list of texts")
    return str(question), [whole_characters(query) for query in queries]
