"""Recipes of encoders: options that they are read with, and those that the user has named, one JSON file each in the data home."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from wikidx.base.artifacts.durable import read_json_object, write_durably
from wikidx.base.artifacts.home import check_name, home
from wikidx.base.errors import InputError
from wikidx.base.validation import options

Recipe = Mapping[str, Any]  # the values are JSON's

_PLACES = ("url", "plugin")

_own: dict[Path, Recipe] = {}  # named by this process, which keeps to them, whatever another process writes meanwhile


@options
class RecipeOptions:
    """Settings of a checkpoint that its files lack, or that replace theirs; None: the files', or sentence-transformers' default.

    Attributes:
        pooling: see ``EncoderSpec``, as are normalize, query_prompt and passage_prompt.
        max_tokens: maximum length of queries and passages.
        dim: components that are kept of each vector (Matryoshka).
        trust_remote_code: run the network's Python code in the checkpoint's folder.
    """

    pooling: Annotated[str | None, Field(description="Pooling of token vectors: cls, mean, last, max, or several as cls+mean.")] = None
    normalize: bool | None = None
    query_prompt: Annotated[str | None, Field(description="Text before each query.")] = None
    passage_prompt: Annotated[str | None, Field(description="Text before each passage.")] = None
    max_tokens: Annotated[int | None, Field(ge=4, description="Maximum number of tokens of a text.")] = None
    dim: Annotated[int | None, Field(ge=1, description="Number of components that are kept of each vector.")] = None
    trust_remote_code: Annotated[bool, Field(description="Run the network's Python code in the checkpoint's folder.")] = False


def register(name: str, recipe: Recipe, *, replace: bool) -> None:
    """Keep the recipe of an encoder under a name. Another recipe of this name is replaced only if ``replace`` is set.

    Recipes that differ only in a server's address or in the path of a plug-in are the same. This process uses its own recipe from then on.

    Raises:
        InputError: the name is invalid, or names another recipe already.
        OSError: the data home is not writable.
    """
    existing = _kept(check_name(name))
    differing = [key for key in recipe if existing and existing.get(key) != recipe[key] and key not in _PLACES]
    if existing and differing and not replace:
        changes = "; ".join(f"{key} {existing.get(key)!s:.60}, not {recipe[key]!s:.60}" for key in differing[:2])
        raise InputError(f"'{name}' is another encoder ({changes}): name this one with --encoder NAME=…, or replace it with --force")
    if existing != recipe:
        _path(name).parent.mkdir(parents=True, exist_ok=True)
        write_durably(_path(name), json.dumps(recipe, indent=1).encode())
    _own[_path(name)] = recipe


def registered(name: str) -> Recipe | None:
    """Return the recipe of a name, the one that this process has given it if any; None if the user has given no encoder this name.

    Raises:
        ArtifactCorrupt: the file cannot be read.
    """
    return _own.get(_path(name)) or _kept(name)


def _kept(name: str) -> Recipe | None:
    """Return the recipe in the data home, whoever has written it."""
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
