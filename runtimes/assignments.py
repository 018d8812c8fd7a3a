"""Parsing of ``NAME=VALUE`` into the options of a method, a search or a language model.

The syntax of a value depends on the type of its field: ``true`` or ``false``, a number, plain text, or JSON for lists and objects. ``none``
stands for None if the field allows it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from wikidx.base.artifacts.durable import parse_json
from wikidx.base.errors import InputError
from wikidx.base.registry import unknown_name_error
from wikidx.base.validation import explain

T = TypeVar("T")


def parse_assignments(
    type_: type[T],
    assignments: Sequence[str],
    *,
    noun: str,
    base: Mapping[str, Any] | None = None,
    excluded: Collection[str] = (),
    renamed: Mapping[str, str] | None = None,
) -> T:
    """Create options from assignments.

    Args:
        type_: the dataclass of the options, which validates its values.
        assignments: texts ``NAME=VALUE``.
        noun: word for a field in messages, such as "option".
        base: values of fields that no assignment sets.
        excluded: fields that assignments may not set.
        renamed: earlier names of fields, or assignments of them -> their names now, for messages.

    Raises:
        InputError: an assignment is not ``NAME=VALUE``, a value is invalid, or a field is set twice.
        UnknownNameError: an assignment names an unknown or excluded field.
    """
    names = [field.name for field in dataclasses.fields(cast("Any", type_)) if field.name not in excluded]
    hints = get_type_hints(type_)
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise InputError(f"{assignment!r} sets no {noun}: write NAME=VALUE")
        old = next((text for text in (assignment, name) if text in (renamed or {})), None)
        if old is not None and (now := (renamed or {})[old]).partition("=")[0] in names:
            raise InputError(f"the {noun} '{old}' is '{now}' now")
        if name not in names:
            raise unknown_name_error(noun, name, names)
        if name in values:
            raise InputError(f"the {noun} '{name}' is set twice")
        values[name] = _value(hints[name], text, f"the {noun} '{name}'")
    return type_(**{**(base or {}), **values})


def _value(hint: Any, text: str, noun: str) -> Any:  # noqa: ANN401 - as the field's type is
    types = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if NoneType in types and text.lower() == "none":
        return None
    (type_,) = (type_ for type_ in types if type_ is not NoneType)
    if type_ is str:
        return text
    if get_origin(type_) in (tuple, Mapping):
        return _json(text, noun, is_list=get_origin(type_) is tuple)
    try:
        return TypeAdapter(type_).validate_strings(text)
    except ValidationError as error:
        raise InputError(explain(error, whole=noun)) from error


def _json(text: str, noun: str, *, is_list: bool) -> Any:  # noqa: ANN401 - JSON
    """Parse a JSON object or list; for a list, plain text stands for a list of one text."""
    if is_list and not text.lstrip().startswith("["):
        return (text,) if text else ()
    try:
        value = parse_json(text)
    except ValueError as error:
        raise InputError(f"{noun} is no JSON {'list of texts' if is_list else 'object'}: {error}") from error
    return tuple(value) if isinstance(value, list) else value
