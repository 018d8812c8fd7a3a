"""Checksums of a store's arrays, and of the pages that LMDB interprets; frames have checksums of their own.

LMDB does not verify its pages: a single flipped bit in a page's header or nodes can kill the process (SIGBUS, SIGABRT). Most pages hold
batches, which LMDB does not interpret. All other pages are verified before LMDB opens the file. The checksums also name the place of each
batch in the file.
"""

from __future__ import annotations

import json
import mmap
import operator
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.durable import parse_json, write_durably
from wikidx.base.errors import ArtifactCorrupt

from .batches import Batches, Places

CHECKS = "checks.json"

Spans = Sequence[tuple[int, int]]


def write_checks(batches: Batches, arrays: Iterable[Path]) -> None:
    """Write the checksums of a finished store; its last transaction must already be on disk."""
    path, page_bytes = batches.database.path, batches.database.environment.stat()["psize"]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        places = _places_in_file(batches, mapped)
        other_pages = _crc32_between(mapped, _page_spans(places, page_bytes))
    sums = {array.name: zlib.crc32(np.memmap(array, dtype=np.uint8, mode="r").data) for array in arrays}
    content = {"batches": places.tolist(), "page_bytes": page_bytes, "other_pages": other_pages, "arrays": sums}
    write_durably(path.with_name(CHECKS), json.dumps({"own": _crc32(content), **content}).encode())


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
            if self._content.pop("own", None) != _crc32(self._content):
                raise ValueError("its checksum is another one")
            self.places: Places = np.array(self._content["batches"], dtype=np.int64)
        except OSError as error:
            raise ArtifactCorrupt.of(error, path, f"{path} cannot be read ({error.strerror}): build it again with --force") from error
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactCorrupt(f"{path} is corrupt ({error}): build it again with --force") from error

    def check_pages(self, content: mmap.mmap) -> None:
        """Raise ``ArtifactCorrupt`` if, in the bytes of a database, a page that LMDB interprets is corrupt, or a batch is cut off."""
        other_pages = _crc32_between(content, _page_spans(self.places, self._content["page_bytes"]))
        if other_pages != self._content["other_pages"] or self.places.max() > len(content):
            raise ArtifactCorrupt(f"{self._database} is corrupt: build it again with --force")

    def check_array(self, name: str, array: NDArray[Any]) -> None:
        """Raise ``ArtifactCorrupt`` if an array is corrupt."""
        sums = self._content.get("arrays")
        if not isinstance(sums, dict) or sums.get(name) != zlib.crc32(array.data):
            raise ArtifactCorrupt(f"{self._database.with_name(name)} is corrupt: build it again with --force")


def _places_in_file(batches: Batches, content: mmap.mmap) -> Places:
    """Return the places of the batches in the bytes of the file; they are known in memory, where LMDB maps the file as a whole."""
    places = batches.places.tolist()
    heads = {start: bytes(batches.content[start : min(start + 64, end)]) for _, start, end in places}
    first_start = places[0][1]
    shift = content.find(heads[first_start]) - first_start
    while any(content[shift + start : shift + start + len(head)] != head for start, head in heads.items()):
        shift = content.find(heads[first_start], shift + first_start + 1) - first_start  # skip an older copy of the value on free pages
    moved: Places = batches.places + np.array([0, shift, shift])
    return moved


def _page_spans(places: Places, page_bytes: int) -> Spans:
    """Return the spans of pages that contain only batches, as (start, end) in bytes.

    LMDB stores a value larger than a page on pages of its own, after a header of a few bytes.
    """
    merged: list[tuple[int, int]] = []
    for _, start, end in sorted(places.tolist(), key=operator.itemgetter(1)):
        if end - start < page_bytes:
            continue
        first, last = start // page_bytes * page_bytes, -(-end // page_bytes) * page_bytes
        if merged and merged[-1][1] == first:
            first = merged.pop()[0]
        merged.append((first, last))
    return merged


def _crc32(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content).encode())


def _crc32_between(content: mmap.mmap, spans: Spans) -> int:
    """Return the crc32 of the bytes outside of the spans, which are ascending."""
    crc32, end = 0, 0
    for start, next_end in [*spans, (len(content), len(content))]:
        crc32 = zlib.crc32(content[end:start], crc32)
        end = next_end
    return crc32
