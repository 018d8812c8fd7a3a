"""Registries of ``name -> "module:attribute"``, imported on first use; errors for unknown names suggest similar names."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from .errors import UnknownNameError

_LONGEST = 80  # characters of a name that are compared and shown


def unknown_name_error(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """Return (not raise) the error for an unknown name, with similar known names and the complete list."""
    names, name = sorted(known), name[:_LONGEST]
    return UnknownNameError(f"unknown {kind} {name!r}: {suggest(name, names)}known: {', '.join(names) or 'none'}")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a question with similar known names, followed by a space; empty if no name is similar."""
    near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""


def load(kind: str, name: str, table: Mapping[str, str]) -> Any:  # noqa: ANN401 - the caller annotates what its table holds
    """Import and return an entry of ``table``.

    Args:
        kind: kind of entry, for the message ("corpus", "encoder").
        name: the key.
        table: lazy references ``"package.module:attribute"``.

    Raises:
        UnknownNameError: the name is not in the table.
    """
    if name not in table:
        raise unknown_name_error(kind, name, table)
    module, attribute = table[name].split(":")
    return getattr(importlib.import_module(module), attribute)
