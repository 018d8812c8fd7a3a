"""The files of training data on disk, the table by which LLaMA-Factory finds them, and the manifest of all that they were made by.

    data/<name>.jsonl         the examples; ``chat`` has the form
    data/dataset_info.json    LLaMA-Factory's: ``dataset_dir`` is this folder
    manifest.json             written last: counts, rules, models, prompts, seeds, checksums, how the papers train

Each file is replaced whole; equal replies and switches give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from wikidx.corpora.artifacts.durable import write_durably

from .base import Builder, Made
from .chat import written
from .recipes import RECIPES, Recipe, told

DATA, INFO, MANIFEST = "data", "dataset_info.json", "manifest.json"
FORMAT = 1


def write(folder: Path, builder: Builder, made: Made, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write the files and the manifest; files of an earlier making that are not made any more are deleted.

    Args:
        folder: of the run; it is there.
        builder: what made the files.
        made: the examples and the figures.
        about: what else the manifest says.

    Returns:
        the manifest.
    """
    data = folder / DATA
    data.mkdir(exist_ok=True)
    files: dict[str, Any] = {}
    for name, examples in made.files.items():
        content = written(examples)
        write_durably(data / f"{name}.jsonl", content)
        files[name] = {
            "about": made.about[name],
            "examples": len(examples),
            "sha256": hashlib.sha256(content).hexdigest(),
            "training": told(_begun(name, RECIPES[builder.name], made.files)),
        }
    for file in data.glob("*.jsonl"):
        if file.stem not in files:
            file.unlink()
    write_durably(data / INFO, _json({name: _info(name) for name in files}))
    manifest = {
        "format": FORMAT,
        "method": builder.name,
        "source": builder.source,
        "counts": {what: tally.told() for what, tally in made.tallies.items()},
        "files": files,
        **about,
    }
    write_durably(folder / MANIFEST, _json(manifest))
    return manifest


def _begun(name: str, recipes: Mapping[str, Recipe], files: Collection[str]) -> Recipe:
    """Return a file's recipe; where the stage that it goes on from is not made, it begins from where that stage would."""
    begins_from = recipes[name]["begins_from"]
    while begins_from.value in recipes and begins_from.value not in files:
        begins_from = recipes[begins_from.value]["begins_from"]
    return {**recipes[name], "begins_from": begins_from}


def _info(name: str) -> dict[str, Any]:
    """Return how LLaMA-Factory is to read a file."""
    roles = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant", "system_tag": "system"}
    return {"file_name": f"{name}.jsonl", "formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": roles}


def _json(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()
