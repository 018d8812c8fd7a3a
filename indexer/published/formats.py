"""Readers of published embeddings: files in several formats -> blocks of ids and vectors.

    contriever  (ids, float array) pickled, one file or several, in a tar as published or in a folder
    dpr         a list of (id, float array) pickled, one file or several (``wiki_passages_0`` and so on) in a folder
    array       one pickled float array without ids: row r of the corpus is row r of the array (ALCE's GTR index)
    pyserini    a folder, or a tar of one, with a flat FAISS ``index`` and ``docid``, one id a line
    flat        a flat FAISS index without ids, in one file or in parts (FlashRAG, Search-R1): as ``array``

Nothing is extracted to disk, and no code in a file is run. ``dpr`` is read one file at a time; vectors of the others are read as
they are needed. (Sources: facebookresearch/contriever, generate_passage_embeddings.py;
facebookresearch/DPR, generate_dense_embeddings.py; princeton-nlp/ALCE, retrieval.py; facebookresearch/faiss, faiss/impl/index_write.cpp.)
"""

from __future__ import annotations

import contextlib
import io
import lzma
import re
import struct
import tarfile
import zlib
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

import numpy as np

from wikidx.corpora.artifacts.durable import file_sha256
from wikidx.corpora.errors import InputError, StorageError
from wikidx.corpora.progress import Progress, silent
from wikidx.indexer.base import StoredVectors

from .pickles import Array, Extent, read_pickle

FORMATS = ("contriever", "dpr", "array", "pyserini", "flat")

_BLOCK_ROWS = 8_192
_BLOCK_BYTES = 64 << 20
_MAX_DIM = 1 << 16
_FLAT = (b"IxFI", b"IxF2", b"IxFl")  # FAISS: inner product, Euclidean distance, any
_FAISS_HEADER = struct.Struct("<4siqqq?i")  # kind, dimension, vectors, two unused numbers, is_trained, metric
_MAX_ID_BYTES = 1 << 16
_CHUNK_BYTES = 1 << 20
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")  # gzip, bzip2, xz: supported by ``tarfile``


class Block(NamedTuple):
    """A block of consecutive embeddings: float16 or float32 of shape (n, dim), and their ids.

    Where the format has no ids, ``ids`` is None and the first vector is that of row ``first``.
    """

    ids: list[str] | None
    first: int
    vectors: StoredVectors


class Embeddings(NamedTuple):
    """Published embeddings on this machine.

    Attributes:
        name: the user's name for them.
        format: one of ``FORMATS``, or "pickles", whose format is detected while reading.
        files: in reading order; of a folder ``pyserini`` the ids, then the index.
        origins: origin of each file: its address if it was downloaded, otherwise its path.
        sha256: of each file, where known.
    """

    name: str
    format: str
    files: tuple[Path, ...]
    origins: tuple[str, ...]
    sha256: tuple[str, ...] = ()

    def blocks(self) -> Generator[Block]:
        """Yield all embeddings.

        Raises:
            InputError: they are corrupt or not in the format.
            StorageError: a disk error in reading.
        """
        read = {"pyserini": _pyserini, "flat": _flat}.get(self.format, _pickles)
        with _read_errors(self.name):
            yield from read(self)


def find_embeddings(path: Path, format_: str | None = None) -> Embeddings:
    """Return the embeddings at a path, a file or a folder; the format is detected from names and first bytes unless it is given.

    Raises:
        InputError: there is nothing, or nothing in a supported format.
        StorageError: a disk error in reading.
    """
    if format_ not in (None, *FORMATS):
        raise InputError(f"--format {format_}: say one of {', '.join(FORMATS)}")
    if path.is_dir():
        files = sorted((file for file in path.iterdir() if file.is_file() and not file.name.startswith(".")), key=_natural)
    elif path.is_file():
        files = [path]
    else:
        raise InputError(f"there is no file or folder {path}")
    if not files:
        raise InputError(f"the folder {path} is empty")
    with _read_errors(path):
        found = _detected(path, files)
    if found == "pyserini" and path.is_dir():
        files = [path / "docid", path / "index"]
    if format_ is not None and found not in (format_, "pickles") or (found == "pickles" and format_ in ("pyserini", "flat")):
        raise InputError(f"{path} is not in the format '{format_}': it looks like {found}")
    return Embeddings(str(path), format_ or found, tuple(files), tuple(str(file.absolute()) for file in files))


def hashed(source: Embeddings, progress: Progress = silent) -> Embeddings:
    """Return the embeddings with the checksums of their files; ``progress`` is called with (bytes read, bytes).

    Raises:
        StorageError: a disk error in reading.
    """
    found, n_done = list[str](), 0
    with _read_errors(source.name):
        n_bytes = sum(file.stat().st_size for file in source.files)
        for file in source.files:
            before = n_done
            found.append(file_sha256(file, lambda done: progress(before + done, n_bytes)))  # noqa: B023 - used at once
            n_done += file.stat().st_size
    return source._replace(sha256=tuple(found))


def _natural(file: Path) -> list[str | int]:
    """Return a sort key that puts ``wiki_passages_10`` after ``wiki_passages_9``."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", file.name)]


def _detected(path: Path, files: Sequence[Path]) -> str:
    """Return "pyserini", "flat", or "pickles", whose content is detected while reading."""
    names = {file.name for file in files}
    if path.is_dir() and {"docid", "index"} <= names:
        return "pyserini"
    if path.is_file() and tarfile.is_tarfile(path):
        with tarfile.open(path) as tar:
            first = next((PurePosixPath(member.name).name for member in tar if member.isfile()), "")
        return "pyserini" if first in ("docid", "index") else "pickles"
    with files[0].open("rb") as file:
        begin = file.read(6)
    if begin[:4] in _FLAT:
        return "flat"
    if begin[:1] == b"\x80":
        return "pickles"
    if begin[:2] in (b"Ix", b"Iw", b"IH", b"IL"):
        raise InputError(
            f"{files[0]} is a FAISS index of type '{begin[:4].decode(errors='replace')}': only flat ones hold the vectors themselves"
        )
    if begin.startswith(_COMPRESSED):
        raise InputError(
            f"{files[0]} is compressed, but no tar: it is cut off or damaged, or holds something else, which is none of the formats "
            f"{', '.join(FORMATS)}"
        )
    raise InputError(f"{files[0]} begins with {begin[:4]!r}, which is none of the formats {', '.join(FORMATS)}")


@contextlib.contextmanager
def _read_errors(name: str | Path) -> Iterator[None]:
    """Translate exceptions of reading a source; those of bzip2 and gzip are OSErrors without a number."""
    try:
        yield
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError) as error:
        raise InputError(f"{name} is cut off or damaged: {error}") from error
    except OSError as error:
        if error.errno is None:
            raise InputError(f"{name} is cut off or damaged: {error}") from error
        raise StorageError(f"{name} cannot be read: {error.strerror}") from error


def _members(path: Path) -> Generator[tuple[str, IO[bytes]]]:
    """Yield the plain files of a tar with their names; names that would leave the folder, and links, are refused."""
    with tarfile.open(path) as tar:
        for member in tar:
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts or not (member.isfile() or member.isdir()):
                raise InputError(f"{path} has the member '{member.name}', which is no plain file of its own: it is refused")
            file = tar.extractfile(member)
            if file is not None and not name.name.startswith("."):
                with file:
                    yield name.name, file
        _check_end(path, tar)


def _check_end(path: Path, tar: tarfile.TarFile) -> None:
    """Raise ``InputError`` unless a tar ends properly: ``tarfile`` accepts one cut off between members.

    It is read to its very end, where the checksum of a compressed one is verified.
    """
    file = tar.fileobj
    if file is not None:
        file.seek(tar.offset)
        if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise InputError(f"{path} is cut off: it does not end as a tar does")
        while file.read(_CHUNK_BYTES):
            pass


def _pickles(source: Embeddings) -> Iterator[Block]:
    """Read pickles of any kind: ``contriever``, ``dpr`` or ``array``."""
    first = 0
    for name, file in _pickle_files(source):
        for kind, block in _pickle(file, name, first):
            if source.format not in ("pickles", kind):
                raise InputError(f"{name} is not in the format '{source.format}': it looks like {kind}")
            first += len(block.vectors)
            yield block


def _pickle_files(source: Embeddings) -> Iterator[tuple[str, IO[bytes]]]:
    for path in source.files:
        if tarfile.is_tarfile(path):
            for name, file in _members(path):
                yield f"{path}, member {name}", file
        else:
            with path.open("rb") as file:
                yield str(path), file


def _pickle(file: IO[bytes], name: str, first: int) -> Iterator[tuple[str, Block]]:
    """Yield the blocks of one pickle, each with its format."""
    match read_pickle(file, name):
        case Array() as array:
            for start, vectors in _rows_of(array, file, name):
                yield "array", Block(None, first + start, vectors)
        case (list() as ids, Array(shape=(n_vectors, _)) as array) if n_vectors == len(ids) and all(
            isinstance(id_, str | int) for id_ in ids
        ):
            for start, vectors in _rows_of(array, file, name):
                yield "contriever", Block(list(map(str, ids[start : start + len(vectors)])), first + start, vectors)
        case (list() as ids, Array(shape=shape)):
            raise InputError(f"{name} has {len(ids):,} ids for an array of shape {shape}")
        case list() as pairs:
            for start in range(0, len(pairs), _BLOCK_ROWS):
                yield "dpr", _pairs(pairs[start : start + _BLOCK_ROWS], name)
        case _:
            raise InputError(f"{name} holds neither (ids, array), nor a list of (id, array), nor an array")


def _pairs(items: Sequence[object], name: str) -> Block:
    """Return the block of (id, vector) pairs."""
    ids, arrays = list[str](), list[Array]()
    for item in items:
        match item:
            case (str() | int() as id_, Array(shape=(_,), data=bytes()) as array) if array.data:
                ids.append(str(id_))
                arrays.append(array)
            case _:
                raise InputError(f"{name} holds an item that is not (id, vector)")
    shapes = {(array.shape, array.dtype) for array in arrays}
    if len(shapes) > 1:
        raise InputError(f"{name} has vectors of several shapes or types: {', '.join(f'{dtype} {shape}' for shape, dtype in shapes)}")
    vectors = np.frombuffer(b"".join(bytes(array.data) for array in arrays), dtype=arrays[0].dtype)
    return Block(ids, 0, vectors.reshape(len(arrays), -1))


def _rows_of(array: Array, file: IO[bytes], name: str) -> Iterator[tuple[int, StoredVectors]]:
    """Yield the rows of a pickled array, with the number of the first, read from the file on demand."""
    if len(array.shape) != 2 or array.shape[1] < 1:
        raise InputError(f"{name} holds an array of shape {array.shape} instead of (vectors, dimension)")
    n_vectors, dim = array.shape
    data = io.BytesIO(array.data) if isinstance(array.data, bytes) else file
    data.seek(array.data.start if isinstance(array.data, Extent) else 0)
    yield from _blocks_of(data, n_vectors, dim, array.dtype, name)


def _blocks_of(file: IO[bytes], n_vectors: int, dim: int, dtype: np.dtype[np.floating], name: str) -> Iterator[tuple[int, StoredVectors]]:
    """Yield consecutive vectors in a file, with the number of the first."""
    most_rows = min(_BLOCK_ROWS, max(1, _BLOCK_BYTES // (dim * dtype.itemsize)))
    for start in range(0, n_vectors, most_rows):
        n_rows = min(most_rows, n_vectors - start)
        content = file.read(n_rows * dim * dtype.itemsize)
        if len(content) != n_rows * dim * dtype.itemsize:
            raise InputError(f"{name} is cut off: it ends within the vectors {start:,} to {start + n_rows:,} of {n_vectors:,}")
        yield start, np.frombuffer(content, dtype=dtype).reshape(n_rows, dim)


def _flat(source: Embeddings) -> Iterator[Block]:
    with _Joined(source.files) as parts, io.BufferedReader(parts, _CHUNK_BYTES) as file:
        _, blocks = _flat_index(file, source.name)
        for start, vectors in blocks:
            yield Block(None, start, vectors)


def _pyserini(source: Embeddings) -> Iterator[Block]:
    with contextlib.ExitStack() as stack:
        ids = _ids(stack.enter_context(_part(source, "docid")), source.name)
        n_vectors, blocks = _flat_index(stack.enter_context(_part(source, "index")), source.name)
        if n_vectors != len(ids):
            raise InputError(f"{source.name} has {n_vectors:,} vectors and {len(ids):,} ids")
        for start, vectors in blocks:
            yield Block(ids[start : start + len(vectors)], start, vectors)


@contextlib.contextmanager
def _part(source: Embeddings, name: str) -> Iterator[IO[bytes]]:
    """Open one of Pyserini's two files."""
    if len(source.files) > 1:
        with source.files[name == "index"].open("rb") as file:
            yield file
        return
    with contextlib.closing(_members(source.files[0])) as members:
        found = next((file for member, file in members if member == name), None)
        if found is None:
            raise InputError(f"{source.name} has no member '{name}'")
        yield found
        if name == "index":  # the last one read
            for _ in members:  # reads to the end of the tar
                pass


def _ids(file: IO[bytes], name: str) -> list[str]:
    ids = list[str]()
    while line := file.readline(_MAX_ID_BYTES):
        ids.append(line.decode(errors="replace").strip())
        if len(line) == _MAX_ID_BYTES:
            raise InputError(f"{name}: line {len(ids):,} of docid is no id")
    return ids


def _flat_index(file: IO[bytes], name: str) -> tuple[int, Iterator[tuple[int, StoredVectors]]]:
    """Return the number of vectors of a flat FAISS index, and its blocks."""
    header = file.read(_FAISS_HEADER.size + 8)
    if len(header) < _FAISS_HEADER.size + 8 or header[:4] not in _FLAT:
        raise InputError(f"{name} is no flat FAISS index, or cut off: it begins with {header[:4]!r}")
    _, dim, n_vectors, *_ = _FAISS_HEADER.unpack_from(header)
    (n_numbers,) = struct.unpack_from("<Q", header, _FAISS_HEADER.size)
    if not 1 <= dim <= _MAX_DIM or n_vectors < 0 or n_numbers != n_vectors * dim:
        raise InputError(f"{name} is damaged: it says {n_vectors:,} vectors of dimension {dim} and {n_numbers:,} numbers")
    return n_vectors, _blocks_of(file, n_vectors, dim, np.dtype("<f4"), name)


class _Joined(io.RawIOBase):
    """Several files read as one stream."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._rest = list(files)
        self._file: IO[bytes] | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while self._file or self._rest:
            if self._file is None:
                self._file = self._rest.pop(0).open("rb", buffering=0)
            n_bytes = self._file.readinto(buffer)  # type: ignore[attr-defined]
            if n_bytes:
                return int(n_bytes)
            self._file.close()
            self._file = None
        return 0

    def close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None
        super().close()
