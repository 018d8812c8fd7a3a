"""Builds a Lucene index from a store: pieces by Anserini's ``IndexCollection``, several in parallel, then one merge by Lucene.

Each piece is indexed on one thread and the merge keeps their order, so that Lucene's documents are in the order of the rows and ties
go to the lower row. (Anserini's own ``-threads`` shuffles the documents.) A resumed build reuses finished
pieces. One merged segment is faster to search than many.
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

from wikidx.corpora.artifacts.building import PIECES
from wikidx.corpora.errors import IdxError, InputError, PiecesDamaged, StorageError
from wikidx.corpora.passage import Passage
from wikidx.corpora.progress import Progress
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import NO_ROW
from wikidx.indexer.indexes.kinds import Cost, IndexBuild, Size
from wikidx.indexer.machine.memory import memory_bytes
from wikidx.indexer.machine.threads import n_threads

from .java_functions import call, method
from .jvm import JavaError, beside_java, check_installed, in_java, java_class, run_java
from .reader import LUCENE, STEMMER, LuceneReader, open_directory

DIRECTORY = "index"
ROWS = "rows.i32"
PIECE_ROWS = 131_072

PROGRAM_HEAP_BYTES = 1 << 30  # heap of the process that indexes one piece
_BUFFER_MB = 512  # fits a piece of 100-word passages, which makes it one segment
_IDS_PER_CALL = 1 << 16
_NO_SPACE = "No space left on device"
_COMPLAINT = re.compile(r"^(?!\s*at ).*(Exception|Error|" + _NO_SPACE + ")")  # excludes lines of a stack trace
_KEPT = "what is finished is kept: mend it and run the same command again"
_MAX_CHARACTERS = 20_000_000  # limit of Anserini's parser for a JSON string
_PASSAGES_PER_S = 5_500  # per process
_BYTES_PER_TEXT_BYTE = 0.5  # as for BM25
_LOCK_FILE = "write.lock"


def cost(size: Size) -> Cost:
    """Return the estimate of a build; each parallel process has a piece of the passages on the disk as text.

    Raises:
        MissingExtraError: the extra ``lucene`` is not installed.
    """
    check_installed()
    n_programs = min(programs_at_once(), size.n_rows // PIECE_ROWS + 1)
    disk_bytes = size.passage_bytes * (_BYTES_PER_TEXT_BYTE * size.n_rows + n_programs * min(PIECE_ROWS, size.n_rows))
    return Cost(disk_bytes, 0.5e9 + n_programs * PROGRAM_HEAP_BYTES, size.n_rows / (n_programs * _PASSAGES_PER_S))


def write(plan: IndexBuild[PassageStore]) -> Mapping[str, int]:
    """Build the index of a store; see ``IndexKind.write``."""
    store, _, staging, progress = plan
    pieces = staging / PIECES
    pieces.mkdir(exist_ok=True)
    for unfinished in pieces.glob(".*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    firsts = range(0, len(store), PIECE_ROWS)
    n_done = 0
    with ThreadPoolExecutor(programs_at_once()) as pool:
        futures = {pool.submit(_index_piece, store, first, pieces): first for first in firsts}
        try:
            for future in as_completed(futures):
                future.result()
                n_done += min(PIECE_ROWS, len(store) - futures[future])
                progress(n_done, len(store))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    _merge([_piece(pieces, first) for first in firsts], staging / DIRECTORY)
    with closing(LuceneReader(staging / DIRECTORY)) as reader:
        rows = document_rows(reader, store)
        lost = [row for row in missing_rows(rows, len(store)) if not is_blank(store.get_many([row])[0])]
        if lost or (rows == NO_ROW).any() or len(np.unique(rows)) < len(rows):
            raise PiecesDamaged(f"the Lucene index in {staging} does not hold each passage once: run the same command again")
        (staging / ROWS).write_bytes(rows.data)
        return counts(reader, store)


def counts(reader: LuceneReader, store: PassageStore) -> dict[str, int]:
    """Return the counts of a Lucene index's manifest: rows of the corpus, documents, and documents with at least one term."""
    return {"rows": len(store), "documents": reader.n_documents, "searchable": reader.n_searchable}


def document_rows(reader: LuceneReader, store: PassageStore, progress: Progress | None = None) -> NDArray[np.int32]:
    """Return the row of each document, int32 of shape (documents,), by its stored id; -1 if the store lacks the id."""
    rows = np.empty(reader.n_documents, dtype="<i4")
    for first in range(0, len(rows), _IDS_PER_CALL):
        end = min(first + _IDS_PER_CALL, len(rows))
        rows[first:end] = store.rows_of([id_ or "" for id_ in reader.ids(first, end)])
        if progress is not None:
            progress(end, len(rows))
    return rows


def missing_rows(rows: NDArray[np.int32], n_rows: int) -> list[int]:
    """Return the rows from 0 to ``n_rows`` that do not occur in ``rows``, ascending."""
    is_there = np.zeros(n_rows, dtype=bool)
    is_there[rows[rows != NO_ROW]] = True
    return np.flatnonzero(~is_there).tolist()


def contents(passage: Passage) -> str:
    """Return the indexed text of a passage."""
    return f"{passage.title}\n{passage.text}"


def is_blank(passage: Passage) -> bool:
    """Return whether Anserini creates no document for the passage: it has only spaces and ASCII control characters."""
    return all(character <= " " for character in contents(passage))


def _index_piece(store: PassageStore, first: int, pieces: Path) -> None:
    """Index the rows of one piece, unless it is finished."""
    target = _piece(pieces, first)
    if target.exists():
        return
    # A new directory for each attempt: a process that outlived a killed build may still be writing into an earlier one.
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
    """Index the files in ``source`` and check that all documents are in the index.

    Raises:
        StorageError: the disk is full.
        IdxError: another failure, with Anserini's error in the message.
    """
    complaints: list[str] = []

    def note(line: str) -> None:
        if _COMPLAINT.search(line):
            complaints.append(line)

    arguments = ["-collection", "JsonCollection", "-input", str(source), "-generator", "DefaultLuceneDocumentGenerator"]
    arguments += ["-index", str(index), "-threads", "1", "-stemmer", STEMMER, "-memoryBuffer", str(_BUFFER_MB)]
    found = -1
    try:
        run_java("io.anserini.index.IndexCollection", arguments, heap_bytes=PROGRAM_HEAP_BYTES, on_line=note)
        with closing(LuceneReader(index)) as reader:
            found = reader.n_documents
    except JavaError as error:
        complaints.append(str(error))
    if found == n_documents:
        return
    told = "; ".join(dict.fromkeys([*complaints[:1], *complaints[-1:]])) or f"it made {found:,} documents of {n_documents:,} passages"
    if any(_NO_SPACE in line for line in complaints):
        raise StorageError(f"Lucene cannot write {index.parent.parent}: {_NO_SPACE}; {_KEPT}")
    raise IdxError(f"Lucene could not index the passages: {told}; {_KEPT}")


def _merge(pieces: Sequence[Path], target: Path) -> None:
    """Merge Lucene directories into one of a single segment, their documents in this order."""
    shutil.rmtree(target, ignore_errors=True)  # left by an interrupted merge
    try:
        writer = in_java(lambda: _new_directory(target))
        try:
            in_java(lambda: _add_all(pieces, writer))
        except BaseException:
            with contextlib.suppress(JavaError):
                beside_java(writer.rollback)  # after the user's interrupt the merge continues until this stops it
            raise
    except JavaError as error:
        if _NO_SPACE in str(error):
            raise StorageError(f"Lucene cannot write {target}: {_NO_SPACE}; {_KEPT}") from error
        raise PiecesDamaged(f"Lucene cannot merge what is in {target.parent} ({error}): run the same command again") from error
    (target / _LOCK_FILE).unlink()


def _new_directory(target: Path) -> Any:  # noqa: ANN401 - an IndexWriter
    config = java_class(f"{LUCENE}.index.IndexWriterConfig")()
    config.setUseCompoundFile(False)
    return java_class(f"{LUCENE}.index.IndexWriter")(open_directory(target), config)


def _add_all(pieces: Sequence[Path], writer: Any) -> None:  # noqa: ANN401 - an IndexWriter
    """Merge the segments of Lucene directories into one segment, and commit its directory; within ``in_java``."""
    with ExitStack() as open_pieces:
        segments = []
        for piece in pieces:
            reader = java_class(f"{LUCENE}.index.DirectoryReader").open(open_directory(piece))
            open_pieces.callback(reader.close)
            segments += [leaf.reader() for leaf in reader.leaves()]
        if segments:
            call(method(f"{LUCENE}.index.IndexWriter", "addIndexes", "long", f"[L{LUCENE}.index.CodecReader;"), writer, *segments)
        writer.close()


def _piece(pieces: Path, first: int) -> Path:
    return pieces / f"{first // PIECE_ROWS:05d}"


def programs_at_once() -> int:
    """Return the number of parallel processes: one per CPU, as far as memory suffices."""
    return max(1, min(n_threads(), memory_bytes() // (2 * PROGRAM_HEAP_BYTES)))
