from __future__ import annotations

import bz2
import errno
import gzip
import io
import os
import tarfile
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

from wikidx.base.errors import InputError
from wikidx.corpora.reading import compression, readers
from wikidx.corpora.reading.compression import open_bytes, read_bytes, read_lines
from wikidx.corpora.reading.readers import detect_format, read
from wikidx.corpora.resolving import resolve
from wikidx.runtimes.questions.records import read_records

Compress = Callable[[bytes], bytes]

COMPRESSORS: dict[str, Compress] = {"gzip": gzip.compress, "bzip2": bz2.compress, "zstd": zstandard.ZstdCompressor().compress}
TAR = tarfile.TarInfo("passages.jsonl").tobuf()
COMPRESSED = [pytest.param(compress, id=name) for name, compress in COMPRESSORS.items()]


def rows(n: int) -> bytes:
    """JSON lines that do not compress to nothing, so that a cut file still has whole blocks before the cut."""
    return b"".join(b'{"id": "%d", "text": "%s"}\n' % (row, os.urandom(60).hex().encode()) for row in range(n))


def ids_and_corruption(path: Path) -> tuple[list[str], str]:
    """Read a corrupt file as ``--on-error skip`` does: the ids before the corruption, and the message on it."""
    ids: list[str] = []
    with pytest.raises(InputError) as corruption:
        ids.extend(found.passage.id for found in read(path, "jsonl", lambda bad: None))
    return ids, str(corruption.value)


@pytest.mark.parametrize("compress", [pytest.param(bytes, id="plain"), *COMPRESSED])
@pytest.mark.parametrize("name", ["data", "data.gz", "data.zst"])
def test_bytes_come_out_whatever_the_name(tmp_path: Path, compress: Compress, name: str) -> None:
    content = rows(8000)
    (tmp_path / name).write_bytes(compress(content))
    with open_bytes(tmp_path / name) as file:
        assert file.read() == content


@pytest.mark.parametrize("number", [0x50, 0x5F])
def test_zstd_may_begin_with_a_frame_to_skip(tmp_path: Path, number: int) -> None:
    skipped = bytes([number]) + b"\x2a\x4d\x18\x04\0\0\0size"
    content = rows(8000)
    (tmp_path / "data").write_bytes(skipped + COMPRESSORS["zstd"](content) + skipped + COMPRESSORS["zstd"](content))
    with open_bytes(tmp_path / "data") as file:
        assert file.read() == content + content


@pytest.mark.parametrize("compress", COMPRESSED)
def test_several_members_are_read_as_one(tmp_path: Path, compress: Compress) -> None:
    first, second = rows(10), rows(8000)
    (tmp_path / "data").write_bytes(compress(first) + compress(b"") + compress(second))
    with open_bytes(tmp_path / "data") as file:
        assert file.read() == first + second


def test_zstd_frames_of_unknown_size_are_read(tmp_path: Path) -> None:
    content = rows(20_000)
    with zstandard.open(tmp_path / "data", "wb") as file:
        for start in range(0, len(content), 10_000):
            file.write(content[start : start + 10_000])
    with open_bytes(tmp_path / "data") as read_back:
        assert read_back.read() == content


@pytest.mark.parametrize("compress", COMPRESSED)
@pytest.mark.parametrize("file_format", ["tsv", "jsonl", "wikiextractor"])
def test_cut_file_fails_with_file_and_line(tmp_path: Path, compress: Compress, file_format: str) -> None:
    good = {"tsv": "1\ta\tT\n", "jsonl": '{"id": "1", "text": "a"}\n', "wikiextractor": '<doc id="1" title="T">\na\n</doc>\n'}[file_format]
    (tmp_path / "data").write_bytes(compress(good.encode())[:-3])
    with pytest.raises(InputError, match=r"data, line \d: the file is cut off or corrupt here \(.+\); fetch or compress it again"):
        list(read(tmp_path / "data", file_format))


@pytest.mark.parametrize("compress", COMPRESSED)
@pytest.mark.parametrize("n_rows", [pytest.param(1000, id="small"), pytest.param(8000, id="large")])
def test_rows_before_the_cut_come_out(tmp_path: Path, compress: Compress, n_rows: int) -> None:
    compressed = b"".join(compress(part) for part in (rows(n_rows), rows(n_rows)))
    (tmp_path / "data").write_bytes(compressed[:-3])
    ids, corruption = ids_and_corruption(tmp_path / "data")
    assert ids[:n_rows] == [str(row) for row in range(n_rows)]
    assert ids[n_rows:] == [str(row) for row in range(len(ids) - n_rows)]
    assert corruption.startswith(f"{tmp_path / 'data'}, line {len(ids) + 1}: the file is cut off or corrupt here")


@pytest.mark.parametrize("compress", COMPRESSED[:2])
def test_all_rows_come_out_where_only_the_checksum_is_cut(tmp_path: Path, compress: Compress) -> None:
    (tmp_path / "data").write_bytes(compress(rows(3000))[:-3])
    ids, corruption = ids_and_corruption(tmp_path / "data")
    assert ids == [str(row) for row in range(3000)]
    assert "data, line 3001: the file is cut off" in corruption


def test_zstd_rows_come_out_up_to_the_block_that_is_cut(tmp_path: Path) -> None:
    content = rows(3000)
    (tmp_path / "data").write_bytes(zstandard.compress(content)[:-3])
    ids, corruption = ids_and_corruption(tmp_path / "data")
    assert len(ids) >= content[: 3 * (128 << 10)].count(b"\n")
    assert "the file is cut off or corrupt here (the zstd file ends inside a frame)" in corruption


@pytest.mark.parametrize("compress", COMPRESSED)
def test_corruption_in_the_middle_is_reported(tmp_path: Path, compress: Compress) -> None:
    compressed = bytearray(compress(rows(8000)) + compress(rows(8000)))
    middle = len(compressed) // 2
    compressed[middle - 50_000 : middle + 50_000] = b"\xff" * 100_000
    (tmp_path / "data").write_bytes(compressed)
    ids, corruption = ids_and_corruption(tmp_path / "data")
    assert ids[:1000] == [str(row) for row in range(1000)]
    assert "the file is cut off or corrupt here" in corruption


def test_a_disk_that_refuses_to_read_is_no_bad_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            if self.tell():
                raise OSError(errno.EIO, "Input/output error")
            return super().readline(size)

    monkeypatch.setattr(readers, "open_bytes", lambda path: Failing(rows(3)))
    ids, corruption = ids_and_corruption(tmp_path / "data")
    assert ids == ["0"]
    assert corruption == f"{tmp_path / 'data'}, line 2: the file cannot be read here (Input/output error)"


@pytest.mark.parametrize("compress", COMPRESSED)
def test_format_is_detected_in_a_compressed_file(tmp_path: Path, compress: Compress) -> None:
    (tmp_path / "data").write_bytes(compress(rows(5000)))
    assert detect_format(tmp_path / "data") == "jsonl"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(b"", "data is empty", id="empty"),
        pytest.param(b"PK\x03\x04rest", "data is a zip archive: unpack it first, or compress with gzip, bzip2 or zstd", id="zip"),
        pytest.param(b"7z\xbc\xaf\x27\x1c", "data is a 7z archive", id="7z"),
        pytest.param(b"\xfd7zXZ\x00", "data is an xz file", id="xz"),
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


def test_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^{tmp_path} is a directory: name one file$"):
        open_bytes(tmp_path)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^there is no file {tmp_path}/none$"):
        open_bytes(tmp_path / "none")


@pytest.mark.parametrize("compress", [pytest.param(bytes, id="plain"), *COMPRESSED])
def test_a_pipe_is_read_to_its_end(tmp_path: Path, compress: Compress) -> None:
    content, pipe = rows(8000), tmp_path / "pipe"  # more than a pipe holds at a time
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_bytes, args=(compress(content),), daemon=True).start()
    assert read_bytes(pipe) == content


def test_a_device_is_refused() -> None:
    with pytest.raises(InputError, match="^/dev/zero is a pipe or a device, readable only once: write it to a file first$"):
        open_bytes(Path("/dev/zero"))


def test_a_corpus_in_a_pipe_is_refused_before_anything_is_taken_from_it(tmp_path: Path) -> None:
    """A build reads its file several times, and once more when it is resumed."""
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "-"):
        with pytest.raises(InputError, match=f"^{path} is a pipe or a device, readable only once: write it to a file first$"):
            resolve(path, name="mine")


def test_name_too_long_for_the_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: File name too long"):
        open_bytes(tmp_path / ("a" * 300))


@pytest.mark.parametrize("compress", COMPRESSED)
def test_reading_that_is_given_up_leaves_no_file_open(tmp_path: Path, compress: Compress) -> None:
    (tmp_path / "data").write_bytes(compress(rows(5000)))
    n_open = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
    reading = read(tmp_path / "data", "jsonl")
    assert next(reading).passage.id == "0"
    del reading
    assert (len(os.listdir("/proc/self/fd")) if n_open else 0) == n_open


def test_memory_does_not_grow_with_what_a_zstd_file_unpacks_to(tmp_path: Path) -> None:
    """16 KB that are 512 MB; all at once they would be as much."""
    packed = zstandard.ZstdCompressor().compressobj()
    (tmp_path / "made").write_bytes(b"".join(packed.compress(bytes(1 << 20)) for _ in range(512)) + packed.flush())
    tracemalloc.start()
    try:
        with open_bytes(tmp_path / "made") as file:
            assert file.read(10) == bytes(10)
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()


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


def _cut(path: Path) -> None:
    os.truncate(path, path.read_bytes().rindex(b"\n", 0, -1) + 1)


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(path.read_bytes())


def _rewrite(path: Path) -> None:
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(0, 0))


@pytest.mark.parametrize("change", [_cut, _append, _rewrite])
@pytest.mark.parametrize("compress", [pytest.param(bytes, id="plain"), *COMPRESSED])
@pytest.mark.parametrize("read_file", [lambda path: read(path, "jsonl"), read_records])
def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, read_file: Callable[[Path], Iterator[object]], compress: Compress, change: Callable[[Path], None]
) -> None:
    """It is never taken for a shorter or longer one, even if it changes between two lines."""
    path = tmp_path / "data"
    path.write_bytes(compress(rows(30_000)))
    reading = read_file(path)
    next(reading)
    change(path)
    with pytest.raises(InputError, match=f"^{path} has changed while it was read: wait until nothing writes to it"):
        list(reading)


def test_a_file_that_is_deleted_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(rows(30_000))
    reading = read(path, "jsonl")
    next(reading)
    path.unlink()
    assert len(list(reading)) == 29_999
