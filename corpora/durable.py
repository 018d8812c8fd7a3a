"""Files that outlive a crash: flushed to the disk, replaced whole; and their checksums."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def sync(path: Path) -> None:
    """Have the disk keep a file's bytes, or a folder's names, before anything relies on them."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes) -> None:
    """Write a small file so that, after a crash, it holds either all of ``content`` or what it held before."""
    unfinished = path.with_name(f".{path.name}.tmp")
    unfinished.write_bytes(content)
    sync(unfinished)
    unfinished.replace(path)
    sync(path.parent)


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
