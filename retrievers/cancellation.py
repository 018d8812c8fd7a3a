"""Bounds of a search, set by who searches, asked by what takes long or asks other machines.

They are whether somebody still waits for the answer, by when it is wanted, and whether rows that nobody can search may be left out.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from .base import NotSearched
from .errors import DeadlineExceeded

_IS_WANTED: ContextVar[Callable[[], bool] | None] = ContextVar("is_wanted", default=None)
_UNTIL: ContextVar[float] = ContextVar("until", default=math.inf)
_LOST: ContextVar[set[NotSearched] | None] = ContextVar("lost", default=None)


@contextlib.contextmanager
def while_wanted(is_wanted: Callable[[], bool], until: float = math.inf, lost: set[NotSearched] | None = None) -> Iterator[None]:
    """Bound the searches that are called here, in this thread.

    Args:
        is_wanted: asked by ``check_wanted``.
        until: when the answer must be there, on the clock of ``time.monotonic``.
        lost: takes the rows of a cluster that nobody can search just now, which are left out; None: without them the search fails.
    """
    asked, ends, left_out = _IS_WANTED.set(is_wanted), _UNTIL.set(until), _LOST.set(lost)
    try:
        yield
    finally:
        _IS_WANTED.reset(asked)
        _UNTIL.reset(ends)
        _LOST.reset(left_out)


def wanted_until() -> float:
    """Return when the answer must be there, on the clock of ``time.monotonic``; infinity if nobody has said."""
    return _UNTIL.get()


def lost_rows() -> set[NotSearched] | None:
    """Return the set for rows that are left out; None if all have to be searched."""
    return _LOST.get()


def check_wanted() -> None:
    """Go on only if the search is still of use.

    Raises:
        DeadlineExceeded: nobody waits for it any more.
    """
    is_wanted = _IS_WANTED.get()
    if is_wanted is not None and not is_wanted():
        raise DeadlineExceeded("the search was ended: nobody waits for it any more")
