"""Frozen option dataclasses, validated by pydantic on creation, with one-line errors."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, TypeVar, cast, dataclass_transform

import pydantic.dataclasses
from pydantic import ConfigDict, ValidationError

from .errors import ArgumentError, InputError, OptionError
from .registry import suggest

_SHOWN = 80  # maximum characters of a value or a field's name in messages

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def options(kind: type[T]) -> type[T]:
    """Make a class a frozen dataclass that validates types, ``Literal`` choices and the bounds of ``pydantic.Field``.

    The only conversions are from integers to ``float``, and from numbers of other libraries to Python's. An invalid value, or a
    ``ValueError`` in the class's ``__post_init__``, raises ``OptionError``.
    """
    config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)
    validated: Any = pydantic.dataclasses.dataclass(frozen=True, slots=True, kw_only=True, config=config)(kind)
    validate = validated.__init__

    def __init__(self: T, **values: object) -> None:
        try:
            validate(self, **{name: _to_plain(value) for name, value in values.items()})
        except ValidationError as error:
            raise OptionError(explain(error, [field.name for field in dataclasses.fields(validated)])) from error

    validated.__init__ = __init__
    return validated  # type: ignore[no-any-return]


def _to_plain(value: object) -> object:
    """Return a scalar of NumPy or PyTorch, or another object that stands for an integer, as a Python number; also in a mapping."""
    if isinstance(value, Mapping):
        return {name: _to_plain(each) for name, each in value.items()}
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    with suppress(TypeError):
        return value if isinstance(value, bool) or not hasattr(value, "__index__") else operator.index(value)
    return value


def unknown_field(name: str, known: Collection[str]) -> str:
    """Return one line about a field that is none of the known ones."""
    return f"unknown field {name[:_SHOWN]!r}: {suggest(name, known)}known: {', '.join(sorted(known))}"


def check_iterable(values: object, name: str, instead_of_dictionary: str, instead_of_frame: str, instead_of_file: str) -> None:
    """Raise ``InputError`` for what yields its keys, the names of its columns, its lines, or nothing, where values are expected."""
    if isinstance(values, Mapping):
        raise InputError(f"the {name} are a dictionary: give {instead_of_dictionary}")
    if type(values).__name__ == "DataFrame":
        raise InputError(f"the {name} are a data frame: give {instead_of_frame}")
    if hasattr(values, "readline"):
        raise InputError(f"the {name} are an open file: give {instead_of_file}")
    try:
        iter(cast(Any, values))
    except TypeError as error:
        raise ArgumentError(f"the {name} are {values!r:.60}: give a list") from error


def explain(error: ValidationError, known: Collection[str] = (), *, whole: str = "it") -> str:
    """Return one line about the first of pydantic's errors.

    Args:
        error: pydantic's exception.
        known: names of all fields, for suggestions if a field is unknown.
        whole: name of the validated value, for an error that concerns no single field.
    """
    first = error.errors(include_url=False)[0]
    where = ".".join(f"{part!s:.{_SHOWN}}" for part in first["loc"]) or whole
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    if first["type"].startswith("missing"):
        return f"{where} is missing"
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return unknown_field(where, known)
    hint = suggest(str(first["input"])[:_SHOWN], re.findall("'(.*?)'", first["msg"])) if first["type"] == "literal_error" else ""
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where} is {first['input']!r:.{_SHOWN}}: {hint}{first['msg'].replace('Input should', 'it should')}{more}"
