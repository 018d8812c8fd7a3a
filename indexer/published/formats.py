"""Readers of published embeddings: files in several formats -> blocks of ids and vectors.

    contriever  pickled (ids, float array), in one or several files, in a tar as published or in a folder
    dpr         pickled list of (id, float array), in one or several files (``wiki_passages_0`` and so on) in a folder
    array       one pickled float array without ids: row r of the corpus is row r of the array (ALCE's GTR index)
    pyserini    a folder, or a tar of a folder, with a flat FAISS ``index`` and with ``docid``, one id per line
    flat        a FAISS index that holds its vectors, see ``faiss_files``, in one file or in parts (FlashRAG, Search-R1); its rows are those
                of the corpus, if it has no ids
    npy, npz, jsonl, fvecs, pt, safetensors, parquet   see ``arrays``

Nothing is extracted to disk, and no code in a file is run. A ``dpr`` file is read whole; vectors of the other formats are read on demand.
(Sources: facebookresearch/contriever, generate_passage_embeddings.py; facebookresearch/DPR, generate_dense_embeddings.py;
princeton-nlp/ALCE, retrieval.py.)
"""

from __future__ import annotations

import contextlib
import lzma
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.durable import file_sha256
from wikidx.base.errors import InputError, StorageError
from wikidx.base.progress import Progress, silent
from wikidx.corpora.reading.compression import Unchanged, kind_of, refuse_pointer

from .arrays import ADVICE, BLOCK_ROWS, MAX_DIM, READERS, Arrays, Block, attach_ids, read_lines, split
from .faiss_files import KINDS, read_index, refuse_kind
from .pickles import Array, read_pickle

FORMATS = ("contriever", "dpr", "array", "pyserini", "flat", *READERS)

_WITH_IDS = ("parquet", "npz", "safetensors", "pt", "jsonl")  # ids by name
_MAX_MEMBERS, _MAX_MEMBER_HEADERS = 100_000, 1 << 16
_BEGINNINGS = {b"\x93NUM": "npy", b"PAR1": "parquet", **dict.fromkeys(KINDS, "flat")}
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")  # gzip, bzip2, xz: supported by ``tarfile``


class _Tar(tarfile.TarFile):
    """A tar whose headers take no memory of note, whatever sizes and counts they give."""

    n_members = 0

    def next(self) -> tarfile.TarInfo | None:
        """Return the next member."""
        self.n_members += 1
        if self.n_members > _MAX_MEMBERS:
            raise tarfile.TarError(f"it has more than {_MAX_MEMBERS:,} members")
        content = self.fileobj
        self.fileobj = cast(IO[bytes], _Headers(cast(IO[bytes], content)))
        try:
            return super().next()
        finally:
            self.fileobj = content


class _Headers:
    """A file of which the headers of one member are read, in several parts for long names and sparse files."""

    def __init__(self, file: IO[bytes]) -> None:
        self._left, self.tell, self.seek, self.close = _MAX_MEMBER_HEADERS, file.tell, file.seek, file.close
        self._read = file.read

    def read(self, n_bytes: int) -> bytes:
        """Return the next bytes; raise ``TarError`` if they are too many for headers."""
        self._left -= n_bytes
        if self._left < 0:
            raise tarfile.TarError(f"a member has headers of more than {_MAX_MEMBER_HEADERS:,} bytes")
        return self._read(n_bytes)


def _is_tar(path: Path) -> bool:
    try:
        _Tar.open(path).close()
    except tarfile.ReadError:
        return False
    return True


class Embeddings(NamedTuple):
    """Published embeddings on this machine.

    Attributes:
        name: name of the embeddings, for messages.
        format: one of ``FORMATS``; or "pickles": the exact format is detected while reading.
        files: files in reading order. For a folder in the format ``pyserini``: the ids, then the index.
        origins: web address of each downloaded file, and path of each other file; the file of ids is last.
        sha256: checksum of each file, if known.
        ids: the file of ids of a format without ids.
        id_column: the name of the column or array of ids, or "rows" or "passages" of a FAISS index; "": a usual name.
        unchanged: the state of the files when their checksums were computed.
    """

    name: str
    format: str
    files: tuple[Path, ...]
    origins: tuple[str, ...]
    sha256: tuple[str, ...] = ()
    ids: Path | None = None
    id_column: str = ""
    unchanged: Unchanged | None = None

    def blocks(self) -> Generator[Block]:
        """Yield all embeddings.

        Raises:
            InputError: the files are corrupt or not in the format, or have changed while they were read.
            MissingExtraError: the format is parquet, and pyarrow is not installed.
            StorageError: a disk error in reading.
        """
        with _read_errors(self.name):
            unchanged = self.unchanged or Unchanged(filter(None, (*self.files, self.ids)))
            blocks = split(_READERS.get(self.format, _read_pickles)(self))
            yield from blocks if self.ids is None else attach_ids(blocks, self.ids, self.name)
            unchanged.check()


def find_embeddings(path: Path, format_: str | None = None, ids: str | None = None, *, further: Sequence[Path] = ()) -> Embeddings:
    """Return the embeddings in a file, in several, or in a folder. Without ``format_``, it is detected from file names and first bytes.

    Args:
        path: the file or folder.
        format_: one of ``FORMATS``.
        ids: file of ids, see ``arrays.attach_ids``; or the name of the column or array of ids; or what those of a FAISS index are, "rows"
            or "passages".
        further: files that follow the first one.

    Raises:
        InputError: the path has no files, or none in a supported format.
        StorageError: a disk error in reading.
    """
    if format_ not in (None, *FORMATS):
        raise InputError(f"--format {format_}: use one of {', '.join(FORMATS)}")
    files = [path, *further]
    if path.is_dir() and not further:
        inner = (*path.iterdir(), *path.glob("*=*/**/*"))  # the last: a column's values as folders, as Spark and Hive write them
        files = sorted((file for file in inner if file.is_file() and not _is_hidden(file.relative_to(path))), key=_sort_key)
    elif missing := next((file for file in files if not file.is_file()), None):
        raise InputError(f"there is no file {'or folder ' * (not further)}{missing}")
    if not files:
        raise InputError(f"the folder {path} holds no file to read: names that begin with _ or ., and folders but NAME=VALUE, are left out")
    with _read_errors(path):
        refuse_pointer(path)
        detected = _detect_format(path, files)
    if detected == "pyserini" and path.is_dir():
        files = [path / "docid", path / "index"]
    if format_ is not None and detected not in (format_, "pickles") or (detected == "pickles" and format_ in ("pyserini", "flat")):
        raise InputError(f"{path} is not in the format '{format_}': it looks like {detected}")
    is_name = ids in ("rows", "passages") if detected == "flat" else detected in _WITH_IDS
    ids_file = Path(ids) if ids and detected != "parquet" and (Path(ids).is_file() or not is_name) else None
    if ids_file and not ids_file.is_file():
        raise InputError(f"--ids {ids}: there is no such file")
    refuse_pointer(ids_file or path)
    origins = tuple(str(file.absolute()) for file in [*files, *([ids_file] if ids_file else [])])
    return Embeddings(str(path), format_ or detected, tuple(files), origins, ids=ids_file, id_column="" if ids_file else ids or "")


def add_checksums(source: Embeddings, progress: Progress = silent) -> Embeddings:
    """Return the embeddings with the checksums of their files; call ``progress`` with (bytes read, all bytes).

    Raises:
        StorageError: a disk error in reading.
    """
    files = list(filter(None, (*source.files, source.ids)))
    with _read_errors(source.name):
        unchanged = Unchanged(files)
        starts = list(accumulate((file.stat().st_size for file in files), initial=0))
        reports = [partial(lambda start, done: progress(start + done, starts[-1]), start) for start in starts]
        checksums = map(file_sha256, files, reports)
        return source._replace(sha256=tuple(checksums), unchanged=unchanged)


def _is_hidden(file: Path) -> bool:
    return any(part.startswith((".", "_")) for part in file.parts)


def _sort_key(file: Path) -> list[str | int]:
    """Return a sort key that puts ``wiki_passages_10`` after ``wiki_passages_9``."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(file))]


def _detect_format(path: Path, files: Sequence[Path]) -> str:
    """Return "pyserini", "flat", one of ``READERS``, or "pickles"."""
    if path.is_dir() and {"docid", "index"} <= {file.name for file in files}:
        return "pyserini"
    if path.is_file() and _is_tar(path):
        first, _ = next(_open_members(path), (path, None))
        return "pyserini" if first.name in ("docid", "index") else "pickles"
    return _detect_file_format(files[0])


def _detect_file_format(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(16)
    dim = int.from_bytes(start[:4], "little")
    if start[:4] in _BEGINNINGS:
        return _BEGINNINGS[start[:4]]
    if start[4:9] == bytes(4) + b"{":
        return "safetensors"
    if 0 < dim <= MAX_DIM and (path.suffix == ".fvecs" or path.stat().st_size % (4 + 4 * dim) == 0):  # 384 begins as a pickle does
        return "fvecs"
    if start[:1] in (b"\x80", b"{"):
        return "pickles" if start[:1] == b"\x80" else "jsonl"
    if start[:4] == b"PK\3\4" and (archived := _detect_archive(path)):
        return archived
    if start[:2] in (b"Ix", b"Iw", b"IH", b"IL"):
        raise refuse_kind(path, start[:4])
    found = f"is {kind}" if (kind := kind_of(start)) else f"begins with {start[:4]!r}"
    if start.startswith(_COMPRESSED):
        found = "is compressed, but no tar: it is cut off or corrupt, or holds something else"
    raise InputError(f"{path} {found}, which is none of the formats {', '.join(FORMATS)}: {ADVICE}")


def _detect_archive(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    return "pt" if any(name.endswith("data.pkl") for name in names) else "npz" if all(name.endswith(".npy") for name in names) else ""


@contextlib.contextmanager
def _read_errors(name: str | Path) -> Iterator[None]:
    """Translate exceptions in reading a source.

    Bzip2 and gzip raise an ``OSError`` without a number for corrupt data; zip, ``RuntimeError`` for encrypted or strangely compressed data.
    """
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, RuntimeError, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise StorageError(f"{name} cannot be read: {error.strerror}") from error
        raise InputError(f"{name} is cut off or corrupt: {error}") from error


def _open_all(paths: Iterable[Path]) -> Generator[tuple[Path, IO[bytes]]]:
    """Yield files, and the plain files in tars, with their paths."""
    for path in paths:
        if _is_tar(path):
            yield from _open_members(path)
        else:
            with path.open("rb") as file:
                yield path, file


def _open_members(path: Path) -> Generator[tuple[Path, IO[bytes]]]:
    """Yield the plain files of a tar with their paths. Links, and names outside the tar's folder, raise ``InputError``.

    ``tarfile`` accepts a tar that is cut off between members: its end mark is verified. It is then read to its end, which verifies the
    checksum of a compressed tar.
    """
    with _Tar.open(path) as tar:
        for member in tar:
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts or not (member.isfile() or member.isdir()):
                raise InputError(f"{path} has the member '{member.name}', which is not a plain file: it is refused")
            content = tar.extractfile(member)
            if content is not None and not name.name.startswith("."):
                with content:
                    yield path / name.name, content
        file = cast(IO[bytes], tar.fileobj)
        file.seek(tar.offset)
        if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise InputError(f"{path} is cut off: it does not end as a tar does")
        while file.read(1 << 20):
            pass


def _read_pickles(source: Embeddings) -> Iterator[Arrays]:
    """Yield the arrays of all pickles in a source, in the formats ``contriever``, ``dpr`` or ``array``."""
    for path, file in _open_all(source.files):
        kind, arrays = _read_pickle(file, str(path))
        if source.format not in ("pickles", kind):
            raise InputError(f"{path} is not in the format '{source.format}': it looks like {kind}")
        yield from arrays


def _read_pickle(file: IO[bytes], name: str) -> tuple[str, Iterable[Arrays]]:
    """Return the format of a pickle, and its arrays."""
    match read_pickle(file, name):
        case Array(rows=rows):
            return "array", [(name, None, rows)]
        case (list() as ids, Array(rows=rows)) | (Array(rows=rows), list() as ids) if all(isinstance(id_, str | int) for id_ in ids):
            return "contriever", [(name, ids, rows)]
        case list() as pairs:
            return "dpr", (_read_pairs(pairs[start : start + BLOCK_ROWS], name) for start in range(0, len(pairs), BLOCK_ROWS))
    raise InputError(f"{name} holds neither (ids, array), nor a list of (id, array), nor an array")


def _read_pairs(items: Sequence[object], name: str) -> Arrays:
    """Return the ids and the vectors of some (id, vector) pairs."""
    ids, vectors = list[str | int](), list[NDArray[Any]]()
    for item in items:
        match item:
            case (str() | int() as id_, Array(rows=np.ndarray(shape=(dim,)) as vector)) if dim:
                ids.append(id_)
                vectors.append(vector)
            case _:
                raise InputError(f"{name} holds an item that is not (id, vector)")
    kinds = {f"{vector.dtype} {vector.shape}" for vector in vectors}
    if len(kinds) > 1:
        raise InputError(f"{name} has vectors of several shapes or types: {', '.join(sorted(kinds))}")
    return name, ids, np.stack(vectors)


def _read_pyserini(source: Embeddings) -> Iterator[Arrays]:
    ids = next(list(read_lines(file, str(path))) for path, file in _find_file(source, "docid"))
    for path, file in _find_file(source, "index"):
        yield from ((name, ids, vectors) for name, _, vectors in read_index(file, str(path)))


def _find_file(source: Embeddings, name: str) -> Iterator[tuple[Path, IO[bytes]]]:
    """Yield one of Pyserini's two files, ``docid`` or ``index``, in a folder or a tar."""
    is_found = False
    for path, file in _open_all(source.files):
        if path.name == name:
            is_found = True
            yield path, file
    if not is_found:
        raise InputError(f"{source.name} has no member '{name}'")


def _read_flat(source: Embeddings) -> Iterator[Arrays]:
    with contextlib.ExitStack() as stack:
        file = cast(IO[bytes], _ConcatenatedFiles([stack.enter_context(path.open("rb")) for path in source.files]))
        yield from read_index(file, source.name)


class _ConcatenatedFiles:
    """Several open files, read as one."""

    def __init__(self, files: Sequence[IO[bytes]]) -> None:
        self._files, self._position = files, 0
        self._starts = list(accumulate((file.seek(0, os.SEEK_END) for file in files), initial=0))

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position from the start, or from the end."""
        self._position = offset + (self._starts[-1] if whence == os.SEEK_END else 0)
        return self._position

    def read(self, n_bytes: int) -> bytes:
        """Return the next bytes; fewer only at the end of the last file, or of one that has become shorter."""
        content = b""
        for file, start in zip(self._files, self._starts, strict=False):
            file.seek(max(0, self._position - start))
            content += (found := file.read(n_bytes - len(content)))  # nothing of the files before, and of those behind if it is enough
            self._position += len(found)
        return content


def _read_arrays(source: Embeddings) -> Iterator[Arrays]:
    return chain.from_iterable(READERS[source.format](file, source.id_column) for file in source.files)


_READERS = {"pyserini": _read_pyserini, "flat": _read_flat, **dict.fromkeys(READERS, _read_arrays)}
