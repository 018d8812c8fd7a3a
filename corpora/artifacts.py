"""Artefacts: directories that appear whole or not at all, and say in ``manifest.json`` what they are.

The one place that knows the data home, the names allowed in it, locks, staging, fsync and rename. It does not know what the files hold.
A build writes into a hidden staging directory beside its target, which outlives a kill, so that the same command goes on from the last
finished piece; the manifest is written last and the staging directory renamed to the target.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import importlib.metadata
import json
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .durable import file_sha256, sync, write_durably
from .errors import ArtifactDamaged, ArtifactMismatch, ArtifactMissing, InputError, LockedError, StorageError
from .progress import Progress, silent

MANIFEST = "manifest.json"
RECIPE = "recipe.json"
RESERVED_NAMES = frozenset({"passages", "vectors", "indexes", "downloads"})

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_REPORTED_PACKAGES = ("wikidx", "numpy", "lmdb", "zstandard", "numba", "torch", "transformers", "faiss-cpu")


def home() -> Path:
    """Return the data home: ``$IDX_HOME``, else ``~/.idx``."""
    return Path(os.environ.get("IDX_HOME") or "~/.idx").expanduser()


def check_name(name: str) -> str:
    """Return a name that a user gave to a corpus, if it is allowed.

    Raises:
        InputError: it holds other characters than ``a-z 0-9 . _ -``, or is reserved.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"'{name}' cannot be a name: use lower-case letters, digits, '.', '_' and '-', beginning with a letter or digit")
    if name in RESERVED_NAMES:
        raise InputError(f"'{name}' is a reserved name: choose another one with --name")
    return name


def corpus_path(name: str) -> Path:
    """Return the directory of a corpus in the data home, built or not; ``<name>@<limit>`` is a subset.

    Raises:
        InputError: ``name`` cannot be a corpus's.
    """
    base, at, limit = name.partition("@")
    check_name(base)
    if at and not limit.isdecimal():
        raise InputError(f"'{name}' cannot be a name: behind '@' stands the number of passages of a subset")
    return home() / name


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that decides what a build makes; two builds with equal recipes make the same artefact."""

    kind: str
    format_version: int
    parameters: Mapping[str, str | int | float | None]
    inputs: Mapping[str, str]  # name -> sha256 of a file, or the fingerprint of a store


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a finished artefact is. ``files`` maps each file's name to its size and sha256."""

    recipe: Recipe
    fingerprint: str
    counts: Mapping[str, int]
    packages: Mapping[str, str]
    files: Mapping[str, FileRecord]
    created: str


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Size and checksum of one file of an artefact."""

    n_bytes: int
    sha256: str


def is_finished(path: Path) -> bool:
    """Return whether there is a finished artefact at ``path``, usable or not."""
    return (path / MANIFEST).is_file()


def read_manifest(path: Path, recipe_kind: str, format_version: int, rebuild: str) -> Manifest:
    """Read the manifest of the artefact at ``path`` and check kind, version and the presence and size of its files.

    Args:
        path: the artefact's directory.
        recipe_kind: the kind it must be.
        format_version: the format this version of idx reads.
        rebuild: the command that builds it, for the messages.

    Raises:
        ArtifactMissing: there is no finished artefact.
        ArtifactMismatch: it is of another kind or format version.
        ArtifactDamaged: the manifest is unreadable, or a file is missing or of another size.
    """
    try:
        manifest = _manifest_from_json(json.loads((path / MANIFEST).read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        raise ArtifactMissing(f"nothing is built at {path}: run {rebuild}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactDamaged(f"{path / MANIFEST} cannot be read ({error}): run {rebuild} --force") from error
    found = (manifest.recipe.kind, manifest.recipe.format_version)
    if found != (recipe_kind, format_version):
        raise ArtifactMismatch(
            f"{path} holds '{found[0]}' in format {found[1]}, this version of idx reads '{recipe_kind}' in format {format_version}: "
            f"run {rebuild} --force"
        )
    for name, record in manifest.files.items():
        n_bytes = (path / name).stat().st_size if (path / name).is_file() else None
        if n_bytes != record.n_bytes:
            state = "is missing" if n_bytes is None else f"has {n_bytes:,} bytes instead of {record.n_bytes:,}"
            raise ArtifactDamaged(f"{path / name} {state}: run {rebuild} --force")
    return manifest


def check_fingerprint(path: Path, manifest: Manifest, fingerprint: str, rebuild: str) -> None:
    """Raise ``ArtifactMismatch`` unless the artefact was built over the store with that fingerprint."""
    if manifest.fingerprint != fingerprint:
        raise ArtifactMismatch(
            f"{path} was built over other passages ({manifest.fingerprint[:12]}…) than the store now holds ({fingerprint[:12]}…): "
            f"run {rebuild} --force"
        )


def verify_files(path: Path, manifest: Manifest, progress: Progress = silent) -> list[str]:
    """Re-read every file of an artefact and return one line for each that is not what the manifest says."""
    total, done, problems = sum(record.n_bytes for record in manifest.files.values()), 0, list[str]()
    for name, record in manifest.files.items():
        file = path / name
        if not file.is_file():
            problems.append(f"{file} is missing")
            continue
        sha256 = file_sha256(file)
        if sha256 != record.sha256:
            problems.append(f"{file} is damaged: sha256 {sha256[:12]}… instead of {record.sha256[:12]}…")
        done += record.n_bytes
        progress(done, total)
    return problems


@contextlib.contextmanager
def building(target: Path, recipe: Recipe) -> Iterator[Path]:
    """Lock ``target`` and yield its staging directory, with the pieces that an interrupted build of the same recipe finished.

    Pieces of another recipe are thrown away. A failure of the disk inside the block
    becomes a ``StorageError``; the staging directory then stays for the next try.

    Raises:
        LockedError: another process is building this artefact.
        StorageError: no space, read-only, no permission.
    """
    staging = target.with_name(f".{target.name}.partial")
    with _disk_errors(target), locked(target):
        wanted = json.dumps(dataclasses.asdict(recipe), indent=1, sort_keys=True)
        if not (staging / RECIPE).is_file() or (staging / RECIPE).read_text() != wanted:
            discard(staging)
            staging.mkdir()
            write_durably(staging / RECIPE, wanted.encode())
        yield staging


def commit(staging: Path, target: Path, recipe: Recipe, fingerprint: str, counts: Mapping[str, int]) -> Manifest:
    """Make the files in ``staging`` the artefact ``target``: flush them, write the manifest, rename. Replaces what was there."""
    (staging / RECIPE).unlink(missing_ok=True)
    files = {}
    for file in sorted(file for file in staging.rglob("*") if file.is_file() and file.name != MANIFEST):
        sync(file)
        files[str(file.relative_to(staging))] = FileRecord(file.stat().st_size, file_sha256(file))
    manifest = Manifest(
        recipe=recipe,
        fingerprint=fingerprint,
        counts=counts,
        packages=_package_versions(),
        files=files,
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )
    write_durably(staging / MANIFEST, json.dumps(dataclasses.asdict(manifest), indent=1).encode())
    old = target.with_name(f".{target.name}.old")
    discard(old)
    if target.exists():
        target.rename(old)
    staging.rename(target)
    sync(target.parent)
    discard(old)
    return manifest


def discard(path: Path) -> None:
    """Delete a directory or file, if it is there.

    A directory is first renamed to a hidden name: a kill in the middle never leaves half of an artefact under its own name.
    """
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    doomed = path if path.name.startswith(".") else path.with_name(f".{path.name}.old")
    if doomed != path:
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
    shutil.rmtree(doomed)


@contextlib.contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock of ``target``, which need not exist; the kernel's lock, so that it dies with the process.

    Raises:
        LockedError: another process, or another thread of this one, holds it.
        StorageError: its file cannot be made.
    """
    with _disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        file = target.with_name(f".{target.name}.lock").open("a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise LockedError(f"{target} is being built by {file.read() or 'another process'}: wait for it or end it") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}, started {time.strftime('%Y-%m-%d %H:%M:%S')} as '{_command()}'")
        file.flush()
        yield


@contextlib.contextmanager
def _disk_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot write {target}: {error.strerror or error}"
            f"{f' ({error.filename})' if error.filename else ''}; what is finished is kept: mend it and run the same command again"
        ) from error


def _command() -> str:
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])


def _package_versions() -> dict[str, str]:
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in _REPORTED_PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _manifest_from_json(data: Mapping[str, Any]) -> Manifest:
    return Manifest(
        recipe=Recipe(**data["recipe"]),
        fingerprint=str(data["fingerprint"]),
        counts=dict(data["counts"]),
        packages=dict(data["packages"]),
        files={name: FileRecord(**record) for name, record in data["files"].items()},
        created=str(data["created"]),
    )
