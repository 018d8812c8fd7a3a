"""Named pipelines of a corpus: ``<home>/<corpus>/pipelines/<name>.toml``.

pipeline = "{bm25:0.3, minilm:0.7}minmax%50 >> simlm"
description = "words and meaning"                       # optional
[tuned]                                                 # optional: the record of idx tune
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wikidx.base.artifacts.durable import write_durably
from wikidx.base.artifacts.home import check_name, corpus_path, list_folder
from wikidx.base.errors import InputError
from wikidx.corpora.reading.compression import read_toml
from wikidx.indexer.naming import is_index_name

from .notation import parse_pipeline
from .tree import Node

_FIELDS = ("name", "pipeline", "description", "tuned")


def saved_pipelines(corpus: str) -> dict[str, Path]:
    """Return the files of a corpus's named pipelines, by name."""
    return {file.stem: file for file in list_folder(corpus_path(corpus) / "pipelines") if file.suffix == ".toml"}


def read_pipeline(path: Path) -> Node:
    """Read a pipeline from its file.

    Raises:
        InputError: the file is no TOML, has an unknown field or no pipeline, or the pipeline does not follow the notation.
    """
    content = read_toml(path)
    unknown = [field for field in content if field not in _FIELDS]
    text = content.get("pipeline")
    if unknown or not isinstance(text, str):
        problem = f"a field '{unknown[0]:.40}'" if unknown else "no text 'pipeline'"
        raise InputError(f"{path} has {problem}: its fields are {', '.join(_FIELDS)}")
    try:
        return parse_pipeline(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def check_pipeline_name(name: str) -> str:
    """Validate and return a name for a pipeline; raises ``InputError`` if it has other characters, or names an index."""
    check_name(name)
    if is_index_name(name):
        raise InputError(f"'{name}' is the name of an index: choose another one for the pipeline")
    return name


def prepare_pipeline(corpus: str, name: str) -> Path:
    """Return the file of a named pipeline, in a folder that is writable; raises ``OSError`` if it is not."""
    path = corpus_path(corpus) / "pipelines" / f"{check_pipeline_name(name)}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path.parent))
    return path


def write_pipeline(corpus: str, name: str, pipeline: Node, description: str, tuned: Mapping[str, Any]) -> Path:
    """Write a named pipeline, in place of one of this name, and return its file; ``tuned`` has numbers, texts and lists of these."""
    path = prepare_pipeline(corpus, name)
    fields = {"name": name, "pipeline": str(pipeline), "description": description}
    lines = [*map(_to_toml, fields.items()), "", "[tuned]", *map(_to_toml, tuned.items()), ""]
    write_durably(path, "\n".join(lines).encode())
    return path


def _to_toml(item: tuple[str, Any]) -> str:
    """Return the line of a field, whose value is a number, a text or a list: JSON's, except for DEL and for what JSON lacks."""
    name, value = item
    return f"{name} = {json.dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f").replace("NaN", "nan")
