"""Conversion of JSON records to passages, by the fields of each format; and the names that fields and columns have."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Collection, Mapping, Sequence
from numbers import Real
from typing import Any

from wikidx.corpora.passage import Passage

_PLAIN = frozenset({"id", "title", "text", "section"})
KEPT_FIELDS = {
    "jsonl": _PLAIN,
    "wikiextractor-json": _PLAIN,
    "contents": frozenset({"id", "title", "contents"}),
    "beir": frozenset({"_id", "title", "text"}),
}  # by format

# Names of ids, in the order in which those of a record count.
_IDS_OF_SETS = ("QuestionId", "sample_id", "topic_id", "interaction_id", "claim_id", "uid", "example_id", "financebench_id", "task_id")
QUESTION_IDS = ("id", "_id", "qid", "question_id", "query_id", *_IDS_OF_SETS)
PASSAGE_IDS = ("docid", "passage_id", "psg_id", "id", "_id", "docno", "pid", "document_id", "paragraph_id", "chunk_id")


def plain_name(name: object) -> str:
    """Return a name in lower case, without ``_``, ``-`` and blanks, in which the names of one thing differ."""
    return re.sub(r"[_\s-]", "", str(name).casefold())


def find_field(record: Mapping[str, Any], names: Collection[str]) -> str | None:
    """Return the field with the first of the names that the record has, else with one that is the same as ``plain_name``; or None."""
    plain = {} if (exact := next((name for name in names if name in record), None)) else {plain_name(name): name for name in record}
    return exact or next((plain[name] for name in map(plain_name, names) if name in plain), None)


_TEXTS = {"title": "title", "text": "text", "contents": "text", "passage": "text", "query": "query", "question": "query"}
_COLUMNS = {**dict.fromkeys(map(plain_name, (*QUESTION_IDS, *PASSAGE_IDS, "number")), "id"), **_TEXTS}


def header_columns(row: Sequence[str]) -> list[str] | None:
    """Return what each column of a table holds: "id", "title", "text" or "query"; None unless all cells of the first row are their names.

    If two columns hold the same, their own names are returned.
    """
    columns = [_COLUMNS.get(plain_name(cell), "") for cell in row]
    if not all(columns):
        return None
    return columns if len({*columns}) == len(columns) else list(row)


def explain_json_error(error: Exception) -> str:
    """Return the reason why a record is unusable, from an exception of the JSON decoder or of this module's functions."""
    match error:
        case json.JSONDecodeError():
            return f"not JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
        case KeyError():
            return f"the field '{error.args[0]}' is missing"
        case RecursionError():
            return "the JSON is nested too deeply"
        case ValueError():  # raised by int()
            return "a number in the JSON has too many digits"
    return str(error)


_JSON_TYPES = {dict: "an object", list: "an array", str: "a string", bool: "true or false", int: "a number", float: "a number"}


def _json_type(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return "null" if value is None else _JSON_TYPES.get(type(value), f"a {type(value).__name__}")


def _string(record: dict[str, Any], name: str) -> str:
    value = record[name]
    if not isinstance(value, str):
        raise TypeError(f"the field '{name}' is {_json_type(value)}, not a string")
    return value


def _id(record: dict[str, Any], name: str) -> str:
    """Return a string id unchanged, an integer id, also NumPy's, as decimal digits."""
    value = record[name]
    return _string(record, name) if isinstance(value, str | bool) or not hasattr(value, "__index__") else str(operator.index(value))


def _title(record: dict[str, Any]) -> str:
    """Return the title; an empty string if it is missing, null, or missing for pandas."""
    return "" if _is_missing(record.get("title")) else _string(record, "title")


def check_object(record: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
    """Return a JSON object unchanged; raise ``TypeError`` for any other value."""
    if not isinstance(record, dict):
        raise TypeError(f"{_json_type(record)} instead of a JSON object")
    return record


def plain_fields(record: dict[str, Any]) -> Passage:
    """Return the passage in ``id``, ``title`` and ``text``; a ``section`` is appended to the title as in atlas, src/index_io.py."""
    title = _title(record)
    if not _is_empty(record.get("section")):
        title = f"{title}: {_string(record, 'section')}"
    return Passage(_id(record, "id"), title, _string(record, "text"))


def beir_fields(record: dict[str, Any]) -> Passage:
    """Return the passage in ``_id``, ``title`` and ``text``."""
    return Passage(_id(record, "_id"), _title(record), _string(record, "text"))


def contents_fields(record: dict[str, Any]) -> Passage:
    """Return the passage in ``id`` and ``contents`` (FlashRAG, Search-R1, Pyserini).

    If ``contents`` has several lines, the first line is the title, which may be in quotes. Beside a title of the record's own,
    the first line is left out if it repeats that.
    """
    contents, title = _string(record, "contents"), _title(record)
    first, newline, text = contents.partition("\n")
    is_quoted = len(first) >= 2 and first[0] == first[-1] == '"'
    first = first[1:-1] if is_quoted else first
    if not newline or (title and first != title):
        return Passage(_id(record, "id"), title, contents)
    return Passage(_id(record, "id"), first, text)


FIELDS = {"jsonl": plain_fields, "contents": contents_fields, "beir": beir_fields}
"""Function that converts a record to a passage, by format."""


def record_format(record: Mapping[str, object]) -> str:
    """Return the JSON format of ``readers.READERS`` that a record's fields determine."""
    if "_id" in record and "id" not in record:
        return "beir"
    return "contents" if "contents" in record and "text" not in record else "jsonl"


def record_unkept_fields(record: Mapping[str, object], kept: Collection[str]) -> list[str]:
    """Return the fields of a record that are neither kept nor empty."""
    return [str(name) for name, value in record.items() if name not in kept and not _is_empty(value)]


def _is_empty(value: object) -> bool:
    return _is_missing(value) or (isinstance(value, str | list | dict) and not value)


def _is_missing(value: object) -> bool:
    """Return whether a value is None, NaN, NaT or pandas' NA, which is not equal to itself."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, Real) and value != value)


def passage_from_record(record: Mapping[str, object], default_id: str) -> Passage:
    """Return the passage in a record; see ``record_format``.

    Args:
        record: the record.
        default_id: id of a record that has none.

    Raises:
        ValueError: a field is missing or has the wrong type.
    """
    try:
        return FIELDS[record_format(record)]({"id": default_id, **record})
    except (KeyError, TypeError) as error:
        raise ValueError(f"{explain_json_error(error)}; it has {', '.join(map(str, record)) or 'no fields':.200}") from None
