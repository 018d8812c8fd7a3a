"""Parsing of ``NAME=VALUE`` into fields of options of a method or a search.

The syntax of a value depends on its field's type: ``true`` or ``false``, a number, a plain text, ``none`` if the field allows it; lists
and tables as JSON.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from wikidx.corpora.artifacts.durable import json_value
from wikidx.corpora.errors import InputError
from wikidx.corpora.registry import near_names
from wikidx.corpora.validation import explain

T = TypeVar("T")


def assigned(
    kind: type[T], assignments: Sequence[str], *, what: str, base: Mapping[str, Any] | None = None, but: Collection[str] = ()
) -> T:
    """Return options with some fields set.

    Args:
        kind: the dataclass, which checks its values itself.
        assignments: ``NAME=VALUE`` each.
        what: what a field is called in messages, such as "switch".
        base: fields that are set unless an assignment sets them.
        but: fields that cannot be set.

    Raises:
        InputError: an assignment has another form, its value another type, a field is set twice, or the dataclass refuses a value.
        UnknownNameError: there is no such field.
    """
    known = [field.name for field in dataclasses.fields(cast("Any", kind)) if field.name not in but]
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise InputError(f"{assignment!r} sets no {what}: write NAME=VALUE")
        if name not in known:
            raise near_names(what, name, known)
        if name in given:
            raise InputError(f"the {what} '{name}' is set twice")
        given[name] = _value(hints[name], text, f"the {what} '{name}'")
    return kind(**{**(base or {}), **given})


def _value(hint: Any, text: str, what: str) -> Any:  # noqa: ANN401 - as the field's type is
    """Read a value of a type."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if NoneType in kinds and text.lower() == "none":
        return None
    (kind,) = (kind for kind in kinds if kind is not NoneType)
    if kind is str:
        return text
    if get_origin(kind) in (tuple, Mapping):
        return _json(text, what, is_list=get_origin(kind) is tuple)
    try:
        return TypeAdapter(kind).validate_strings(text)
    except ValidationError as error:
        raise InputError(explain(error, whole=what)) from error


def _json(text: str, what: str, *, is_list: bool) -> Any:  # noqa: ANN401 - JSON
    """Parse JSON; a single text may stand for a list of texts."""
    if is_list and not text.lstrip().startswith("["):
        return (text,) if text else ()
    try:
        value = json_value(text)
    except ValueError as error:
        raise InputError(f"{what} is no JSON {'list of texts' if is_list else 'object'}: {error}") from error
    return tuple(value) if isinstance(value, list) else value
