"""Files of queries, one per line."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from wikidx.corpora.artifacts.durable import parse_json
from wikidx.corpora.errors import InputError

from .compression import open_decompressed, read_lines

TEXT_FIELDS = ("question", "query", "text")  # of JSON, the first that a line has
ID_FIELDS = ("id", "_id")


class Query(NamedTuple):
    """A query of a file.

    Attributes:
        text: the query.
        id: the id that the file gives it; None if it gives none.
    """

    text: str
    id: str | int | None = None


def read_queries(path: Path) -> list[Query]:
    """Return the queries of a file with one query per line, as text or as JSON; blank lines are skipped.

    The JSON has "question", "query" or "text", and may have "id" or "_id", as the ``queries.jsonl`` of BEIR has.

    Raises:
        InputError: a line is neither text in UTF-8 nor such JSON, or the file has no query.
    """
    queries = list[Query]()
    with open_decompressed(path) as file:
        for number, line in enumerate(read_lines(file, str(path)), 1):
            if line.strip():
                queries.append(_query(f"{path}, line {number}", line))
    if not queries:
        raise InputError(f"{path} has no queries")
    return queries


def _query(where: str, line: bytes) -> Query:
    needed = 'JSON with "question", "query" or "text"'
    try:
        text = line.decode().strip()
        if not text.startswith("{"):
            return Query(text)
        record = parse_json(text)
    except ValueError as error:
        raise InputError(f"{where}: neither text in UTF-8 nor {needed} ({error})") from error
    field = next((name for name in TEXT_FIELDS if name in record), None)
    if field is None:
        raise InputError(f"{where}: neither text nor {needed}; its fields are {', '.join(map(repr, record)) or 'none'}")
    query, query_id = record[field], next((record[name] for name in ID_FIELDS if name in record), None)
    if not isinstance(query, str) or not query.strip():
        raise InputError(f"{where}: the {field} is {query!r:.40}, not a text")
    if any("\ud800" <= character <= "\udfff" for character in query):
        raise InputError(f"{where}: the {field} contains a lone surrogate, half a character: {query!a:.80}")
    if not isinstance(query_id, str | int | None):
        raise InputError(f"{where}: the id is {query_id!r:.40}, neither a text nor a whole number")
    return Query(query, query_id)
