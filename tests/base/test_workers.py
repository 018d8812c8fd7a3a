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
from typing import Any

import pytest

from wikidx.base.errors import IdxError, InputError
from wikidx.base.machine.workers import map_ahead, worker_processes
from wikidx.corpora.build import open_store
from wikidx.indexer.embedding.embed import _SharedState
from wikidx.indexer.embedding.options import Precision, Resources
from wikidx.indexer.embedding.pipeline import Job
from wikidx.indexer.naming import encoder_spec


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
        with pytest.raises(IdxError, match="^a process that tests was killed, perhaps for want of memory"):
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


def fail(error: type[Exception], *arguments: object) -> None:
    raise error(*arguments)


def test_an_error_that_cannot_be_handed_over_is_reported_in_its_words() -> None:
    with worker_processes(1, "tests", make) as call:
        with pytest.raises(IdxError, match=r"^UnpicklableError: no room \(7\)\n") as raised:
            call((fail, (UnpicklableError, 7, "no room"))).result()
        assert "_run_item" in raised.value.__notes__[0]
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
