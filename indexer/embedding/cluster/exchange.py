"""Files that machines exchange through a folder behind a URL (object store, file server), by fsspec: there whole or not at all.

An object store shows an object when all of it has come; elsewhere a file is put under another name and moved. A request that is refused
for now (too many of them, a connection that breaks) is made again after a pause that doubles.
"""

from __future__ import annotations

import errno
import importlib
import logging
import posixpath
import random
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from wikidx.corpora.artifacts.durable import file_sha256, sync
from wikidx.corpora.errors import ArtifactDamaged, InputError, MissingExtraError, StorageError

Result = TypeVar("Result")

logger = logging.getLogger(__name__)

_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "r2"}
_ALONE = {"memory", "data", "http", "https"}  # not shared by machines, or cannot be written to
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FOREIGN = (  # what some clients raise that is no OSError: module and class
    ("aiohttp", "ClientError"),
    ("gcsfs.retry", "HttpError"),
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("azure.core.exceptions", "AzureError"),
)


class Exchange:
    """A folder behind a URL.

    Args:
        url: as fsspec has it: ``s3://bucket/folder``, ``gs://…``, ``file:///mnt/folder``.
        pauses_s: before each further try of a request that failed.

    Raises:
        InputError: fsspec knows no such URL, a package for it is missing, or machines cannot share it.
        MissingExtraError: fsspec is not installed.
    """

    def __init__(self, url: str, pauses_s: tuple[float, ...] = _PAUSES_S) -> None:
        try:
            fsspec = importlib.import_module("fsspec")
        except ImportError as error:
            raise MissingExtraError("--exchange", "ray") from error
        self.url, self._pauses_s = url, pauses_s
        if not url:
            raise InputError("--exchange '' is no address: say s3://, gs://, file:// or the like")
        protocol = url.partition("://")[0] if "://" in url else "file"
        if protocol in _ALONE:
            raise InputError(f"--exchange {url}: machines cannot exchange files by '{protocol}': say s3://, gs://, file:// or the like")
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise InputError(f"--exchange {url} cannot be opened ({error}); what it needs must be installed on every node") from error
        self._puts_whole = protocol in _OBJECT_STORES

    def put(self, path: Path, name: str) -> None:
        """Copy a file there.

        Raises:
            StorageError: it is refused, at once or after all tries.
        """
        target = self._path(name)
        if self._puts_whole:
            self._tried(f"write {name} to", lambda: self._files.put_file(str(path), target))
            return
        folder, last = posixpath.split(target)
        unfinished = f"{folder}/.{last}.{secrets.token_hex(4)}.tmp"

        def put() -> None:
            self._files.makedirs(folder, exist_ok=True)
            self._files.put_file(str(path), unfinished)
            self._files.mv(unfinished, target)

        self._tried(f"write {name} to", put)

    def get(self, name: str, path: Path, sha256: str) -> None:
        """Copy a file from there; ``path`` has it once it is whole and its checksum right.

        Raises:
            ArtifactDamaged: it is another file than was put there.
            StorageError: it is refused, at once or after all tries.
        """
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            self._tried(f"read {name} from", lambda: self._files.get_file(self._path(name), str(unfinished)))
            found = file_sha256(unfinished)
            if found != sha256:
                raise ArtifactDamaged(
                    f"{self.url}/{name} is damaged: sha256 {found[:12]}… instead of {sha256[:12]}…: remove it there and run again"
                )
            sync(unfinished)
            unfinished.replace(path)
            sync(path.parent)
        finally:
            unfinished.unlink(missing_ok=True)

    def read(self, name: str) -> bytes:
        """Return the content of a small file; raises ``StorageError`` if it cannot be read."""
        content: bytes = self._tried(f"read {name} from", lambda: self._files.cat_file(self._path(name)))
        return content

    def size(self, name: str) -> int | None:
        """Return the size of a file, None if it is not there; raises ``StorageError`` if it cannot be told."""

        def size() -> int | None:
            try:
                return int(self._files.info(self._path(name))["size"])
            except FileNotFoundError:
                return None

        self._files.invalidate_cache()
        return self._tried(f"look for {name} in", size)

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, none if there is no such folder; raises ``StorageError`` if it cannot be told."""

        def names() -> list[str]:
            try:
                found = self._files.ls(self._path(folder), detail=False)
            except FileNotFoundError:
                return []
            return sorted(posixpath.basename(path) for path in found)

        self._files.invalidate_cache()
        return self._tried(f"list {folder} in", names)

    def remove(self, name: str) -> None:
        """Delete a file, if it is there; raises ``StorageError`` if that is refused."""

        def remove() -> None:
            try:
                self._files.rm_file(self._path(name))
            except FileNotFoundError:
                return

        self._tried(f"remove {name} from", remove)

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _tried(self, what: str, act: Callable[[], Result]) -> Result:
        transient: tuple[type[Exception], ...] = (OSError, *_loaded())
        for pause_s in self._pauses_s:
            try:
                return act()
            except transient as error:
                self._refuse_final(what, error)
                logger.info("cannot %s %s (%s): trying again in about %g s", what, self.url, _said(error), pause_s)
                time.sleep(pause_s * random.uniform(0.75, 1.25))  # so that the workers do not come back all at once
        try:
            return act()
        except transient as error:
            self._refuse_final(what, error)
            raise StorageError(
                f"cannot {what} {self.url}: {_said(error)}, {len(self._pauses_s) + 1} times: it may be throttled; what is finished is "
                "kept: run the same command again later, or with fewer encoders (--ray-cpus)"
            ) from error

    def _refuse_final(self, what: str, error: Exception) -> None:
        """Raise ``StorageError`` for what another try would not mend."""
        if isinstance(error, OSError) and error.errno in _FULL:
            advice = "a disk is full, here or there: make room on it; what is finished is kept"
        elif isinstance(error, _FINAL):
            advice = "check the address and what it allows on every node"
        else:
            return
        raise StorageError(f"cannot {what} {self.url}: {_said(error)}: {advice}") from error


def _loaded() -> Iterator[type[Exception]]:
    """Yield the classes of ``_FOREIGN`` whose modules a client has imported."""
    for module, name in _FOREIGN:
        found = getattr(sys.modules.get(module), name, None)
        if isinstance(found, type) and issubclass(found, Exception):
            yield found


def _said(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
