"""Pickling and copying of searchers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Reopened:
    """An object that is pickled and copied by opening an equal one.

    Attributes:
        reopen: opens it; None: it can be neither pickled nor copied.
    """

    reopen: Callable[[], Any] | None = None

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        if self.reopen is None:
            remedy = "open it again, or give its corpus a name, as in idx.build(passages, name='mine')"
            raise TypeError(f"{self!r} can be neither pickled nor copied: {remedy}")
        return self.reopen, ()
