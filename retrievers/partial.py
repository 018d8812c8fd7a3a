"""Answers that lack some rows: who searches says whether that will do, and learns which rows nobody could search."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import NamedTuple


class NotSearched(NamedTuple):
    """Rows of an index, from ``first_row`` to before ``stop_row``, that were not searched."""

    name: str
    first_row: int
    stop_row: int


_LOST: ContextVar[set[NotSearched] | None] = ContextVar("lost", default=None)


@contextlib.contextmanager
def partial_allowed() -> Iterator[set[NotSearched]]:
    """Let what is called here answer without rows that cannot be searched; give the set that these are noted in."""
    lost = set[NotSearched]()
    token = _LOST.set(lost)
    try:
        yield lost
    finally:
        _LOST.reset(token)


def is_partial_allowed() -> bool:
    """Return whether an answer may lack rows."""
    return _LOST.get() is not None


def note_lost(rows: NotSearched) -> None:
    """Note that some rows were not searched, where that is allowed."""
    lost = _LOST.get()
    if lost is not None:
        lost.add(rows)


def is_incomplete() -> bool:
    """Return whether rows have been noted."""
    return bool(_LOST.get())
