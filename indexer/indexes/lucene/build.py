"""Build of a Lucene index from a store. Anserini's ``IndexCollection`` indexes pieces in parallel; Lucene merges them into one segment.

Each piece is indexed on one thread, and the merge keeps the order of the pieces. Lucene's documents are therefore in row order, and ties
go to the lower row. (Anserini's option ``-threads`` shuffles the documents.) A resumed build reuses finished pieces. One segment is
faster to search than many.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.building import INTERMEDIATE
from wikidx.base.errors import IdxError, InputError, StagingCorrupt, StorageError
from wikidx.base.machine.memory import memory_bytes
from wikidx.base.machine.threads import n_threads
from wikidx.base.progress import Progress
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import NO_ROW
from wikidx.indexer.indexes.kinds import Estimate, IndexBuild, Size

from .jvm import JavaError, call, call_directly, call_in_java, check_installed, java_class, method, run_java
from .reader import LUCENE, STEMMER, LuceneReader, open_directory

DIRECTORY = "index"
ROWS = "rows.i32"
PIECE_ROWS = 131_072

PROGRAM_HEAP_BYTES = 1 << 30  # heap of the process that indexes one piece
_BUFFER_MB = 512  # holds a piece of 100-word passages, which then becomes one segment
_IDS_PER_CALL = 1 << 16
_NO_SPACE = "No space left on device"
_COMPLAINT = re.compile(r"^(?!\s*at ).*(Exception|Error|" + _NO_SPACE + ")")  # an error, but no line of a stack trace
_KEPT = "finished parts are kept: fix the cause and run the same command again"
_MAX_CHARACTERS = 20_000_000  # limit of Anserini's parser for a JSON string
_PASSAGES_PER_S = 5_500  # per process
_BYTES_PER_TEXT_BYTE = 0.5
_LOCK_FILE = "write.lock"


def estimate(size: Size) -> Estimate:
    """Return the estimate of a build. Each parallel process keeps the text of one piece on disk.

    Raises:
        MissingExtraError: the extra ``lucene`` is not installed.
    """
    check_installed()
    n_programs = min(max_parallel_programs(), size.n_rows // PIECE_ROWS + 1)
    disk_bytes = size.passage_bytes * (_BYTES_PER_TEXT_BYTE * size.n_rows + n_programs * min(PIECE_ROWS, size.n_rows))
    return Estimate(disk_bytes, 0.5e9 + n_programs * PROGRAM_HEAP_BYTES, size.n_rows / (n_programs * _PASSAGES_PER_S))


def write(build: IndexBuild[PassageStore]) -> Mapping[str, int]:
    """Build the index of a store; see ``IndexKind.write``."""
    store, _, staging, progress = build
    pieces = staging / INTERMEDIATE
    pieces.mkdir(exist_ok=True)
    for unfinished in pieces.glob(".*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    firsts = range(0, len(store), PIECE_ROWS)
    n_done = 0
    with ThreadPoolExecutor(max_parallel_programs()) as pool:
        futures = {pool.submit(_index_piece, store, first, pieces): first for first in firsts}
        try:
            for future in as_completed(futures):
                future.result()
                n_done += min(PIECE_ROWS, len(store) - futures[future])
                progress(n_done, len(store))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    _merge([_piece_path(pieces, first) for first in firsts], staging / DIRECTORY)
    with closing(LuceneReader(staging / DIRECTORY)) as reader:
        rows = document_rows(reader, store)
        lost = [row for row in missing_rows(rows, len(store)) if not is_blank(store.get_many([row])[0])]
        if lost or (rows == NO_ROW).any() or len(np.unique(rows)) < len(rows):
            raise StagingCorrupt(f"the Lucene index in {staging} does not hold each passage once: run the same command again")
        (staging / ROWS).write_bytes(rows.data)
        return counts(reader, store)


def counts(reader: LuceneReader, store: PassageStore) -> dict[str, int]:
    """Return the counts of a Lucene index's manifest: rows of the corpus, documents, and documents with at least one term."""
    return {"rows": len(store), "documents": reader.n_documents, "searchable": reader.n_searchable}


def document_rows(reader: LuceneReader, store: PassageStore, progress: Progress | None = None) -> NDArray[np.int32]:
    """Return the row of each document by its stored id, int32 of shape (documents,); -1 if the store lacks the id."""
    rows = np.empty(reader.n_documents, dtype="<i4")
    for first in range(0, len(rows), _IDS_PER_CALL):
        end = min(first + _IDS_PER_CALL, len(rows))
        rows[first:end] = store.rows_of([id_ or "" for id_ in reader.ids(first, end)])
        if progress is not None:
            progress(end, len(rows))
    return rows


def missing_rows(rows: NDArray[np.int32], n_rows: int) -> list[int]:
    """Return the rows from 0 to ``n_rows`` that do not occur in ``rows``, ascending."""
    is_found = np.zeros(n_rows, dtype=bool)
    is_found[rows[rows != NO_ROW]] = True
    return np.flatnonzero(~is_found).tolist()


def contents(passage: Passage) -> str:
    """Return the indexed text of a passage."""
    return f"{passage.title}\n{passage.text}"


def is_blank(passage: Passage) -> bool:
    """Return whether a passage has only spaces and ASCII control characters. Anserini creates no document for it."""
    return all(character <= " " for character in contents(passage))


def _index_piece(store: PassageStore, first: int, pieces: Path) -> None:
    """Index the rows of one piece, unless it is finished."""
    target = _piece_path(pieces, first)
    if target.exists():
        return
    # Each attempt gets a new directory: a process that outlived a killed build may still write into an earlier directory.
    with tempfile.TemporaryDirectory(prefix=".", dir=pieces, ignore_cleanup_errors=True) as scratch:
        source, index = Path(scratch, "source"), Path(scratch, "index")
        source.mkdir()
        with (source / "passages.jsonl").open("w", encoding="ascii") as file:
            n_documents = 0
            for passage in store.read(first, first + PIECE_ROWS):
                text = contents(passage)
                if len(text) > _MAX_CHARACTERS:
                    raise InputError(
                        f"passage '{passage.id}' has {len(text):,} characters, Lucene's indexer takes at most {_MAX_CHARACTERS:,}: split it"
                    )
                file.write(json.dumps({"id": passage.id, "contents": text}) + "\n")
                n_documents += not is_blank(passage)
        _run_anserini(source, index, n_documents)
        index.rename(target)


def _run_anserini(source: Path, index: Path, n_documents: int) -> None:
    """Index the files in ``source`` and check the number of documents in the index.

    Raises:
        StorageError: the disk is full.
        IdxError: the indexing failed; the message has Anserini's error.
    """
    errors: list[str] = []

    def note(line: str) -> None:
        if _COMPLAINT.search(line):
            errors.append(line)

    arguments = ["-collection", "JsonCollection", "-input", str(source), "-generator", "DefaultLuceneDocumentGenerator"]
    arguments += ["-index", str(index), "-threads", "1", "-stemmer", STEMMER, "-memoryBuffer", str(_BUFFER_MB)]
    n_indexed = -1
    try:
        run_java("io.anserini.index.IndexCollection", arguments, heap_bytes=PROGRAM_HEAP_BYTES, on_line=note)
        with closing(LuceneReader(index)) as reader:
            n_indexed = reader.n_documents
    except JavaError as error:
        errors.append(str(error))
    if n_indexed == n_documents:
        return
    detail = "; ".join(dict.fromkeys([*errors[:1], *errors[-1:]])) or f"it made {n_indexed:,} documents of {n_documents:,} passages"
    if any(_NO_SPACE in line for line in errors):
        raise StorageError(f"Lucene cannot write {index.parent.parent}: {_NO_SPACE}; {_KEPT}")
    raise IdxError(f"Lucene could not index the passages: {detail}; {_KEPT}")


def _merge(pieces: Sequence[Path], target: Path) -> None:
    """Merge Lucene directories in the given order into one directory with a single segment."""
    shutil.rmtree(target, ignore_errors=True)  # left by an interrupted merge
    try:
        writer = call_in_java(lambda: _new_directory(target))
        try:
            call_in_java(lambda: _add_all(pieces, writer))
        except BaseException:
            with contextlib.suppress(JavaError):
                call_directly(writer.rollback)  # ends a merge that the user has interrupted
            raise
    except JavaError as error:
        if _NO_SPACE in str(error):
            raise StorageError(f"Lucene cannot write {target}: {_NO_SPACE}; {_KEPT}") from error
        raise StagingCorrupt(f"Lucene cannot merge the files in {target.parent} ({error}): run the same command again") from error
    (target / _LOCK_FILE).unlink()


def _new_directory(target: Path) -> Any:  # noqa: ANN401 - an IndexWriter
    config = java_class(f"{LUCENE}.index.IndexWriterConfig")()
    config.setUseCompoundFile(False)
    return java_class(f"{LUCENE}.index.IndexWriter")(open_directory(target), config)


def _add_all(pieces: Sequence[Path], writer: Any) -> None:  # noqa: ANN401 - an IndexWriter
    """Merge the segments of Lucene directories into one segment, and commit. It must run within ``call_in_java``."""
    with ExitStack() as open_pieces:
        segments = []
        for piece in pieces:
            reader = java_class(f"{LUCENE}.index.DirectoryReader").open(open_directory(piece))
            open_pieces.callback(reader.close)
            segments += [leaf.reader() for leaf in reader.leaves()]
        if segments:
            call(method(f"{LUCENE}.index.IndexWriter", "addIndexes", "long", f"[L{LUCENE}.index.CodecReader;"), writer, *segments)
        writer.close()


def _piece_path(pieces: Path, first: int) -> Path:
    return pieces / f"{first // PIECE_ROWS:05d}"


def max_parallel_programs() -> int:
    """Return the number of parallel processes: at most one per CPU, and at most as many as fit into half of the memory."""
    return max(1, min(n_threads(), memory_bytes() // (2 * PROGRAM_HEAP_BYTES)))
