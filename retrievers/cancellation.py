"""Ends a search that takes long when nobody waits for it any more: who searches says how to tell, what takes long asks now and then.

Who searches also says by when the answer is wanted: what waits for others has to give up before, so that there is one.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from .errors import DeadlineExceeded

_IS_WANTED: ContextVar[Callable[[], bool] | None] = ContextVar("is_wanted", default=None)
_UNTIL: ContextVar[float] = ContextVar("until", default=math.inf)


@contextlib.contextmanager
def while_wanted(is_wanted: Callable[[], bool], until: float = math.inf) -> Iterator[None]:
    """Let ``check_wanted`` ask this in what is called here, in this thread, and ``wanted_until`` return that time of ``time.monotonic``."""
    asked, ends = _IS_WANTED.set(is_wanted), _UNTIL.set(until)
    try:
        yield
    finally:
        _IS_WANTED.reset(asked)
        _UNTIL.reset(ends)


def wanted_until() -> float:
    """Return when the answer must be there, on the clock of ``time.monotonic``; infinity if nobody has said."""
    return _UNTIL.get()


def check_wanted() -> None:
    """Go on only if the search is still of use.

    Raises:
        DeadlineExceeded: nobody waits for it any more.
    """
    is_wanted = _IS_WANTED.get()
    if is_wanted is not None and not is_wanted():
        raise DeadlineExceeded("the search was ended: nobody waits for it any more")
