"""Prefetching, and worker processes that end when they should."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.indexer.encoders.folders import with_checkpoint
from wikidx.base.errors import IdxError, InputError
from wikidx.base.machine.workers import map_ahead, worker_processes
from wikidx.base.progress import silent
from wikidx.corpora.build import open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.embedding import pipeline
from wikidx.indexer.embedding.embed import EmbedProgress, _SharedState, embed
from wikidx.indexer.embedding.options import Precision, Resources
from wikidx.indexer.embedding.pipeline import Job, embed_ranges
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.networks import batching
from wikidx.indexer.vectors.file import VectorFile, finished_ranges


@pytest.mark.parametrize("depth", [0, 1, 3, 20])
def test_work_is_as_far_ahead_as_it_may_be_and_no_further(depth: int) -> None:
    submitted, distances = list[int](), []

    def submit(item: int) -> Future[int]:
        submitted.append(item)
        future = Future[int]()
        future.set_result(item * item)
        return future

    for n, result in enumerate(map_ahead(submit, range(10), depth)):
        assert result == n * n
        distances.append(len(submitted) - n - 1)
    assert submitted == list(range(10))
    assert distances == [min(depth, 9 - n) for n in range(10)]


def test_what_has_not_started_is_dropped_when_nothing_more_is_wanted() -> None:
    begun = []

    def work(item: int) -> int:
        begun.append(item)
        time.sleep(0.05)
        if item == 1:
            raise InputError("the second")
        return item

    with ThreadPoolExecutor(1) as executor:
        results: Iterator[int] = map_ahead(lambda item: executor.submit(work, item), iter(range(100)), 50)
        assert next(results) == 0
        with pytest.raises(InputError, match="the second"):
            next(results)
    assert len(begun) <= 4


_made_with: list[object] = []

Call = tuple[Callable[..., Any], tuple[object, ...]]


def make(*arguments: object) -> Callable[[Call], Any]:
    """Make what calls functions."""
    _made_with.extend(arguments)
    return lambda call: call[0](*call[1])


def worker_arguments() -> tuple[list[object], int]:
    return _made_with, os.getpid()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def interrupted() -> str:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)
    return "goes on"


def test_processes_make_their_work_and_leave_interrupts_to_the_one_that_started_them() -> None:
    with worker_processes(2, "tests", make, 1, "two") as call:
        found, pid = call((worker_arguments, ())).result()
        assert found == [1, "two"]
        assert pid != os.getpid()
        assert call((interrupted, ())).result() == "goes on"
    assert _made_with == []


def test_a_process_that_is_killed_is_reported() -> None:
    with (
        pytest.raises(IdxError, match="^a process that tests was killed, perhaps for want of memory"),
        worker_processes(1, "tests", make) as call,
    ):
        call((die, ())).result()


def die_while_it_answers() -> bytes:
    """Have a thread end this process as soon as the main one writes the result, which is much more than a pipe holds."""
    main = threading.main_thread().ident
    assert main

    def watch() -> None:
        while sys._current_frames()[main].f_code.co_name != "_send":
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch).start()
    return bytes(256 << 20)


def test_a_process_that_is_killed_while_it_answers_is_reported() -> None:
    with worker_processes(2, "tests", make) as call:
        dying = call((die_while_it_answers, ()))
        with pytest.raises(IdxError, match="^a process that tests was killed"):
            dying.result(60)


def test_what_work_raises_is_raised_here_with_where_it_was() -> None:
    with worker_processes(1, "tests", make) as call:
        with pytest.raises(ZeroDivisionError) as raised:
            call((divmod, (1, 0))).result()
        assert "_run_item" in raised.value.__notes__[0]
        with pytest.raises(InputError, match="^the second$"):
            call((refuse, ("the second",))).result()
        assert call((divmod, (7, 2))).result() == (3, 1)


class UnpicklableError(Exception):
    """Cannot be made again from what it says."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason} ({code})")


class UnpicklableLock(Exception):
    """Cannot be pickled."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.lock = threading.Lock()


def fail(error: type[Exception], *arguments: object) -> None:
    raise error(*arguments)


def test_an_error_that_cannot_be_handed_over_is_reported_in_its_words() -> None:
    with worker_processes(1, "tests", make) as call:
        with pytest.raises(IdxError, match=r"^UnpicklableError: no room \(7\)\n") as raised:
            call((fail, (UnpicklableError, 7, "no room"))).result()
        assert "_run_item" in raised.value.__notes__[0]
        with pytest.raises(IdxError, match="^UnpicklableLock: taken\n"):
            call((fail, (UnpicklableLock, "taken"))).result()
        assert call((divmod, (7, 2))).result() == (3, 1)


def refuse(message: str) -> None:
    raise InputError(message)


def test_a_device_that_was_killed_while_it_took_a_range_keeps_no_other_one_waiting() -> None:
    context = multiprocessing.get_context("spawn")
    job = Job(
        encoder_spec("minilm"),
        partial(open_store, "made"),
        lambda rows, vectors: None,
        Resources(("cpu",), Precision("float32", "float32"), 1, 0),
    )
    share = _SharedState(job, [range(5)], context.Value("q", 0), context.RawValue(ctypes.c_bool, False), context.Queue())
    share.next_range.get_lock().acquire()  # nobody gives it back
    taken = list[range]()
    waiting = threading.Thread(target=lambda: taken.extend(share.take_ranges()), daemon=True)
    waiting.start()
    share.stop()
    waiting.join(30)
    assert not waiting.is_alive()
    assert taken == []


RANGE_ROWS = 10_000


@pytest.fixture
def spec(shared_data: Path) -> EncoderSpec:
    pytest.importorskip("torch", reason="needs the extra 'dense'")
    return with_checkpoint(encoder_spec("contriever"), shared_data / "golden_encoders" / "contriever" / "checkpoint")


@pytest.fixture
def store(build: Callable[..., PassageStore]) -> PassageStore:
    return build([Passage(str(n), "", f"Passage {n}") for n in range(2 * RANGE_ROWS)])


def job(spec: EncoderSpec, file: VectorFile, devices: tuple[str, ...], n_tokenizing: int = 0, batch_tokens: int = 1) -> Job:
    file.folder.mkdir()
    resources = Resources(devices, Precision("float32", "float32"), batch_tokens, n_tokenizing)
    return Job(spec, partial(open_store, "made"), file.write, resources)


@pytest.mark.slow  # processes with torch
def test_a_device_that_fails_stops_the_others_within_their_range(spec: EncoderSpec, store: PassageStore, tmp_path: Path) -> None:
    file = VectorFile(tmp_path / "vectors", 2 * RANGE_ROWS, "float32", RANGE_ROWS)
    with pytest.raises(InputError, match="the device 'cuda:99' cannot be used"):
        embed(job(spec, file, ("cpu", "cuda:99")), file, EmbedProgress())
    assert finished_ranges(file.folder) == []  # 10,000 batches would have taken the other one far longer


@pytest.mark.slow  # processes with torch
def test_an_interrupt_stops_all_devices_within_their_range(spec: EncoderSpec, store: PassageStore, tmp_path: Path) -> None:
    def interrupt(done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    file = VectorFile(tmp_path / "vectors", 2 * RANGE_ROWS, "float32", RANGE_ROWS)
    with pytest.raises(KeyboardInterrupt):
        embed(job(spec, file, ("cpu", "cpu")), file, EmbedProgress(interrupt, silent))
    assert finished_ranges(file.folder) == []


@pytest.mark.slow  # processes with torch
def test_a_device_takes_few_ranges_ahead_and_leaves_the_rest_to_others(
    spec: EncoderSpec, store: PassageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "CHUNK_ROWS", 50)
    monkeypatch.setattr(pipeline, "_CHUNKS_AHEAD", 6)
    file, n_taken, n_done, excess = VectorFile(tmp_path / "vectors", 3000, "float32", 100), 0, 0, []

    def take() -> Iterator[range]:
        nonlocal n_taken
        for rows in file.ranges():
            n_taken += 1
            yield rows

    def report(n_passages: int, n_tokens: int) -> None:
        nonlocal n_done
        n_done += n_passages
        excess.append(n_taken - (n_done - 1) // 100)  # ranges that are taken and not finished

    embed_ranges(job(spec, file, ("cpu",), n_tokenizing=12, batch_tokens=64), "cpu", take(), report)
    assert n_done == 3000
    assert 3 <= max(excess) <= 5  # three tokenised ahead, that which is made, and that which is padded
