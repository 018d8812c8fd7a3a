"""The view that a part has of its run: ``Task``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RECORDS = "records"  # file of a part's results, in its folder
Record = Mapping[str, Any]
"""A line of a part's results: a difference, figures, or a note; see ``Task``."""


class SkippedPart(Exception):
    """A part that cannot run here, because something optional is not installed. The message says what."""


class Task:
    """The run of a part.

    Args:
        device: torch's name of the device.
        folder: empty folder for the part's files.
        seconds: time for the part.
        write: takes each record at once, so that none is lost if the process ends.

    Attributes:
        device, folder: see above.
        on_gpu: whether the device is a GPU.
    """

    def __init__(self, device: str, folder: Path, seconds: float, write: Callable[[Record], None]) -> None:
        self.device, self.folder = device, folder
        self.on_gpu = device.startswith("cuda")
        self._ends_at, self._write = time.monotonic() + seconds, write

    def check(self, case: str, difference: float, allowed: float) -> None:
        """Record the largest difference from a reference in a case; it passes if it is at most ``allowed``, which NaN is not."""
        is_finite = math.isfinite(difference)
        difference, passed = float(difference), bool(difference <= allowed)
        self._write({"case": case, "difference": difference if is_finite else None, "allowed": allowed, "passed": passed})

    def record(self, case: str, figures: Mapping[str, float | str]) -> None:
        """Record figures of a case, by their names and units; they neither pass nor fail."""
        self._write({"case": case, "figures": dict(figures)})

    def note(self, text: str) -> None:
        """Record a case that cannot be run here."""
        self._write({"note": text})

    @property
    def has_time(self) -> bool:
        """False if a part of several steps should end: its time is up soon."""
        return time.monotonic() < self._ends_at
