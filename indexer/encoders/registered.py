"""Encoders that the user has named: each is one JSON file in ``encoders`` of the data home, with its recipe."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wikidx.corpora.artifacts.durable import read_json_object, write_durably
from wikidx.corpora.artifacts.home import check_name, home
from wikidx.corpora.errors import InputError

Recipe = Mapping[str, Any]  # the values are JSON's


def register(name: str, recipe: Recipe, *, replace: bool) -> None:
    """Keep the recipe of an encoder under a name. Another recipe of this name is replaced only if ``replace`` is set.

    Recipes of served models that differ only in the server's address are the same.

    Raises:
        InputError: the name is invalid, or names another recipe already.
        OSError: the data home is not writable.
    """
    check_name(name)
    existing = registered(name)
    if existing == recipe:
        return
    differing = [key for key in recipe if existing and existing.get(key) != recipe[key] and key != "url"]
    if existing and differing and not replace:
        changes = "; ".join(f"{key} {existing.get(key)!s:.60}, not {recipe[key]!s:.60}" for key in differing[:2])
        raise InputError(f"'{name}' is another encoder ({changes}): name this one with --encoder NAME=…, or replace it with --force")
    _path(name).parent.mkdir(parents=True, exist_ok=True)
    write_durably(_path(name), json.dumps(recipe, indent=1).encode())


def registered(name: str) -> Recipe | None:
    """Return the recipe of a name; None if the user has given no encoder this name.

    Raises:
        ArtifactCorrupt: the file cannot be read.
    """
    try:
        path = _path(check_name(name))
        return _read(path, path.stat().st_mtime_ns)
    except (InputError, FileNotFoundError, NotADirectoryError):
        return None


def registered_names() -> list[str]:
    """Return all names, sorted."""
    return sorted(path.stem for path in (home() / "encoders").glob("[a-z0-9]*.json"))


def _path(name: str) -> Path:
    return home() / "encoders" / f"{name}.json"


@functools.lru_cache(maxsize=256)
def _read(path: Path, changed_ns: int) -> Recipe:
    """Return the content of a file; ``changed_ns`` tells its versions apart."""
    return read_json_object(path, "delete it, and name the encoder again")
