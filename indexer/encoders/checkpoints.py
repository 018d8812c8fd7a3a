"""Files of a checkpoint: in a directory, in a package, in Hugging Face's cache, or downloaded from its hub on first use."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wikidx.corpora.artifacts.building import locked
from wikidx.corpora.artifacts.durable import file_sha256, json_value, write_durably
from wikidx.corpora.artifacts.home import home
from wikidx.corpora.errors import ArtifactDamaged, DownloadError, InputError, MissingExtraError
from wikidx.corpora.fetching.download import mirrored
from wikidx.indexer.machine.failures import first_line

CONFIG = "config.json"
TOKENIZER = ("tokenizer.json", "vocab.txt")
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)  # in transformers' order of preference
PROJECTION_CONFIG = "2_Dense/config.json"
PROJECTION = ("2_Dense/model.safetensors", "2_Dense/pytorch_model.bin")

_HUB = "https://huggingface.co"
_SETTLED_S = 2.0  # a file changed more recently may change again with the same time stamp

Wanted = tuple[tuple[str, ...], ...]
"""The files that a checkpoint must have: of each group one, the first that is there."""


@dataclass(frozen=True, slots=True)
class HubCheckpoint:
    """A repository of Hugging Face's hub.

    Attributes:
        repository: owner and name.
        revision: a commit; a branch if no commit is known to have produced the authors' results.
    """

    repository: str
    revision: str

    @property
    def folder(self) -> Path:
        """Folder of the downloaded files; a user can also put them there by hand."""
        return home() / "checkpoints" / self.repository / self.revision

    @property
    def address(self) -> str:
        """Web address of its files."""
        return f"{_HUB}/{self.repository}/tree/{self.revision}"


@dataclass(frozen=True, slots=True)
class PackagedCheckpoint:
    """A checkpoint in an installed Python package: the package, and the directory in it."""

    package: str
    directory: str


Checkpoint = HubCheckpoint | PackagedCheckpoint | Path


def wanted_files(*, has_projection: bool) -> Wanted:
    """Return the files of a checkpoint that an encoder needs."""
    groups: Wanted = ((CONFIG,), TOKENIZER, WEIGHTS)
    return (*groups, (PROJECTION_CONFIG,), PROJECTION) if has_projection else groups


def located(checkpoint: Checkpoint, encoder: str, wanted: Wanted) -> Path:
    """Return the directory with a checkpoint's files, downloaded if they are not on this machine.

    Args:
        checkpoint: the checkpoint.
        encoder: the encoder's name, for messages.
        wanted: required files.

    Raises:
        InputError: a directory named by the user lacks some of them.
        MissingExtraError: the package is not installed.
        DownloadError: they are missing and cannot be downloaded.
        LockedError: another process is downloading them.
    """
    if isinstance(checkpoint, PackagedCheckpoint):
        package = importlib.util.find_spec(checkpoint.package)
        if package is None or package.origin is None:
            raise MissingExtraError(f"the encoder '{encoder}'", "dense")
        return Path(package.origin).parent / checkpoint.directory
    if isinstance(checkpoint, Path):
        if not checkpoint.is_dir():
            raise InputError(f"there is no directory {checkpoint} with a checkpoint for '{encoder}'")
        if missing := _missing(checkpoint, wanted, encoder):
            raise InputError(f"{checkpoint} is no checkpoint for '{encoder}': there is no {_listed(missing)} in it")
        return checkpoint
    if not _missing(checkpoint.folder, wanted, encoder):
        return checkpoint.folder
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingExtraError(f"the checkpoint of '{encoder}'", "dense") from error
    config = huggingface_hub.try_to_load_from_cache(checkpoint.repository, CONFIG, revision=checkpoint.revision)
    if isinstance(config, str) and not _missing(Path(config).parent, wanted, encoder):
        return Path(config).parent
    return _downloaded(checkpoint, encoder, wanted)


def present(folder: Path, group: tuple[str, ...]) -> Path | None:
    """Return the first file of a group that a directory has."""
    return next((folder / name for name in group if (folder / name).is_file()), None)


def read_object(path: Path, name: str) -> Mapping[str, Any]:
    """Return the object in a JSON file; ``name`` is the encoder's, for the message.

    Raises:
        ArtifactDamaged: it cannot be read, or is not an object.
    """
    try:
        values = json_value(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ArtifactDamaged(f"{path} cannot be read ({first_line(error)}): get the checkpoint of '{name}' again") from error
    if not isinstance(values, dict):
        raise ArtifactDamaged(f"{path} cannot be read (it is no JSON object): get the checkpoint of '{name}' again")
    return values


def shards(index: Path, name: str) -> list[Path]:
    """Return the weight files that an index of shards lists; they are in its folder.

    Raises:
        ArtifactDamaged: the list is empty or invalid.
    """
    listed = read_object(index, name).get("weight_map")
    files = set(listed.values()) if isinstance(listed, dict) and all(isinstance(file, str) for file in listed.values()) else set()
    suffix = ".safetensors" if index.name == WEIGHTS[1] else ".bin"
    if not files or any(Path(file).name != file or not file.endswith(suffix) for file in files):
        raise ArtifactDamaged(f"{index} cannot be read (it lists no files with weights beside it): get the checkpoint of '{name}' again")
    return [index.parent / file for file in sorted(files)]


def checksums(folder: Path, wanted: Wanted, name: str) -> dict[str, str]:
    """Return the sha256 of each file that affects the vectors, shards of weights included, by its name in the directory."""
    files = [file for group in wanted if (file := present(folder, group))]
    files += [shard for file in files if file.name.endswith(".index.json") for shard in shards(file, name)]
    return {file.relative_to(folder).as_posix(): checksum(file) for file in files}


def checksum(file: Path) -> str:
    """Return the sha256 of a file, cached in the data home until its size or time changes: some files have gigabytes.

    Raises:
        ArtifactDamaged: it cannot be read.
    """
    record = home() / "checkpoints" / ".checksums" / f"{hashlib.sha256(os.fsencode(file.absolute())).hexdigest()[:32]}.json"
    try:
        status = file.stat()
        state = [str(file.absolute()), status.st_size, status.st_mtime_ns, status.st_ino]
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            remembered = json_value(record.read_bytes())
            if remembered["file"] == state:
                return str(remembered["sha256"])
        sha256 = file_sha256(file)
    except OSError as error:
        raise ArtifactDamaged(f"{file} cannot be read ({first_line(error)}): get the checkpoint again") from error
    if time.time() - status.st_mtime > _SETTLED_S:
        with contextlib.suppress(OSError):  # the home is not writable
            record.parent.mkdir(parents=True, exist_ok=True)
            write_durably(record, json.dumps({"file": state, "sha256": sha256}).encode())
    return sha256


def _missing(folder: Path, wanted: Wanted, name: str) -> Wanted:
    """Return the groups of which a directory has no file, and the missing shards of an index in it."""
    files = [present(folder, group) for group in wanted]
    listed = [shard for file in files if file is not None and file.name.endswith(".index.json") for shard in shards(file, name)]
    absent = [group for group, file in zip(wanted, files, strict=True) if file is None]
    return (*absent, *((shard.name,) for shard in listed if not shard.is_file()))


def _listed(groups: Wanted) -> str:
    """Return file names for a message; of weights only the single-file ones."""
    single = [[name for name in group if not name.endswith(".index.json")] for group in groups]
    return ", ".join(names[0] + (f" (or {names[1]})" if len(names) > 1 else "") for names in single)


def _downloaded(checkpoint: HubCheckpoint, encoder: str, wanted: Wanted) -> Path:
    folder, mirror = checkpoint.folder, mirrored(_HUB) if os.environ.get("IDX_MIRROR") else None
    with locked(folder):
        try:
            for _ in range(2):  # shards are known only after their index is downloaded
                for group in _missing(folder, wanted, encoder):
                    _download_one_of(checkpoint, group, folder, mirror)
        except ArtifactDamaged:
            raise
        except Exception as error:  # exceptions of the library, its HTTP library, and the disk
            reason = first_line(error.__cause__ or error)
            raise DownloadError(
                f"the checkpoint of '{encoder}' is not on this machine and cannot be downloaded ({reason}): put {_listed(wanted)} "
                f"of {checkpoint.address} into {folder}"
            ) from error
    return folder


def _download_one_of(checkpoint: HubCheckpoint, names: tuple[str, ...], folder: Path, mirror: str | None) -> None:
    """Download the first of several files that the repository has; authors upload different ones."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    for name in names:
        try:
            hf_hub_download(checkpoint.repository, name, revision=checkpoint.revision, local_dir=folder, endpoint=mirror)
        except EntryNotFoundError as error:
            if name == names[-1] or isinstance(error, LocalEntryNotFoundError):  # the latter: the hub cannot be reached
                raise
        else:
            return
