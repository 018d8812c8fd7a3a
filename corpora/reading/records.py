"""Records, which are mappings of names to values: the names of their fields, and the passage in them by a ``FieldMap``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from wikidx.corpora.passage import Passage

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
    """Return the reason why a record is unusable, from an exception of the JSON decoder."""
    match error:
        case json.JSONDecodeError():
            return f"not JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
        case RecursionError():
            return "the JSON is nested too deeply"
        case ValueError():  # raised by int()
            return "a number in the JSON has too many digits"
    return str(error)


_JSON_TYPES = {dict: "an object", list: "an array", str: "a string", bool: "true or false", int: "a number", float: "a number"}


def json_type(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return the type of a value in words, such as "an array"."""
    return "null" if value is None else _JSON_TYPES.get(type(value), f"a {type(value).__name__}")


def _string(record: Mapping[str, Any], name: str) -> str:
    if name not in record:
        raise ValueError(f"the field '{name}' is missing")
    value = record[name]
    if not isinstance(value, str):
        raise ValueError(f"the field '{name}' is {json_type(value)}, not a string")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldMap:
    """Fields of a record that make a passage.

    Attributes:
        id: field of the id: a string, which stays unchanged, or an integer, also NumPy's, which becomes decimal digits.
        title: field of the title; the title is empty if the field is missing, null, or missing for pandas.
        text: field of the text.
        section: field of a heading that is appended to the title, as in atlas, src/index_io.py; None: there is none.
        has_heading: whether the first of several lines of the text is the title, which may be in quotes (FlashRAG, Search-R1, Pyserini).
            Beside a title of the record's own, the first line is left out if it repeats that.
        is_numbered: whether records have no ids of their own.
        decode: function that converts titles and texts, such as from escapes; None: they are taken as they are.
    """

    id: str = "id"
    title: str = "title"
    text: str = "text"
    section: str | None = None
    has_heading: bool = False
    is_numbered: bool = False
    decode: Callable[[str], str] | None = None

    def passage(self, record: Mapping[str, Any]) -> Passage:
        """Return the passage in a record; raises ``ValueError``, which tells the field that is missing or has the wrong type."""
        id_, title, text = record.get(self.id), record.get(self.title), record.get(self.text)
        if not (type(id_) is type(title) is type(text) is str):
            id_, title, text = self._convert(record)
        if self.section is not None and not _is_empty(record.get(self.section)):
            title = f"{title}: {_string(record, self.section)}"
        if self.has_heading:
            title, text = _split_heading(title, text)
        return Passage(id_, title, text) if self.decode is None else Passage(id_, self.decode(title), self.decode(text))

    def fits(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record has the fields that a passage needs."""
        return self.id in record and self.text in record

    @property
    def used(self) -> tuple[str | None, ...]:
        """The names of the fields that a passage keeps."""
        return self.id, self.title, self.text, self.section

    def unkept(self, record: Mapping[str, Any]) -> list[str]:
        """Return the fields of a record that are not empty, and that a passage does not keep."""
        return record_unkept_fields(record, self.used)

    def _convert(self, record: Mapping[str, Any]) -> tuple[str, str, str]:
        title = "" if _is_missing(record.get(self.title)) else _string(record, self.title)
        id_ = record.get(self.id)
        is_number = isinstance(id_, Integral) and not isinstance(id_, bool)
        return str(id_) if is_number else _string(record, self.id), title, _string(record, self.text)


def _split_heading(title: str, contents: str) -> tuple[str, str]:
    first, newline, text = contents.partition("\n")
    is_quoted = len(first) >= 2 and first[0] == first[-1] == '"'
    first = first[1:-1] if is_quoted else first
    return (title, contents) if not newline or (title and first != title) else (first, text)


PLAIN = FieldMap(section="section")
CONTENTS = FieldMap(text="contents", has_heading=True)
BEIR = FieldMap(id="_id")


def field_map(record: Mapping[str, object]) -> FieldMap:
    """Return the map of fields that the names in a record determine."""
    if "_id" in record and "id" not in record:
        return BEIR
    return CONTENTS if "contents" in record and "text" not in record else PLAIN


def record_unkept_fields(record: Mapping[str, object], kept: Collection[str | None]) -> list[str]:
    """Return the fields of a record that are neither kept nor empty."""
    return [str(name) for name, value in record.items() if name not in kept and not _is_empty(value)]


def _is_empty(value: object) -> bool:
    return _is_missing(value) or (isinstance(value, str | list | dict) and not value)


def _is_missing(value: object) -> bool:
    """Return whether a value is None, NaN, NaT or pandas' NA, which is not equal to itself."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, Real) and value != value)


def passage_from_record(record: Mapping[str, object], default_id: str) -> Passage:
    """Return the passage in a record; see ``field_map``.

    Args:
        record: the record.
        default_id: id of a record that has none.

    Raises:
        ValueError: a field is missing or has the wrong type.
    """
    try:
        return field_map(record).passage({"id": default_id, **record})
    except ValueError as error:
        raise ValueError(f"{error}; it has {', '.join(map(str, record)) or 'no fields':.200}") from None
