"""Addresses of published vectors of the known corpora, by encoder: the table ``addresses.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from wikidx.base.artifacts.home import downloads_path
from wikidx.base.net.download import SourceFile
from wikidx.base.progress import Progress, silent
from wikidx.corpora.sources import download_all, downloaded_bytes

from .formats import Embeddings


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedVectors:
    """Published vectors and their format.

    Attributes:
        files: files to download, in reading order.
        format: one of ``formats.FORMATS``.
        download_bytes: size of all files; computed from the size of the vectors if it is not published.
        stored_bytes: bytes of one component.
        n_missing: number of passages without a vector.
    """

    files: tuple[SourceFile, ...]
    format: str
    download_bytes: int
    stored_bytes: int
    n_missing: int = 0

    def missing_bytes(self, corpus: str, encoder: str) -> int:
        """Return the approximate number of bytes still to be downloaded."""
        folder = downloads_path(corpus) / encoder
        is_whole = all((folder / file.name).is_file() for file in self.files)
        return 0 if is_whole else max(0, self.download_bytes - sum(downloaded_bytes(file, folder) for file in self.files))


def _read_table() -> dict[tuple[str, str], PublishedVectors]:
    """Return the published vectors by corpus and encoder."""
    table = tomllib.loads(resources.files(__package__).joinpath("addresses.toml").read_text(encoding="utf-8"))
    return {(corpus, encoder): _from_table(**entry) for corpus, entries in table.items() for encoder, entry in entries.items()}


def _from_table(folder: str, files: list[dict[str, Any]], **others: Any) -> PublishedVectors:  # noqa: ANN401 - see ``PublishedVectors``
    return PublishedVectors(files=tuple(SourceFile(url=f"{folder}/{file['name']}", **file) for file in files), **others)


PUBLISHED: Mapping[tuple[str, str], PublishedVectors] = _read_table()


def fetch(corpus: str, encoder: str, published: PublishedVectors, progress: Progress = silent) -> Embeddings:
    """Return the files of published vectors, downloading missing ones.

    Args:
        corpus: the corpus's name, without the limit of a subset.
        encoder: the encoder's name.
        published: published vectors of the corpus and the encoder.
        progress: called with (bytes downloaded, all bytes) for each file.

    Raises:
        DownloadError, StorageError, LockedError: a file cannot be downloaded, or differs from the published one.
    """
    files = download_all(published.files, downloads_path(corpus) / encoder, progress)
    return Embeddings(
        f"what is published of '{encoder}'",
        published.format,
        files=tuple(file.path for file in files),
        origins=tuple(file.origin for file in files),
        sha256=tuple(file.sha256 for file in files),
    )
