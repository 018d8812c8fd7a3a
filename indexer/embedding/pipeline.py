"""One device's share of an embedding: pieces of a range of rows -> tokens -> batches -> vectors -> the file, each step ahead of the next.

Pieces are tokenised (with a GPU in other processes) and joined to ranges; a range's texts are batched by length and padded into pinned
memory in a thread; batches go through the model. Memory is bounded: tokens and vectors of a few ranges, whatever the size of the corpus.

An interruption costs at most one range, the one being computed or written: it is on the disk before the next one is computed beyond the
device's current batch. Writing 4,096 vectors of 768 components takes some 50 ms; computing them takes a second on a GPU, a minute
on a CPU.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wikidx.corpora.errors import IdxError
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore, Rows
from wikidx.indexer.base import Vectors
from wikidx.indexer.encoders.model import Batch, Model
from wikidx.indexer.encoders.spec import EncoderSpec, Tokens
from wikidx.indexer.encoders.tokenizing import Tokenizer, joined
from wikidx.indexer.machine.failures import device_errors
from wikidx.indexer.machine.workers import ahead, processes
from wikidx.indexer.vectors.file import RANGE_ROWS

from .batching import PIECE_ROWS, batches, pieces
from .options import Resources

if TYPE_CHECKING:
    import torch

_PIECES_AHEAD = 3 * RANGE_ROWS // PIECE_ROWS  # limit of tokenised pieces, which leaves later ranges to other devices

Report = Callable[[int, int], None]
"""Called with the numbers of passages and of tokens encoded since the last call."""


class Job(NamedTuple):
    """A picklable embedding job, shared by all processes.

    Attributes:
        spec: the encoder.
        reopen: opens the store.
        write: called with the rows and vectors of each finished range.
        resources: devices, precision and batch size; the devices share the ranges.
    """

    spec: EncoderSpec
    reopen: Callable[[], PassageStore]
    write: Callable[[range, Vectors], None]
    resources: Resources


class Part(NamedTuple):
    """The tokens of consecutive rows of a range that is written together."""

    target: range
    rows: range
    tokens: Tokens


class Padded(NamedTuple):
    """A padded batch for the model: the texts of a range with these numbers."""

    target: Part
    which: Rows
    batch: Batch


def embed_ranges(job: Job, device: str, todo: Iterator[range], report: Report) -> None:
    """Encode ranges of rows on one device, one after the other.

    Raises:
        IdxError: a vector is not finite, or has another dimension; a tokenising process was killed; the device fails.
        InputError, MissingExtraError: the checkpoint, the device or a package is missing.
        OSError: a disk error.
    """
    first = next(todo, None)
    if first is not None:
        with explain_device_errors(device, job.resources, aftermath="; the finished vectors are kept"):
            model = Model(job.spec, "passage", device, job.resources.precision.computed)
            run_pipeline(job, model, chain((first,), todo), report)


def run_pipeline(job: Job, model: Model, todo: Iterable[range], report: Report) -> None:
    """Encode ranges of rows with a loaded model; raises as ``embed_ranges`` does."""
    parts = ((target, rows) for target in todo for rows in pieces(target))
    with _tokenising(job, parts) as tokenised:
        for rows, vectors in encoded_ranges(model, _joined(tokenised), job.resources.batch_tokens, report):
            job.write(rows, vectors)


def encoded_ranges(model: Model, targets: Iterable[Part], batch_tokens: int, report: Report) -> Iterator[tuple[range, Vectors]]:
    """Yield the rows and float32 vectors of tokenised ranges; raises ``IdxError`` if vectors have another dimension."""
    with ThreadPoolExecutor(1) as padding:
        padded = ahead(lambda part: padding.submit(_pad, model, part), _split(targets, batch_tokens), 2)
        yield from _filled(_encoded(model, padded), model.dim, report)


def explain_device_errors(device: str, found: Resources, *, aftermath: str = "") -> contextlib.AbstractContextManager[None]:
    """Translate torch's exceptions for a failing device; see ``device_errors``."""
    task = f"batches of {found.batch_tokens:,} tokens"
    return device_errors(device, task, "say --batch-tokens with a smaller number", aftermath=aftermath)


@contextlib.contextmanager
def _tokenising(job: Job, parts: Iterator[tuple[range, range]]) -> Iterator[Iterator[Part]]:
    """Yield the tokens of each piece of the ranges, in order."""
    if not job.resources.n_tokenizing:
        yield map(_Tokenising(job.spec, job.reopen), parts)
        return
    _Tokenising(job.spec, job.reopen)  # errors are reported better from this process
    n_processes = job.resources.n_tokenizing
    with processes(n_processes, "tokenises", _start_tokenising, job.spec, job.reopen) as tokenise:
        yield ahead(tokenise, parts, min(n_processes + 1, _PIECES_AHEAD))


class _Tokenising:
    """Reads passages of the store and tokenises them."""

    def __init__(self, spec: EncoderSpec, reopen: Callable[[], PassageStore]) -> None:
        self._store = reopen()
        self._tokenizer = Tokenizer(spec, "passage")

    def __call__(self, part: tuple[range, range]) -> Part:
        target, rows = part
        return Part(target, rows, self._tokenizer.passages(self._store.read(rows.start, rows.stop)))


def _start_tokenising(spec: EncoderSpec, reopen: Callable[[], PassageStore]) -> _Tokenising:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there are already as many processes as CPUs
    return _Tokenising(spec, reopen)


def _joined(tokenised: Iterable[Part]) -> Iterator[Part]:
    """Join pieces to ranges."""
    parts = list[Part]()
    for piece in tokenised:
        parts.append(piece)
        if piece.rows.stop == piece.target.stop:
            yield Part(piece.target, piece.target, joined([part.tokens for part in parts]))
            parts.clear()


def _split(targets: Iterable[Part], batch_tokens: int) -> Iterator[tuple[Part, Rows]]:
    for target in targets:
        for which in batches(target.tokens.lengths(), batch_tokens):
            yield target, which


def _pad(model: Model, part: tuple[Part, Rows]) -> Padded:
    target, which = part
    return Padded(target, which, model.pad(target.tokens, which))


def _encoded(model: Model, padded: Iterable[Padded]) -> Iterator[tuple[Padded, Vectors]]:
    """Yield each batch with its vectors, while the device computes the next one."""
    before: tuple[Padded, _Copy] | None = None
    for item in padded:
        current = (item, _Copy(model.forward(item.batch)))
        if before:
            yield before[0], before[1].finished()
        before = current
    if before:
        yield before[0], before[1].finished()


class _Copy:
    """Vectors on their way from the device to pinned memory."""

    def __init__(self, vectors: torch.Tensor) -> None:
        import torch

        self._vectors = vectors.to("cpu", non_blocking=vectors.is_cuda)
        self._arrival = torch.cuda.Event() if vectors.is_cuda else None  # type: ignore[no-untyped-call]
        if self._arrival:
            self._arrival.record(torch.cuda.current_stream(vectors.device))

    def finished(self) -> Vectors:
        if self._arrival:
            self._arrival.synchronize()
        return self._vectors.numpy()


def _filled(encoded: Iterable[tuple[Padded, Vectors]], dim: int, report: Report) -> Iterator[tuple[range, Vectors]]:
    """Yield the rows and vectors of each range when it is full."""
    filled, n_left = np.empty((0, dim), dtype=np.float32), 0
    for (target, which, _), vectors in encoded:
        if vectors.shape != (len(which), dim):
            raise IdxError(
                f"the encoder gave vectors of shape {vectors.shape} instead of ({len(which)}, {dim}) for row "
                f"{target.rows[int(which[0])]} and others of its length: nothing is written"
            )
        if not n_left:
            filled, n_left = np.empty((len(target.rows), dim), dtype=np.float32), len(target.rows)
        filled[which] = vectors
        n_left -= len(which)
        report(len(which), int(target.tokens.lengths()[which].sum()))
        if not n_left:
            yield target.rows, filled


class PassageEncoder:
    """Encodes a few passages in this process, as a build would: for samples and checks. ``name`` is the encoder's.

    Raises:
        IdxError: the device has too little memory, or fails.
        InputError, MissingExtraError: the checkpoint, the device or a package is missing.
    """

    def __init__(self, spec: EncoderSpec, found: Resources) -> None:
        self.name = spec.name
        self._found = found
        self._tokenizer = Tokenizer(spec, "passage")
        with explain_device_errors(found.devices[0], found):
            self._model = Model(spec, "passage", found.devices[0], found.precision.computed)

    def encode(self, passages: Sequence[Passage]) -> Vectors:
        """Return float32 vectors, shape (len(passages), dim).

        Raises:
            IdxError: the device has too little memory, or fails.
        """
        tokens = self._tokenizer.passages(passages)
        vectors = np.empty((len(passages), self._model.dim), dtype=np.float32)
        with explain_device_errors(self._found.devices[0], self._found):
            for which in batches(tokens.lengths(), self._found.batch_tokens):
                vectors[which] = self._model.encode(tokens, which)
        return vectors


_WARM_UP_PASSAGES = 8


class Measured(NamedTuple):
    """Measurements of an encoder on a sample.

    Attributes:
        seconds_per_byte: of text, on one device.
        dim: components of a vector.
        peak_bytes: peak memory of the process.
    """

    seconds_per_byte: float
    dim: int
    peak_bytes: int


def measured(encoder: PassageEncoder, passages: Sequence[Passage]) -> Measured:
    """Time an encoder on some passages after a warm-up."""
    n_bytes = sum(len(field.encode(errors="surrogatepass")) for passage in passages for field in passage)
    encoder.encode(passages[:_WARM_UP_PASSAGES])  # the first call includes initialisation
    started = time.perf_counter()
    vectors = encoder.encode(passages)
    seconds_per_byte = (time.perf_counter() - started) / n_bytes
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Measured(seconds_per_byte, vectors.shape[1], peak_bytes)
