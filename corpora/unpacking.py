"""Unpacking of archives, zip and tar, into a folder: within limits of size, and without a member that leaves the folder."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import IO

from wikidx.base.artifacts.building import discard
from wikidx.base.artifacts.durable import file_sha256
from wikidx.base.errors import InputError

MAX_RATIO = 200
MAX_BYTES = 64 << 30
_FREE_BYTES = 64 << 20  # of any ratio
_CHUNK = 1 << 20
_ENDINGS = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tbz2", ".txz")
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)


def is_archive(path: Path) -> bool:
    """Return whether a path is a file whose name is that of a zip or tar archive."""
    return path.name.lower().endswith(_ENDINGS) and path.is_file()


def unpack(path: Path, folder: Path) -> Path:
    """Unpack an archive into a folder of its own below ``folder``, unless it is there, and return that, or the one folder in it.

    Raises:
        InputError: the archive is corrupt or encrypted, expands beyond the limits, or a member has a path outside.
    """
    target = folder / f"{path.name.partition('.')[0]}-{file_sha256(path)[:16]}"
    if target.is_dir():
        return _root(target)
    staging = target.with_name(f".{target.name}")
    discard(staging)
    staging.mkdir(parents=True)
    limit = min(MAX_BYTES, max(_FREE_BYTES, MAX_RATIO * path.stat().st_size))
    with ExitStack() as stack:
        stack.callback(discard, staging)
        try:
            for name, size, file in _members(path, stack):
                limit -= size
                if limit < 0:
                    raise InputError(f"{path} expands to over {MAX_RATIO} times its size, or {MAX_BYTES >> 30} GiB: unpack it yourself")
                _write(file, staging / _inside(path, name), size)
        except _BROKEN as error:
            raise InputError(f"{path} cannot be unpacked: {error}") from error
        staging.rename(target)
    return _root(target)


def _root(folder: Path) -> Path:
    """Return the folder in a folder if that is all there is, else the folder."""
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def _members(path: Path, stack: ExitStack) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yield name, size and content of each file in an archive; links and devices are none."""
    with path.open("rb") as file:
        is_zip = file.read(2) == b"PK"
    if is_zip:
        archive = stack.enter_context(zipfile.ZipFile(path))
        for member in archive.infolist():
            if not member.is_dir():
                with archive.open(member) as content:
                    yield member.filename, member.file_size, content
        return
    tar = stack.enter_context(tarfile.open(path))
    for entry in tar:
        if entry.isfile() and (inner := tar.extractfile(entry)) is not None:
            yield entry.name, entry.size, inner


def _inside(path: Path, name: str) -> PurePosixPath:
    inner = PurePosixPath(name.replace("\\", "/"))
    if inner.is_absolute() or ".." in inner.parts or "\0" in name or not inner.parts:
        raise InputError(f"{path} has a member {name!r:.80}, which would leave its folder: unpack it yourself, and check it")
    return inner


def _write(file: IO[bytes], path: Path, size: int) -> None:
    """Write at most ``size`` bytes, so that a header that says less than there is cannot fill the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as out:
        while size > 0 and (chunk := file.read(min(_CHUNK, size))):
            size -= len(chunk)
            out.write(chunk)
