"""Registries of ``name -> "module:attribute"``, whose entries are imported on first use, and errors for unknown names."""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .errors import UnknownNameError

_LONGEST = 80  # characters of a name that are compared and shown


def unknown_name_error(kind: str, name: str, known: Iterable[str], built: Sequence[str] = ()) -> UnknownNameError:
    """Return (not raise) the error for an unknown name; the message lists similar names, and all known names or those built here."""
    names, name = sorted(known), name[:_LONGEST]
    hint = suggest(name, {*built, *names})
    if built:
        others = sorted({*names} - {*built})
        names = [f"{', '.join(built)} (built here)", *others[:4], *("…" for _ in others[4:5])]
    return UnknownNameError(f"unknown {kind} {name!r}: {hint}known: {', '.join(names) or 'none'}")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a question with similar known names, such as "did you mean 'bm25'? "; an empty string if no name is similar."""
    near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.6)  # 'bm52' is near 'bm25', 'nosuch' neither 'notes' nor 'nomic'
    return f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""


def load(kind: str, name: str, table: Mapping[str, str]) -> Any:  # noqa: ANN401 - the caller annotates the entry
    """Import and return an entry of ``table``.

    Args:
        kind: kind of entry for the error message, such as "corpus".
        name: the key.
        table: lazy references ``"package.module:attribute"``.

    Raises:
        UnknownNameError: the name is not in the table.
    """
    if name not in table:
        raise unknown_name_error(kind, name, table)
    return pkgutil.resolve_name(table[name])
