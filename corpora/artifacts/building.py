"""Atomic, resumable builds of artefacts: staging directories, locks, and renaming.

A build writes into a hidden staging directory beside its target, which survives an interruption. When it is complete it is flushed to the
disk and *sealed* by its manifest, and the sealed directory is renamed to the target. If interrupted before the seal, the same command
reuses the finished pieces; if interrupted after it, the same command only renames.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wikidx.corpora.errors import InputError, LockedError, PiecesDamaged, StorageError

from .durable import file_sha256, json_value, sync, write_durably
from .home import home
from .manifest import MANIFEST, FileRecord, Manifest, Recipe, manifest_from_json, missing_file, package_versions

PIECES = "pieces"  # a folder in a staging directory for files needed only until the seal

_RECIPE = "recipe.json"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # <fcntl.h>, <linux/fs.h>
_STORE_PACKAGES = ("wikidx", "numpy", "lmdb", "zstandard")


class Outcome(NamedTuple):
    """Report of a build whose files are written; see ``Manifest``."""

    fingerprint: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A build for ``build_artifact``.

    Attributes:
        recipe: inputs and settings that determine the outcome; finished pieces of another recipe are discarded.
        sources: where the inputs are; see ``Manifest``.
        existing: returns the manifest of an existing artefact to keep, None to build. Raises to refuse.
        write: writes the files into the given staging directory, reusing the pieces already there; raises ``PiecesDamaged`` if they are
            corrupt.
        packages: further packages whose versions the manifest names if they are installed.
        keeps_pieces: keep the pieces if ``write`` raises ``InputError``: they took long to make and are not the fault.
    """

    recipe: Recipe
    sources: Mapping[str, str]
    existing: Callable[[], Manifest | None]
    write: Callable[[Path], Outcome]
    packages: Sequence[str] = ()
    keeps_pieces: bool = False


def build_artifact(target: Path, work: Work) -> Manifest:
    """Build the artefact ``target``, a directory in the data home, or resume an interrupted build of the same recipe.

    The decision to keep or replace an existing artefact is made under the lock: another process may have built it a moment ago.

    Raises:
        LockedError: another process is building this artefact.
        StorageError: no space, read-only, no permission; the pieces stay for the next attempt.
        InputError: ``write`` raised it; the pieces are removed unless ``Work.keeps_pieces`` is set.
    """
    staging = staging_path(target)
    with _system_errors(target), locked(target):
        kept = work.existing()
        if kept is not None:
            return kept
        target.parent.mkdir(parents=True, exist_ok=True)
        manifest = _sealed(staging, work.recipe)
        if manifest is None:
            try:
                outcome = _written(staging, work)
            except InputError:
                has_pieces = any(file.name != _RECIPE and not file.name.startswith(".") for file in staging.iterdir())
                if not (work.keeps_pieces and has_pieces):
                    discard(staging)
                    remove_empty(target.parent)
                raise
            manifest = _seal(staging, work, outcome)
        _publish(staging, target)
        return manifest


def staging_path(target: Path) -> Path:
    """Return the staging directory of the artefact ``target``."""
    return target.with_name(f".{target.name}.partial")


def artifact_files(staging: Path) -> list[Path]:
    """Return the files of a staging directory that belong to the artefact, by name."""
    files = sorted(file for file in staging.rglob("*") if file.is_file() and not file.name.startswith("."))
    return [file for file in files if file.relative_to(staging).parts[0] not in (_RECIPE, MANIFEST, PIECES)]


def staged_bytes(target: Path) -> int:
    """Return the number of bytes that an interrupted build of the artefact ``target`` has left to resume from."""
    n_bytes = 0
    for file in staging_path(target).rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a build may be running
            n_bytes += file.stat().st_size
    return n_bytes


def staged_recipe(target: Path) -> Recipe | None:
    """Return the recipe of the interrupted build of the artefact ``target`` whose pieces may be left, None if there is none."""
    try:
        return Recipe(**json_value((staging_path(target) / _RECIPE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def discard(path: Path) -> None:
    """Delete a directory or file, if it exists; for a link, also its target.

    A directory is first renamed to a hidden name: an interruption never leaves half of an artefact under its own name.
    """
    hidden = path if path.name.startswith(".") else path.with_name(f".{path.name}.old")
    if hidden != path:
        discard(hidden)  # left by an interrupted call
        if path.exists() or path.is_symlink():
            path.rename(hidden)
    if hidden.is_symlink():
        shutil.rmtree(hidden.resolve(), ignore_errors=True)
        hidden.unlink()
    elif hidden.is_dir():
        shutil.rmtree(hidden)
    else:
        hidden.unlink(missing_ok=True)


def remove_empty(folder: Path) -> None:
    """Remove a folder of the data home, and its parents, while they are empty."""
    while folder != home() and folder.is_relative_to(home()):
        try:
            folder.rmdir()
        except OSError:  # not empty
            return
        folder = folder.parent


@contextlib.contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock of ``target``, a path in the data home that need not exist; a kernel lock, so that it ends with the process.

    Raises:
        LockedError: another process, or another thread of this one, holds it.
        StorageError: its file cannot be created.
    """
    lock = home() / ".locks" / "+".join(target.relative_to(home()).parts)
    with _system_errors(target):
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a+", encoding="utf-8", errors="backslashreplace")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise LockedError(f"{target} is being worked on by {file.read() or 'another process'}: wait for it or end it") from None
        file.truncate(0)
        command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
        file.write(f"process {os.getpid()} on {socket.gethostname()}, started {time.strftime('%Y-%m-%d %H:%M:%S')} as '{command}'")
        file.flush()
        yield


def _prepare(staging: Path, recipe: Recipe) -> None:
    """Create the staging directory, or keep the pieces of a build of the same recipe."""
    recipe_file = staging / _RECIPE
    if not recipe_file.is_file() or recipe_file.read_text() != recipe.to_json():
        discard(staging)
        staging.mkdir()
        write_durably(recipe_file, recipe.to_json().encode())


def _written(staging: Path, work: Work) -> Outcome:
    """Run ``write``; corrupt pieces are discarded once.

    Only ``PiecesDamaged`` does that: a corrupt store, found while its vectors are made, must not cost the finished vectors.
    """
    _prepare(staging, work.recipe)
    with contextlib.suppress(PiecesDamaged):
        return work.write(staging)
    discard(staging)
    _prepare(staging, work.recipe)
    return work.write(staging)


def _sealed(staging: Path, recipe: Recipe) -> Manifest | None:
    """Return the manifest of a build of this recipe that was interrupted just before its renaming."""
    try:
        manifest = manifest_from_json((staging / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return None
    if manifest.recipe == recipe and missing_file(staging, manifest) is None:
        return manifest
    discard(staging)
    return None


def _seal(staging: Path, work: Work, outcome: Outcome) -> Manifest:
    """Flush all files to the disk and write the manifest."""
    for unfinished in list(filter(Path.is_file, staging.rglob(".*"))):  # left by an interruption within ``durable.replacing``
        unfinished.unlink()
    files = {}
    for file in artifact_files(staging):
        sync(file)
        files[str(file.relative_to(staging))] = FileRecord(file.stat().st_size, file_sha256(file))
    for folder in filter(Path.is_dir, staging.rglob("*")):
        sync(folder)
    manifest = Manifest(
        recipe=work.recipe,
        sources=work.sources,
        fingerprint=outcome.fingerprint,
        counts=outcome.counts,
        packages=package_versions((*_STORE_PACKAGES, *work.packages)),
        files=files,
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )
    write_durably(staging / MANIFEST, manifest.to_json())
    return manifest


def _publish(staging: Path, target: Path) -> None:
    """Rename a sealed directory to the target, and remove the old one."""
    shutil.rmtree(staging / PIECES, ignore_errors=True)
    (staging / _RECIPE).unlink(missing_ok=True)
    if not target.exists():
        staging.rename(target)
    elif _exchange(staging, target):
        discard(staging)
    else:
        old = target.with_name(f".{target.name}.old")
        discard(old)
        target.rename(old)
        staging.rename(target)
        discard(old)
    sync(target.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two directories atomically, so that ``other`` exists at every moment; False if the system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # Linux
    return rename is not None and rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0


@contextlib.contextmanager
def _system_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"work on {target} has stopped: {error.strerror or error}"
            f"{f' ({error.filename})' if error.filename else ''}; what is finished is kept: mend it and run the same command again"
        ) from error
