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

from wikidx.corpora.artifacts.durable import parse_json, write_durably
from wikidx.corpora.errors import ArtifactCorrupt

from .batches import Batches, Places

CHECKS = "checks.json"

Spans = Sequence[tuple[int, int]]


def write_checks(batches: Batches, arrays: Iterable[Path]) -> None:
    """Write the checksums of a finished store; its last transaction must already be on disk."""
    path, places = batches.database.path, _places_in_file(batches)
    page_bytes = batches.database.environment.stat()["psize"]
    sums = {array.name: zlib.crc32(np.memmap(array, dtype=np.uint8, mode="r").data) for array in arrays}
    other_pages = _crc32_between(path, _page_spans(places, page_bytes))
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
        except OSError as error:
            raise ArtifactCorrupt(f"{path} cannot be read ({error.strerror}): build it again with --force") from error
        except (TypeError, ValueError) as error:
            raise ArtifactCorrupt(f"{path} is corrupt ({error}): build it again with --force") from error

    def check_pages(self) -> Places:
        """Return the places of the batches in the file; raise ``ArtifactCorrupt`` if a page that LMDB interprets is corrupt."""
        try:
            places = np.array(self._content["batches"], dtype=np.int64).reshape(-1, 3)
            is_intact = _crc32_between(self._database, _page_spans(places, self._content["page_bytes"])) == self._content["other_pages"]
        except (OSError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise ArtifactCorrupt(f"{self._database} cannot be checked ({error}): build it again with --force") from error
        if not is_intact:
            raise ArtifactCorrupt(f"{self._database} is corrupt: build it again with --force")
        return places

    def check_array(self, name: str, array: NDArray[Any]) -> None:
        """Raise ``ArtifactCorrupt`` if an array is corrupt."""
        sums = self._content.get("arrays")
        if not isinstance(sums, dict) or sums.get(name) != zlib.crc32(array.data):
            raise ArtifactCorrupt(f"{self._database.with_name(name)} is corrupt: build it again with --force")


def _places_in_file(batches: Batches) -> Places:
    """Return the places of the batches in the file; they are known in memory, where LMDB maps the file as a whole."""
    places = batches.places.tolist()
    if not places:
        return batches.places
    heads = {start: batches.content[start : min(start + 64, end)].tobytes() for _, start, end in places}
    first_start = places[0][1]
    with batches.database.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
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


def _crc32_between(path: Path, spans: Spans) -> int:
    """Return the crc32 of a file's bytes outside of the spans, which are ascending."""
    crc32, end, n_bytes = 0, 0, path.stat().st_size
    with path.open("rb") as file:
        for start, next_end in [*spans, (n_bytes, n_bytes)]:
            file.seek(end)
            crc32 = zlib.crc32(file.read(max(0, start - end)), crc32)
            end = next_end
    return crc32
