from __future__ import annotations

import bz2
import errno
import gzip
import io
import os
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from wikidx.base.errors import InputError
from wikidx.corpora.reading import compression, containers
from wikidx.corpora.reading.compression import open_bytes, read_bytes, read_lines
from wikidx.corpora.reading.readers import read
from wikidx.corpora.resolving import resolve

TAR = tarfile.TarInfo("passages.jsonl").tobuf()


def rows(n: int) -> bytes:
    """JSON lines that do not compress to nothing."""
    return b"".join(b'{"id": "%d", "text": "%s"}\n' % (row, os.urandom(60).hex().encode()) for row in range(n))


@pytest.mark.parametrize("window_log", [20, 27, 31])  # the last: "zstd --long=31"
def test_zstd_frames_of_unknown_size_are_read(tmp_path: Path, window_log: int) -> None:
    content = rows(20_000)
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=window_log)
    with zstandard.open(tmp_path / "data", "wb", cctx=zstandard.ZstdCompressor(compression_params=parameters)) as file:
        for start in range(0, len(content), 10_000):
            file.write(content[start : start + 10_000])
    with open_bytes(tmp_path / "data") as read_back:
        assert read_back.read() == content


def test_a_disk_that_refuses_to_read_is_no_bad_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            if self.tell():
                raise OSError(errno.EIO, "Input/output error")
            return super().readline(size)

    monkeypatch.setattr(containers, "open_bytes", lambda path: Failing(rows(3)))
    reading = read(tmp_path / "data", "jsonl", lambda bad: None)
    assert next(reading).passage.id == "0"
    with pytest.raises(InputError, match=f"^{tmp_path / 'data'}, line 2: the file cannot be read here .Input/output error.$"):
        next(reading)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(b"", "data is empty", id="empty"),
        pytest.param(b"PK\x03\x04rest", "data is a zip archive: unpack it first, or compress with gzip, bzip2 or zstd", id="zip"),
        pytest.param(b"7z\xbc\xaf\x27\x1c", "data is a 7z archive", id="7z"),
        pytest.param(b"\xfd7zXZ\x00", "data is an xz file", id="xz"),
        pytest.param(
            b"\4\x22M\x18dp", r"data is an lz4 file \('lz4 -d' unpacks it; of ranx, save run.json instead\): unpack it first", id="lz4"
        ),
        pytest.param(b"\x1f\x9d\x90x", r"data is a .Z file \('gzip -d' unpacks it\)", id="Z"),
        pytest.param(b"Rar!\x1a\x07", "data is a rar archive", id="rar"),
        pytest.param(b"SQLite format 3\0\x10", "data is a SQLite database: write its rows as JSON Lines", id="SQLite"),
        pytest.param(gzip.compress(b"SQLite format 3\0\x10"), "data is a SQLite database", id="SQLite in gzip"),
        pytest.param(b"PAR1\x15\4", "data is a Parquet file", id="Parquet"),
        pytest.param(b"ARROW1\0\0", "data is an Arrow or Feather file", id="Arrow"),
        pytest.param(b"\x89HDF\r\n", "data is an HDF5 file", id="HDF5"),
        pytest.param(b"\x80\4\x95", "data is a pickle or array of NumPy", id="pickle"),
        pytest.param(TAR, "data is a tar archive: unpack it first", id="tar"),
        pytest.param(gzip.compress(TAR), "data is a tar archive: unpack it first", id="tar.gz"),
    ],
)
def test_file_that_cannot_be_decompressed_is_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "data").write_bytes(content)
    with pytest.raises(InputError, match=complaint):
        open_bytes(tmp_path / "data")


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("", "is a directory: name one file$"),
        ("none", "^there is no file .*/none$"),
        ("/dev/zero", "^/dev/zero is a pipe or a device, readable only once: write it to a file first$"),
        ("a" * 300, "cannot be read: File name too long"),
    ],
    ids=["directory", "missing", "device", "long name"],
)
def test_what_is_no_file_is_refused(tmp_path: Path, path: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        open_bytes(tmp_path / path)


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, zstandard.compress], ids=["plain", "gzip", "bzip2", "zstd"])
def test_a_pipe_is_read_to_its_end(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    content, pipe = rows(8000), tmp_path / "pipe"  # more than a pipe holds at a time
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_bytes, args=(compress(content),), daemon=True).start()
    assert read_bytes(pipe) == content


def test_a_corpus_in_a_pipe_is_refused_before_anything_is_taken_from_it(tmp_path: Path) -> None:
    """A build reads its file several times, and once more when it is resumed."""
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "-"):
        with pytest.raises(InputError, match=f"^{path} is a pipe or a device, readable only once: write it to a file first$"):
            resolve(path, name="mine")


def test_a_line_is_given_up_behind_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "MAX_LINE_BYTES", 5)
    assert list(read_lines(io.BytesIO(b"1234\n\nab"), "made")) == [b"1234\n", b"\n", b"ab"]
    assert list(read_lines(io.BytesIO(b"34\nab"), "made", b"12")) == [b"1234\n", b"ab"]
    assert list(read_lines(io.BytesIO(b"ab"), "made", b"12\n")) == [b"12\n", b"ab"]
    with pytest.raises(InputError, match="made, line 2: the line is longer than"):
        list(read_lines(io.BytesIO(b"1\n12345\n"), "made"))


def test_a_file_is_held_whole_within_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "_MAX_WHOLE_BYTES", 1_000)
    (tmp_path / "made").write_bytes(bytes(1_001))
    assert read_bytes(tmp_path / "made") == bytes(1_001)  # a plain file may have any size
    (tmp_path / "made").write_bytes(gzip.compress(bytes(1 << 20)))
    with pytest.raises(InputError, match="is compressed and holds more than"):
        read_bytes(tmp_path / "made")
