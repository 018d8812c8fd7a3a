"""``run.json`` as evaluation reads it: checked once, so that nobody else need ask what its values are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from wikidx.corpora.artifacts.durable import json_value
from wikidx.corpora.errors import ArtifactDamaged
from wikidx.runtimes.execution.runs import PREDICTIONS, RUN
from wikidx.runtimes.llms.json_shape import EACH, misfit

_SHAPE: Mapping[str, Any] = {
    "settings": {
        "questions": {"sha256": str, "n": int, "protocol": str, "sample": {"n": int, "seed": int}},
        "models": {EACH: {}},
        "switches": {EACH: {}},
        "search": {},
    },
    "sessions": [{"questions": int, "source": {"file": str, "format": str}}],
}
"""What is read of it; whatever is not there, or null, is unknown, but for the first two names."""


def read_run_json(folder: Path) -> Mapping[str, Any]:
    """Return ``run.json`` of a run's folder; empty: there is none.

    Raises:
        ArtifactDamaged: it is not JSON, or not what ``idx run`` writes.
    """
    file = folder / RUN
    if not file.is_file():
        return MappingProxyType({})
    try:
        about = json_value(file.read_bytes())
    except ValueError as error:
        raise _damaged(file, str(error)) from error
    wrong = misfit(about, _SHAPE, "it") or next((f"it has no '{name}'" for name in _SHAPE if about.get(name) is None), None)
    if wrong is not None:
        raise _damaged(file, wrong)
    return MappingProxyType(about)


def _damaged(file: Path, why: str) -> ArtifactDamaged:
    return ArtifactDamaged(f"{file} cannot be read ({why}): restore it, or name the file {PREDICTIONS} alone")
