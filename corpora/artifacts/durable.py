"""Files that outlive a crash: flushed to the disk, replaced whole; their checksums, and the JSON in them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

_READ_BYTES = 1 << 20


def sync(path: Path) -> None:
    """Have the disk keep a file's bytes, or a folder's names, before anything relies on them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that, after a crash, holds either all that was written or what it held before."""
    unfinished = path.with_name(f".{path.name}.tmp")
    with unfinished.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync(path.parent)


def write_durably(path: Path, content: bytes) -> None:
    """Write a small file; see ``replacing``."""
    with replacing(path) as file:
        file.write(content)


def file_digests(path: Path, algorithms: tuple[str, ...], report: Callable[[int], None] | None = None) -> dict[str, str]:
    """Return checksums of a file as hexadecimal digits, read once; ``report`` is called with the bytes read so far."""
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
    """Return the sha256 of a file as hexadecimal digits."""
    return file_digests(path, ("sha256",), report)["sha256"]


def json_value(content: str | bytes) -> Any:  # noqa: ANN401 - JSON
    """Return the value that some JSON is.

    Raises:
        ValueError: it is not JSON or not UTF-8, a number in it has thousands of digits, or it is nested too deeply for Python.
    """
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
