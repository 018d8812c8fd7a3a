"""Work done ahead, in threads or in processes that are started afresh and end with the process that started them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from corpora.errors import IdxError

Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(executor: Executor, work: Callable[[Item], Result], items: Iterable[Item], depth: int) -> Generator[Result]:
    """Yield the result of some work on each item, in order, while the work on up to ``depth`` further items is under way or done."""
    pending = deque[Future[Result]]()
    try:
        for item in items:
            pending.append(executor.submit(work, item))
            if len(pending) > depth:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


@contextlib.contextmanager
def processes(n: int, what: str, set_up: Callable[..., None], *arguments: Any) -> Iterator[ProcessPoolExecutor]:  # noqa: ANN401 - handed on
    """Start processes afresh ("spawn": no lock, thread or GPU context of this one is copied).

    Args:
        n: how many.
        what: they do, for the message.
        set_up: called in each of them first, with the arguments; a function of a module.
        arguments: for ``set_up``.

    Raises:
        IdxError: one of them was killed.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(n, mp_context=context, initializer=_begin, initargs=(set_up, arguments))
    try:
        yield pool
    except BrokenProcessPool as error:
        raise IdxError(
            f"a process that {what} was killed, perhaps for want of memory, or could not start (a script that is run needs its "
            "main part under \"if __name__ == '__main__'\"): run the same command again, it goes on where it was"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(set_up: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one, which then ends it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_up(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # killed, it could not say goodbye
