"""Writes a store, batch by batch; each batch is durable before the next one, so that a killed build goes on from there."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, cast

import lmdb
import numpy as np
import zstandard

from corpora.errors import ArtifactDamaged, StorageError
from corpora.passage import Located, Passage, text_key
from corpora.readers import BadRecord, OnBad

from .layout import DATABASE, MAX_KEY_BYTES, ROW, RUN, TEXT_KEYS, Database, compressor, pack, title_key

_BATCH_PASSAGES = 16_384
_BATCH_CHARACTERS = 32 << 20  # whole articles, unsplit, close a batch earlier
_FULL_DISK_BYTES = 64 << 20  # a batch may need this much
_DICTIONARY_BYTES = 256 << 10  # 112 KiB costs 8 % of the ratio, 1 MiB gains 1 % (284 k passages of wiki_intro)


class _Record(NamedTuple):
    """An accepted passage on its way to disk."""

    row: int
    id: bytes
    title: bytes
    packed: bytes
    text_key: int


class StoreWriter:
    """Writes the records it is given into a folder.

    On a folder where an earlier writer was killed it goes on after the last durable batch: give it the same records from the beginning;
    those it has are only read again, for the fingerprint. While one batch is compressed and written, the next one is read.
    """

    def __init__(self, folder: Path, on_bad: OnBad) -> None:
        self._on_bad = on_bad
        self._database = Database(folder / DATABASE, writable=True)
        self._n_durable = self._database.n_passages()
        self._n_passages = 0
        self._dictionary = self._database.dictionary()
        self._text_keys = (folder / TEXT_KEYS).open("ab")
        if self._text_keys.tell() < self._n_durable * 8:
            raise ArtifactDamaged(f"{folder / TEXT_KEYS} lost its end: delete {folder} and build again")
        self._text_keys.truncate(self._n_durable * 8)
        self._fingerprint = hashlib.sha256()
        self._storing = ThreadPoolExecutor(max_workers=1)

    def write(self, records: Iterable[Located]) -> Iterator[int]:
        """Store the records, yielding after each durable batch how many passages there are so far.

        Raises:
            InputError: ``on_bad`` raised it.
            StorageError: the disk is full or fails.
        """
        stored: Future[int] | None = None
        for batch in _batches(records):
            if stored is not None:
                yield stored.result()
            accepted = list(self._accepted(batch))  # only now: it looks the ids up in what is stored
            self._n_passages += len(accepted)
            stored = self._storing.submit(self._store, accepted)
        if stored is not None:
            yield stored.result()

    def finish(self) -> str:
        """Check the tables against each other and return the fingerprint."""
        n_stored = self._database.n_passages()
        if n_stored != self._n_passages:
            raise ArtifactDamaged(f"{n_stored:,} passages are stored, {self._n_passages:,} were read: build again with --force")
        return self._fingerprint.hexdigest()

    def close(self) -> None:
        """Wait for the batch that is being written and close the files."""
        self._storing.shutdown()
        self._text_keys.close()
        self._database.environment.close()

    def _accepted(self, batch: Sequence[Located]) -> Iterator[_Record]:
        """Give each good passage its row; hand those that cannot be stored, or whose id is taken, to ``on_bad``.

        In a resumed build an id is found with the very row it would get now: then it is the same record, not a duplicate.
        """
        keys = {located.passage.id.encode(errors="replace") for located in batch}
        with self._database.environment.begin() as txn:
            known = txn.cursor(self._database.ids).getmulti([key for key in keys if 0 < len(key) <= MAX_KEY_BYTES])
        taken = {key: ROW.unpack(row)[0] for key, row in known}
        row = self._n_passages
        for passage, file, line in batch:
            try:
                id_, title, text = _encoded(passage)
                if taken.setdefault(id_, row) != row:
                    raise ValueError(f"the id '{passage.id}' is already that of passage number {taken[id_] + 1}")
            except ValueError as error:
                self._on_bad(BadRecord(file, line, str(error)))
                continue
            yield _Record(row, id_, title, pack(id_, title, text), text_key(passage.text) if row >= self._n_durable else 0)
            row += 1

    def _store(self, records: Sequence[_Record]) -> int:
        """Make the new ones of these records durable; return the number of passages up to here.

        Text keys first, then one LMDB transaction, whose commit is what counts on resume. Runs on the one storing thread.
        """
        self._fingerprint.update(b"".join([record.packed for record in records]))
        new = [record for record in records if record.row >= self._n_durable]
        if new:
            self._text_keys.write(np.array([record.text_key for record in new], dtype="<u8").tobytes())
            self._text_keys.flush()
            os.fsync(self._text_keys.fileno())
            frames = self._compressed([record.packed for record in new])
            passages = [(ROW.pack(record.row), frame) for record, frame in zip(new, frames, strict=True)]
            ids = sorted((record.id, ROW.pack(record.row)) for record in new)  # in key order: neighbours share pages
            titles = _title_runs(new)

            def put(txn: lmdb.Transaction) -> None:
                txn.cursor(self._database.passages).putmulti(passages, append=True)
                txn.cursor(self._database.ids).putmulti(ids)
                txn.cursor(self._database.titles).putmulti(titles)

            self._transact(put)
            self._n_durable += len(new)
        return records[-1].row + 1 if records else self._n_durable

    def _transact(self, write: Callable[[lmdb.Transaction], object]) -> None:
        """Run ``write`` in one durable transaction, growing the memory map as often as it takes."""
        environment = self._database.environment
        while True:
            try:
                with environment.begin(write=True) as txn:
                    write(txn)
                return
            except lmdb.MapFullError:
                environment.set_mapsize(2 * environment.info()["map_size"])
            except lmdb.Error as error:
                raise StorageError(
                    f"cannot write {environment.path()}: {_disk_reason(error, environment.path())}; "
                    "what is finished is kept: mend it and run the same command again"
                ) from error

    def _compressed(self, packed: list[bytes]) -> Sequence[bytes]:
        """Return one zstd frame a passage; the first batch trains the dictionary, stored before any passage that needs it."""
        if self._dictionary is None:
            self._dictionary = dictionary = _trained(packed)
            self._transact(lambda txn: txn.put(b"dictionary", dictionary, db=self._database.about))
        frames = compressor(self._dictionary).multi_compress_to_buffer(list(packed))
        return cast(Sequence[bytes], [frames[i] for i in range(len(packed))])


def _disk_reason(error: lmdb.Error, path: str) -> str:
    """Return what the disk complains about; LMDB calls a write cut short by a full disk an input/output error."""
    n_free = shutil.disk_usage(Path(path).parent).free
    return f"no space left on device ({n_free / 1e6:.1f} MB free)" if n_free < _FULL_DISK_BYTES else str(error)


def _trained(samples: list[bytes]) -> bytes:
    """Return a dictionary trained on the samples; empty if they are too few or too small for one."""
    n_bytes = min(_DICTIONARY_BYTES, sum(map(len, samples)) // 16)
    try:
        return zstandard.train_dictionary(n_bytes, list(samples)).as_bytes()
    except zstandard.ZstdError:
        return b""


def _batches(records: Iterable[Located]) -> Iterator[list[Located]]:
    """Yield the records in lists bounded by number and by size; the bounds alone decide where a list ends."""
    batch: list[Located] = []
    n_characters = 0
    for record in records:
        batch.append(record)
        n_characters += len(record.passage.text)
        if len(batch) == _BATCH_PASSAGES or n_characters >= _BATCH_CHARACTERS:
            yield batch
            batch, n_characters = [], 0
    if batch:
        yield batch


def _encoded(passage: Passage) -> tuple[bytes, bytes, bytes]:
    """Return the fields in UTF-8.

    Raises:
        ValueError: the store cannot hold the passage; the message says why.
    """
    try:
        id_, title, text = passage.id.encode(), passage.title.encode(), passage.text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"half of a surrogate pair, \\u{ord(error.object[error.start]):04x}, stands alone") from None
    if not 0 < len(id_) <= MAX_KEY_BYTES:
        raise ValueError(f"the id has {len(id_)} bytes (1 to {MAX_KEY_BYTES} are possible)")
    return id_, title, text


def _title_runs(records: Sequence[_Record]) -> list[tuple[bytes, bytes]]:
    """Return (title key, (first row, number of rows)) for each run of equal titles: an article's passages follow each other."""
    runs = []
    for title, group in groupby(records, key=lambda record: record.title):
        rows = [record.row for record in group]
        runs.append((title_key(title), RUN.pack(rows[0], len(rows))))
    return runs
