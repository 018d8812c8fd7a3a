"""Crash-safe writing of files, checksums of files, and parsing of JSON."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from wikidx.base.errors import ArtifactCorrupt, named_errors

_READ_BYTES = 1 << 20


def sync(path: Path) -> None:
    """Flush a file's content or a folder's entries to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for an atomic write: after a crash or an error, the file has either its old content or the complete new content.

    A link stays: the file behind it is written. So do the permissions of a file. Devices, pipes and the output of this process are written
    directly.
    """
    target = Path(os.path.realpath(path))
    unfinished = target.with_name(f".{target.name}.tmp")
    with named_errors(path, unfinished):
        if stream := _open_stream(path):
            with stream:
                yield stream
            return
        try:
            with unfinished.open("wb") as file:
                yield file
                file.flush()
                if target.exists():
                    os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
                os.fsync(file.fileno())
            unfinished.replace(target)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        sync(target.parent)


def _open_stream(path: Path) -> IO[bytes] | None:
    """Open what has no content to keep, such as a device or a pipe; return None for a regular file and for none.

    A file that is this process's output is written behind what is in it: under a new file, later lines would be lost.
    """
    if not path.exists():
        return None
    state = path.stat()
    for output in filter(None, (sys.__stdout__, sys.__stderr__)):
        with contextlib.suppress(OSError, ValueError):  # it has been closed, by its object or, as daemons do, by its number
            if os.path.samestat(state, os.fstat(output.fileno())):
                output.flush()
                return os.fdopen(os.dup(output.fileno()), "wb")
    return None if stat.S_ISREG(state.st_mode) else path.open("wb")


def write_durably(path: Path, content: bytes) -> None:
    """Write a small file atomically; see ``atomic_write``."""
    with atomic_write(path) as file:
        file.write(content)


def file_digests(path: Path, algorithms: tuple[str, ...], report: Callable[[int], None] | None = None) -> dict[str, str]:
    """Return a file's checksums in hexadecimal, by algorithm; the file is read once.

    Args:
        path: the file.
        algorithms: names of algorithms of ``hashlib``.
        report: called with the number of bytes read so far.
    """
    sums = {algorithm: hashlib.new(algorithm, usedforsecurity=False) for algorithm in algorithms}
    n_bytes = 0
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            for digest in sums.values():
                digest.update(chunk)
            n_bytes += len(chunk)
            if report:
                report(n_bytes)
    return {algorithm: digest.hexdigest() for algorithm, digest in sums.items()}


def file_sha256(path: Path, report: Callable[[int], None] | None = None) -> str:
    """Return a file's sha256 in hexadecimal; see ``file_digests``."""
    return file_digests(path, ("sha256",), report)["sha256"]


def read_json_object(path: Path, advice: str) -> Mapping[str, Any]:
    """Return the object in a JSON file.

    Args:
        path: the file.
        advice: what to do about a corrupt file, for the message.

    Raises:
        ArtifactCorrupt: the file cannot be read, or holds no object.
    """
    try:
        values = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ArtifactCorrupt.of(error, path, f"{path} cannot be read ({error}): {advice}") from error
    if not isinstance(values, dict):
        raise ArtifactCorrupt(f"{path} cannot be read (it is no JSON object): {advice}")
    return values


def parse_json(content: str | bytes) -> Any:  # noqa: ANN401 - JSON
    """Parse JSON.

    Raises:
        ValueError: the content is not JSON or not UTF-8, is nested too deeply, or has an integer of more digits than Python parses (4,300).
    """
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
