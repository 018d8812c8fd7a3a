"""Writer of a store. Each batch is on disk before the next is stored, so that an interrupted build resumes after the last batch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, NamedTuple, Protocol

import numpy as np

from wikidx.base.artifacts.building import INTERMEDIATE
from wikidx.base.artifacts.checked_files import map_bytes
from wikidx.base.artifacts.durable import write_durably
from wikidx.base.batches import in_batches
from wikidx.base.errors import InputError, StagingCorrupt
from wikidx.corpora.passage import BadRecord, LocatedPassage, OnBad, Passage, Span, text_key

from .batches import Batches, find_places, join
from .columns import SpanWriter
from .database import Database
from .frames import Vocabulary, to_stream, train
from .layout import DATABASE, IDS, MAX_ID_BYTES, PLACES, REPEATED, TEXT_KEYS, TITLES, VOCABULARY, key_of, pack
from .names import Words, colliding_rows, sort, word

_BATCH_PASSAGES = 16_384
_BATCH_CHARACTERS = 32 << 20  # size limit of a batch, which only whole articles reach
_MOST_PASSAGES = 2**32 - 1  # a row has 32 bits
_READ_ROWS = 1024


class Follower(Protocol):
    """Reader of the passages while they are stored, such as an index that is prepared in the same pass over the text."""

    def add(self, passages: Sequence[Passage]) -> None:
        """Take the next passages in row order; a resumed writer begins with row 0 again."""

    def finish(self) -> None:
        """Complete the work after the last passage."""

    def close(self) -> None:
        """Release the resources, whether or not the work is complete."""


class _Record(NamedTuple):
    """A valid passage; ``packed`` is the result of ``layout.pack``, ``stream`` that of ``frames.to_stream``."""

    row: int
    passage: Passage
    packed: bytes
    stream: bytes
    text_key: int


class _Batch(NamedTuple):
    """Records that are not stored yet, and the frame of each."""

    records: list[_Record]
    frames: Sequence[bytes]


class StoreWriter:
    """Writer of records to the store in a folder.

    Passages are stored in input order. While one batch is compressed, the next is read. Ids and titles are sorted at the end in
    memory-mapped files, so that memory does not grow with the corpus.

    A writer in the folder of an interrupted writer resumes after the last stored batch. The caller passes the same records from the
    beginning: the stored records are read again only for the fingerprint, the ids and the titles, and for a follower.

    Attributes:
        n_read: number of records read so far, stored or not.
        left_out: key of the records that this writer leaves out because they repeat an id.

    Raises:
        StagingCorrupt: the files of an interrupted writer are corrupt.
    """

    def __init__(self, folder: Path, on_bad: OnBad) -> None:
        self._folder, self._on_bad = folder, on_bad
        (folder / INTERMEDIATE).mkdir(exist_ok=True)
        self._database = Database(folder / INTERMEDIATE / DATABASE)
        try:
            repeated = (folder / REPEATED).read_bytes() if (folder / REPEATED).exists() else b""
            self._repeated = dict(np.frombuffer(repeated, dtype="<u4").reshape(-1, 2).tolist())
            self._vocabulary = Vocabulary((folder / VOCABULARY).read_bytes()) if self._database.n_passages else None
            self._text_keys = _open_text_keys(folder / TEXT_KEYS, self._database.n_passages)
        except (FileNotFoundError, ValueError) as error:
            self._database.close()
            raise StagingCorrupt(f"files in {folder} are corrupt: {error}") from error
        self.left_out = key_of(repeated)
        self.n_read = 0
        self._n_passages = self._n_records = 0  # records also count those that are skipped because they repeat an id
        self._locations = dict.fromkeys(self._repeated.values(), "")  # number -> file and line of the first record of a repeated id
        self._fingerprint = hashlib.sha256()
        self._spans = SpanWriter(folder)
        self._ids, self._titles = (folder / IDS).open("wb"), (folder / TITLES).open("wb")
        self._compressor_thread = ThreadPoolExecutor(max_workers=1)

    def write(self, records: Iterable[LocatedPassage], follower: Follower | None = None) -> Iterator[int]:
        """Store the records; after each batch, yield the number of passages on disk.

        Args:
            records: all records from the first on.
            follower: reader of the passages.

        Raises:
            InputError: ``on_bad`` raised it, or there are too many passages.
            OSError: the disk is full or fails.
        """
        compressed: Future[_Batch] | None = None
        for batch in in_batches(records, lambda record: len(record.passage.text), _BATCH_PASSAGES, _BATCH_CHARACTERS):
            self.n_read += len(batch)
            if self._n_passages + len(batch) > _MOST_PASSAGES:
                raise InputError(
                    f"there are more than {_MOST_PASSAGES:,} passages, which one store can hold: divide the corpus into several"
                )
            accepted = list(self._accept(batch))
            if compressed is not None:
                yield self._store(compressed.result())
            compressed = self._compressor_thread.submit(self._compress, accepted)
            if follower is not None:
                follower.add([record.passage for record in accepted])
        if compressed is not None:
            yield self._store(compressed.result())

    def finish(self) -> str | None:
        """Sort ids and titles, copy the database, write the places of its batches and the last spans, and return the fingerprint.

        Returns:
            The fingerprint, or None if ids are repeated. With repeated ids, the passages are deleted, and the store lists the records that
            repeat an id. The caller then closes this writer and passes all records to a new one, which reports these records to ``on_bad``.

        Raises:
            OSError: the disk is full or fails.
        """
        for file in (self._ids, self._titles):
            file.flush()
        sort(Path(self._titles.name))
        self._spans.finish()
        path = self._folder / DATABASE
        self._database.copy(path)
        content = map_bytes(path)
        places = find_places(content, self._database.page_bytes)
        write_durably(self._folder / PLACES, places.tobytes())
        repeated = []
        if self._vocabulary is not None:
            batches = Batches(content, places, self._vocabulary, check=lambda starts, stops: None)
            repeated = list(_find_repeated_ids(sort(Path(self._ids.name)), batches))
        if not repeated:
            return self._fingerprint.hexdigest()
        self._database.delete()
        write_durably(self._folder / REPEATED, np.array(repeated, dtype="<u4").tobytes())
        return None

    def close(self) -> None:
        """Close the files."""
        self._compressor_thread.shutdown()
        for file in (self._ids, self._titles, self._spans, self._text_keys, self._database):
            file.close()

    def _accept(self, batch: Sequence[LocatedPassage]) -> Iterator[_Record]:
        """Yield a record with its row for each valid passage; pass invalid passages and repeated ids to ``on_bad``."""
        ids: list[int] = []
        titles: list[int] = []
        spans: list[Span | None] = []
        for passage, file, line, span in batch:
            try:
                id_, title, text = _encode(passage, span)
                self._n_records += 1
                if self._n_records in self._repeated:
                    raise ValueError(f"the id '{passage.id}' is already that of {self._locations[self._repeated[self._n_records]]}")
                if self._n_records in self._locations:
                    self._locations[self._n_records] = f"{file}, line {line}"
            except ValueError as error:
                self._on_bad(BadRecord(file, line, str(error)))
                continue
            row = self._n_passages
            self._n_passages += 1
            ids.append(word(id_, row))
            titles.append(word(title, row))
            spans.append(span)
            stream = to_stream(id_, title, text) if row >= self._database.n_passages else b""
            yield _Record(row, passage, pack(id_, title, text), stream, text_key(passage.text) if row >= self._database.n_passages else 0)
        self._ids.write(np.array(ids, dtype="<u8").tobytes())
        self._titles.write(np.array(titles, dtype="<u8").tobytes())
        self._spans.add(spans)

    def _compress(self, records: list[_Record]) -> _Batch:
        """Compress the records that are not stored yet; the first batch trains the vocabulary.

        This method runs in the compressor thread. Its long calls release the GIL: many short ones would compete with the reading thread.
        """
        self._fingerprint.update(b"".join([record.packed for record in records]))
        new = [record for record in records if record.row >= self._database.n_passages]
        if not new:
            return _Batch([], [])
        streams = [record.stream for record in new]
        if self._vocabulary is None:
            self._vocabulary = train(streams)
        return _Batch(new, self._vocabulary.encode(streams))

    def _store(self, batch: _Batch) -> int:
        """Store a batch, and return the number of passages on disk.

        The vocabulary and the text keys are written before the batch: a resumed build continues after the last batch.
        """
        if batch.records:
            if self._database.n_passages == 0 and self._vocabulary is not None:
                write_durably(self._folder / VOCABULARY, self._vocabulary.saved)
            self._text_keys.write(np.array([record.text_key for record in batch.records], dtype="<u8").tobytes())
            self._text_keys.flush()
            os.fsync(self._text_keys.fileno())
            self._database.append(join(batch.frames))
        return self._database.n_passages


def _open_text_keys(path: Path, n_durable: int) -> IO[bytes]:
    """Open the text keys for appending, after the keys of the ``n_durable`` stored passages.

    Raises:
        ValueError: keys of stored passages are missing.
    """
    n_bytes = path.stat().st_size if path.exists() else 0
    if n_bytes < n_durable * 8:
        raise ValueError(f"{path} has {n_bytes:,} bytes, {n_durable * 8:,} were written")
    file = path.open("ab")
    file.truncate(n_durable * 8)
    return file


def _encode(passage: Passage, span: Span | None) -> tuple[bytes, bytes, bytes]:
    """Return the fields in UTF-8.

    Raises:
        ValueError: the id is empty or too long, or a field, also of the span, has half of a surrogate pair.
    """
    try:
        if span is not None:
            (span.document + span.heading).encode()
        id_, title, text = passage.id.encode(), passage.title.encode(), passage.text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"half of a surrogate pair, \\u{ord(error.object[error.start]):04x}, without its other half") from None
    if not 0 < len(id_) <= MAX_ID_BYTES:
        raise ValueError(f"the id has {len(id_)} bytes (1 to {MAX_ID_BYTES} are possible)")
    return id_, title, text


def _find_repeated_ids(words: Words, batches: Batches) -> Iterator[tuple[int, int]]:
    """Yield pairs of record numbers, from 1: a record that repeats an id, and the first record with this id."""
    for rows in colliding_rows(words):
        first_rows: dict[str, int] = {}
        for start in range(0, len(rows), _READ_ROWS):
            chunk = rows[start : start + _READ_ROWS]
            for row, passage in zip(chunk.tolist(), batches.passages(chunk), strict=True):
                first = first_rows.setdefault(passage.id, row)
                if first != row:
                    yield row + 1, first + 1
