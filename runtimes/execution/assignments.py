"""``NAME=VALUE`` as a user writes it -> the fields of a dataclass: a method's switches, or how searches are done.

A value is written as its field's type is: ``true`` or ``false``, a number, a text as it stands, ``none`` where the field allows that;
lists and tables as JSON.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from corpora.errors import InputError
from corpora.json_value import json_value
from corpora.registry import near_names

_TRUTHS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}

T = TypeVar("T")


def assigned(
    kind: type[T], assignments: Sequence[str], *, what: str, base: Mapping[str, Any] | None = None, but: Collection[str] = ()
) -> T:
    """Return a dataclass with some fields set.

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
    fields = {field.name: field for field in dataclasses.fields(typing.cast("Any", kind)) if field.name not in but}
    hints = typing.get_type_hints(kind)
    given: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise InputError(f"{assignment!r} sets no {what}: write NAME=VALUE")
        if name not in fields:
            raise near_names(what, name, fields)
        if name in given:
            raise InputError(f"the {what} '{name}' is set twice")
        given[name] = _value(hints[name], text, f"the {what} '{name}'")
    try:
        return kind(**{**(base or {}), **given})
    except (TypeError, ValueError) as error:
        raise InputError(f"{', '.join(assignments)} cannot be: {error}") from error


def _value(hint: Any, text: str, what: str) -> Any:  # noqa: ANN401 - as the field's type is
    """Read a value of a type."""
    kinds = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    if type(None) in kinds and text.lower() == "none":
        return None
    kind = next(kind for kind in kinds if kind is not type(None))
    origin = typing.get_origin(kind) or kind
    if origin is str:
        return text
    if origin is bool:
        return _truth(text, what)
    if origin in (int, float):
        return _number(origin, text, what)
    if origin is tuple:
        return _texts(text, what)
    return _table(text, what)


def _truth(text: str, what: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise InputError(f"{what} is {text!r:.80}: it can be true or false")
    return _TRUTHS[text.lower()]


def _number(kind: type[int] | type[float], text: str, what: str) -> float:
    named = "a whole number" if kind is int else "a number"
    try:
        number = kind(text)
        is_finite = math.isfinite(number)
    except (ValueError, OverflowError):
        raise InputError(f"{what} is {text!r:.80}, not {named}") from None
    if not is_finite:
        raise InputError(f"{what} is {text!r:.80}, not {named} that is finite")
    return number


def _texts(text: str, what: str) -> tuple[str, ...]:
    """Read a JSON list of texts; what is no JSON list is one text."""
    if not text.lstrip().startswith("["):
        return (text,) if text else ()
    try:
        texts = json_value(text)
    except ValueError as error:
        raise InputError(f"{what} is no JSON list of texts: {error}") from error
    if not all(isinstance(one, str) for one in texts):
        raise InputError(f"{what} is {text!r:.80}, not a JSON list of texts")
    return tuple(texts)


def _table(text: str, what: str) -> dict[str, Any]:
    try:
        table = json_value(text)
    except ValueError as error:
        raise InputError(f'{what} is no JSON object such as {{"bm25": 0.5}}: {error}') from error
    if not isinstance(table, dict):
        raise InputError(f'{what} is {text!r:.80}, not a JSON object such as {{"bm25": 0.5}}')
    return table
