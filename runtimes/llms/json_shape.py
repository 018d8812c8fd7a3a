"""Type checks of external JSON."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any

EACH = "*"


def matching(value: Mapping[str, Any], shape: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without the fields that do not match their shape: optional ones, which must not cost the others."""
    return {name: inner for name, inner in value.items() if not find_mismatch({name: inner}, {**shape}, "it")}


def find_mismatch(value: Any, shape: Any, name: str) -> str | None:  # noqa: ANN401 - JSON and its shape
    """Return a description of the first part of a value that does not match a shape; None if all parts match.

    Args:
        value: a JSON value.
        shape: a type or a union of types, a list that holds the shape of all items, or a dict from field to shape. The key ``EACH`` stands
            for all fields. A missing or null field matches, unless ``EACH`` is used.
        name: the name of the value in the description.
    """
    kind = shape if isinstance(shape, type | UnionType) else type(shape)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        return f"{name} is {value!r:.40}"
    if isinstance(shape, list) and isinstance(value, list):
        return next((mismatch for item in value if (mismatch := find_mismatch(item, shape[0], name))), None)
    if isinstance(shape, dict) and isinstance(value, dict):
        present = {field: inner for field, inner in shape.items() if value.get(field) is not None}
        checked = present if EACH not in shape else dict.fromkeys(value, shape[EACH])
        return next((mismatch for field, inner in checked.items() if (mismatch := find_mismatch(value[field], inner, f"'{field}'"))), None)
    return None
