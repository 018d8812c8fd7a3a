"""Changes of the files of a checkpoint, each a function of its folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Change = Callable[[Path], object]


def unchanged(folder: Path) -> None:
    """Leave a checkpoint as it was written."""


def edited(file: str, edit: Callable[[Any], object]) -> Change:
    """Apply a function to the content of a JSON file, which may be missing."""

    def apply(folder: Path) -> None:
        stored = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
        edit(stored)
        (folder / file).write_text(json.dumps(stored))

    return apply


def changed(file: str, **values: object) -> Change:
    """Set values in a JSON file, which may be missing."""
    return edited(file, lambda stored: stored.update(values))


def written(file: str, content: str | bytes) -> Change:
    return lambda folder: (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())


def cut(file: str) -> Change:
    """Keep the first bytes of a file only."""
    return lambda folder: (folder / file).write_bytes((folder / file).read_bytes()[:20])


def removed(file: str) -> Change:
    return lambda folder: (folder / file).unlink()


def all_of(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes]


def weights(change: Callable[[dict[str, torch.Tensor]], object], file: str = "model.safetensors") -> Change:
    """Apply a function to the tensors of a file."""

    def apply(folder: Path) -> None:
        stored = load_file(folder / file)
        change(stored)
        save_file(stored, folder / file)

    return apply
