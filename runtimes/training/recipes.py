"""Training recipes of the papers, ``recipes.toml``: learning rates, epochs and batch sizes. ``RECIPE.md`` shows an example."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from wikidx.corpora.reading.compression import read_toml


class Setting(NamedTuple):
    """A value and its origin: "paper", "authors' code", or "ours" if neither gives a suitable value."""

    value: Any
    origin: str


Recipe = Mapping[str, Setting]
"""``begins_from`` (a base model, or an earlier stage to continue), ``learning_rate``, ``epochs``, ``batch``, ``max_length``, …"""


def recipes_of(method: str) -> dict[str, Recipe]:
    """Return the recipe of each file of a method's training data."""
    files = read_toml(Path(__file__).with_name("recipes.toml"))[method]
    every = files.pop("every")
    return {file: {name: Setting(*pair) for name, pair in {**own, **every}.items()} for file, own in files.items()}


def recipe_json(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as JSON values, with the origin of each value."""
    return {
        **{name: setting.value for name, setting in recipe.items()},
        "origins": {name: setting.origin for name, setting in recipe.items()},
    }
