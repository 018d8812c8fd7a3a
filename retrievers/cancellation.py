"""Bounds of a search, set by the caller and checked by slow or remote steps.

The bounds are cancellation, a deadline, and permission to leave out rows of unavailable shards.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import NamedTuple

from .base import UnsearchedRows
from .errors import DeadlineExceeded


class _Scope(NamedTuple):
    is_cancelled: Callable[[], bool]
    deadline: float
    unsearched: set[UnsearchedRows] | None


_UNBOUNDED = _Scope(lambda: False, math.inf, None)
_SCOPE = ContextVar("scope", default=_UNBOUNDED)


@contextlib.contextmanager
def cancellation_scope(
    is_cancelled: Callable[[], bool] = lambda: False, deadline: float = math.inf, unsearched: set[UnsearchedRows] | None = None
) -> Iterator[None]:
    """Set the bounds of the searches that this thread runs inside the ``with`` block.

    Args:
        is_cancelled: function that returns True to cancel the search; ``raise_if_cancelled`` calls it.
        deadline: time on the clock of ``time.monotonic``.
        unsearched: set to which the rows of unavailable shards are added; None: an unavailable shard fails the search.
    """
    token = _SCOPE.set(_Scope(is_cancelled, deadline, unsearched))
    try:
        yield
    finally:
        _SCOPE.reset(token)


def search_deadline() -> float:
    """Return the deadline, on the clock of ``time.monotonic``; infinity if none is set."""
    return _SCOPE.get().deadline


def unsearched_rows() -> set[UnsearchedRows] | None:
    """Return the set to which the rows of unavailable shards are added; None if all rows must be searched."""
    return _SCOPE.get().unsearched


def raise_if_cancelled() -> None:
    """Raise ``DeadlineExceeded`` if the search is cancelled."""
    if _SCOPE.get().is_cancelled():
        raise DeadlineExceeded("the search was ended: nobody waits for it any more")
