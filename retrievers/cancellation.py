"""Bounds of a search, set by the caller and checked by slow or remote steps.

The bounds are cancellation, the deadline, and permission to leave out rows of unavailable shards.
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
    """Bound the searches that this block calls in this thread.

    Args:
        is_wanted: called by ``check_wanted``; False cancels the search.
        until: deadline, on the clock of ``time.monotonic``.
        lost: receives the rows of unavailable shards, which are left out; None: the search fails without them.
    """
    before = _BOUNDS.set(_Bounds(is_wanted, until, lost))
    try:
        yield
    finally:
        _BOUNDS.reset(before)


def wanted_until() -> float:
    """Return the deadline, on the clock of ``time.monotonic``; infinity if none is set."""
    return _BOUNDS.get().until


def lost_rows() -> set[NotSearched] | None:
    """Return the set that receives the rows left out; None if all rows must be searched."""
    return _BOUNDS.get().lost


def check_wanted() -> None:
    """Stop a search that is cancelled.

    Raises:
        DeadlineExceeded: the search is cancelled.
    """
    if not _BOUNDS.get().is_wanted():
        raise DeadlineExceeded("the search was ended: nobody waits for it any more")
