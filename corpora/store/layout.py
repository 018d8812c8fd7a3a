"""Layout of a store on disk, and the LMDB environment of a store, which a process may open only once.

Each passage is one frame, written with phrases that are frequent in the first passages of the corpus (see ``vocabulary``). Single rows are
cheap to read, and take less than half of their original size. The files:

    passages.lmdb  the tables ``passages`` and ``about``
    text_keys.u64  the text key of each row (see ``corpora.passage.text_key``), little-endian uint64
    ids.u64        sorted little-endian uint64 words that find rows by id (see ``names``)
    titles.u64     sorted little-endian uint64 words that find rows by title
    checks.json    places of the batches, and checksums of the arrays and of all other pages (see ``checks``)

The tables of ``passages.lmdb``:

    passages  row of a batch's first passage (u32, big-endian) -> the batch (see ``batches``)
    about     "vocabulary"  -> the phrases, empty for a tiny corpus
              "repeated"    -> pairs of record numbers: a record that repeats an id, and the first record with this id
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import lmdb
import zstandard

from wikidx.base.errors import ArtifactCorrupt, find_write_error

KIND = "passages"
FORMAT_VERSION = 5
DATABASE = "passages.lmdb"
TEXT_KEYS = "text_keys.u64"
IDS = "ids.u64"
TITLES = "titles.u64"
MAX_ID_BYTES = 511

ROW = struct.Struct(">I")
PAIR = struct.Struct(">II")
VOCABULARY = b"vocabulary"
REPEATED = b"repeated"
_LENGTHS = struct.Struct("<III")
_FIRST_MAP_BYTES = 256 << 20


@contextmanager
def corruption_errors(path: Path) -> Iterator[None]:
    """Translate the exceptions that corrupt pages and frames cause to ``ArtifactCorrupt``."""
    try:
        yield
    except (lmdb.Error, zstandard.ZstdError, UnicodeDecodeError, struct.error) as error:
        raise ArtifactCorrupt.of(error, path, f"{path} is corrupt ({error}): 'idx check' says which files are") from error


class Database:
    """An open LMDB environment and its tables."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        # LMDB's lock file is not needed: a published store never changes, and a writer holds the lock of the artifact.
        self.path = path
        is_new = not path.exists() or not path.stat().st_size
        try:
            self.environment = lmdb.open(
                os.fsencode(path),  # a text is encoded strictly, which fails for a name outside the locale's characters
                subdir=False,
                max_dbs=2,
                map_size=max(_FIRST_MAP_BYTES, 2 * path.stat().st_size if path.exists() else 0) if writable else 0,
                readonly=not writable,
                lock=False,
                readahead=False,
                meminit=True,  # otherwise pages would contain stale memory, such as skipped records
            )
        except lmdb.Error as error:
            raise self._refusal(error, is_new=is_new) from error
        try:
            self._check_whole(is_new=is_new)
            self.passages = self.environment.open_db(b"passages", create=writable)
            self.about = self.environment.open_db(b"about", create=writable)
        except lmdb.Error as error:
            self.environment.close()  # otherwise this process could not open the path again
            raise self._refusal(error, is_new=is_new) from error
        except ArtifactCorrupt:
            self.environment.close()
            raise

    def _refusal(self, error: lmdb.Error, *, is_new: bool) -> Exception:
        path = self.path
        return find_write_error(path, error) if is_new else ArtifactCorrupt.of(error, path, f"{path} cannot be opened: {error}")

    def _check_whole(self, *, is_new: bool) -> None:
        """Raise ``ArtifactCorrupt`` if the file is truncated: reading beyond the end of a mapped file kills the process."""
        n_bytes = self.path.stat().st_size
        n_needed = (self.environment.info()["last_pgno"] + 1) * self.environment.stat()["psize"]
        if not is_new and n_bytes < n_needed:
            raise ArtifactCorrupt(f"{self.path} is cut off: it has {n_bytes:,} bytes, its pages need {n_needed:,}")

    def left_out(self) -> str:
        """Return a key of the records that are left out because they repeat an id; "" if there are none."""
        repeated = self.read_about(REPEATED)
        return hashlib.sha256(repeated).hexdigest() if repeated else ""

    def read_about(self, key: bytes) -> bytes | None:
        """Return an entry of the table ``about``; None if it has not been written."""
        with corruption_errors(self.path), self.environment.begin() as txn:
            value: bytes | None = txn.get(key, db=self.about)
            return value


class FinishedDatabase(Database):
    """The database of a finished store, read-only, and ``content``, the bytes of its file."""

    def __init__(self, path: Path, content: mmap.mmap) -> None:
        super().__init__(path, writable=False)
        self.content = content


_open: weakref.WeakValueDictionary[tuple[int, int], FinishedDatabase] = weakref.WeakValueDictionary()
_opening = threading.Lock()  # protects _open


# A fork waits until no file is being opened. Parent and child can share open files, because these are read-only and have no LMDB locks.
os.register_at_fork(before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_opening.release)


def shared_database(path: Path, check: Callable[[mmap.mmap], None]) -> FinishedDatabase:
    """Return the database of a finished store, which each process opens once, on first use.

    Open files are identified by device and inode, so that a store rebuilt at the same path is opened anew, and one that was moved is not.

    Args:
        path: the file.
        check: raises ``ArtifactCorrupt`` if the bytes of the file are corrupt; called before LMDB reads them.

    Raises:
        ArtifactCorrupt: the file is missing or corrupt, or LMDB cannot open it.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise ArtifactCorrupt.of(error, path, f"{path} cannot be opened: {error.strerror}") from error
    with file, _opening:
        stat = os.fstat(file.fileno())
        inode = stat.st_dev, stat.st_ino
        database = _open.get(inode)
        content = _map(file, path) if database is None else database.content
        check(content)
        if database is None:
            database = FinishedDatabase(path, content)
            if not _is_at(path, stat):  # LMDB opens the path, and may have found another file there
                database.environment.close()
                raise ArtifactCorrupt(f"{path} was replaced while it was opened: run the command again")
            _open[inode] = database
        return database


def _is_at(path: Path, stat: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), stat)
    except OSError:
        return False


def _map(file: BinaryIO, path: Path) -> mmap.mmap:
    """Map a file without reading it."""
    try:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ArtifactCorrupt.of(error, path, f"{path} cannot be mapped: {error}") from error
    if hasattr(mmap, "MADV_RANDOM"):
        mapped.madvise(mmap.MADV_RANDOM)
    return mapped


def pack(id_: bytes, title: bytes, text: bytes) -> bytes:
    """Return the bytes of one passage: three lengths (u32, little-endian), then id, title and text in UTF-8.

    The fingerprint of a corpus is the sha256 of these bytes, concatenated for all passages in row order.
    """
    return _LENGTHS.pack(len(id_), len(title), len(text)) + id_ + title + text
