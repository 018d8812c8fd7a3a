"""Readers of vectors in files of arrays, with ids in a column or a file of their own: blocks of ids and vectors.

    npy          one array of numpy's, float16, float32 or float64
    npz          an archive of numpy's, compressed or not, with one array of two dimensions, and ids of one if there are any
    pt           one tensor of torch's of two dimensions, alone, in a pair with ids, or in a dict with them
    safetensors  one tensor of two dimensions, F16, BF16, F32 or F64, and ids of integers, if there are any
    parquet      a column of lists of numbers, and a column of ids
    jsonl        lines of JSON objects, each with an id and a list of numbers (Pyserini)
    fvecs        float32, before each vector its dimension (TEXMEX)

Ids are those of the first of ``_ID_COLUMNS`` that there is, if no other name is given.

Files are read by blocks. bfloat16 and float64 become float32. (Format of safetensors: huggingface/safetensors, README.)
"""

from __future__ import annotations

import contextlib
import math
import pickle
import tokenize
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.durable import parse_json
from wikidx.base.artifacts.home import utf8_path
from wikidx.base.errors import InputError, require_packages
from wikidx.corpora.passage import BadRecord
from wikidx.corpora.reading.compression import open_decompressed
from wikidx.corpora.reading.containers import json_lines
from wikidx.indexer.base import StoredVectors

ADVICE = "numpy.save writes an array as .npy, which is read"

BLOCK_ROWS = 8_192
_BLOCK_BYTES = 64 << 20
MAX_DIM = 1 << 16
_MAX_HEADER_BYTES = 100 << 20  # as in safetensors itself
_TENSORS = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BF16": "<u2", "I32": "<i4", "I64": "<i8"}
_TORCH_TYPES = {"torch.bfloat16": "<u2", **{f"torch.{kind}": kind for kind in ("float16", "float32", "float64", "int32", "int64")}}
_ID_COLUMNS = ("id", "_id", "docid", "pid", "doc_id", "docno", "passage_id", "chunk_id", "ids")
_MAX_ID_BYTES = 1 << 16
CORRUPT = (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, MemoryError, RecursionError)


class Block(NamedTuple):
    """A block of consecutive embeddings: their ids, and vectors in float16 or float32 of shape (n, dim).

    In a format without ids, ``ids`` is None, and the first vector belongs to row ``first``. ``is_euclidean``: the file compares
    vectors by Euclidean distance. ``n_numbers``: if the ids of all blocks are the numbers from 0, each once, how many.
    """

    ids: list[str] | None
    first: int
    vectors: StoredVectors
    is_euclidean: bool = False
    n_numbers: int = 0


@dataclass(frozen=True)
class FileArray:
    """An array in an open file, row by row. Its rows are read when they are sliced; without a ``start``, in order from where the file is.

    It has no slots: with them, a frozen dataclass has a ``__setstate__``, which a pickle could call.
    """

    file: IO[bytes]
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int | None = None
    is_euclidean: bool = False
    n_numbers: int = 0

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """Return the rows from ``start`` to ``stop``, which must be in the array."""
        row_bytes, n_rows = math.prod(self.shape[1:]) * self.dtype.itemsize, rows.stop - rows.start
        if self.start is not None:
            self.file.seek(self.start + rows.start * row_bytes)
        content = self.file.read(n_rows * row_bytes)
        if len(content) < n_rows * row_bytes:
            raise InputError(f"{self.name} is cut off: it ends within the vectors {rows.start:,} to {rows.stop:,} of {self.shape[0]:,}")
        return np.frombuffer(content, self.dtype).reshape(n_rows, *self.shape[1:])


Arrays = tuple[str, Sequence[Any] | NDArray[Any] | FileArray | None, NDArray[Any] | FileArray]  # name for messages, ids if any, vectors


def split(arrays: Iterable[Arrays]) -> Iterator[Block]:
    """Yield the blocks of arrays in reading order.

    Raises:
        InputError: a file is corrupt, or does not hold the vectors of one array.
    """
    first = 0
    for name, ids, vectors in arrays:
        shape, dtype, is_euclidean = vectors.shape, vectors.dtype, getattr(vectors, "is_euclidean", False)
        if len(shape) != 2 or not 0 < shape[1] <= MAX_DIM or not (dtype.kind == "f" or dtype == "<u2"):
            advice = "; of bfloat16, save array.astype('float32')" if dtype.kind == "V" else ""
            raise InputError(f"{name} holds {dtype} of shape {shape}: vectors are floats of two dimensions{advice}")
        if ids is not None and len(ids) != shape[0]:
            raise InputError(f"{name} has {len(ids):,} ids for an array of shape {shape}")
        if ids is not None and not _are_ids(ids):
            raise InputError(f"{name} has other ids than one dimension of integers or texts")
        n_numbers = getattr(ids, "n_numbers", 0)
        most_rows = min(BLOCK_ROWS, max(1, _BLOCK_BYTES // (shape[1] * dtype.itemsize)))
        for start in range(0, shape[0], most_rows):
            rows = slice(start, min(start + most_rows, shape[0]))
            yield Block(None if ids is None else list(map(str, ids[rows])), first + start, _widen(vectors[rows]), is_euclidean, n_numbers)
        first += shape[0]


def _are_ids(ids: Sequence[Any] | NDArray[Any] | FileArray) -> bool:
    if isinstance(ids, FileArray | np.ndarray):
        return len(ids.shape) == 1 and ids.dtype.kind in "iuU" and 0 < ids.dtype.itemsize <= _MAX_ID_BYTES
    return isinstance(ids, list) and all(isinstance(id_, str | int) for id_ in ids)


def attach_ids(blocks: Iterator[Block], file: Path, name: str) -> Iterator[Block]:
    """Yield blocks with the ids of a file: one per line, plain or compressed, or numpy's array of numbers or texts.

    Raises:
        InputError: there is another number of ids than of vectors, or the blocks have ids.
    """
    ids, n_vectors = _read_ids(file), 0
    first = next(ids, "")
    ids = chain([first], ids)
    for block in blocks:
        if block.ids is not None:
            raise InputError(f"{name} has ids of its own: leave out --ids {file}")
        taken = list(islice(ids, len(block.vectors)))
        n_vectors += len(taken)
        if len(taken) < len(block.vectors):
            raise InputError(f"{name} has more vectors than {file} has ids, {n_vectors:,}")
        yield block._replace(ids=taken)
    if next(ids, None) is not None:
        raise InputError(f"{file} has more ids than {name} has vectors, {n_vectors:,}: is the first, {first!r:.40}, a header?")


def _read_ids(file: Path) -> Iterator[str]:
    if file.suffix == ".npy":
        array = _map_npy(file)
        if array.ndim != 1 or array.dtype.kind not in "iuU":
            raise InputError(f"{file} holds {array.dtype} of shape {array.shape}: ids are one dimension of integers or texts")
        yield from map(str, array)
        return
    with open_decompressed(file) as lines:
        yield from read_lines(lines, str(file))


def read_lines(file: IO[bytes], name: str) -> Iterator[str]:
    """Yield the id on each line; raises ``InputError`` for a line that is too long for one, or has a NUL, as UTF-16 has."""
    number = 0
    while line := file.readline(_MAX_ID_BYTES):
        number += 1
        if len(line) == _MAX_ID_BYTES or b"\0" in line:
            advice = " in UTF-8, but perhaps in UTF-16: convert it" if b"\0" in line else ""
            raise InputError(f"{name}: line {number:,} is no id{advice}")
        yield line.decode(errors="replace").removeprefix("\ufeff").strip()


@np.errstate(over="raise")  # of products of sizes
def _map_npy(path: Path) -> NDArray[Any]:
    try:
        with path.open("rb") as file:
            start = file.read(12)
        if start[6:7] > b"\1" and int.from_bytes(start[8:], "little") > _MAX_ID_BYTES:
            raise ValueError("its header is too long")
        array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")  # which neither unpickles nor opens archives
    except (*CORRUPT, EOFError, tokenize.TokenError, SyntaxError) as error:
        objects = "holds Python objects: save ids by ids.astype(str), vectors by numpy.stack(vectors)"
        reason = objects if "Python objects" in str(error) else f"is cut off, or no array of numbers: {error!s:.200}"
        raise InputError(f"{path} {reason}") from error
    return array


def _read_mapped(path: Path, array: NDArray[Any], ids: NDArray[Any] | None = None) -> Iterator[Arrays]:
    """Yield a mapped array as one that is read: if the file gets shorter, a map ends the process."""
    with path.open("rb") as file:
        start = getattr(array, "offset", None) if array.flags.c_contiguous else None
        vectors = array if start is None else FileArray(file, str(path), array.shape, array.dtype, start)
        yield str(path), None if ids is None else np.array(ids), vectors


def select(name: str, arrays: Mapping[Any, Any], id_column: str) -> Arrays:
    """Return the vectors and the ids among named arrays. Those of a pair have the names 0 and 1.

    Raises:
        InputError: several could be the vectors, or none, or there are no ids of the name ``id_column``.
    """
    vectors = [key for key, array in arrays.items() if len(getattr(array, "shape", ())) == 2 and array.dtype.kind != "i"]
    ids = [key for key in ([id_column] if id_column else _ID_COLUMNS) if key in arrays]
    if len(vectors) != 1 or (id_column and not ids):
        needed = f"one array of two dimensions{f', and ids {id_column!r}' if id_column else ''}"
        raise InputError(f"{name} has {', '.join(map(str, arrays)) or 'nothing':.200}: needed is {needed}")
    ids = [1 - vectors[0]] if arrays.keys() == {0, 1} else ids
    return name, arrays[ids[0]] if ids else None, arrays[vectors[0]]


def _read_torch(path: Path, id_column: str) -> Iterator[Arrays]:
    require_packages("reading .pt", "dense", "torch")
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with path.open("rb") as file:
        try:
            with FakeTensorMode():  # which reads no numbers, and tells where they are
                content = torch.load(path, "cpu", weights_only=True)
            names = content if isinstance(content, dict) else dict(enumerate(content if isinstance(content, list | tuple) else [content]))
            arrays = {name: _place_of(value, file, path) if torch.is_tensor(value) else value for name, value in names.items()}
        except (pickle.UnpicklingError, RuntimeError, *CORRUPT) as error:
            raise InputError(f"{path} is cut off, or holds more than tensors and ids: nothing of it was run; {ADVICE}") from error
        yield select(str(path), arrays, id_column)


def _place_of(tensor: Any, file: IO[bytes], path: Path) -> FileArray:  # noqa: ANN401 - torch's
    dtype = np.dtype(_TORCH_TYPES.get(str(tensor.dtype), "V1"))
    if not tensor.is_contiguous():
        raise InputError(f"{path} has a tensor that is stored with gaps or by columns: save tensor.contiguous()")
    start = tensor.untyped_storage()._checkpoint_offset + tensor.storage_offset() * dtype.itemsize
    return FileArray(file, str(path), tuple(tensor.shape), dtype, start)


def _read_safetensors(path: Path, id_column: str) -> Iterator[Arrays]:
    _, ids, vectors = select(str(path), _map_safetensors(path), id_column)
    yield from _read_mapped(path, cast(NDArray[Any], vectors), cast(NDArray[Any] | None, ids))


def _read_npz(path: Path, id_column: str) -> Iterator[Arrays]:
    with zipfile.ZipFile(path) as archive, contextlib.ExitStack() as stack:
        arrays = dict[str, FileArray]()
        for member in archive.namelist():
            name = member.removesuffix(".npy")
            arrays[name] = _read_npy(stack.enter_context(archive.open(member)), f"{path}, {name}")
        yield select(str(path), arrays, id_column)


def _read_npy(file: IO[bytes], name: str) -> FileArray:
    """Return the array in a file of numpy's that is read in order."""
    try:
        version = np.lib.format.read_magic(file)
        shape, is_by_columns, dtype = np.lib.format.read_array_header_1_0(file)  # in later versions it is longer, for structures
        if version != (1, 0) or min(shape, default=0) < 0:
            raise ValueError(f"version {version}, shape {shape}")
    except (*CORRUPT, tokenize.TokenError, SyntaxError) as error:
        raise InputError(f"{name} is cut off, or no array of numbers: {error!s:.200}") from error
    if is_by_columns and len(shape) > 1:
        raise InputError(f"{name} is stored column by column: save numpy.ascontiguousarray(vectors)")
    return FileArray(file, name, shape, dtype)


def _read_fvecs(path: Path, id_column: str) -> Iterator[Arrays]:
    with path.open("rb") as file:
        dim = int.from_bytes(file.read(4), "little")
        n_rows, rest = divmod(path.stat().st_size, 4 + 4 * dim)
        if rest:
            raise InputError(f"{path} is cut off, or no fvecs: it ends within its vector {n_rows:,}")
        rows = FileArray(file, str(path), (n_rows, 1 + dim), np.dtype("<f4"), 0)
        for start in range(0, n_rows, BLOCK_ROWS):
            block = rows[start : min(start + BLOCK_ROWS, n_rows)]
            if not (block[:, 0].view("<i4") == dim).all():
                raise InputError(f"{path} is corrupt, or no fvecs: its vectors have other dimensions than {dim}, that of the first")
            yield str(path), None, block[:, 1:]


@np.errstate(over="raise")
def _map_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    """Map the tensors of a file by name; those of other types than ``_TENSORS`` are left out."""
    tensors = dict[str, NDArray[Any]]()
    try:
        with path.open("rb") as file:
            n_bytes = int.from_bytes(file.read(8), "little")
            header = parse_json(file.read(n_bytes if n_bytes <= _MAX_HEADER_BYTES else 0))
        for name, tensor in header.items():
            if tensor.get("dtype") in _TENSORS:
                offset = 8 + n_bytes + tensor["data_offsets"][0]
                tensors[name] = np.memmap(path, _TENSORS[tensor["dtype"]], "r", offset, tuple(tensor["shape"]))
    except CORRUPT as error:
        raise InputError(f"{path} is cut off, or no file of safetensors: {error!s:.200}") from error
    return tensors


def _refuse(bad: BadRecord) -> NoReturn:
    raise InputError(f"{bad.file} is cut off or corrupt at its line {bad.line:,}: {bad.reason}")


def _read_json_lines(path: Path, id_column: str) -> Iterator[Arrays]:
    records = (record for _, record in json_lines(path, _refuse))
    while block := list(islice(records, BLOCK_ROWS // 16)):  # of Python's numbers, which take much memory
        columns = {name: [record.get(name) for record in block] for name in block[0]}
        try:
            arrays = {name: np.array(values, "f4") if isinstance(values[0], list) else values for name, values in columns.items()}
        except (ValueError, TypeError) as error:
            raise InputError(f"{path} has lines without a vector, or with vectors of several lengths") from error
        yield select(str(path), arrays, id_column)


def _read_parquet(path: Path, id_column: str) -> Iterator[Arrays]:
    require_packages("reading Parquet", "parquet", "pyarrow.parquet")
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(utf8_path(path)) as file:
            columns = _parquet_columns(path, file.schema_arrow, id_column)
            for batch in file.iter_batches(BLOCK_ROWS, columns=list(columns)):
                id_values, lists = (batch.column(column) for column in columns)
                lists = getattr(lists, "storage", lists)  # of an extension type, such as a tensor of fixed shape
                lengths = set(lists.value_lengths().to_pylist())
                if len(lengths) != 1 or id_values.null_count:
                    raise InputError(f"{path} has rows without an id, or with vectors of several lengths ({str(lengths):.60})")
                yield str(path), id_values.to_pylist(), lists.flatten().to_numpy(zero_copy_only=False).reshape(len(lists), -1)
    except pyarrow.ArrowException as error:
        raise InputError(f"{path} is cut off or corrupt: {' '.join(str(error).split())}") from error


def _parquet_columns(path: Path, schema: Any, id_column: str) -> tuple[str, str]:  # noqa: ANN401 - pyarrow's
    """Return the columns of the ids and of the vectors."""
    ids = [name for name in ([id_column] if id_column else _ID_COLUMNS) if name in schema.names]
    lists = [field.name for field in schema if hasattr(field.type, "value_type") and str(field.type.value_type) in _FLOATS]
    if not ids or len(lists) != 1:
        raise InputError(
            f"{path} has the columns {', '.join(schema.names)}: needed are one of ids, {id_column or ' or '.join(_ID_COLUMNS)} "
            "(--ids names another), and one of lists of numbers"
        )
    return ids[0], lists[0]


_FLOATS = ("halffloat", "float", "double")
READERS: dict[str, Callable[[Path, str], Iterable[Arrays]]] = {
    "npy": lambda path, id_column: _read_mapped(path, _map_npy(path)),
    "npz": _read_npz,
    "fvecs": _read_fvecs,
    "jsonl": _read_json_lines,
    "pt": _read_torch,
    "safetensors": _read_safetensors,
    "parquet": _read_parquet,
}


def _widen(vectors: NDArray[Any]) -> StoredVectors:
    """Return vectors as float16 or float32. Unsigned integers of 16 bits are the bits of bfloat16."""
    if vectors.dtype == "<u2":
        return (vectors.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):  # infinity, which the import refuses
        return vectors.astype(np.float16, copy=False) if vectors.dtype.itemsize == 2 else vectors.astype(np.float32, copy=False)
