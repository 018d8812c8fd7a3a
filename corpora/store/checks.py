"""Checksums of a store's arrays, and of the pages that LMDB interprets; frames have checksums of their own.

LMDB does not verify its pages: a single flipped bit in a page's header or nodes can kill the process (SIGBUS, SIGABRT). Most pages hold
batches, which LMDB does not interpret. All other pages are verified before LMDB opens the file.
"""

from __future__ import annotations

import json
import mmap
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikidx.corpora.artifacts.durable import parse_json, write_durably
from wikidx.corpora.errors import ArtifactCorrupt

from .batches import Batches

CHECKS = "checks.json"

Spans = Sequence[tuple[int, int]]


def write_checks(batches: Batches, arrays: Iterable[Path]) -> None:
    """Write the checksums of a finished store; its last transaction must already be on disk."""
    path = batches.database.path
    spans = _spans(batches)
    sums = {array.name: zlib.crc32(np.memmap(array, dtype=np.uint8, mode="r").data) for array in arrays}
    content = {"batches": spans, "other_pages": _crc32_between(path, spans), "arrays": sums}
    write_durably(path.with_name(CHECKS), json.dumps(content).encode())


class Checks:
    """The checksums of a store, read from ``checks.json``.

    Raises:
        ArtifactCorrupt: ``checks.json`` is missing or corrupt.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        path = database.with_name(CHECKS)
        try:
            self._content: dict[str, Any] = dict(parse_json(path.read_bytes()))
        except OSError as error:
            raise ArtifactCorrupt(f"{path} cannot be read ({error.strerror}): build it again with --force") from error
        except (TypeError, ValueError) as error:
            raise ArtifactCorrupt(f"{path} is corrupt ({error}): build it again with --force") from error

    def check_pages(self) -> None:
        """Raise ``ArtifactCorrupt`` if a page that LMDB interprets is corrupt."""
        try:
            is_intact = _crc32_between(self._database, self._content["batches"]) == self._content["other_pages"]
        except (OSError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise ArtifactCorrupt(f"{self._database} cannot be checked ({error}): build it again with --force") from error
        if not is_intact:
            raise ArtifactCorrupt(f"{self._database} is corrupt: build it again with --force")

    def check_array(self, name: str, array: NDArray[Any]) -> None:
        """Raise ``ArtifactCorrupt`` if an array is corrupt."""
        sums = self._content.get("arrays")
        if not isinstance(sums, dict) or sums.get(name) != zlib.crc32(array.data):
            raise ArtifactCorrupt(f"{self._database.with_name(name)} is corrupt: build it again with --force")


def _spans(batches: Batches) -> list[tuple[int, int]]:
    """Return the spans of pages that contain only batches, as (start, stop) in bytes.

    LMDB stores a value larger than a page on pages of its own, after a header of a few bytes.
    """
    page_bytes = batches.database.environment.stat()["psize"]
    values = [np.frombuffer(value, dtype=np.uint8) for value in batches.values if len(value) >= page_bytes]
    if not values:
        return []
    addresses = np.array([value.ctypes.data for value in values])
    with batches.database.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        starts = addresses - addresses[0] + content.find(values[0].data)
        while any(content[start : start + 64] != value[:64].tobytes() for start, value in zip(starts.tolist(), values, strict=True)):
            starts += content.find(values[0].data, starts[0] + 1) - starts[0]  # skip an older copy of the value on free pages
    merged: list[tuple[int, int]] = []
    for start, n_bytes in sorted(zip(starts.tolist(), map(len, values), strict=True)):
        first, end = start // page_bytes * page_bytes, -(-(start + n_bytes) // page_bytes) * page_bytes
        if merged and merged[-1][1] == first:
            first = merged.pop()[0]
        merged.append((first, end))
    return merged


def _crc32_between(path: Path, spans: Spans) -> int:
    """Return the crc32 of a file's bytes outside of the spans, which are ascending."""
    crc32, end, n_bytes = 0, 0, path.stat().st_size
    with path.open("rb") as file:
        for start, next_end in [*spans, (n_bytes, n_bytes)]:
            file.seek(end)
            crc32 = zlib.crc32(file.read(max(0, start - end)), crc32)
            end = next_end
    return crc32
