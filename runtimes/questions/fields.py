"""Typed access to a record's fields. The error for a value of the wrong type states the value and its position in the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wikidx.corpora.reading.records import QUESTION_IDS, find_field
from wikidx.runtimes.llms.text import replace_surrogates

from .records import Record


def text_of(record: Record, *names: str) -> str:
    """Return the text of the first field in ``names`` that the record has.

    Raises:
        InputError: there is no such field, or the value is not a string, or is blank.
    """
    name = _first_present(record, names)
    if name not in record.value:
        raise record.error(f"no field {' or '.join(map(repr, names))}; it has {_list_fields(record.value)}")
    return text_from(record, record.value[name], name)


def text_from(record: Record, value: object, name: str) -> str:
    """Return a value after checking that it is a non-blank string.

    Raises:
        InputError: the value is not a string, or is blank; the message states ``name`` as the field.
    """
    if not isinstance(value, str) or not value.strip():
        raise record.error(f"the field '{name}' is {value!r:.40}, not a text; it has {_list_fields(record.value)}")
    return replace_surrogates(value)


def texts_of(record: Record, *names: str) -> tuple[str, ...]:
    """Return the list of strings of the first field in ``names`` that the record has; empty if the record has no such field.

    Raises:
        InputError: the value is not a list of strings.
    """
    name = _first_present(record, names)
    return texts_from(record, record.value[name], name) if name in record.value else ()


def texts_from(record: Record, value: object, name: str, given: object = None) -> tuple[str, ...]:
    """Return a value after checking that it is a list of strings.

    Raises:
        InputError: the value is not a list of strings; the message states ``name`` as the field, and the value as it was ``given``.
    """
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise record.error(f"the field '{name}' is {value if given is None else given!r:.40}, not a list of texts, such as ['Paris']")
    return tuple(map(replace_surrogates, value))


def record_id(record: Record) -> str:
    """Return a record's id, or its number if it has none.

    Raises:
        InputError: the id is neither a non-empty string nor an integer.
    """
    given = given_id(record.value)
    return id_from(record, record.number if given is None else given)


def given_id(value: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """Return the value of the first id field of a record that is not null; None if there is none."""
    present = {name: given for name, given in value.items() if given is not None}
    name = find_field(present, QUESTION_IDS)
    return present[name] if name else None


def id_from(record: Record, value: object) -> str:
    """Convert a value to an id.

    Raises:
        InputError: the value is neither a non-empty string nor an integer.
    """
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise record.error(f"the id is {value!r:.40}, neither a text nor a whole number")
    return replace_surrogates(str(value))


def objects_of(record: Record, name: str) -> list[Mapping[str, Any]]:
    """Return the list of objects in a field; empty if the field is absent or null.

    Raises:
        InputError: the value is not a list of objects.
    """
    return objects_from(record, record.value.get(name), name)


def objects_from(record: Record, value: object, name: str) -> list[Mapping[str, Any]]:
    """Return a value after checking that it is a list of objects; an empty list for None.

    Raises:
        InputError: the value is not a list of objects; the message states ``name`` as the field.
    """
    value = [] if value is None else value
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise record.wrong(name, value, "not a list of objects")
    return value


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct texts, in order of first occurrence."""
    return tuple(dict.fromkeys(texts))


def _first_present(record: Record, names: Iterable[str]) -> str:
    """Return the first of the names that is a field of the record; without a match, return the first name.

    Raises:
        InputError: the record is not an object.
    """
    candidates = list(names)
    if not isinstance(record.value, dict):
        raise record.error(f"{record.value!r:.40} is not an object with a '{candidates[0]}'")
    return find_field(record.value, candidates) or candidates[0]


def _list_fields(value: Mapping[str, Any]) -> str:
    return f"the fields {', '.join(map(repr, value)):.200}" if value else "no fields"
