"""Files of queries: any file of questions, or one with a query on each line."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from wikidx.base.errors import InputError
from wikidx.corpora.reading.records import find_field

from .fields import given_id, text_of
from .formats import Format, find_format
from .open_domain import QUESTIONS, split_article
from .records import Record, read_records
from .topics import TOPIC_FORMS


class Query(NamedTuple):
    """A query of a file.

    Attributes:
        text: the query.
        id: the id that the file gives it; None if it gives none.
        error: why the record is no query, such as broken JSON or a question that is null; its text is then empty.
    """

    text: str
    id: str | int | None = None
    error: str = ""


def read_queries(path: Path) -> list[Query]:
    """Return the queries of a file in any format of questions, or with one query per line, as text or as JSON.

    Raises:
        InputError: the file cannot be read or has no query.
    """
    with contextlib.closing(read_records(path, has_texts=True)) as records:
        queries = [query for record in records for query in _queries(record)]
    if all(query.error for query in queries):
        raise InputError(queries[0].error if queries else f"{path} has no queries in a known form: {TOPIC_FORMS}")
    return queries


def _queries(unsplit: Record) -> list[Query]:
    try:
        found = ((find_format(record), record) for record in split_article(unsplit))
        return [_query(record, chosen) for chosen, record in found if chosen.selects(record)]
    except InputError as error:
        return [Query("", given_id(unsplit.value) if type(unsplit.value) is dict else None, str(error))]


def _query(record: Record, chosen: Format) -> Query:
    if isinstance(record.value, InputError):
        raise record.value
    try:
        question = chosen.read(record)
    except InputError:  # perhaps for the gold answers, which a search does not need
        name = find_field(record.value, (*QUESTIONS, "claim")) if isinstance(record.value, dict) else None
        if name is None:
            raise
        return Query(text_of(record, name), given_id(record.value))
    given = given_id(record.value) if type(record.value) is dict else question.id  # a number of JSON stays one
    return Query(question.text, given if str(given) == question.id or question.id == str(record.number) else question.id)
