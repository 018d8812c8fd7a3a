"""Where a checkpoint's files are: in a directory, in a package, in Hugging Face's cache, or downloaded from its hub when first used."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from corpora.download import download
from corpora.durable import file_sha256
from corpora.errors import DownloadError, InputError, MissingExtraError
from corpora.home import home
from corpora.passage import SourceFile
from corpora.progress import Progress, silent
from corpora.staging import locked

CONFIG = "config.json"
TOKENIZER = ("tokenizer.json", "vocab.txt")
WEIGHTS = ("model.safetensors", "pytorch_model.bin", "model.safetensors.index.json", "pytorch_model.bin.index.json")
PROJECTION_CONFIG = "2_Dense/config.json"
PROJECTION = ("2_Dense/model.safetensors", "2_Dense/pytorch_model.bin")

_HUB = "https://huggingface.co"
_PAUSE_S = 0.5  # between attempts to download; a machine without a network should learn of it soon

Wanted = tuple[tuple[str, ...], ...]
"""The files that a checkpoint must have: of each group one, the first that is there."""


@dataclass(frozen=True, slots=True)
class HubCheckpoint:
    """A repository of Hugging Face's hub.

    Attributes:
        repository: owner and name.
        revision: a commit; a branch where no commit is known to be what the authors' results were made with.
        subfolder: its name in a directory that holds the checkpoints of both sides of an encoder.
    """

    repository: str
    revision: str
    subfolder: str = ""

    @property
    def folder(self) -> Path:
        """Where it is downloaded to, and where a user can put its files."""
        return home() / "checkpoints" / self.repository / self.revision

    @property
    def address(self) -> str:
        """Where its files can be seen."""
        return f"{_HUB}/{self.repository}/tree/{self.revision}"


@dataclass(frozen=True, slots=True)
class PackagedCheckpoint:
    """A checkpoint in an installed Python package: the package, and the directory in it."""

    package: str
    directory: str


Checkpoint = HubCheckpoint | PackagedCheckpoint | Path


def wanted_files(*, has_projection: bool) -> Wanted:
    """Return the files that an encoder needs of a checkpoint."""
    groups: Wanted = ((CONFIG,), TOKENIZER, WEIGHTS)
    return (*groups, (PROJECTION_CONFIG,), PROJECTION) if has_projection else groups


def located(checkpoint: Checkpoint, encoder: str, wanted: Wanted, progress: Progress = silent) -> Path:
    """Return the directory with a checkpoint's files, downloaded if they are nowhere on this machine.

    Args:
        checkpoint: what is looked for.
        encoder: for whom, for the messages.
        wanted: the files it must have.
        progress: called with (bytes, all bytes) of the file that is being downloaded.

    Raises:
        InputError: a directory that the user named has not all of them.
        MissingExtraError: the package is not installed.
        DownloadError: they are not here and cannot be had.
        StorageError, LockedError: see ``corpora.download`` and ``corpora.staging``.
    """
    if isinstance(checkpoint, PackagedCheckpoint):
        package = importlib.util.find_spec(checkpoint.package)
        if package is None or package.origin is None:
            raise MissingExtraError(f"the encoder '{encoder}'", "dense")
        return Path(package.origin).parent / checkpoint.directory
    if isinstance(checkpoint, Path):
        if not checkpoint.is_dir():
            raise InputError(f"there is no directory {checkpoint} with a checkpoint for '{encoder}'")
        if missing := _missing(checkpoint, wanted):
            raise InputError(f"{checkpoint} is no checkpoint for '{encoder}': there is no {_listed(missing)} in it")
        return checkpoint
    for folder in (checkpoint.folder, _cached(checkpoint)):
        if folder is not None and not _missing(folder, wanted):
            return folder
    return _downloaded(checkpoint, encoder, wanted, progress)


def present(folder: Path, group: tuple[str, ...]) -> Path | None:
    """Return the first file of a group that a directory has."""
    return next((folder / name for name in group if (folder / name).is_file()), None)


def checksums(folder: Path, wanted: Wanted) -> dict[str, str]:
    """Return the sha256 of each wanted file, by its name in the directory."""
    files = [file for group in wanted if (file := present(folder, group))]
    return {file.relative_to(folder).as_posix(): file_sha256(file) for file in files}


def _missing(folder: Path, wanted: Wanted) -> Wanted:
    return tuple(group for group in wanted if present(folder, group) is None)


def _listed(groups: Wanted) -> str:
    """Return file names for a message; of the alternatives those that the hub offers."""
    return ", ".join(" (or ".join(group[:2]) + (")" if len(group) > 1 else "") for group in groups)


def _cached(checkpoint: HubCheckpoint) -> Path | None:
    """Return where Hugging Face's own libraries have put the checkpoint, if they have."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    config = try_to_load_from_cache(checkpoint.repository, CONFIG, revision=checkpoint.revision)
    return Path(config).parent if isinstance(config, str) else None


def _downloaded(checkpoint: HubCheckpoint, encoder: str, wanted: Wanted, progress: Progress) -> Path:
    folder = checkpoint.folder
    with locked(folder):
        try:
            for group in _missing(folder, wanted):
                _download_one_of(checkpoint, group[:2], folder, progress)
        except DownloadError as error:
            raise DownloadError(
                f"the checkpoint of '{encoder}' is not on this machine and cannot be downloaded ({error}): put {_listed(wanted)} "
                f"of {checkpoint.address} into {folder}"
            ) from error
    return folder


def _download_one_of(checkpoint: HubCheckpoint, names: tuple[str, ...], folder: Path, progress: Progress) -> None:
    """Download the first of some files that the repository has; which of them an author has uploaded differs."""
    for name in names:
        url = f"{_HUB}/{checkpoint.repository}/resolve/{checkpoint.revision}/{name}"
        try:
            # A file's folder is part of its name, so that its record lies beside it.
            download(SourceFile(name=Path(name).name, url=url), (folder / name).parent, progress=progress, pause_s=_PAUSE_S)
        except DownloadError:
            if name == names[-1]:
                raise
        else:
            return
