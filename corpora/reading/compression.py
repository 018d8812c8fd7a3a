"""Reading of plain, gzip, bzip2 and zstd files; the first bytes of a file determine its format, not its name.

``-`` is standard input. It and named pipes, which can be read once, are copied to a temporary file when they are opened.
A file that changes while it is read raises ``InputError`` when its end is reached, so that it is never taken for a shorter or longer one.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import io
import os
import re
import shutil
import tempfile
import tomllib
import zlib
from collections.abc import Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import IO, Any

import zstandard

from wikidx.base.errors import InputError, explain_os_error, named_errors

BROKEN_FILE = (EOFError, OSError, zlib.error, zstandard.ZstdError)
"""Exceptions raised by reading a corrupt compressed file."""

MAX_LINE_BYTES = 64 << 20
STANDARD_INPUT = Path("-")
TO_JSON_LINES = "write its rows as JSON Lines, such as by pandas' to_json(FILE, orient='records', lines=True)"

_READ_BYTES = 1 << 20
_ZSTD_BYTES = 512  # compressed bytes per step, which expand to at most 16 MiB: 4 bytes can expand to 128 KiB
_ZSTD_WINDOW_BYTES = 1 << 31  # that of "zstd --long=31", as dumps have it; only as much as is decompressed is used
_MEASURED_BYTES = 32 << 20
_MAX_WHOLE_BYTES = 256 << 20  # ``read_bytes`` always accepts content of this size
_MAX_WHOLE_TIMES = 100  # ``read_bytes`` also accepts content of this multiple of the compressed size
_GZIP, _BZIP2, _ZSTD, _SKIPPABLE = b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd", b"\x2a\x4d\x18"  # the last: pzstd's first frame, from byte 2
_ARCHIVES = {b"PK\x03\x04": "a zip archive", b"7z\xbc\xaf": "a 7z archive", b"Rar!": "a rar archive"}
_ARCHIVES |= {
    b"\xfd7zX": "an xz file ('xz -d' unpacks it)",
    b"\4\x22M\x18": "an lz4 file ('lz4 -d' unpacks it; of ranx, save run.json instead)",
    b"\x1f\x9d": "a .Z file ('gzip -d' unpacks it)",
}
_ARROW, _PYTHON = (b"ARROW1\0", b"FEA1\0", b"\xff\xff\xff\xff"), (b"\x93NUMPY", b"\x80\2", b"\x80\3", b"\x80\4", b"\x80\5")
_TABLES = {b"SQLite format 3\0": "a SQLite database", b"PAR1\x15": "a Parquet file", b"\x89HDF": "an HDF5 file"}
_TABLES |= dict.fromkeys(_ARROW, "an Arrow or Feather file") | dict.fromkeys(_PYTHON, "a pickle or array of NumPy")
_TAR = slice(257, 262)  # place of the name of tar's format
_DEEP_NAME = re.compile(r"""(?<![\w"'-])(?:[\w"'-]+[ \t]*\.[ \t]*){100}""")  # on which tomllib spends memory of the square of its length


_version = attrgetter("st_ino", "st_size", "st_mtime_ns")


class Unchanged:
    """Files, by path or descriptor, and their sizes and times of change when this object was made; ``name`` is for messages."""

    def __init__(self, files: Iterable[Path | int], name: str = "") -> None:
        self._versions, self._name = {file: _version(os.stat(file)) for file in files}, name

    def check(self) -> None:
        """Raise ``InputError`` if a file has changed since then. A deleted file has not: it can be read while it is open."""
        for file, version in self._versions.items():
            with contextlib.suppress(FileNotFoundError):
                if _version(os.stat(file)) != version:
                    advice = "wait until nothing writes to it, and run the same command again"
                    raise InputError(f"{self._name or file} has changed while it was read: {advice}")


def check_file(path: Path) -> None:
    """Raise ``InputError`` unless a path is a file, which can be read several times."""
    if path.is_dir():
        raise InputError(f"{path} is a directory: name one file")
    if not _is_pipe(path) and not path.exists():
        raise InputError(f"there is no file {path}")
    if _is_pipe(path) or not path.is_file():
        raise InputError(f"{path} is a pipe or a device, readable only once: write it to a file first")


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading its decompressed bytes; standard input and pipes are read to their end.

    Raises:
        InputError: the file is missing, empty or unreadable, or is a directory, a device, an archive (zip, 7z, xz, rar, tar, lz4, Z), a
            binary file of a known kind, or a pointer of git LFS.
    """
    file = _open_named(path)
    with contextlib.suppress(*BROKEN_FILE):  # which its reader reports
        head = file.peek(_TAR.stop) if isinstance(file, io.BufferedReader) else b""
        if kind := kind_of(head):
            file.close()
            unpack = "unpack it first, or compress with gzip, bzip2 or zstd; of a document (docx, xlsx), export the text"
            raise InputError(f"{path} is {kind}: {TO_JSON_LINES if head.startswith((*_TABLES,)) else unpack}")
    return file


def kind_of(head: bytes) -> str:
    """Return what a file is that begins with these bytes, as words, if it is an archive or a binary file of a known kind; else ""."""
    tar = "a tar archive" if head[_TAR] == b"ustar" else ""
    return next((kind for start, kind in {**_ARCHIVES, **_TABLES}.items() if head.startswith(start)), tar)


def _open_named(path: Path) -> IO[bytes]:
    try:
        if _is_pipe(path):
            return _open_copy(path)
        check_file(path)
        if not path.stat().st_size:  # as files of /proc have it, which may wait for ever
            raise InputError(f"{path} is empty")
        refuse_pointer(path)
        return _open(path, str(path))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {explain_os_error(error)}") from error


def refuse_pointer(path: Path) -> None:
    """Raise ``InputError`` if a file, or one in a folder or its folders, is a pointer of git LFS, which stands for the file in a clone.

    A file that cannot be read is left to its reader.
    """
    with contextlib.suppress(OSError):
        for name in filter(Path.is_file, (path, *path.glob("*"), *path.glob("*/*"))):
            with name.open("rb") as file:
                if file.read(64).startswith(b"version https://git-lfs.github.com/spec/"):
                    raise InputError(f"{name} is a pointer of git LFS, not the file itself: run 'git lfs pull' there, or download the file")


@contextlib.contextmanager
def open_decompressed(path: Path) -> Iterator[IO[bytes]]:
    """Open a file as ``open_bytes`` does, and close it at the end of the ``with`` block.

    Raises:
        InputError: the content is corrupt; see also ``open_bytes``.
    """
    with open_bytes(path) as file:
        try:
            yield file
        except BROKEN_FILE as error:
            raise InputError(f"{path} is corrupt: {error}: fetch or compress it again") from error


def estimate_sizes(path: Path, n_lines: int) -> tuple[int, float]:
    """Return two decompressed sizes in bytes: of a file's first ``n_lines`` lines and, estimated, of the whole file.

    The estimate assumes that the whole file compresses as well as its first 32 MiB (or more, if the lines are longer).
    """
    n_bytes = n_line_bytes = n_found_lines = 0
    with open_bytes(path) as file:
        with contextlib.suppress(*BROKEN_FILE):  # the reader of the records reports a corrupt file
            while (n_bytes < _MEASURED_BYTES or n_found_lines < n_lines) and (chunk := file.read(_READ_BYTES)):
                n_bytes += len(chunk)
                if n_found_lines < n_lines:
                    *lines, rest = chunk.split(b"\n", n_lines - n_found_lines)
                    n_found_lines += len(lines)
                    n_line_bytes += len(chunk) - (len(rest) if n_found_lines == n_lines else 0)
        n_read = os.lseek(file.fileno(), 0, os.SEEK_CUR)
    return n_line_bytes, n_bytes * path.stat().st_size / n_read


def read_lines(file: IO[bytes], name: str, prefix: bytes = b"") -> Iterator[bytes]:
    """Yield the lines of an open file without its byte order mark; ``prefix`` is the part of the first line that the caller has read.

    Raises:
        InputError: a line is longer than ``MAX_LINE_BYTES``. Without this limit, a small compressed file could fill the memory.
    """
    number = 0
    while line := prefix + (b"" if prefix.endswith(b"\n") else file.readline(MAX_LINE_BYTES + 1 - len(prefix))):
        number, prefix = number + 1, b""
        if len(line) > MAX_LINE_BYTES:
            raise InputError(f"{name}, line {number}: the line is longer than {MAX_LINE_BYTES >> 20} MiB: write one record a line")
        yield line.removeprefix(codecs.BOM_UTF8) if number == 1 else line


def read_bytes(path: Path) -> bytes:
    """Return the decompressed bytes of a whole file without its byte order mark.

    Raises:
        InputError: the content exceeds both 256 MiB and 100 times the size of the file; see also ``open_decompressed``.
    """
    with open_decompressed(path) as file:
        limit = max(_MAX_WHOLE_BYTES, _MAX_WHOLE_TIMES * os.fstat(file.fileno()).st_size)
        content = file.read(limit + 1)
    if len(content) > limit:
        raise InputError(f"{path} is compressed and holds more than {limit:,} bytes: unpack it, and check its content")
    return content.removeprefix(codecs.BOM_UTF8)


def _is_pipe(path: Path) -> bool:
    return path == STANDARD_INPUT or path.is_fifo()


def read_text(path: Path, max_bytes: int = _MAX_WHOLE_BYTES) -> str:
    """Return the text of a file that can be read several times, without its byte order mark.

    Raises:
        InputError: the path is no file that ``check_file`` accepts, or the file has more than ``max_bytes`` or is not in UTF-8.
    """
    check_file(path)
    try:
        with _SteadyFile(path, str(path)) as file:
            content = file.read(min(path.stat().st_size, max_bytes + 1)) or b""  # of a file of /proc, which may wait for ever, nothing
            file.unchanged.check()
        if len(content) > max_bytes:
            raise InputError(f"{path} has more than {max_bytes:,} bytes: is it the right file?")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error.reason}): convert it") from error


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a file in TOML; raises ``InputError`` if it is none, and as ``read_text`` does."""
    if _DEEP_NAME.search(text := read_text(path, 1_000_000)):
        raise InputError(f"{path} has a name of more than 100 parts, which no file of idx has")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not TOML: {error}") from error


def _open_copy(pipe: Path) -> IO[bytes]:
    is_stdin = pipe == STANDARD_INPUT
    with open(0 if is_stdin else pipe, "rb", closefd=not is_stdin) as file, tempfile.NamedTemporaryFile() as copy:
        with named_errors(tempfile.gettempdir()):
            shutil.copyfileobj(file, copy)
            copy.flush()
        return _open(Path(copy.name), str(pipe))  # it is removed, but stays readable while it is open


def _open(path: Path, name: str) -> IO[bytes]:
    with path.open("rb") as file:
        magic = file.read(4)
    if not magic:
        raise InputError(f"{name} is empty")
    raw: io.RawIOBase = _SteadyFile(path, name)
    if magic.startswith(_GZIP):
        raw = _UnbufferedReader(gzip.GzipFile(fileobj=raw, mode="rb"), raw)
    elif magic.startswith(_BZIP2):
        raw = _UnbufferedReader(bz2.BZ2File(raw), raw)
    elif magic.startswith(_ZSTD) or magic[1:] == _SKIPPABLE:
        raw = _ZstdFrames(raw)
    return io.BufferedReader(raw, _READ_BYTES)


class _SteadyFile(io.FileIO):
    """A file that must not change while it is read: its end is refused if it has."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path)
        self.unchanged = Unchanged([self.fileno()], name)

    def readinto(self, buffer: bytearray | memoryview) -> int | None:  # type: ignore[override]  # the stub declares WriteableBuffer
        if not (n := super().readinto(buffer)):
            self.unchanged.check()
        return n

    read, readall = io.RawIOBase.read, io.RawIOBase.readall  # type: ignore[assignment]  # those of FileIO do not call ``readinto``


class _UnbufferedReader(io.RawIOBase):
    """Decompressed bytes of a gzip or bzip2 file, returned as soon as they are available.

    The ``readinto`` of gzip and bz2 fills the whole buffer first, and loses the buffer's content if the file is truncated.
    """

    def __init__(self, file: gzip.GzipFile | bz2.BZ2File | io.BufferedReader, raw: io.RawIOBase) -> None:
        self._file, self._raw = file, raw

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # the stub declares WriteableBuffer
        return self._file.readinto1(buffer)

    def close(self) -> None:
        self._file.close()
        self._raw.close()  # which the file leaves open
        super().close()


def _begin_frame() -> zstandard.ZstdDecompressionObj:
    return zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj()


class _ZstdFrames(_UnbufferedReader):
    """Decompressed bytes of one or more zstd frames.

    At a truncated frame this reader raises ``EOFError``, as gzip does; zstandard's stream reader ends silently.
    """

    def __init__(self, raw: io.RawIOBase) -> None:
        super().__init__(io.BufferedReader(raw, zstandard.DECOMPRESSION_RECOMMENDED_INPUT_SIZE), raw)
        self._frame = _begin_frame()
        self._is_inside = False  # whether the current frame is incomplete
        self._ready = memoryview(b"")

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # the stub declares WriteableBuffer
        while not self._ready:
            chunk = self._frame.unused_data or self._file.read(_ZSTD_BYTES)
            if not chunk:
                if self._is_inside:
                    raise EOFError("the zstd file ends inside a frame")
                return 0
            if self._frame.eof:
                self._frame = _begin_frame()
            self._ready = memoryview(self._frame.decompress(chunk))
            self._is_inside = not self._frame.eof
        n = min(len(buffer), len(self._ready))
        buffer[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        return n
