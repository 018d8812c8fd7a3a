"""Readers of published embeddings: files in several formats -> blocks of ids and vectors.

    contriever  pickled (ids, float array), in one or several files, in a tar as published or in a folder
    dpr         pickled list of (id, float array), in one or several files (``wiki_passages_0`` and so on) in a folder
    array       one pickled float array without ids: row r of the corpus is row r of the array (ALCE's GTR index)
    pyserini    a folder, or a tar of a folder, with a flat FAISS ``index`` and with ``docid``, one id per line
    flat        a flat FAISS index, in one file or in parts (FlashRAG, Search-R1); its rows are those of the corpus, if it has no ids
    npy, safetensors, parquet   see ``arrays``

Nothing is extracted to disk, and no code in a file is run. A ``dpr`` file is read whole; vectors of the other formats are read on demand.
(Sources: facebookresearch/contriever, generate_passage_embeddings.py; facebookresearch/DPR, generate_dense_embeddings.py;
princeton-nlp/ALCE, retrieval.py; facebookresearch/faiss, faiss/impl/index_write.cpp.)
"""

from __future__ import annotations

import contextlib
import io
import lzma
import re
import struct
import tarfile
import zlib
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

import numpy as np

from wikidx.corpora.artifacts.durable import file_sha256
from wikidx.corpora.errors import InputError, StorageError
from wikidx.corpora.progress import Progress, silent
from wikidx.corpora.reading.compression import refuse_pointer
from wikidx.indexer.base import StoredVectors

from .arrays import BLOCK_ROWS, Block, attach_ids, read_arrays, read_id_map, read_lines
from .pickles import Array, Extent, read_pickle

ARRAYS = ("npy", "safetensors", "parquet")
FORMATS = ("contriever", "dpr", "array", "pyserini", "flat", *ARRAYS)

_BLOCK_BYTES = 64 << 20
_MAX_DIM = 1 << 16
_FLAT = (b"IxFI", b"IxF2", b"IxFl")  # FAISS's flat indexes: inner product, Euclidean distance, any metric
_ID_MAPS = (b"IxMp", b"IxM2")  # an index between its ids: a header, the index, the ids
_FAISS_HEADER = struct.Struct("<4siqqq?i")  # kind, dimension, number of vectors, two unused numbers, is_trained, metric
_CHUNK_BYTES = 1 << 20
_ADVICE = "numpy.save writes an array as .npy, which is read"
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")  # gzip, bzip2, xz: supported by ``tarfile``


class Embeddings(NamedTuple):
    """Published embeddings on this machine.

    Attributes:
        name: name of the embeddings, for messages.
        format: one of ``FORMATS``; or "pickles": the exact format is detected while reading.
        files: files in reading order. For a folder in the format ``pyserini``: the ids, then the index.
        origins: web address of each downloaded file, and path of each other file; the file of ids is last.
        sha256: checksum of each file, if known.
        ids: the file of ids of a format without ids.
        id_column: the column of ids; "": a usual name.
    """

    name: str
    format: str
    files: tuple[Path, ...]
    origins: tuple[str, ...]
    sha256: tuple[str, ...] = ()
    ids: Path | None = None
    id_column: str = ""

    def blocks(self) -> Generator[Block]:
        """Yield all embeddings.

        Raises:
            InputError: the files are corrupt or not in the format.
            StorageError: a disk error in reading.
        """
        with _read_errors(self.name):
            if self.format in ARRAYS:
                blocks = read_arrays(self.format, self.files, self.id_column)
            else:
                blocks = {"pyserini": _read_pyserini, "flat": _read_flat}.get(self.format, _read_pickles)(self)
            yield from blocks if self.ids is None else attach_ids(blocks, self.ids, self.name)


def find_embeddings(path: Path, format_: str | None = None, ids: str | None = None) -> Embeddings:
    """Return the embeddings in a file or a folder. Without ``format_``, the format is detected from file names and first bytes.

    Args:
        path: the file or folder.
        format_: one of ``FORMATS``.
        ids: file of ids, see ``arrays.attach_ids``; for Parquet, the column of ids.

    Raises:
        InputError: the path has no files, or none in a supported format.
        StorageError: a disk error in reading.
    """
    if format_ not in (None, *FORMATS):
        raise InputError(f"--format {format_}: use one of {', '.join(FORMATS)}")
    if path.is_dir():
        files = sorted((file for file in path.iterdir() if file.is_file() and not file.name.startswith(".")), key=_sort_key)
    elif path.is_file():
        files = [path]
    else:
        raise InputError(f"there is no file or folder {path}")
    if not files:
        raise InputError(f"the folder {path} is empty")
    with _read_errors(path):
        refuse_pointer(path)
        detected = _detect_format(path, files)
    if detected == "pyserini" and path.is_dir():
        files = [path / "docid", path / "index"]
    if format_ is not None and detected not in (format_, "pickles") or (detected == "pickles" and format_ in ("pyserini", "flat")):
        raise InputError(f"{path} is not in the format '{format_}': it looks like {detected}")
    ids_file = Path(ids) if ids and detected != "parquet" else None
    if ids_file and not ids_file.is_file():
        raise InputError(f"--ids {ids}: there is no such file")
    refuse_pointer(ids_file or path)
    origins = tuple(str(file.absolute()) for file in [*files, *([ids_file] if ids_file else [])])
    column = "" if ids is None or ids_file else ids
    return Embeddings(str(path), format_ or detected, tuple(files), origins, ids=ids_file, id_column=column)


def add_checksums(source: Embeddings, progress: Progress = silent) -> Embeddings:
    """Return the embeddings with the checksums of their files; call ``progress`` with (bytes read, all bytes).

    Raises:
        StorageError: a disk error in reading.
    """
    checksums, n_done = list[str](), 0
    files = [*source.files, *([source.ids] if source.ids else [])]
    with _read_errors(source.name):
        n_bytes = sum(file.stat().st_size for file in files)
        for file in files:
            before = n_done
            checksums.append(file_sha256(file, lambda done: progress(before + done, n_bytes)))  # noqa: B023 - used immediately
            n_done += file.stat().st_size
    return source._replace(sha256=tuple(checksums))


def _sort_key(file: Path) -> list[str | int]:
    """Return a sort key that puts ``wiki_passages_10`` after ``wiki_passages_9``."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", file.name)]


def _detect_format(path: Path, files: Sequence[Path]) -> str:
    """Return "pyserini", "flat", one of ``ARRAYS``, or "pickles"."""
    names = {file.name for file in files}
    if path.is_dir() and {"docid", "index"} <= names:
        return "pyserini"
    if path.is_file() and tarfile.is_tarfile(path):
        with tarfile.open(path) as tar:
            first = next((PurePosixPath(member.name).name for member in tar if member.isfile()), "")
        return "pyserini" if first in ("docid", "index") else "pickles"
    with files[0].open("rb") as file:
        start_bytes = file.read(9)
    if start_bytes[:4] in (*_FLAT, *_ID_MAPS):
        return "flat"
    if start_bytes[4:] == bytes(4) + b"{":
        return "safetensors"
    if start_bytes[:6] == b"\x93NUMPY" or start_bytes[:4] == b"PAR1":
        return "npy" if start_bytes[:1] == b"\x93" else "parquet"
    dim = int.from_bytes(start_bytes[:4], "little")
    if 0 < dim <= _MAX_DIM and files[0].stat().st_size % (4 + 4 * dim) == 0:  # a dimension before each vector; 384 begins as a pickle does
        raise InputError(f"{files[0]} looks like fvecs: numpy.fromfile(FILE, 'f4').reshape(-1, {1 + dim})[:, 1:] reads them; {_ADVICE}")
    if start_bytes[:1] == b"\x80":
        return "pickles"
    if start_bytes[:2] in (b"Ix", b"Iw", b"IH", b"IL"):
        raise InputError(
            f"{files[0]} is a FAISS index of type '{start_bytes[:4].decode(errors='replace')}', and only flat ones are read: if it has the "
            f"vectors, as 'IHNf' and 'IwFl' do, faiss.read_index(FILE).reconstruct_n() gives them; {_ADVICE}"
        )
    if start_bytes.startswith(_COMPRESSED):
        raise InputError(
            f"{files[0]} is compressed, but no tar: it is cut off or corrupt, or holds something else, which is none of the formats "
            f"{', '.join(FORMATS)}"
        )
    raise InputError(f"{files[0]} begins with {start_bytes[:4]!r}, which is none of the formats {', '.join(FORMATS)}: {_ADVICE}")


@contextlib.contextmanager
def _read_errors(name: str | Path) -> Iterator[None]:
    """Translate exceptions in reading a source. Bzip2 and gzip raise an ``OSError`` without a number for corrupt data."""
    try:
        yield
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError) as error:
        raise InputError(f"{name} is cut off or corrupt: {error}") from error
    except OSError as error:
        if error.errno is None:
            raise InputError(f"{name} is cut off or corrupt: {error}") from error
        raise StorageError(f"{name} cannot be read: {error.strerror}") from error


def _members(path: Path) -> Generator[tuple[str, IO[bytes]]]:
    """Yield the plain files of a tar with their names. Links, and names outside the tar's folder, raise ``InputError``."""
    with tarfile.open(path) as tar:
        for member in tar:
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts or not (member.isfile() or member.isdir()):
                raise InputError(f"{path} has the member '{member.name}', which is not a plain file: it is refused")
            file = tar.extractfile(member)
            if file is not None and not name.name.startswith("."):
                with file:
                    yield name.name, file
        _check_end(path, tar)


def _check_end(path: Path, tar: tarfile.TarFile) -> None:
    """Raise ``InputError`` unless a tar has an end mark: ``tarfile`` accepts a tar that is cut off between members.

    The file is then read to its end, which verifies the checksum of a compressed tar.
    """
    file = tar.fileobj
    if file is not None:
        file.seek(tar.offset)
        if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise InputError(f"{path} is cut off: it does not end as a tar does")
        while file.read(_CHUNK_BYTES):
            pass


def _read_pickles(source: Embeddings) -> Iterator[Block]:
    """Yield the blocks of all pickles in a source, in the formats ``contriever``, ``dpr`` or ``array``."""
    first = 0
    for name, file in _open_pickles(source):
        for kind, block in _read_pickle(file, name, first):
            if source.format not in ("pickles", kind):
                raise InputError(f"{name} is not in the format '{source.format}': it looks like {kind}")
            first += len(block.vectors)
            yield block


def _open_pickles(source: Embeddings) -> Iterator[tuple[str, IO[bytes]]]:
    for path in source.files:
        if tarfile.is_tarfile(path):
            for name, file in _members(path):
                yield f"{path}, member {name}", file
        else:
            with path.open("rb") as file:
                yield str(path), file


def _read_pickle(file: IO[bytes], name: str, first: int) -> Iterator[tuple[str, Block]]:
    """Yield the blocks of one pickle, each with its format."""
    match read_pickle(file, name):
        case Array() as array:
            for start, vectors in _read_array(array, file, name):
                yield "array", Block(None, first + start, vectors)
        case (list() as ids, Array(shape=(n_vectors, _)) as array) if n_vectors == len(ids) and all(
            isinstance(id_, str | int) for id_ in ids
        ):
            for start, vectors in _read_array(array, file, name):
                yield "contriever", Block(list(map(str, ids[start : start + len(vectors)])), first + start, vectors)
        case (list() as ids, Array(shape=shape)):
            raise InputError(f"{name} has {len(ids):,} ids for an array of shape {shape}")
        case list() as pairs:
            for start in range(0, len(pairs), BLOCK_ROWS):
                yield "dpr", _read_pairs(pairs[start : start + BLOCK_ROWS], name)
        case _:
            raise InputError(f"{name} holds neither (ids, array), nor a list of (id, array), nor an array")


def _read_pairs(items: Sequence[object], name: str) -> Block:
    """Return the block with some (id, vector) pairs."""
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


def _read_array(array: Array, file: IO[bytes], name: str) -> Iterator[tuple[int, StoredVectors]]:
    """Yield blocks of a pickled array's rows, each with the number of its first row. The blocks are read on demand."""
    if len(array.shape) != 2 or array.shape[1] < 1:
        raise InputError(f"{name} holds an array of shape {array.shape} instead of (vectors, dimension)")
    n_vectors, dim = array.shape
    data = io.BytesIO(array.data) if isinstance(array.data, bytes) else file
    data.seek(array.data.start if isinstance(array.data, Extent) else 0)
    yield from _read_blocks(data, n_vectors, dim, array.dtype, name)


def _read_blocks(
    file: IO[bytes] | _ConcatenatedFiles, n_vectors: int, dim: int, dtype: np.dtype[np.floating], name: str
) -> Iterator[tuple[int, StoredVectors]]:
    """Yield blocks of consecutive vectors in a file, each with the number of its first vector."""
    most_rows = min(BLOCK_ROWS, max(1, _BLOCK_BYTES // (dim * dtype.itemsize)))
    for start in range(0, n_vectors, most_rows):
        n_rows = min(most_rows, n_vectors - start)
        content = file.read(n_rows * dim * dtype.itemsize)
        if len(content) != n_rows * dim * dtype.itemsize:
            raise InputError(f"{name} is cut off: it ends within the vectors {start:,} to {start + n_rows:,} of {n_vectors:,}")
        yield start, np.frombuffer(content, dtype=dtype).reshape(n_rows, dim)


def _read_flat(source: Embeddings) -> Iterator[Block]:
    with contextlib.ExitStack() as stack:
        file = _ConcatenatedFiles([stack.enter_context(path.open("rb")) for path in source.files])
        n_vectors, blocks, has_ids = _read_flat_index(file, source.name)
        ids = read_id_map(source.files[-1], n_vectors) if has_ids else None
        for start, vectors in blocks:
            yield Block(ids and ids[start : start + len(vectors)], start, vectors)


def _read_pyserini(source: Embeddings) -> Iterator[Block]:
    with contextlib.ExitStack() as stack:
        ids = list(read_lines(stack.enter_context(_open_member(source, "docid")), f"{source.name}, docid"))
        n_vectors, blocks, _ = _read_flat_index(stack.enter_context(_open_member(source, "index")), source.name)
        if n_vectors != len(ids):
            raise InputError(f"{source.name} has {n_vectors:,} vectors and {len(ids):,} ids")
        for start, vectors in blocks:
            yield Block(ids[start : start + len(vectors)], start, vectors)


@contextlib.contextmanager
def _open_member(source: Embeddings, name: str) -> Iterator[IO[bytes]]:
    """Open one of Pyserini's two files, ``docid`` or ``index``, in a folder or a tar."""
    if len(source.files) > 1:
        with source.files[name == "index"].open("rb") as file:
            yield file
        return
    with contextlib.closing(_members(source.files[0])) as members:
        content = next((file for member, file in members if member == name), None)
        if content is None:
            raise InputError(f"{source.name} has no member '{name}'")
        yield content
        if name == "index":  # the tar is opened for the last time
            for _ in members:  # checks the end of the tar
                pass


def _read_flat_index(file: IO[bytes] | _ConcatenatedFiles, name: str) -> tuple[int, Iterator[tuple[int, StoredVectors]], bool]:
    """Return the number of vectors of a flat FAISS index, its blocks as ``_read_blocks`` does, and whether ids follow them."""
    header = file.read(_FAISS_HEADER.size)
    if has_ids := header[:4] in _ID_MAPS:
        header = file.read(_FAISS_HEADER.size)
    size = file.read(8)
    if len(size) < 8 or header[:4] not in _FLAT:
        raise InputError(f"{name} is no flat FAISS index, or cut off: it begins with {header[:4]!r}")
    _, dim, n_vectors, *_ = _FAISS_HEADER.unpack(header)
    n_numbers = int.from_bytes(size, "little")
    if not 1 <= dim <= _MAX_DIM or n_vectors < 0 or n_numbers != n_vectors * dim:
        raise InputError(f"{name} is corrupt: it says {n_vectors:,} vectors of dimension {dim} and {n_numbers:,} numbers")
    return n_vectors, _read_blocks(file, n_vectors, dim, np.dtype("<f4"), name), has_ids


class _ConcatenatedFiles:
    """Several open files, read as one."""

    def __init__(self, files: Sequence[IO[bytes]]) -> None:
        self._files = deque(files)

    def read(self, n_bytes: int) -> bytes:
        """Return the next bytes; fewer only at the end of the last file."""
        content = self._files[0].read(n_bytes)
        while len(content) < n_bytes and len(self._files) > 1:
            self._files.popleft()
            content += self._files[0].read(n_bytes - len(content))
        return content
