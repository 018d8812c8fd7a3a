"""Bounds of a search, set by who searches, asked by what takes long or asks other machines.

They are whether somebody still waits for the answer, by when it is wanted, and whether rows that nobody can search may be left out.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import NamedTuple

from .base import NotSearched
from .errors import DeadlineExceeded


class _Bounds(NamedTuple):
    is_wanted: Callable[[], bool]
    until: float
    lost: set[NotSearched] | None


_NONE = _Bounds(lambda: True, math.inf, None)
_BOUNDS = ContextVar("bounds", default=_NONE)


@contextlib.contextmanager
def while_wanted(is_wanted: Callable[[], bool], until: float = math.inf, lost: set[NotSearched] | None = None) -> Iterator[None]:
    """Bound the searches that are called here, in this thread.

    Args:
        is_wanted: asked by ``check_wanted``.
        until: when the answer must be there, on the clock of ``time.monotonic``.
        lost: takes the rows of a cluster that nobody can search just now, which are left out; None: without them the search fails.
    """
    before = _BOUNDS.set(_Bounds(is_wanted, until, lost))
    try:
        yield
    finally:
        _BOUNDS.reset(before)


def wanted_until() -> float:
    """Return when the answer must be there, on the clock of ``time.monotonic``; infinity if nobody has said."""
    return _BOUNDS.get().until


def lost_rows() -> set[NotSearched] | None:
    """Return the set for rows that are left out; None if all have to be searched."""
    return _BOUNDS.get().lost


def check_wanted() -> None:
    """Go on only if the search is still of use.

    Raises:
        DeadlineExceeded: nobody waits for it any more.
    """
    if not _BOUNDS.get().is_wanted():
        raise DeadlineExceeded("the search was ended: nobody waits for it any more")
