"""Each reader of corpora takes a file in any usual form, names the place where it is cut off or damaged, and notices that it changes."""

from __future__ import annotations

import bz2
import functools
import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard

from tests.conftest import read_rows
from tests.fuzz.mutating import in_memory_of
from wikidx.base.errors import InputError
from wikidx.base.plugins import VARIABLE
from wikidx.corpora.passage import BadRecord, Passage
from wikidx.corpora.reading import containers
from wikidx.corpora.reading.readers import READERS, detect_format, read
from wikidx.runtimes.questions.records import read_records

Compress = Callable[[bytes], bytes]

COMPRESSORS: dict[str, Compress] = {"gzip": gzip.compress, "bzip2": bz2.compress, "zstd": zstandard.ZstdCompressor().compress}
of_each_compression = pytest.mark.parametrize("compress", [pytest.param(compress, id=name) for name, compress in COMPRESSORS.items()])
plain_or_compressed = pytest.mark.parametrize("compress", [pytest.param(c, id=name) for name, c in {"plain": bytes, **COMPRESSORS}.items()])


class Sample(NamedTuple):
    """Two records of a format, the second one's line, and what comes out of them."""

    content: str
    second_line: int
    expected: list[Passage]


SAMPLES = {
    name: Sample(content, line, [Passage(*fields) for fields in passages])
    for name, content, line, passages in read_rows("contracts/samples.jsonl")
}
# A format by the user's own code, of records such as "1 | T | a é".
PLUG_IN = """
from wikidx.corpora.reading.containers import read_lines
from wikidx.corpora.reading.readers import Format


def read_cards(path, on_bad):
    for number, line in read_lines(path, on_bad):
        if not line.isspace():
            yield number, dict(zip(("id", "title", "text"), line.rstrip().split(" | ")))


CARDS = Format(name="cards", records=read_cards)
"""
# How the same records may stand in a file: the bytes, and the lines that are before them.
FORMS: dict[str, tuple[Callable[[bytes], bytes], int]] = {
    "plain": (bytes, 0),
    "byte order mark": (lambda content: b"\xef\xbb\xbf" + content, 0),
    "CRLF": (lambda content: content.replace(b"\n", b"\r\n"), 0),
    "no newline at the end": (lambda content: content[:-1], 0),
    "blank lines": (lambda content: b"\n \n" + content + b"\n\t\n", 2),
    **{name: (compress, 0) for name, compress in COMPRESSORS.items()},
    "members": (lambda content: gzip.compress(content[:20]) + gzip.compress(b"") + gzip.compress(content[20:]), 0),
    "streams": (lambda content: bz2.compress(content[:20]) + bz2.compress(content[20:]), 0),
    "frames": (lambda content: zstandard.compress(content[:20]) + _skipped(0x50) + zstandard.compress(content[20:]) + _skipped(0x5F), 0),
    "a frame to skip first": (lambda content: _skipped(0x5F) + zstandard.compress(content), 0),
    "a mark in gzip": (lambda content: gzip.compress(b"\xef\xbb\xbf" + content), 0),
}


def _skipped(number: int) -> bytes:
    """A frame of zstd that readers skip."""
    return bytes([number]) + b"\x2a\x4d\x18\x04\0\0\0size"


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("plug-in") / "cards.py"
    file.write_text(PLUG_IN)
    return f"{file}:CARDS"


@pytest.fixture(autouse=True)
def plugged(cards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, cards)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("file_format", SAMPLES)
def test_records_are_the_same_in_every_form_of_file(tmp_path: Path, file_format: str, form: str) -> None:
    (content, second_line, expected), (write, n_before), path = SAMPLES[file_format], FORMS[form], tmp_path / "data.gz"
    path.write_bytes(write(content.encode()))
    if form == "CRLF":  # part of an article's text
        expected = [passage._replace(text=passage.text.replace("\n", "\r\n")) if "doc" in content else passage for passage in expected]
    if file_format in READERS:  # plug-ins are used if they are named
        assert detect_format(path) == file_format
    found = list(read(path, file_format))
    assert [one.passage for one in found] == expected
    assert {one.file for one in found} == {str(path)}
    assert found[1].line == n_before + second_line


@pytest.mark.parametrize("file_format", SAMPLES)
def test_a_file_of_blank_lines_has_no_records(tmp_path: Path, file_format: str) -> None:
    (tmp_path / "data").write_text("\n \n\t \r\n")
    assert list(read(tmp_path / "data", file_format)) == []


def rows(n: int) -> bytes:
    """JSON lines that do not compress to nothing, so that a cut file still has whole blocks before the cut."""
    return b"".join(b'{"id": "%d", "text": "%s"}\n' % (row, os.urandom(60).hex().encode()) for row in range(n))


def ids_and_corruption(path: Path) -> tuple[list[str], str]:
    """Read a corrupt file as ``--on-error skip`` does: the ids before the corruption, and the message on it."""
    ids: list[str] = []
    with pytest.raises(InputError) as corruption:
        ids.extend(found.passage.id for found in read(path, "jsonl", lambda bad: None))
    return ids, str(corruption.value)


@of_each_compression
@pytest.mark.parametrize("file_format", SAMPLES)
def test_a_file_that_is_cut_off_is_refused_with_its_line(tmp_path: Path, compress: Compress, file_format: str) -> None:
    (tmp_path / "data").write_bytes(compress(SAMPLES[file_format].content.encode())[:-3])
    with pytest.raises(InputError, match=r"data, line \d+: the file is cut off or corrupt here \(.+\); fetch or compress it again"):
        list(read(tmp_path / "data", file_format))


@of_each_compression
def test_rows_before_the_cut_come_out(tmp_path: Path, compress: Compress) -> None:
    n_rows = 8000
    parts = [rows(n_rows), rows(n_rows)]
    (tmp_path / "data").write_bytes(b"".join(map(compress, parts))[:-3])
    ids, corruption = ids_and_corruption(tmp_path / "data")
    n_sure = parts[1][: len(parts[1]) // (128 << 10) * (128 << 10)].count(b"\n") if compress is COMPRESSORS["zstd"] else n_rows
    assert ids == [str(row) for row in [*range(n_rows), *range(len(ids) - n_rows)]]
    assert len(ids) >= n_rows + n_sure  # all of them where only the checksum is cut, else whole blocks
    assert corruption.startswith(f"{tmp_path / 'data'}, line {len(ids) + 1}: the file is cut off or corrupt here")


@of_each_compression
def test_damage_in_the_middle_is_reported(tmp_path: Path, compress: Compress) -> None:
    compressed = bytearray(compress(rows(8000)) + compress(rows(8000)))
    middle = len(compressed) // 2
    compressed[middle - 50_000 : middle + 50_000] = b"\xff" * 100_000
    (tmp_path / "data").write_bytes(compressed)
    ids, corruption = ids_and_corruption(tmp_path / "data")
    assert ids[:1000] == [str(row) for row in range(1000)]
    assert "the file is cut off or corrupt here" in corruption


@plain_or_compressed
def test_a_line_that_would_fill_the_memory_is_left_out(tmp_path: Path, compress: Compress, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 MB of one line, of which a compressed file has some kilobytes; a line may have 1 MB here."""
    monkeypatch.setattr(containers, "MAX_RECORD_BYTES", 1 << 20)
    (tmp_path / "data").write_bytes(compress(b'{"id": "' + bytes(60 << 20) + b'\n{"id": "g", "text": "good"}\n'))
    bad: list[BadRecord] = []
    with in_memory_of((50 if compress is COMPRESSORS["zstd"] else 8) << 20):
        found = [(one.line, one.passage.id) for one in read(tmp_path / "data", "jsonl", bad.append)]
    assert found == [(2, "g")]
    assert bad == [(str(tmp_path / "data"), 1, "the line is longer than 1 MiB")]


@of_each_compression
def test_reading_that_is_given_up_leaves_no_file_open(tmp_path: Path, compress: Compress) -> None:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("needs Linux's list of open files")
    (tmp_path / "data").write_bytes(compress(rows(5000)))
    n_open = len(os.listdir("/proc/self/fd"))
    reading = read(tmp_path / "data", "jsonl")
    assert next(reading).passage.id == "0"
    del reading
    assert len(os.listdir("/proc/self/fd")) == n_open


def _cut(path: Path) -> None:
    os.truncate(path, path.read_bytes().rindex(b"\n", 0, -1) + 1)


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(path.read_bytes())


def _rewrite(path: Path) -> None:
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(0, 0))


@functools.cache
def packed(compress: Compress) -> bytes:
    """15,000 records: far more than is read ahead."""
    return compress(rows(15_000))


READING = [*((lambda path: read(path, "jsonl"), compress) for compress in (bytes, *COMPRESSORS.values())), (read_records, bytes)]


@pytest.mark.parametrize("change", [_cut, _append, _rewrite])
@pytest.mark.parametrize(("read_file", "compress"), READING)
def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, read_file: Callable[[Path], Iterator[object]], compress: Compress, change: Callable[[Path], None]
) -> None:
    """It is never taken for a shorter or longer one, even if it changes between two lines."""
    path = tmp_path / "data"
    path.write_bytes(packed(compress))
    reading = read_file(path)
    next(reading)
    change(path)
    with pytest.raises(InputError, match=f"^{path} has changed while it was read: wait until nothing writes to it"):
        list(reading)


def test_a_file_that_is_deleted_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(packed(bytes))
    reading = read(tmp_path / "data", "jsonl")
    next(reading)
    (tmp_path / "data").unlink()
    assert len(list(reading)) == 14_999
