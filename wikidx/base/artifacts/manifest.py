"""The ``manifest.json`` of an artifact: its content, its JSON form, and checks of the artifact's files against it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from wikidx.base.errors import ArtifactCorrupt, ArtifactMismatch, ArtifactMissing
from wikidx.base.progress import Progress, silent

from .durable import file_sha256, parse_json

MANIFEST = "manifest.json"
VERSION = 1

_CHECKSUM = "sha256"
_MOST_KEPT = 256  # manifests

Parameters = Mapping[str, str | int | float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """All inputs and settings that determine a build; equal recipes produce the same artifact."""

    kind: str
    format_version: int
    parameters: Parameters
    inputs: Mapping[str, str]  # name -> sha256 of a file, fingerprint of a store, or identity of vectors

    def to_json(self) -> str:
        """Return the recipe as text; equal recipes give equal text."""
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True)


@dataclass(frozen=True, slots=True)
class FileRecord:
    """Size and checksum of one file of an artifact."""

    n_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Consecutive rows of an artifact, whose files are in a folder; "" is the artifact's own."""

    folder: str = ""
    n_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Description of a finished artifact.

    Attributes:
        recipe: inputs and settings of the build.
        sources: path or address of each input at build time; for passages, the name of their corpus.
        fingerprint: fingerprint of the passages in the artifact, or of the passages from which it was built.
        counts: "rows" and other counts, by name.
        packages: versions of Python and of packages at build time, by name.
        files: size and checksum of each file, by its path in the artifact.
        created: time of creation, UTC, ISO 8601.
        version: version of the manifest's own form.
        parts: the parts in the order of their rows; so far every artifact has one.
    """

    recipe: Recipe
    sources: Mapping[str, str]
    fingerprint: str
    counts: Mapping[str, int]
    packages: Mapping[str, str]
    files: Mapping[str, FileRecord]
    created: str
    version: int = VERSION
    parts: tuple[Part, ...] = (Part(),)

    def to_json(self) -> bytes:
        """Return the content of ``manifest.json``, which includes a sha256 of all other fields."""
        data = dataclasses.asdict(self)
        return json.dumps({**data, _CHECKSUM: _checksum(data)}, indent=1).encode()

    def count(self, name: str) -> int:
        """Return one of the counts.

        Raises:
            ArtifactCorrupt: the manifest lacks this count.
        """
        if name not in self.counts:
            raise ArtifactCorrupt(f"the manifest of a '{self.recipe.kind}' has no count of '{name}': build it again with --force")
        return self.counts[name]

    @property
    def n_bytes(self) -> int:
        """Total size of the files in bytes."""
        return sum(record.n_bytes for record in self.files.values())


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python (under "python") and of the named packages that are installed."""
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def is_finished(path: Path) -> bool:
    """Return whether ``path`` has a manifest; neither the manifest nor other files are checked."""
    return (path / MANIFEST).is_file()


def read_manifest(path: Path, kind: str, format_version: int, rebuild: str) -> Manifest:
    """Read the manifest of the artifact at ``path``; check its kind, its format version, and the size of each file.

    Args:
        path: the artifact's directory.
        kind: the required kind.
        format_version: the required format version.
        rebuild: the command that builds the artifact, for error messages.

    Raises:
        ArtifactMissing: ``path`` has no finished artifact.
        ArtifactMismatch: the artifact has another kind or format version.
        ArtifactCorrupt: the manifest is invalid, or a file is missing or has the wrong size.
    """
    try:
        manifest = load_manifest(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        reason = f"{path} has no file {MANIFEST}" if path.is_dir() else f"nothing is built at {path}"
        raise ArtifactMissing(f"{reason}: run '{rebuild}'") from None
    except ValueError as error:
        raise ArtifactCorrupt(f"{path / MANIFEST} cannot be read ({error}): run '{rebuild} --force'") from error
    actual = (manifest.recipe.kind, manifest.recipe.format_version)
    if actual != (kind, format_version):
        raise ArtifactMismatch(
            f"{path} holds '{actual[0]}' in format {actual[1]}, this version of idx reads '{kind}' in format {format_version}: "
            f"run '{rebuild} --force'"
        )
    missing = missing_file(path, manifest)
    if missing:
        raise ArtifactCorrupt(f"{missing}: run '{rebuild} --force'")
    return manifest


def load_manifest(path: Path) -> Manifest:
    """Return the manifest of the artifact at ``path`` without checks. It is read once, as long as the file is the same.

    Raises:
        OSError: the file cannot be read.
        ValueError: see ``manifest_from_json``.
    """
    state = (path / MANIFEST).stat()
    return _load(path / MANIFEST, (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns))


@functools.lru_cache(maxsize=_MOST_KEPT)
def _load(file: Path, state: tuple[int, ...]) -> Manifest:
    return manifest_from_json(file.read_bytes())


def missing_file(path: Path, manifest: Manifest) -> str | None:
    """Return a message about the first file that is missing or has the wrong size; None if all files are present with the right size."""
    for name, record in manifest.files.items():
        n_bytes = (path / name).stat().st_size if (path / name).is_file() else None
        if n_bytes != record.n_bytes:
            state = "is missing" if n_bytes is None else f"has {n_bytes:,} bytes instead of {record.n_bytes:,}"
            return f"{path / name} {state}"
    return None


def check_fingerprint(path: Path, manifest: Manifest, fingerprint: str, rebuild: str) -> None:
    """Raise ``ArtifactMismatch`` unless the artifact was built from the store with this fingerprint."""
    if manifest.fingerprint != fingerprint:
        raise ArtifactMismatch(
            f"{path} was built over other passages ({manifest.fingerprint[:12]}…) than the store now holds ({fingerprint[:12]}…): "
            f"run '{rebuild} --force'"
        )


def verify_files(path: Path, manifest: Manifest, progress: Progress = silent) -> list[str]:
    """Read every file of an artifact, and return one message for each file whose checksum differs from the manifest's.

    Args:
        path: the artifact's directory.
        manifest: the artifact's manifest.
        progress: called with (bytes read, total bytes).
    """
    done, problems = 0, list[str]()
    for name, record in manifest.files.items():
        before = done
        sha256 = file_sha256(path / name, lambda n_bytes: progress(before + n_bytes, manifest.n_bytes))  # noqa: B023 - used immediately
        if sha256 != record.sha256:
            problems.append(f"{path / name} is corrupt: sha256 {sha256[:12]}… instead of {record.sha256[:12]}…")
        done += record.n_bytes
    return problems


def manifest_from_json(content: bytes) -> Manifest:
    """Parse a manifest written by ``Manifest.to_json``.

    Raises:
        ValueError: ``content`` is not a manifest, or its checksum is wrong.
    """
    data = parse_json(content)
    try:
        if data.pop(_CHECKSUM, None) != _checksum(data):
            raise ValueError("it is corrupt: its checksum is another one")
        if (data.get("version", VERSION), len(data.get("parts", [""]))) != (VERSION, 1):
            raise ValueError("another version of idx wrote it")
        files = {name: FileRecord(**record) for name, record in data.pop("files").items()}
        parts = tuple(Part(**part) for part in data.pop("parts", [{}]))
        return Manifest(recipe=Recipe(**data.pop("recipe")), files=files, parts=parts, **data)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a manifest: {error}") from error


def _checksum(data: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
