"""Type checks of foreign JSON."""

from __future__ import annotations

from types import UnionType
from typing import Any

EACH = "*"


def misfit(value: Any, shape: Any, name: str) -> str | None:  # noqa: ANN401 - JSON and its shape
    """Return a description of the first part of a value that does not match a shape; None: it matches.

    Args:
        value: JSON.
        shape: a type or several, a list of one shape, or shapes by name; those under ``EACH`` are of all names. What an object does not
            have, or has as null, fits every shape.
        name: what the value is called.
    """
    kind = shape if isinstance(shape, type | UnionType) else type(shape)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        return f"{name} is {value!r:.40}"
    if isinstance(shape, list) and isinstance(value, list):
        return next((wrong for one in value if (wrong := misfit(one, shape[0], name))), None)
    if isinstance(shape, dict) and isinstance(value, dict):
        named = {field: inner for field, inner in shape.items() if value.get(field) is not None}
        checked = named if EACH not in shape else dict.fromkeys(value, shape[EACH])
        return next((wrong for field, inner in checked.items() if (wrong := misfit(value[field], inner, f"'{field}'"))), None)
    return None
