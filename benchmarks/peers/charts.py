"""Draws charts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def draw(figures: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw."""
    return []
