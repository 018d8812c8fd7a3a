"""How long work reports its progress: one callback, drawn by the command line alone."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int | None], None]
"""Called with (done, total); the total is None where it is not known."""


def silent(done: int, total: int | None) -> None:
    """Report nothing."""
