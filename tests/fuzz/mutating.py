"""Corrupt files for all readers: mutations of valid ones by hypothesis, and checks of every refusal."""

from __future__ import annotations

import bz2
import gzip
import tracemalloc
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import zstandard
from hypothesis import settings
from hypothesis import strategies as st

from wikidx.base.errors import IdxError

Result = TypeVar("Result")

_TOKENS = [
    *(b'"', b"'", b"[", b"]", b"{", b"}", b":", b",", b"\\", b"\t", b" ", b"\n", b"\r", b"\r\n", b"\x00", b"\xff", b"\xef\xbb\xbf"),
    *(b"null", b"true", b"NaN", b"-1", b"1e999", b"1.5", b"9" * 5_000, b"[" * 3_000, b'{"a":' * 3_000, b"\\ud83d", b"\\u0000"),
    *("\u2028".encode(), "\x85".encode(), b"\x1b[2J", "é".encode(), b'""', b"<doc ", b"</doc>", b"Q0", b"=", b"."),
]
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": lambda content: gzip.compress(content, 1, mtime=0),
    "bzip2": bz2.compress,
    "zstd": zstandard.ZstdCompressor(level=1).compress,
}


def _edited(content: bytes, edits: list[tuple[int, int, int, bytes]]) -> bytes:
    """Return a content after edits, each (kind, position, number of bytes, replacement)."""
    for which, place, n_bytes, new in edits:
        at = place % (len(content) + 1)
        lines = content.splitlines(keepends=True)
        line = place % max(1, len(lines))
        if which == 0:  # replaced, or inserted where n_bytes is 0
            content = content[:at] + new + content[at + n_bytes :]
        elif which == 1:  # doubled
            content = content[: at + n_bytes] + content[at:]
        elif which == 2:  # cut off
            content = content[:at]
        elif which == 3:  # a line moved to the end
            content = b"".join(lines[:line] + lines[line + 1 :] + lines[line : line + 1])
        else:  # a line doubled
            content = b"".join(lines[: line + 1] + lines[line:])
    return content


def mutations(*contents: bytes) -> st.SearchStrategy[bytes]:
    """Contents with zero to four edits, and sometimes arbitrary bytes."""
    new = st.sampled_from(_TOKENS) | st.binary(max_size=4) | st.integers(0, 255).map(lambda byte: bytes([byte]))
    edit = st.tuples(st.integers(0, 4), st.integers(0, 1 << 16), st.sampled_from([0, 1, 1, 2, 8, 60]), new)
    edited = st.builds(_edited, st.sampled_from(contents), st.lists(edit, max_size=4))
    return st.one_of(edited, edited, edited, st.binary(max_size=200), st.text(max_size=60).map(str.encode))


def compressed_mutations(*contents: bytes) -> st.SearchStrategy[bytes]:
    """The same contents plain or in any compression, and corrupt compressed files."""
    kinds = [COMPRESSIONS[name] for name in ("none", "none", "gzip", "bzip2", "zstd")]
    whole = st.builds(lambda pack, content: pack(content), st.sampled_from(kinds), mutations(*contents))
    return whole | mutations(*(pack(content) for pack in COMPRESSIONS.values() for content in contents))


def check_refusal(error: IdxError, named: Path | str | None = None, most: int = 2_000) -> None:
    """Check that a refusal is a sentence on one line, of not too many characters, and names the file."""
    message = str(error)
    assert len(message.splitlines()) == 1, repr(message)
    assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in message), repr(message)
    assert len(message) < most, f"{len(message)} characters: {message[:300]}"
    assert named is None or str(named) in message, message


@contextmanager
def in_memory_of(n_bytes: int) -> Iterator[None]:
    """Fail if the block allocates more than this many bytes at a time."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= n_bytes, f"{peak:,} bytes"


def read_or_refuse(read: Callable[[], Result], named: Path | str | None = None, most: int = 2_000) -> Result | None:
    """Return the value read; None if the reading is properly refused. Any other exception fails the test."""
    try:
        return read()
    except IdxError as error:
        check_refusal(error, named, most)
        return None


def examples(share: float = 0.3) -> settings:
    """Return the number of examples of a test: a share of the profile's, which is 100 in ``make test`` and 1,000 in ``make fuzz``."""
    return settings(max_examples=max(1, round(share * settings().max_examples)))
