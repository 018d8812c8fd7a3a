"""Data sets of Hugging Face: the files of a split, by the configurations in the README or by the files' names, also in a local folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from wikidx.base.artifacts.home import downloads_path
from wikidx.base.errors import DownloadError, InputError, require_packages

T = TypeVar("T")

PREFIX = "hf://"

_SUFFIXES = ("parquet", "jsonl", "json", "csv", "tsv", "arrow", "jsonl.gz", "json.gz", "csv.gz", "tsv.gz", "jsonl.zst")
_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def fetch(source: str) -> Path:
    """Download the data files of ``hf://OWNER/NAME`` into the data home, and return their folder; what is there is not fetched again.

    Raises:
        InputError: the source has another form.
        MissingExtraError: huggingface_hub is not installed.
        DownloadError: the files cannot be downloaded.
    """
    name = source.removeprefix(PREFIX)
    if not _NAME.fullmatch(name):
        raise InputError(f"{source} is no data set of Hugging Face: write hf://OWNER/NAME")
    require_packages("a data set of Hugging Face", "dense", "huggingface_hub")
    import huggingface_hub

    folder = downloads_path("hf") / name.replace("/", "--")
    patterns = ["README.md", *(f"*.{suffix}" for suffix in _SUFFIXES)]
    try:
        huggingface_hub.snapshot_download(name, repo_type="dataset", local_dir=folder, allow_patterns=patterns)
    except (OSError, ValueError) as error:  # huggingface_hub's errors are one of these
        raise DownloadError(f"{source} cannot be downloaded: {' '.join(str(error).split()):.300}") from error
    return folder


def split_files(folder: Path, config: str | None, split: str | None) -> list[Path]:
    """Return the sorted files of a split of a data set in a folder.

    Args:
        folder: the folder, with the README that has its configurations, or with files such as ``CONFIG/SPLIT-00000-of-00001.parquet``.
        config: name of the configuration; None: the only one, or "default".
        split: name of the split; None: the only one.

    Raises:
        InputError: there is no such configuration or split, or several, of which none is named.
    """
    readme = folder / "README.md"
    configs = _configs(readme) if readme.is_file() else {}
    if configs:
        chosen = _choose(configs, config, "config", str(folder), default="default")
        return _existing(folder, _choose(chosen, split, "split-name", str(folder)))
    parts = [part for part in (config, split) if part is not None]
    files = [path for suffix in _SUFFIXES for path in folder.rglob(f"*.{suffix}") if not path.relative_to(folder).parts[0].startswith(".")]
    found = [path for path in files if all(part in _words(path.relative_to(folder)) for part in parts)]
    if not found:
        named = f" of {' and '.join(parts)}" if parts else ""
        raise InputError(f"{folder} has no files{named}: it has {', '.join(str(path.relative_to(folder)) for path in files):.200}")
    return sorted(found)


def _words(path: Path) -> Iterator[str]:
    """Yield the folders and the beginning of the name of a path, each as it is and before a ``-`` or ``.``."""
    for part in path.parts:
        yield from (part, re.split(r"[-.]", part)[0], re.split(r"-\d|\.", part)[0])


def _configs(readme: Path) -> dict[str, dict[str, Sequence[str]]]:
    """Return configuration -> split -> patterns of files, as the README's metadata have them."""
    require_packages("the README of a data set", "dense", "huggingface_hub")
    from huggingface_hub.repocard import metadata_load

    try:
        entries = (metadata_load(readme) or {}).get("configs") or []
        return {str(entry["config_name"]): _splits(entry["data_files"]) for entry in entries if entry.get("data_files")}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{readme} has metadata of another form ({error!r:.100}): name the files themselves") from error


def _splits(data_files: Any) -> dict[str, Sequence[str]]:  # noqa: ANN401 - YAML
    if isinstance(data_files, str) or all(isinstance(pattern, str) for pattern in data_files):
        return {"train": [data_files] if isinstance(data_files, str) else data_files}
    paths = {str(entry["split"]): entry["path"] for entry in data_files}
    return {split: [path] if isinstance(path, str) else path for split, path in paths.items()}


def _choose(known: Mapping[str, T], name: str | None, option: str, where: str, default: str | None = None) -> T:
    chosen = name if name is not None else next(iter(known)) if len(known) == 1 else default
    if chosen is not None and chosen in known:
        return known[chosen]
    raise InputError(f"{where} has {', '.join(known):.200}: name one of them with --{option}" + (f", not {name!r}" if name else ""))


def _existing(folder: Path, patterns: Sequence[str]) -> list[Path]:
    found = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.resolve().is_relative_to(folder.resolve())})
    if not found:
        raise InputError(f"{folder} has no file {', '.join(patterns):.200}, which its README names: download it again")
    return found
