"""Layout of a store on disk, and the LMDB environment of a store, which a process may open only once.

Each passage is compressed to one zstd frame, with a dictionary trained on the first passages of the corpus. Single rows are cheap to read,
and take less than half of their original size. The files:

    passages.lmdb  the tables ``passages`` and ``about``
    text_keys.u64  the text key of each row (see ``corpora.passage.text_key``), little-endian uint64
    ids.u64        sorted little-endian uint64 words that find rows by id (see ``names``)
    titles.u64     sorted little-endian uint64 words that find rows by title
    checks.json    checksums of the arrays, and of the pages that LMDB interprets (see ``checks``)

The tables of ``passages.lmdb``:

    passages  row of a batch's first passage (u32, big-endian) -> the batch (see ``batches``)
    about     "dictionary"  -> the zstd dictionary, empty for a tiny corpus
              "repeated"    -> pairs of record numbers: a record that repeats an id, and the first record with this id
"""

from __future__ import annotations

import os
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import zstandard

from wikidx.corpora.errors import ArtifactCorrupt, StorageError
from wikidx.corpora.passage import Passage

KIND = "passages"
FORMAT_VERSION = 3
DATABASE = "passages.lmdb"
TEXT_KEYS = "text_keys.u64"
IDS = "ids.u64"
TITLES = "titles.u64"
MAX_ID_BYTES = 511

ROW = struct.Struct(">I")
PAIR = struct.Struct(">II")
ROW_IN_FRAME = struct.Struct("<I")
DICTIONARY = b"dictionary"
REPEATED = b"repeated"
_LENGTHS = struct.Struct("<III")
_ROW_AND_LENGTHS = struct.Struct("<IIII")
_FIRST_MAP_BYTES = 256 << 20
_COMPRESSION_LEVEL = 3  # level 6 saves 4 % of the size and is three times slower (284 k passages of wiki_intro)

Frames = list[bytes | bytearray | memoryview]
Decompress = Callable[[Frames], list[bytes]]


@contextmanager
def corruption_errors(path: Path) -> Iterator[None]:
    """Translate the exceptions that corrupt pages and frames cause to ``ArtifactCorrupt``."""
    try:
        yield
    except (lmdb.Error, zstandard.ZstdError, UnicodeDecodeError, struct.error) as error:
        raise ArtifactCorrupt(f"{path} is corrupt ({error}): 'idx check' says which files are") from error


class Database:
    """An open LMDB environment and its tables."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        # LMDB's lock file is not needed: a published store never changes, and a writer holds the lock of the artifact.
        self.path = path
        is_new = not path.exists() or not path.stat().st_size
        error_class = StorageError if is_new else ArtifactCorrupt
        try:
            self.environment = lmdb.open(
                str(path),
                subdir=False,
                max_dbs=2,
                map_size=max(_FIRST_MAP_BYTES, 2 * path.stat().st_size if path.exists() else 0) if writable else 0,
                readonly=not writable,
                lock=False,
                readahead=False,
                meminit=True,  # otherwise pages would contain stale memory, such as skipped records
            )
        except lmdb.Error as error:
            raise error_class(f"{path} cannot be opened: {error}") from error
        try:
            self._check_whole(is_new=is_new)
            self.passages = self.environment.open_db(b"passages", create=writable)
            self.about = self.environment.open_db(b"about", create=writable)
        except lmdb.Error as error:
            self.environment.close()  # otherwise this process could not open the path again
            raise error_class(f"{path} cannot be opened: {error}") from error
        except ArtifactCorrupt:
            self.environment.close()
            raise

    def _check_whole(self, *, is_new: bool) -> None:
        """Raise ``ArtifactCorrupt`` if the file is truncated: reading beyond the end of a mapped file kills the process."""
        n_bytes = self.path.stat().st_size
        n_needed = (self.environment.info()["last_pgno"] + 1) * self.environment.stat()["psize"]
        if not is_new and n_bytes < n_needed:
            raise ArtifactCorrupt(f"{self.path} is cut off: it has {n_bytes:,} bytes, its pages need {n_needed:,}")

    def read_about(self, key: bytes) -> bytes | None:
        """Return an entry of the table ``about``; None if it has not been written."""
        with corruption_errors(self.path), self.environment.begin() as txn:
            value: bytes | None = txn.get(key, db=self.about)
            return value


_open: weakref.WeakValueDictionary[tuple[int, int], Database] = weakref.WeakValueDictionary()
_opening = threading.Lock()  # protects _open


# A fork waits until no file is being opened. Parent and child can share open files, because these are read-only and have no LMDB locks.
os.register_at_fork(before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_opening.release)


def shared_database(path: Path) -> Database:
    """Return the ``Database`` of a finished store, which each process opens once, on first use.

    Open files are identified by device and inode, so that a store rebuilt at the same path is opened anew.

    Raises:
        ArtifactCorrupt: the file is missing, or LMDB cannot open it.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise ArtifactCorrupt(f"{path} cannot be opened: {error.strerror}") from error
    key = (stat.st_dev, stat.st_ino)
    with _opening:
        database = _open.get(key)
        if database is None:
            database = _open[key] = Database(path, writable=False)
        return database


def pack(id_: bytes, title: bytes, text: bytes) -> bytes:
    """Return the bytes of one passage: three lengths (u32, little-endian), then id, title and text in UTF-8.

    The fingerprint of a corpus is the sha256 of these bytes, concatenated for all passages in row order.
    """
    return _LENGTHS.pack(len(id_), len(title), len(text)) + id_ + title + text


def unpack(raw: bytes, row: int) -> Passage:
    """Return the passage in a decompressed frame, which is the row (u32, little-endian), then the bytes from ``pack``.

    Raises:
        struct.error: the frame is too short, or belongs to another row.
        UnicodeDecodeError: a field is not UTF-8.
    """
    stored_row, n_id, n_title, _ = _ROW_AND_LENGTHS.unpack_from(raw)
    if stored_row != row:
        raise struct.error(f"row {stored_row} is where row {row} should be")
    title_start = _ROW_AND_LENGTHS.size + n_id
    text_start = title_start + n_title
    # tuple.__new__ avoids the Python call in Passage(*fields), which takes 15 % of get_many.
    return tuple.__new__(
        Passage, (raw[_ROW_AND_LENGTHS.size : title_start].decode(), raw[title_start:text_start].decode(), raw[text_start:].decode())
    )


def compressor(dictionary: bytes) -> zstandard.ZstdCompressor:
    """Return a compressor with the store's settings; each thread needs its own."""
    prepared = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
    if prepared:
        prepared.precompute_compress(level=_COMPRESSION_LEVEL)
    return zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL, dict_data=prepared, write_checksum=True)


def decompressor(dictionary: bytes) -> Decompress:
    """Return a function that decompresses frames; each thread needs its own."""
    prepared = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
    decompress_all = zstandard.ZstdDecompressor(dict_data=prepared).multi_decompress_to_buffer

    def decompress(frames: Frames) -> list[bytes]:
        """Decompress all frames in one call, so that the GIL is released and reacquired only once."""
        if not frames:
            return []
        try:
            contents = decompress_all(frames)
            return [contents[number].tobytes() for number in range(len(contents))]
        except ValueError as error:  # a frame's header is corrupt
            raise zstandard.ZstdError(str(error)) from error

    return decompress
