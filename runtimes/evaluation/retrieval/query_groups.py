"""Groups of queries for a set of questions: expansions such as GAR's, sub-questions, sampled answers.

A file of groups is JSON Lines, plain or compressed: ``{"id": "7", "queries": ["…", "…"]}``. The question with this id forms a
group with the queries.
"""

from __future__ import annotations

from pathlib import Path

from wikidx.base.artifacts.durable import parse_json
from wikidx.base.errors import InputError
from wikidx.corpora.reading.compression import open_decompressed, read_lines
from wikidx.runtimes.questions.fields import id_from, texts_from
from wikidx.runtimes.questions.records import Record


def read_groups(path: Path) -> dict[str, list[str]]:
    """Read a file of groups; return question id -> queries.

    Raises:
        InputError: the file cannot be read or has no groups, a line is invalid, or a question has two groups.
    """
    groups: dict[str, list[str]] = {}
    with open_decompressed(path) as file:
        for number, line in enumerate(read_lines(file, str(path)), 1):
            if not line.strip():
                continue
            try:
                value = parse_json(line.decode())
            except ValueError as error:
                raise InputError(f'{path}, line {number}: not JSON in UTF-8 ({error}): each line is {{"id", "queries"}}') from error
            record = Record(value if isinstance(value, dict) else {}, str(path), f"line {number}", number)
            question = id_from(record, record.value.get("id"))
            if question in groups:
                raise record.error(f"the question '{question}' has a group before: write one line for each question")
            groups[question] = list(texts_from(record, record.value.get("queries"), "queries"))
    if not groups:
        raise InputError(f"{path} has no groups")
    return groups
