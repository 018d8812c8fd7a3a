"""Typed access to a record's fields; a value of another type is an error that names line, field and value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wikidx.corpora.errors import InputError
from wikidx.runtimes.llms.text import whole_characters

from .records import Record

_SHOWN = 200  # maximum of characters
ID_FIELDS = ("id", "_id", "qid", "question_id", "QuestionId", "sample_id")


def text_of(record: Record, *names: str) -> str:
    """Return the text in the first of these fields that is present.

    Raises:
        InputError: it is not a text, or blank.
    """
    name = _present(record, names)
    return text_from(record, record.value.get(name), name)


def text_from(record: Record, value: object, name: str) -> str:
    """Check that a field's value is a non-blank text, and return it; raises as ``text_of``."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{record.where}: the field '{name}' is {value!r:.40}, not a text; it has {_shown(record.value)}")
    return whole_characters(value)


def texts_of(record: Record, *names: str) -> tuple[str, ...]:
    """Return the list of texts in the first of these fields that is present; empty if none is.

    Raises:
        InputError: it is not a list of texts.
    """
    name = _present(record, names)
    return texts_from(record, record.value[name], name) if name in record.value else ()


def texts_from(record: Record, value: object, name: str) -> tuple[str, ...]:
    """Check that a field's value is a list of texts, and return it; raises as ``texts_of``."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise InputError(f"{record.where}: the field '{name}' is {value!r:.40}, not a list of texts")
    return tuple(map(whole_characters, value))


def identifier(record: Record) -> str:
    """Return a record's id in its data set, or its number.

    Raises:
        InputError: the id is neither a text nor a whole number.
    """
    return id_from(record, next((record.value[name] for name in ID_FIELDS if name in record.value), record.number))


def id_from(record: Record, given: object) -> str:
    """Return a value as an id; raises as ``identifier``."""
    if isinstance(given, bool) or not isinstance(given, str | int) or given == "":
        raise InputError(f"{record.where}: the id is {given!r:.40}, neither a text nor a whole number")
    return whole_characters(str(given))


def objects_of(record: Record, name: str) -> list[Mapping[str, Any]]:
    """Return the list of objects in a field; empty if it is absent or null.

    Raises:
        InputError: it is not a list of objects.
    """
    return objects_from(record, record.value.get(name), name)


def objects_from(record: Record, value: object, name: str) -> list[Mapping[str, Any]]:
    """Check that a field's value is a list of objects or None, and return the list; raises as ``objects_of``."""
    value = [] if value is None else value
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InputError(f"{record.where}: the field '{name}' is {value!r:.40}, not a list of objects")
    return value


def once(texts: Iterable[str]) -> tuple[str, ...]:
    """Return distinct texts, in order of first occurrence."""
    return tuple(dict.fromkeys(texts))


def _present(record: Record, names: Iterable[str]) -> str:
    """Return the first field that is present, else the first one named.

    Raises:
        InputError: the record has no fields.
    """
    wanted = list(names)
    if not isinstance(record.value, dict):
        raise InputError(f"{record.where}: {record.value!r:.40} is not an object with a '{wanted[0]}'")
    return next((name for name in wanted if name in record.value), wanted[0])


def _shown(value: Mapping[str, Any]) -> str:
    return f"the fields {', '.join(map(repr, value))}"[:_SHOWN] if value else "no fields"
