"""The pipeline from store to shards, with an encoder that is nothing but arithmetic."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from wikidx.base.errors import IdxError
from wikidx.base.progress import Progress, silent
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Stored, Vectors
from wikidx.indexer.embedding import pipeline
from wikidx.indexer.embedding.embed import EmbedProgress, embed
from wikidx.indexer.embedding.options import Precision, Resources
from wikidx.indexer.embedding.pipeline import Job
from wikidx.indexer.encoders.spec import Tokens
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.networks import batching
from wikidx.indexer.vectors.file import VECTORS, VectorFile, finished_ranges

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="needs the extra 'dense'")

DIM = 16


class FakeTokenizer:
    """A text's tokens are its bytes; counts the passages."""

    n_passages = 0

    def __init__(self, spec: object, side: str) -> None:
        pass

    def passages(self, passages: Iterable[Passage]) -> Tokens:
        texts = [passage.text.encode() for passage in passages]
        FakeTokenizer.n_passages += len(texts)
        ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        return Tokens(np.frombuffer(b"".join(texts), dtype=np.uint8).astype(np.int32), ends, None)


class FakeBatch(NamedTuple):
    texts: list[bytes]


@functools.cache
def vector_of(text: bytes) -> Vectors:
    """The polynomials of the bytes at 16 places: no two of these texts have the same."""
    return np.array([sum(byte * pow(place + 3, n, 8191) for n, byte in enumerate(text)) % 8191 for place in range(DIM)], dtype=np.float32)


class FakeModel:
    """Takes batches as the real one does, and keeps their sizes; ``spoil`` changes the vectors of a batch."""

    dim = DIM
    batches: list[int] = []
    spoil: Callable[[list[bytes], Vectors], Vectors] = staticmethod(lambda texts, vectors: vectors)

    def __init__(self, spec: object, side: str, device: str, dtype: str) -> None:
        pass

    def pad_tokens(self, tokens: Tokens, which: np.typing.NDArray[np.int64]) -> FakeBatch:
        starts = tokens.ends - tokens.lengths()
        return FakeBatch([tokens.ids[starts[i] : tokens.ends[i]].astype(np.uint8).tobytes() for i in which])

    def encode(self, tokens: Tokens, which: np.typing.NDArray[np.int64]) -> Vectors:
        vectors: Vectors = self.forward(self.pad_tokens(tokens, which)).numpy()
        return vectors

    def forward(self, batch: FakeBatch) -> torch.Tensor:
        FakeModel.batches.append(len(batch.texts) * max(map(len, batch.texts)))
        return torch.from_numpy(FakeModel.spoil(batch.texts, np.array([vector_of(text) for text in batch.texts])))


@pytest.fixture(autouse=True)
def fakes(made_store: PassageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the arithmetic take the place of tokenizer and network, over the store of ``made_passages``."""
    monkeypatch.setattr(pipeline, "Tokenizer", FakeTokenizer)
    monkeypatch.setattr(pipeline, "Model", FakeModel)
    monkeypatch.setattr(FakeTokenizer, "n_passages", 0)
    monkeypatch.setattr(FakeModel, "batches", [])
    monkeypatch.setattr(batching, "CHUNK_ROWS", 100)


RANGE_ROWS = 1000

ArtifactSpec = tuple[Job, VectorFile]


def job(
    folder: Path, n_rows: int = 3000, *, batch_tokens: int = 1000, stored: Stored = "float32", range_rows: int = RANGE_ROWS
) -> ArtifactSpec:
    folder.mkdir(exist_ok=True)
    resources = Resources(("cpu",), Precision("float32", stored), batch_tokens, 0)
    file = VectorFile(folder, n_rows, stored, range_rows)
    return Job(encoder_spec("minilm"), partial(open_store, "made"), file.write, resources), file


def run(made: ArtifactSpec, *, passages: Progress = silent, tokens: Progress = silent) -> None:
    embed(*made, EmbedProgress(passages, tokens))


def finished(folder: Path) -> list[range]:
    return sorted(finished_ranges(folder), key=lambda rows: rows.start)


@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_the_file_holds_every_rows_vector(made_passages: list[Passage], tmp_path: Path, stored: Stored) -> None:
    reports: dict[str, list[tuple[int, int | None]]] = {"passages": [], "tokens": []}
    made = job(tmp_path, stored=stored)
    run(made, passages=lambda *done: reports["passages"].append(done), tokens=lambda *done: reports["tokens"].append(done))
    texts = [passage.text.encode() for passage in made_passages]
    np.testing.assert_array_equal(np.load(tmp_path / VECTORS), np.array([vector_of(text) for text in texts]).astype(stored))
    assert (reports["passages"][0], reports["passages"][-1]) == ((0, 3000), (3000, 3000))
    assert reports["tokens"][-1] == (sum(map(len, texts)), None)
    assert all(sorted(found) == found for found in reports.values())
    assert max(FakeModel.batches) <= 1000


def test_a_resumed_run_makes_the_same_batches(tmp_path: Path) -> None:
    run(job(tmp_path / "whole"))
    batches = list(FakeModel.batches)

    def interrupt(done: int, total: int | None) -> None:
        if done >= 2300:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(job(tmp_path / "resumed"), passages=interrupt)
    n_kept = len(finished(tmp_path / "resumed"))
    assert n_kept >= 1  # the second may still have been written when the third was interrupted
    FakeTokenizer.n_passages = 0
    FakeModel.batches.clear()
    run(job(tmp_path / "resumed"))
    assert FakeTokenizer.n_passages == 3000 - 1000 * n_kept
    assert batches[-len(FakeModel.batches) :] == FakeModel.batches
    assert (tmp_path / "resumed" / VECTORS).read_bytes() == (tmp_path / "whole" / VECTORS).read_bytes()
    FakeModel.batches.clear()
    run(job(tmp_path / "resumed"))  # nothing is left to do
    assert FakeModel.batches == []


def test_no_range_starts_before_the_last_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that an interruption costs one range, however slow the disk is."""
    write, seen = VectorFile.write, []

    def slow(file: VectorFile, rows: range, vectors: Vectors) -> None:
        before = len(FakeModel.batches)
        time.sleep(0.2)
        seen.append((before, len(FakeModel.batches)))
        write(file, rows, vectors)

    monkeypatch.setattr(VectorFile, "write", slow)
    run(job(tmp_path))
    FakeModel.batches.clear()
    run(job(tmp_path / "first", 1000))
    n_in_first = len(FakeModel.batches)
    assert seen[0] == (n_in_first + 1, n_in_first + 1)  # the device has begun one batch of the second range, and begins no other
    assert [after - before for before, after in seen] == [0, 0, 0, 0]  # three ranges, and one


def test_memory_is_bounded(tmp_path: Path) -> None:
    """No stage runs far ahead of the next one: tokenised is little more than what has gone through the model."""
    ahead = []

    def watch(done: int, total: int | None) -> None:
        ahead.append(FakeTokenizer.n_passages - done)

    run(job(tmp_path, batch_tokens=200), passages=watch)
    assert max(ahead) <= 2 * RANGE_ROWS


def test_vectors_in_memory_are_those_of_a_few_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeModel, "dim", 1024)
    monkeypatch.setattr(FakeModel, "forward", lambda model, batch: torch.ones((len(batch.texts), 1024)))
    made, file = job(tmp_path, range_rows=100)
    tracemalloc.start()
    embed(made, file, EmbedProgress())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (np.load(file.path) == 1).all()
    assert 2 * 100 * 4096 < peak < 3000 * 4096 / 3


def gives(value: float) -> Callable[[Vectors], object]:
    return lambda made: made.__setitem__((slice(None), 3), value)


def fails(error: Exception) -> Callable[[Vectors], object]:
    def fail(made: Vectors) -> None:
        raise error

    return fail


TOO_SMALL = "cpu has too little memory for batches of 1,000 tokens: use a smaller --batch-tokens"


@pytest.mark.parametrize(
    ("stored", "spoil", "message"),
    [
        ("float32", gives(np.nan), "the vector of row 1234 is not finite; the finished vectors are kept"),
        ("float16", gives(-np.inf), "the vector of row 1234 is not finite; the finished vectors are kept"),
        ("float16", gives(1e5), "row 1234 has a component too large for float16: use --dtype float32; the finished vectors are kept"),
        ("float32", fails(torch.OutOfMemoryError("CUDA out of memory")), TOO_SMALL),
        ("float32", fails(torch.OutOfMemoryError()), TOO_SMALL),
        ("float32", fails(MemoryError()), TOO_SMALL),
        ("float32", lambda made: torch.empty(1 << 46, dtype=torch.uint8), TOO_SMALL),  # which no machine has
        ("float32", fails(RuntimeError("CUDA error: lost\nlong text")), "cpu failed: CUDA error: lost; the finished vectors are kept"),
        ("float32", fails(RuntimeError()), "cpu failed: RuntimeError; the finished vectors are kept"),
    ],
)
def test_a_vector_or_device_that_fails_stops_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: Stored, spoil: Callable[[Vectors], object], message: str
) -> None:
    def spoil_one(texts: list[bytes], made: Vectors) -> Vectors:
        for number, text in enumerate(texts):
            if text.startswith(b"Passage number 1234 "):
                spoil(made[number : number + 1])
        return made

    monkeypatch.setattr(FakeModel, "spoil", spoil_one)
    with pytest.raises(IdxError, match=message):
        run(job(tmp_path, stored=stored))
    assert finished(tmp_path) == [range(RANGE_ROWS)]


class SlowWriter:
    """A writer of ranges that takes its time; the second range fails if asked to."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails, self.written, self.threads = fails, list[range](), set[str]()

    def __call__(self, rows: range, vectors: Vectors) -> None:
        time.sleep(0.05)
        self.threads.add(threading.current_thread().name)
        self.written.append(rows)
        if self.fails and len(self.written) == 2:
            raise OSError("No space left on device")


def pipeline_of(writer: SlowWriter, n_tokenizing: int, monkeypatch: pytest.MonkeyPatch, encoded: list[int]) -> None:
    def encode(model: object, targets: object, batch_tokens: int, report: object) -> Iterator[tuple[range, Vectors]]:
        for start in range(0, 40, 10):
            encoded.append(len(writer.written))
            yield range(start, start + 10), np.zeros((10, 2), dtype=np.float32)

    monkeypatch.setattr(pipeline, "encode_ranges", encode)
    monkeypatch.setattr(pipeline, "_tokenize_ahead", lambda *arguments: contextlib.nullcontext(()))
    resources = Resources(("cpu",), Precision("float32", "float32"), 100, n_tokenizing)
    pipeline.run_pipeline(Job(encoder_spec("minilm"), lambda: None, writer, resources), None, [], lambda *done: None)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("n_tokenizing", "thread", "n_written", "n_started"), [(0, "MainThread", [0, 1, 2, 3], 2), (2, "write_0", [0, 0, 1, 2], 3)]
)
def test_a_gpu_computes_the_next_range_while_one_is_written(
    n_tokenizing: int, thread: str, n_written: list[int], n_started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, encoded = SlowWriter(), list[int]()
    pipeline_of(writer, n_tokenizing, monkeypatch, encoded)
    assert writer.written == [range(0, 10), range(10, 20), range(20, 30), range(30, 40)]
    assert writer.threads == {thread}
    assert encoded == n_written  # ranges on disk when the computation of each begins
    writer, encoded = SlowWriter(fails=True), list[int]()
    with pytest.raises(OSError, match="No space left"):
        pipeline_of(writer, n_tokenizing, monkeypatch, encoded)
    assert len(encoded) == n_started  # a range that cannot be written ends the run
