"""Embedding by a server: the passages of a range of rows are sent as several requests, while the range before is written."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from wikidx.indexer.base import Vectors
from wikidx.indexer.encoders.served import ServedEncoder
from wikidx.indexer.machine.workers import map_ahead

from .pipeline import Job, Report


def embed_by_server(job: Job, ranges: Iterable[range], report: Report) -> None:
    """Encode ranges of rows by a server.

    Raises:
        IdxError: the server does not answer, refuses a passage, or gives an answer that cannot be used.
        OSError: a disk error.
    """
    store = job.reopen()
    with ThreadPoolExecutor(2) as ahead, ServedEncoder(job.spec, job.resources.batch_tokens) as encoder:

        def encode(rows: range) -> Future[tuple[range, Vectors]]:
            passages = list(store.read(rows.start, rows.stop))
            return ahead.submit(lambda: (rows, encoder.encode_passages(passages)))

        for rows, vectors in map_ahead(encode, ranges, 1):
            job.write(rows, vectors)
            report(len(rows), 0)
