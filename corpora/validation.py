"""Options: frozen dataclasses that pydantic validates when they are created, with errors of one line."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from typing import Any, TypeVar, dataclass_transform

import pydantic.dataclasses
from pydantic import ConfigDict, ValidationError

from .errors import OptionError
from .registry import did_you_mean

_SHOWN = 80  # maximum characters of a value or a field's name in messages

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def options(kind: type[T]) -> type[T]:
    """Make a class a frozen dataclass that validates its annotations: types, ``Literal`` choices, and the bounds of ``pydantic.Field``.

    The only conversion is from integers to ``float``. An invalid value raises ``OptionError``, and so does a ``ValueError`` of
    the class's ``__post_init__``.
    """
    config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    made: Any = pydantic.dataclasses.dataclass(frozen=True, slots=True, kw_only=True, config=config)(kind)
    check = made.__init__

    def __init__(self: T, **values: object) -> None:
        try:
            check(self, **values)
        except ValidationError as error:
            raise OptionError(explain(error, [field.name for field in dataclasses.fields(made)])) from error

    made.__init__ = __init__
    return made  # type: ignore[no-any-return]


def explain(error: ValidationError, known: Collection[str] = (), *, whole: str = "it") -> str:
    """Return a line on the first of pydantic's errors, and the number of others.

    Args:
        error: pydantic's exception.
        known: the names of all fields, for suggestions on an unknown one.
        whole: name of the whole value, for an error in it.
    """
    first = error.errors(include_url=False)[0]
    where = ".".join(f"{part!s:.{_SHOWN}}" for part in first["loc"]) or whole
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    if first["type"].startswith("missing"):
        return f"{where} is missing"
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"unknown field {where!r}: {did_you_mean(where, known)}known: {', '.join(sorted(known))}"
    hint = did_you_mean(str(first["input"])[:_SHOWN], re.findall("'(.*?)'", first["msg"])) if first["type"] == "literal_error" else ""
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where} is {first['input']!r:.{_SHOWN}}: {hint}{first['msg'].replace('Input should', 'it should')}{more}"
