"""Embedding on one device: rows -> tokens -> batches -> vectors -> file, each step ahead of the next.

Tokenisers read chunks of a range of rows; for a GPU they are separate processes. The chunks are joined into ranges. A thread pads batches
of texts of similar length; for a GPU, the batches are in pinned memory. The model encodes the batches. Memory holds the tokens and
vectors of a few ranges, whatever the size of the corpus.

An interruption costs at most one range on a CPU: a range is on disk before more than one batch of the next range is computed. A GPU would
wait for each range to be written, some 60 ms in 300, so that there a thread writes a range while the next is computed: a kill costs two.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wikidx.base.machine.failures import device_errors
from wikidx.base.machine.workers import map_ahead, worker_processes
from wikidx.corpora.passage import Rows
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Vectors
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.spec import EncoderSpec, Tokens
from wikidx.indexer.encoders.tokenizing import Tokenizer, concatenate
from wikidx.indexer.networks.batching import CHUNK_ROWS, batches, tokenizing_chunks
from wikidx.indexer.networks.network import Batch
from wikidx.indexer.vectors.file import GPU_RANGE_ROWS

from .options import Resources

if TYPE_CHECKING:
    import torch

_CHUNKS_AHEAD = 3 * GPU_RANGE_ROWS // CHUNK_ROWS  # limit on chunks tokenised ahead, so that other devices get the later ranges

Report = Callable[[int, int], None]
"""Function (passages, tokens) -> None, which receives the numbers encoded since the last call."""


class Job(NamedTuple):
    """A picklable embedding job, shared by all processes.

    Attributes:
        spec: the encoder.
        reopen: function that opens the store.
        write: called with the rows and vectors of each finished range.
        resources: devices, precision and batch size.
    """

    spec: EncoderSpec
    reopen: Callable[[], PassageStore]
    write: Callable[[range, Vectors], None]
    resources: Resources


class TokenizedRows(NamedTuple):
    """Tokens of consecutive rows. ``rows`` is a chunk of the range ``target``, or the whole range."""

    target: range
    rows: range
    tokens: Tokens


class PaddedBatch(NamedTuple):
    """Padded batch for the model, with the texts ``numbers`` of the range ``target``."""

    target: TokenizedRows
    numbers: Rows
    batch: Batch


def embed_ranges(job: Job, device: str, ranges: Iterator[range], report: Report) -> None:
    """Encode ranges of rows on one device, one after the other.

    Raises:
        IdxError: a vector is not finite; a tokenising process was killed; the device fails.
        InputError, MissingExtraError: the checkpoint, the device or a package is missing.
        OSError: a disk error.
    """
    first = next(ranges, None)
    if first is not None:
        with explain_device_errors(device, job.resources, aftermath="; the finished vectors are kept"):
            model = Model(job.spec, "passage", device, job.resources.precision.computed)
            run_pipeline(job, model, itertools.chain((first,), ranges), report)


def run_pipeline(job: Job, model: Model, ranges: Iterable[range], report: Report) -> None:
    """Encode ranges of rows with a loaded model; raises as ``embed_ranges`` does."""
    chunks = ((target, rows) for target in ranges for rows in tokenizing_chunks(target))
    with _tokenize_ahead(job, chunks) as tokenized_chunks:
        encoded = encode_ranges(model, _join_chunks(tokenized_chunks), job.resources.batch_tokens, report)
        if not job.resources.n_tokenizing:
            for rows, vectors in encoded:
                job.write(rows, vectors)
            return
        with ThreadPoolExecutor(1, thread_name_prefix="write") as thread:  # while a range is written, the GPU computes the next
            for _ in map_ahead(lambda finished: thread.submit(job.write, *finished), encoded, 1):
                pass


def encode_ranges(model: Model, targets: Iterable[TokenizedRows], batch_tokens: int, report: Report) -> Iterator[tuple[range, Vectors]]:
    """Yield the rows and float32 vectors of tokenised ranges."""
    with ThreadPoolExecutor(1) as padding:
        unpadded = ((target, numbers) for target in targets for numbers in batches(target.tokens.lengths(), batch_tokens))
        padded = map_ahead(lambda batch: padding.submit(_pad, model, batch), unpadded, 2)
        yield from _collect_ranges(_encode_batches(model, padded), model.dim, report)


def explain_device_errors(device: str, resources: Resources, *, aftermath: str = "") -> contextlib.AbstractContextManager[None]:
    """Translate torch's exceptions for a failing device; see ``device_errors``."""
    task = f"batches of {resources.batch_tokens:,} tokens"
    return device_errors(device, task, "use a smaller --batch-tokens", aftermath=aftermath)


@contextlib.contextmanager
def _tokenize_ahead(job: Job, chunks: Iterator[tuple[range, range]]) -> Iterator[Iterator[TokenizedRows]]:
    """Yield the tokens of each chunk of the ranges, in order."""
    if not job.resources.n_tokenizing:
        yield map(_tokenizing(Tokenizer(job.spec, "passage"), job.reopen), chunks)
        return
    tokenizer, n_processes = Tokenizer(job.spec, "passage"), job.resources.n_tokenizing
    with worker_processes(n_processes, "tokenises", _start_tokenizing, tokenizer, job.reopen) as tokenise:
        yield map_ahead(tokenise, chunks, min(n_processes + 1, _CHUNKS_AHEAD))


def _tokenizing(tokenizer: Tokenizer, reopen: Callable[[], PassageStore]) -> Callable[[tuple[range, range]], TokenizedRows]:
    """Return the function that reads and tokenises a chunk of a range."""
    store = reopen()
    return lambda chunk: TokenizedRows(*chunk, tokenizer.passages(store.read(chunk[1].start, chunk[1].stop)))


def _start_tokenizing(tokenizer: Tokenizer, reopen: Callable[[], PassageStore]) -> Callable[[tuple[range, range]], TokenizedRows]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there are already as many processes as CPUs
    return _tokenizing(tokenizer, reopen)


def _join_chunks(tokenized_chunks: Iterable[TokenizedRows]) -> Iterator[TokenizedRows]:
    chunks = list[TokenizedRows]()
    for chunk in tokenized_chunks:
        chunks.append(chunk)
        if chunk.rows.stop == chunk.target.stop:
            yield TokenizedRows(chunk.target, chunk.target, concatenate([chunk.tokens for chunk in chunks]))
            chunks.clear()


def _pad(model: Model, batch: tuple[TokenizedRows, Rows]) -> PaddedBatch:
    target, numbers = batch
    return PaddedBatch(target, numbers, model.pad_tokens(target.tokens, numbers))


def _encode_batches(model: Model, padded: Iterable[PaddedBatch]) -> Iterator[tuple[PaddedBatch, Vectors]]:
    """Yield each batch with its vectors, while the device computes the next batch."""
    computed: Iterator[Any] = ((item, _start_copy(model.forward(item.batch))) for item in padded)
    for (item, wait), _ in itertools.pairwise(itertools.chain(computed, [None])):
        yield item, wait()


def _start_copy(vectors: torch.Tensor) -> Callable[[], Vectors]:
    """Start the transfer of vectors from the device to pinned memory; return the function that waits for them."""
    import torch

    copied = vectors.to("cpu", non_blocking=vectors.is_cuda)
    arrival = torch.cuda.current_stream(vectors.device).record_event() if vectors.is_cuda else None

    def wait() -> Vectors:
        if arrival:
            arrival.synchronize()
        return copied.numpy()

    return wait


def _collect_ranges(encoded: Iterable[tuple[PaddedBatch, Vectors]], dim: int, report: Report) -> Iterator[tuple[range, Vectors]]:
    """Yield the rows and vectors of each range when all its vectors are computed."""
    range_vectors, n_left = np.empty((0, dim), dtype=np.float32), 0
    for (target, numbers, _), vectors in encoded:
        if not n_left:
            range_vectors, n_left = np.empty((len(target.rows), dim), dtype=np.float32), len(target.rows)
        range_vectors[numbers] = vectors
        n_left -= len(numbers)
        report(len(numbers), int(target.tokens.lengths()[numbers].sum()))
        if not n_left:
            yield target.rows, range_vectors
