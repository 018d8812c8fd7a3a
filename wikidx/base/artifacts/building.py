"""Atomic, resumable builds of artifacts: staging directories, locks, and renaming.

A build writes to a hidden staging directory next to its target. When all files are complete, the build flushes them to disk, *seals* the
directory by writing the manifest, and renames the directory to the target. An interruption leaves the staging directory in place. The next
build of the same recipe reuses the staged files, or only renames the directory if it is already sealed.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wikidx.base.errors import InputError, LockedError, StagingCorrupt, StorageError, explain_os_error

from .durable import file_sha256, parse_json, sync, write_durably
from .home import home
from .manifest import MANIFEST, FileRecord, Manifest, Part, Recipe, manifest_from_json, missing_file, package_versions

INTERMEDIATE = "intermediate"  # subfolder of the staging directory, deleted before the rename

_RECIPE = "recipe.json"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # <fcntl.h>, <linux/fs.h>
_STORE_PACKAGES = ("wikidx", "numpy", "lmdb", "zstandard")


class BuildResult(NamedTuple):
    """Fingerprint and counts of a finished build; see ``Manifest``."""

    fingerprint: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactSpec:
    """Description of a build for ``build_artifact``.

    Attributes:
        recipe: inputs and settings that determine the result; staged files of another recipe are discarded.
        sources: path or address of each input; see ``Manifest``.
        find_existing: function that returns the manifest of a reusable artifact, or None if the artifact must be built; an error that it
            raises stops the build.
        write: function that writes the missing files to the given staging directory; raises ``StagingCorrupt`` if a staged file is corrupt.
        packages: additional packages whose versions the manifest records, if they are installed.
        keep_staging: whether the staged files remain after an ``InputError`` of ``write``, because they are expensive to rebuild.
        prepared: recipe of a preparation, whose staged files this build uses; see ``prepared_staging``.
    """

    recipe: Recipe
    sources: Mapping[str, str]
    find_existing: Callable[[], Manifest | None]
    write: Callable[[Path], BuildResult]
    packages: Sequence[str] = ()
    keep_staging: bool = False
    prepared: Recipe | None = None


def build_artifact(target: Path, spec: ArtifactSpec) -> Manifest:
    """Build the artifact ``target``, a directory in the data home, or resume an interrupted build of the same recipe.

    ``find_existing`` is called under the lock, because another process may just have built the artifact.

    Raises:
        LockedError: another process is building this artifact.
        StorageError: the disk is full or read-only, or access is denied; the staged files are kept for the next attempt.
        InputError: ``write`` raised it; the staged files are deleted unless ``ArtifactSpec.keep_staging`` is set.
    """
    staging = staging_path(target)
    with system_errors(target), lock(target):
        existing = spec.find_existing()
        if existing is not None:
            return existing
        target.parent.mkdir(parents=True, exist_ok=True)
        manifest = _find_sealed(staging, spec.recipe)
        if manifest is None:
            try:
                result = _write(staging, spec)
            except InputError:
                has_staged_files = any(file.name != _RECIPE and not file.name.startswith(".") for file in staging.iterdir())
                if not (spec.keep_staging and has_staged_files):
                    discard(staging)
                    remove_empty(target.parent)
                raise
            manifest = _seal(staging, spec, result)
        _publish(staging, target)
        return manifest


@contextlib.contextmanager
def prepared_staging(target: Path, recipe: Recipe) -> Iterator[Path]:
    """Give the staging directory of ``target`` to the preparation of a later build, and hold the lock; see ``ArtifactSpec.prepared``.

    The directory has the files of an earlier preparation by this recipe, or none. It is deleted after an ``InputError``.

    Raises:
        LockedError: another process is building this artifact.
        StorageError: the disk is full or read-only, or access is denied.
    """
    staging = staging_path(target)
    with lock(target):
        with system_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            _prepare(staging, recipe)
        try:
            yield staging
        except InputError:
            discard(staging)
            remove_empty(target.parent)
            raise


def staging_path(target: Path) -> Path:
    """Return the staging directory of the artifact ``target``."""
    return target.with_name(f".{target.name}.partial")


def artifact_files(staging: Path) -> list[Path]:
    """Return the files of a staging directory that belong to the artifact, sorted by path."""
    files = sorted(file for file in staging.rglob("*") if file.is_file() and not file.name.startswith("."))
    return [file for file in files if file.relative_to(staging).parts[0] not in (_RECIPE, MANIFEST, INTERMEDIATE)]


def staged_bytes(target: Path) -> int:
    """Return the total size, in bytes, of the staged files of the artifact ``target``."""
    n_bytes = 0
    for file in staging_path(target).rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a running build may have deleted the file
            n_bytes += file.stat().st_size
    return n_bytes


def staged_recipe(target: Path) -> Recipe | None:
    """Return the recipe of the staged build of the artifact ``target``; None if no recipe is staged."""
    try:
        return Recipe(**parse_json((staging_path(target) / _RECIPE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def discard(path: Path) -> None:
    """Delete a directory or file, if it exists; for a link, also the linked directory.

    The path is first renamed to a hidden name, so that an interruption never leaves a partial artifact under the artifact's name.
    """
    hidden = path if path.name.startswith(".") else path.with_name(f".{path.name}.old")
    if hidden != path:
        discard(hidden)  # an interrupted call may have left it
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
    """Remove a folder of the data home if it is empty, then each parent that has become empty."""
    while folder != home() and folder.is_relative_to(home()):
        try:
            folder.rmdir()
        except OSError:  # not empty, or missing
            return
        folder = folder.parent


def strip_credentials(text: str) -> str:
    """Remove user names and passwords from the URLs of a text."""
    return re.sub(r"(?<=://)[^/@\s]*@", "", text)


def redact_command(arguments: Sequence[str]) -> list[str]:
    """Return a command's arguments without keys and passwords."""
    text = re.sub(r"((?:^|\0)--api-key[=\0])[^\0]*", r"\1…", "\0".join(arguments))
    return [strip_credentials(argument) for argument in text.split("\0")]


@contextlib.contextmanager
def lock(target: Path) -> Iterator[None]:
    """Hold the lock of ``target``, a path in the data home, during the ``with`` block.

    The path may be missing. The kernel releases the lock when the process ends, even if it is killed.

    Raises:
        LockedError: another process, or another thread of this process, holds the lock.
        StorageError: the lock file cannot be created.
    """
    path = home() / ".locks" / "+".join(target.relative_to(home()).parts)
    with system_errors(target):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b", buffering=0)
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().decode() or "another process"
            raise LockedError(f"{target} is being worked on by {holder}: wait for it or end it") from None
        command = " ".join([Path(sys.argv[0]).name, *redact_command(sys.argv[1:])])
        holder = f"process {os.getpid()} on {socket.gethostname()}, started {time.strftime('%Y-%m-%d %H:%M:%S')} as '{command}'"
        with contextlib.suppress(OSError):  # a full disk: the lock needs no bytes
            file.truncate(0)
            file.write(holder.encode(errors="backslashreplace"))
        yield


def _prepare(staging: Path, recipe: Recipe, prepared: Recipe | None = None) -> None:
    """Create the staging directory; keep an existing one only if it has the same recipe, or that of the preparation."""
    recipe_file = staging / _RECIPE
    staged = recipe_file.read_bytes() if recipe_file.is_file() else None
    if staged != recipe.to_json().encode():
        if prepared is None or staged != prepared.to_json().encode():
            discard(staging)
            staging.mkdir()
        write_durably(recipe_file, recipe.to_json().encode())


def _write(staging: Path, spec: ArtifactSpec) -> BuildResult:
    """Run ``spec.write``; after ``StagingCorrupt``, discard the staged files and run it once more.

    After any other error, this function keeps the staged files: for example, finished vectors must survive the discovery that a store is
    corrupt.
    """
    _prepare(staging, spec.recipe, spec.prepared)
    with contextlib.suppress(StagingCorrupt):
        return spec.write(staging)
    discard(staging)
    _prepare(staging, spec.recipe)
    return spec.write(staging)


def _find_sealed(staging: Path, recipe: Recipe) -> Manifest | None:
    """Return the manifest of a sealed build of this recipe, or None; discard a sealed build that has another recipe or lacks files."""
    try:
        manifest = manifest_from_json((staging / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return None
    if manifest.recipe == recipe and missing_file(staging, manifest) is None:
        return manifest
    discard(staging)
    return None


def _seal(staging: Path, spec: ArtifactSpec, result: BuildResult) -> Manifest:
    """Flush all files to disk and write the manifest."""
    for unfinished in list(filter(Path.is_file, staging.rglob(".*"))):  # from an interrupted ``durable.atomic_write``
        unfinished.unlink()
    files = {}
    for file in artifact_files(staging):
        sync(file)
        files[str(file.relative_to(staging))] = FileRecord(file.stat().st_size, file_sha256(file))
    for folder in filter(Path.is_dir, staging.rglob("*")):
        sync(folder)
    manifest = Manifest(
        recipe=spec.recipe,
        sources=spec.sources,
        fingerprint=result.fingerprint,
        counts=result.counts,
        packages=package_versions((*_STORE_PACKAGES, *spec.packages)),
        files=files,
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        parts=(Part(n_rows=result.counts.get("rows", 0)),),
    )
    write_durably(staging / MANIFEST, manifest.to_json())
    return manifest


def _publish(staging: Path, target: Path) -> None:
    """Rename a sealed directory to the target, and delete the old artifact there."""
    shutil.rmtree(staging / INTERMEDIATE, ignore_errors=True)
    (staging / _RECIPE).unlink(missing_ok=True)
    if not (target.exists() and _exchange(staging, target)):
        discard(target)  # where names cannot be exchanged, nothing is there for a moment
        staging.rename(target)
    discard(staging)
    sync(target.parent)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange the names of two directories atomically; return False if the system cannot do this."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # exists on Linux only
    return rename is not None and rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0


@contextlib.contextmanager
def system_errors(target: Path) -> Iterator[None]:
    """Translate errors of the system in resumable work on a path to ``StorageError``, except that the reader of the output is gone."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StorageError(f"work on {target} has stopped: {explain_os_error(error, is_kept=True)}") from error
