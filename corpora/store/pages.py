"""Checksums of a store's pages, compared before they are used: LMDB believes what it finds on a page.

Single bits flipped in the heads and nodes of pages made it end the process (SIGBUS, SIGABRT) or find a wrong row. So all pages that a
lookup comes to have a checksum in ``pages.sums``, written when the store is finished. The few that lead to all others are compared when the
store is opened, a leaf of ``passages`` when a row on it is first read, those of ``ids`` and ``titles`` together when one is first looked
up, and the text keys when they are first asked for. Pages that only continue a long passage are left out: its zstd frame has a checksum.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from corpora.durable import write_durably
from corpora.errors import ArtifactDamaged

from .lmdb_pages import Pages, first_row, page_bytes_of, table_pages

SUMS = "pages.sums"

_COUNTS = struct.Struct("<I5Q")  # crc32 of all that follows; bytes of a page, and how many of each there are
_AT_ONCE = 4_096  # pages

Numbers = NDArray[np.int64]
Sums = NDArray[np.uint64]


class _Content(NamedTuple):
    """What ``pages.sums`` holds.

    Attributes:
        page_bytes: of each page.
        n_leading: the first so many of ``numbers`` are the pages that lead to others ...
        n_named: ... so many more the leaves of ids and titles, and the rest those of passages.
        numbers: of pages.
        sums: their checksums.
        first_rows: of each leaf of passages, ascending.
        text_key_sums: of each ``page_bytes`` of the text keys.
    """

    page_bytes: int
    n_leading: int
    n_named: int
    numbers: Numbers
    sums: Sums
    first_rows: Numbers
    text_key_sums: Sums


class CheckedPages:
    """The pages of a finished store, and which of them have been compared in this process."""

    def __init__(self, database: Path) -> None:
        """Compare the pages that lead to all others.

        Raises:
            ArtifactDamaged: one of them, or ``pages.sums``, is damaged.
        """
        self._path = database
        self._content = _read(database.with_name(SUMS))
        try:
            self._pages = _mapped(database, self._content.page_bytes)
        except (OSError, ValueError) as error:
            raise ArtifactDamaged(f"{database} cannot be mapped ({error}): build it again with --force") from error
        self._first_leaf = self._content.n_leading + self._content.n_named
        self._is_seen = np.zeros(len(self._content.numbers), dtype=np.bool_)
        self._has_sound_names = self._has_sound_text_keys = False
        self._check(np.arange(self._content.n_leading))

    def check_rows(self, rows: Numbers) -> None:
        """Compare the leaves that rows of the store are on; raises ``ArtifactDamaged`` if one is damaged."""
        first_rows = self._content.first_rows  # searched for numbers of its own type: for others it would be copied whole
        self._check(self._first_leaf - 1 + np.searchsorted(first_rows, rows.astype(first_rows.dtype), side="right"))

    def check_names(self) -> None:
        """Compare the leaves that ids and titles are on; raises ``ArtifactDamaged`` if one is damaged."""
        if not self._has_sound_names:  # told apart from the marks of each page, of which wiki2018 has 150,000
            self._check(np.arange(self._content.n_leading, self._first_leaf))
            self._has_sound_names = True

    def check_text_keys(self, text_keys: Sums) -> None:
        """Compare the text keys, once; raises ``ArtifactDamaged`` if one is damaged."""
        if not self._has_sound_text_keys:
            if not np.array_equal(_sums_of_words(text_keys, self._content.page_bytes), self._content.text_key_sums):
                raise ArtifactDamaged(f"the text keys of {self._path.parent} are damaged: build it again with --force")
            self._has_sound_text_keys = True

    def _check(self, places: Numbers) -> None:
        """Compare pages, by their places in ``numbers``."""
        unseen = places[~self._is_seen[places]]
        if not len(unseen):
            return
        unseen = np.unique(unseen)
        numbers = self._content.numbers[unseen]
        is_sound = numbers < len(self._pages)
        is_sound[is_sound] = _sums(self._pages, numbers[is_sound]) == self._content.sums[unseen[is_sound]]
        if not is_sound.all():
            raise ArtifactDamaged(f"{self._path} is damaged at page {numbers[np.argmin(is_sound)]:,}: build it again with --force")
        self._is_seen[unseen] = True


def write_sums(database: Path, text_keys: Path) -> None:
    """Write ``pages.sums`` beside a finished database, whose last transaction is on the disk."""
    with database.open("rb") as file:
        page_bytes = page_bytes_of(file.read(1 << 12))
    pages = _mapped(database, page_bytes)
    leading, named, passages = table_pages(pages)
    first_rows = np.array([first_row(pages[leaf]) for leaf in passages], dtype="<u4")
    order = np.argsort(first_rows)
    numbers = np.array([*leading, *named, *np.array(passages)[order]], dtype="<u4")
    text_key_sums = _sums_of_words(np.memmap(text_keys, dtype="<u8", mode="r"), page_bytes)
    counts = struct.pack("<5Q", page_bytes, len(leading), len(named), len(passages), len(text_key_sums))
    arrays = (_sums(pages, numbers), text_key_sums, numbers, first_rows[order])
    content = b"".join([counts, *(array.tobytes() for array in arrays)])
    write_durably(database.with_name(SUMS), zlib.crc32(content).to_bytes(4, "little") + content)


def _read(path: Path) -> _Content:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ArtifactDamaged(f"{path} cannot be read ({error.strerror}): build it again with --force") from error
    if len(raw) < _COUNTS.size or zlib.crc32(memoryview(raw)[4:]) != int.from_bytes(raw[:4], "little"):
        raise ArtifactDamaged(f"{path} is damaged: build it again with --force")
    _, page_bytes, n_leading, n_named, n_passages, n_text_keys = _COUNTS.unpack_from(raw)
    n = n_leading + n_named + n_passages
    sums = np.frombuffer(raw, "<u8", n + n_text_keys, _COUNTS.size)
    numbers = np.frombuffer(raw, "<u4", n + n_passages, _COUNTS.size + sums.nbytes)
    return _Content(page_bytes, n_leading, n_named, numbers[:n], sums[:n], numbers[n:], sums[n:])


def _mapped(database: Path, page_bytes: int) -> Pages:
    """Return the pages of a database, shape (n, page_bytes)."""
    n_pages = database.stat().st_size // page_bytes
    return np.memmap(database, dtype=np.uint8, mode="r", shape=(n_pages, page_bytes)).view(np.ndarray)


def _sums(pages: Pages, numbers: Numbers) -> Sums:
    """Return the checksums of some pages."""
    parts = (numbers[first : first + _AT_ONCE] for first in range(0, len(numbers), _AT_ONCE))
    return np.concatenate([np.empty(0, dtype="<u8"), *(page_sums(pages[part].view("<u8")) for part in parts)])


def _sums_of_words(words: Sums, page_bytes: int) -> Sums:
    """Return the checksums of as many words as a page has, and so on; the last ones are filled up with zeros."""
    size = page_bytes // words.itemsize
    whole = words[: len(words) // size * size].reshape(-1, size)
    rest = np.zeros((1, size), dtype=words.dtype)
    rest[0, : len(words) % size] = words[whole.size :]
    firsts = range(0, len(whole), _AT_ONCE)
    return np.concatenate([*(page_sums(whole[first : first + _AT_ONCE]) for first in firsts), page_sums(rest)])


def page_sums(pages: Sums) -> Sums:
    """Return a checksum of each page, given as 8-byte words, shape (n, words).

    Whatever happens to one word changes it, because every step can be undone: the factors are odd. It is no defence against intent.
    """
    factors = (2 * np.arange(pages.shape[1], dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    found: Sums = ((pages ^ (pages >> np.uint64(32))) * factors).sum(axis=1, dtype=np.uint64)
    return found
