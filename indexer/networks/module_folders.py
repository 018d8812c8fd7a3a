"""Settings in the folders of sentence-transformers, and of the libraries that build on it: modules, lengths, prompts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from wikidx.base.artifacts.durable import parse_json

from .checkpoints import Checkpoint, find_optional, read_errors, read_json_object

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
TOKENIZER_SETTINGS = "tokenizer_config.json"

_TRANSFORMER = [f"sentence_{kind}_config.json" for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta")]

OPTIONAL = (SETTINGS, _TRANSFORMER[0], TOKENIZER_SETTINGS, MODULES)
"""Files that only some repositories have."""


class Module(NamedTuple):
    """A module: the import path of its class, and its folder in the checkpoint."""

    type_: str
    path: str

    @property
    def kind(self) -> str:
        """Name of the class."""
        return self.type_.rpartition(".")[2]


def read_modules(checkpoint: Checkpoint, name: str) -> list[Module] | None:
    """Return the modules of a checkpoint; None if it does not list any.

    Args:
        checkpoint: the checkpoint, of which missing files are downloaded.
        name: the encoder or reranker, for messages.

    Raises:
        ArtifactCorrupt: the file cannot be read.
        MissingExtraError, DownloadError: see ``locate``.
    """
    path = find_optional(checkpoint, MODULES, name)
    if path is None:
        return None
    with read_errors(path, name):
        modules = [Module(module["type"], module["path"]) for module in parse_json(path.read_bytes())]
        if not all(isinstance(text, str) for module in modules for text in module):
            raise TypeError("a type or path is no text")
    return modules


def optional_json(checkpoint: Checkpoint, file: str, name: str) -> Mapping[str, Any]:
    """Return the object in a JSON file of a checkpoint, empty without the file; raises as ``read_modules`` does."""
    path = find_optional(checkpoint, file, name)
    return {} if path is None else read_json_object(path, name)


def transformer_settings(checkpoint: Checkpoint, name: str, folder: str = "") -> Mapping[str, Any]:
    """Return the settings of the module ``Transformer`` in a folder of a checkpoint; raises as ``read_modules`` does."""
    found = (optional_json(checkpoint, str(Path(folder) / file), name) for file in _TRANSFORMER)
    return next(filter(None, found), {})


def default_prompt(settings: Mapping[str, Any]) -> str | None:
    """Return the text before all texts for which no other is named, by the content of ``SETTINGS``."""
    prompt = (settings.get("prompts") or {}).get(settings.get("default_prompt_name"))
    return prompt if isinstance(prompt, str) else None
