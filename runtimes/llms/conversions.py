"""Conversions of model files, which are made once and kept in the data home."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from wikidx.base.artifacts.building import ArtifactSpec, BuildResult, build_artifact, discard
from wikidx.base.artifacts.home import home
from wikidx.base.artifacts.manifest import Manifest, Recipe, read_manifest
from wikidx.base.errors import ArtifactError, InputError, LockedError
from wikidx.indexer.networks.checkpoints import checksum

logger = logging.getLogger(__name__)

_PAUSE_S = 0.5  # between two looks at a conversion by another process


def folder_of(file: Path, name: str) -> Path:
    """Return the folder of a file's conversion, existing or not. Equal files share it."""
    return _folder(checksum(file), name)


def _folder(sha256: str, name: str) -> Path:
    return home() / "checkpoints" / name / sha256[:32]


def convert_once(file: Path, name: str, write: Callable[[Path], int], *, kind: str, version: int = 1, packages: Sequence[str] = ()) -> Path:
    """Return the folder of a file's conversion, which is made on the first call. If another process makes it, wait for that.

    Args:
        file: the file.
        name: name of the folder for conversions of this kind.
        write: function that writes the conversion to a given folder, and returns its number of parameters; it may raise any error.
        kind: see ``Manifest``.
        version: see ``Manifest``.
        packages: packages whose versions the manifest records.

    Raises:
        StorageError: the data home cannot keep the conversion.
    """
    sha256 = checksum(file)
    folder = _folder(sha256, name)

    def find() -> Manifest | None:
        try:
            return read_manifest(folder, kind, version, "")
        except ArtifactError:  # missing, or damaged: the conversion is made again
            return None

    def write_or_discard(staging: Path) -> BuildResult:
        try:
            return BuildResult(sha256, {"parameters": write(staging)})
        except InputError:  # ``build_artifact`` deletes
            raise
        except BaseException:
            discard(staging)  # nothing can be resumed
            raise

    recipe = Recipe(kind=kind, format_version=version, parameters={}, inputs={"gguf": sha256})
    sources = {"gguf": str(file)}
    spec = ArtifactSpec(recipe=recipe, sources=sources, find_existing=find, write=write_or_discard, packages=packages)
    is_waiting = False
    while find() is None:
        try:
            build_artifact(folder, spec)
        except LockedError:
            if not is_waiting:
                logger.warning("waiting for another process that converts %s", file.name)
            is_waiting = True
            time.sleep(_PAUSE_S)
    return folder
