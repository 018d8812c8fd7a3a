"""Progress callbacks of long operations; ``progress_display`` displays progress."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int | None], None]
"""Function (done, total) -> None, which receives progress; the total is None if unknown."""

Step = Callable[[str, str], Progress]
"""Function (name of a step, unit) -> progress callback of the step; units are words such as "passages", or "B" for bytes."""


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
