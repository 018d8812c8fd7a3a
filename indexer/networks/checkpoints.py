"""Files of a checkpoint: in a directory, in a package, in Hugging Face's cache, or downloaded from its hub on first use."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wikidx.base.artifacts import durable
from wikidx.base.artifacts.building import lock
from wikidx.base.artifacts.durable import file_sha256, parse_json, write_durably
from wikidx.base.artifacts.home import home
from wikidx.base.errors import ArtifactCorrupt, DownloadError, InputError, MissingExtraError, require_packages
from wikidx.base.machine.failures import first_line
from wikidx.base.net.download import apply_mirror
from wikidx.base.validation import options
from wikidx.corpora.reading.compression import refuse_pointer

CONFIG = "config.json"
TOKENIZER = ("tokenizer.json", "vocab.txt")
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)  # in transformers' order of preference
DENSE_WEIGHTS = ("model.safetensors", "pytorch_model.bin")

TOKENIZERS = (*TOKENIZER, "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.json")  # forms that transformers reads

_HUB = "https://huggingface.co"
_SETTLED_S = 2.0  # a file changed more recently may change again with the same time stamp

RequiredFiles = tuple[tuple[str, ...], ...]
"""Groups of file names. A checkpoint needs one file of each group; the first that exists is used."""


@dataclass(frozen=True, slots=True)
class HubCheckpoint:
    """A repository of Hugging Face's hub.

    Attributes:
        repository: owner and name.
        revision: a commit, or a branch if the commit of the authors' results is unknown.
    """

    repository: str
    revision: str

    @property
    def folder(self) -> Path:
        """Folder of the downloaded files; a user can also put them there by hand."""
        return home() / "checkpoints" / self.repository / self.revision

    def __str__(self) -> str:
        return f"{self.repository}@{self.revision}"


@dataclass(frozen=True, slots=True)
class PackagedCheckpoint:
    """A checkpoint in an installed Python package: the package, and the directory in it."""

    package: str
    directory: str


@options
class ServedModel:
    """A model at an endpoint; see ``served``.

    Attributes:
        model: the endpoint's name of the model.
        url: address of the endpoint, which is no part of an encoder's recipe.
        names_sides: whether requests say if texts are queries or passages.
    """

    model: str
    url: str
    names_sides: bool = False

    def __str__(self) -> str:
        return f"openai:{self.model}"


@dataclass(frozen=True, slots=True)
class PluggedModel:
    """A model by the code of a plug-in, named by ``FILE.py:NAME``; see ``wikidx.base.plugins``."""

    reference: str

    def __str__(self) -> str:
        return self.reference


Checkpoint = HubCheckpoint | PackagedCheckpoint | Path | ServedModel | PluggedModel | None  # None: vectors without an encoder


def parse_checkpoint(source: str) -> Path | HubCheckpoint | ServedModel:
    """Return the checkpoint of a text: a folder, a repository of Hugging Face's hub, or a model at an endpoint.

    Args:
        source: ``openai:MODEL@URL``, a folder, or ``owner/name`` or ``owner/name@revision`` if there is no such folder.

    Raises:
        InputError: the text is none of these.
    """
    name, _, place = source.rpartition("@") if source.startswith("openai:") else source.partition("@")
    if source.startswith("openai:"):
        if name in ("", "openai:") or not place.startswith(("http://", "https://")):
            raise InputError(
                f"{source!r} names no model at an endpoint: write openai:MODEL@URL, such as openai:bge-m3@http://127.0.0.1:8080/v1"
            )
        return ServedModel(model=name.removeprefix("openai:"), url=place)
    folder = Path(os.path.expanduser(source))
    if folder.is_dir() or folder.is_absolute():
        return folder.absolute()
    if not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name):
        raise InputError(f"there is no folder {source} with a checkpoint, and no repository of Hugging Face's hub is named so")
    return HubCheckpoint(name, place or "main")


def required_files(dense: Sequence[str] = (), *, by_transformers: bool = False) -> RequiredFiles:
    """Return the files of a checkpoint that an encoder needs; see ``EncoderSpec`` for the arguments."""
    tokenizer = (TOKENIZERS, ("tokenizer_config.json",)) if by_transformers else (TOKENIZER,)
    return ((CONFIG,), *tokenizer, WEIGHTS, *dense_files(dense))


def dense_files(folders: Sequence[str]) -> RequiredFiles:
    """Return the files of the layers in some folders of a checkpoint."""
    return tuple(group for folder in folders for group in ((f"{folder}/{CONFIG}",), tuple(f"{folder}/{name}" for name in DENSE_WEIGHTS)))


def locate(checkpoint: Checkpoint, encoder: str, required: RequiredFiles) -> Path:
    """Return the directory with a checkpoint's files, downloaded if they are not on this machine.

    Args:
        checkpoint: the checkpoint.
        encoder: the encoder's name, for messages.
        required: required files.

    Raises:
        InputError: a directory named by the user lacks required files, or has pointers of git LFS in their place, or the checkpoint is a
            served model, or none.
        MissingExtraError: the package is not installed.
        DownloadError: required files are missing and cannot be downloaded.
        LockedError: another process is downloading the files.
    """
    if checkpoint is None or isinstance(checkpoint, ServedModel | PluggedModel):
        none = f"vectors of '{encoder}' have no encoder: 'idx import embeddings' imports them, and queries are vectors"
        raise InputError(f"'{encoder}' is computed by {checkpoint}: it has no checkpoint here" if checkpoint else none)
    if isinstance(checkpoint, PackagedCheckpoint):
        package = importlib.util.find_spec(checkpoint.package)
        if package is None or package.origin is None:
            raise MissingExtraError(f"the encoder '{encoder}'", "dense")
        return Path(package.origin).parent / checkpoint.directory
    if isinstance(checkpoint, Path):
        if not checkpoint.is_dir():
            raise InputError(f"there is no directory {checkpoint} with a checkpoint for '{encoder}'")
        if missing := _missing_files(checkpoint, required, encoder):
            raise InputError(f"{checkpoint} is no checkpoint for '{encoder}': there is no {_format_names(missing)} in it")
        return checkpoint
    if not _missing_files(checkpoint.folder, required, encoder):
        return checkpoint.folder
    require_packages(f"the checkpoint of '{encoder}'", "dense", "huggingface_hub")
    import huggingface_hub

    config = huggingface_hub.try_to_load_from_cache(checkpoint.repository, CONFIG, revision=checkpoint.revision)
    if isinstance(config, str) and not _missing_files(Path(config).parent, required, encoder):
        return Path(config).parent
    return _download(checkpoint, encoder, required)


def find_optional(checkpoint: Checkpoint, name: str, encoder: str) -> Path | None:
    """Return a file of a checkpoint, downloaded if it is not on this machine; None if the checkpoint has no such file.

    Raises:
        MissingExtraError, DownloadError: see ``locate``.
    """
    try:
        return find_file(locate(checkpoint, encoder, ((name,),) if isinstance(checkpoint, HubCheckpoint) else ()), (name,))
    except DownloadError as error:
        if _is_absent(error.__cause__):
            return None
        raise


def find_file(folder: Path, group: tuple[str, ...]) -> Path | None:
    """Return the first file of a group that exists in a directory."""
    return next((folder / name for name in group if (folder / name).is_file()), None)


def read_json_object(path: Path, name: str) -> Mapping[str, Any]:
    """Return the object in a JSON file; ``name`` is the encoder's name, for the message.

    Raises:
        ArtifactCorrupt: the file cannot be read, or is no JSON object.
    """
    return durable.read_json_object(path, f"get the checkpoint of '{name}' again")


@contextlib.contextmanager
def read_errors(path: Path, name: str) -> Iterator[None]:
    """Translate exceptions for an unreadable file into ``ArtifactCorrupt``; libraries raise any class for one."""
    try:
        yield
    except Exception as error:
        reason = first_line(error)
        if path.suffix == ".bin" and not isinstance(error, OSError | UnicodeError):  # torch advises to allow running code in the file
            reason = "it is corrupt, or holds more than tensors; nothing of it was run"
        raise ArtifactCorrupt.of(error, path, f"{path} cannot be read ({reason}): get the checkpoint of '{name}' again") from error


def list_shards(index: Path, name: str) -> list[Path]:
    """Return the weight files that a shard index lists. All must be in the folder of the shard index.

    Raises:
        ArtifactCorrupt: the list is empty or invalid.
    """
    listed = read_json_object(index, name).get("weight_map")
    files = set(listed.values()) if isinstance(listed, dict) and all(isinstance(file, str) for file in listed.values()) else set()
    suffix = ".safetensors" if index.name == WEIGHTS[1] else ".bin"
    if not files or any(Path(file).name != file or not file.endswith(suffix) for file in files):
        raise ArtifactCorrupt(
            f"{index} cannot be read (it lists no files with weights in its folder): get the checkpoint of '{name}' again"
        )
    return [index.parent / file for file in sorted(files)]


def weights_bytes(folder: Path, name: str) -> int:
    """Return the size of a checkpoint's weights; raises ``ArtifactCorrupt`` as ``list_shards`` does."""
    path = find_file(folder, WEIGHTS) or folder / WEIGHTS[0]
    files = list_shards(path, name) if path.name.endswith(".index.json") else [path]
    return sum(file.stat().st_size for file in files)


def checksums(folder: Path, required: RequiredFiles, name: str, patterns: Sequence[str] = ()) -> dict[str, str]:
    """Return the sha256 of each file that affects the vectors, by its name in the directory: also of weight shards, and of patterns."""
    files = [*_find_files(folder, required, name), *(file for pattern in patterns for file in sorted(folder.glob(pattern)))]
    return {os.path.relpath(file, folder): checksum(file) for file in files}


def _find_files(folder: Path, required: RequiredFiles, name: str) -> list[Path]:
    """Return the file of each group that has one in a directory, and the shards that a shard index lists, which may be missing."""
    files = [file for group in required if (file := find_file(folder, group))]
    return files + [shard for file in files if file.name.endswith(".index.json") for shard in list_shards(file, name)]


def checksum(file: Path) -> str:
    """Return the sha256 of a file. The data home caches it until the file's path, size, time or inode changes.

    Raises:
        ArtifactCorrupt: the file cannot be read.
    """
    record = home() / "checkpoints" / ".checksums" / f"{hashlib.sha256(os.fsencode(file.absolute())).hexdigest()[:32]}.json"
    try:
        status = file.stat()
        state = [str(file.absolute()), status.st_size, status.st_mtime_ns, status.st_ino]
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            remembered = parse_json(record.read_bytes())
            if remembered["file"] == state:
                return str(remembered["sha256"])
        sha256 = file_sha256(file)
    except OSError as error:
        raise ArtifactCorrupt.of(error, file, f"{file} cannot be read ({first_line(error)}): get the checkpoint again") from error
    if time.time() - status.st_mtime > _SETTLED_S:
        with contextlib.suppress(OSError):  # the data home is not writable
            record.parent.mkdir(parents=True, exist_ok=True)
            write_durably(record, json.dumps({"file": state, "sha256": sha256}).encode())
    return sha256


def _missing_files(folder: Path, required: RequiredFiles, name: str) -> RequiredFiles:
    """Return the groups without a file in a directory, and the missing shards of its shard index; refuse pointers of git LFS."""
    refuse_pointer(folder)
    absent = [group for group in required if find_file(folder, group) is None]
    return (*absent, *((file.name,) for file in _find_files(folder, required, name) if not file.is_file()))


def _format_names(groups: RequiredFiles) -> str:
    """Return file names for a message, without shard indexes."""
    single = [[name for name in group if not name.endswith(".index.json")] for group in groups]
    return ", ".join(names[0] + (f" (or {names[1]})" if len(names) > 1 else "") for names in single)


def _download(checkpoint: HubCheckpoint, encoder: str, required: RequiredFiles) -> Path:
    folder, mirror = checkpoint.folder, apply_mirror(_HUB) if os.environ.get("IDX_MIRROR") else None
    with lock(folder):
        try:
            for _ in range(2):  # shards are known only after their index is downloaded
                for group in _missing_files(folder, required, encoder):
                    _download_first(checkpoint, group, folder, mirror)
        except ArtifactCorrupt:
            raise
        except Exception as error:  # exceptions of the library, its HTTP library, and the disk
            reason = first_line(error.__cause__ or error)
            raise DownloadError(
                f"the checkpoint of '{encoder}' is not on this machine and cannot be downloaded ({reason}): put {_format_names(required)} "
                f"of {_HUB}/{checkpoint.repository}/tree/{checkpoint.revision} into {folder}"
            ) from error
    return folder


def _download_first(checkpoint: HubCheckpoint, names: tuple[str, ...], folder: Path, mirror: str | None) -> None:
    """Download the first of several alternative files that the repository has. Authors upload different formats."""
    from huggingface_hub import hf_hub_download

    for name in names:
        try:
            hf_hub_download(checkpoint.repository, name, revision=checkpoint.revision, local_dir=folder, endpoint=mirror)
            return
        except Exception as error:
            if name == names[-1] or not _is_absent(error):
                raise


def _is_absent(error: BaseException | None) -> bool:
    """Return whether an exception says that the hub does not have a file; that it cannot be reached is a class of these exceptions, too."""
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    return isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError)
