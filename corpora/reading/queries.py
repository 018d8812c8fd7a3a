"""Files of queries, one per line."""

from __future__ import annotations

from pathlib import Path

from wikidx.corpora.artifacts.durable import parse_json
from wikidx.corpora.errors import InputError

from .compression import open_decompressed, read_lines


def read_queries(path: Path) -> list[str]:
    """Return the queries of a file with one query per line, as text or as JSON with "question"; blank lines are skipped.

    Raises:
        InputError: a line is neither text in UTF-8 nor such JSON, or the file has no query.
    """
    queries = list[str]()
    with open_decompressed(path) as file:
        for number, line in enumerate(read_lines(file, str(path)), 1):
            if line.strip():
                queries.append(_query(path, number, line))
    if not queries:
        raise InputError(f"{path} has no queries")
    return queries


def _query(path: Path, number: int, line: bytes) -> str:
    try:
        text = line.decode().strip()
        query = parse_json(text)["question"] if text.startswith("{") else text
    except (ValueError, KeyError) as error:
        raise InputError(f'{path}, line {number}: neither text in UTF-8 nor JSON with "question" ({error})') from error
    if not isinstance(query, str) or not query.strip():
        raise InputError(f"{path}, line {number}: the question is {query!r:.40}, not a text")
    return query
