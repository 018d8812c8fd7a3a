"""Progress callbacks of long operations; only the command line displays progress."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int | None], None]
"""Called with (done, total); the total is None if unknown."""

Step = Callable[[str, str], Progress]
"""Called with the name of a step and its unit ("passages", "B" for bytes); returns the step's progress callback."""


def silent(done: int, total: int | None) -> None:
    """Ignore the progress."""


def silent_steps(name: str, unit: str) -> Progress:
    """Return ``silent`` as the progress callback of a step."""
    return silent


def format_bytes(n_bytes: float) -> str:
    """Return a number of bytes with its unit, such as "4.7 GB"."""
    for unit in ("B", "kB", "MB"):
        if n_bytes < 999.5:
            return f"{n_bytes:.{0 if unit == 'B' else 1}f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} GB"
