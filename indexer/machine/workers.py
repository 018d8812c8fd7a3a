"""Work done ahead, in threads or in processes that are started afresh and end with the process that started them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from typing import Any, TypeVar

from wikidx.corpora.errors import IdxError

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
def processes(n: int, what: str, set_up: Callable[..., None], *arguments: Any) -> Iterator[Executor]:  # noqa: ANN401 - handed on
    """Start processes afresh ("spawn": no lock, thread or GPU context of this one is copied); work is done by the first that is idle.

    Work raises ``IdxError`` if its process was killed. ``ProcessPoolExecutor`` would wait for ever for one that was killed while it wrote
    a result: all of its processes, and this one, hold the end that is written to, so that the other one never comes to the end.

    Args:
        n: how many.
        what: they do, for the message.
        set_up: called in each of them first, with the arguments; a function of a module.
        arguments: for ``set_up``.
    """
    pool = _Processes(n, what, set_up, arguments)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


class _Processes(Executor):
    """For each process a connection that nobody else has, and a thread that waits for what comes back."""

    def __init__(self, n: int, what: str, set_up: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        context = multiprocessing.get_context("spawn")
        self._what, self._threads = what, ThreadPoolExecutor(n)
        self._idle = SimpleQueue[Connection]()
        self._connections, self._processes = list[Connection](), list[SpawnProcess]()
        for _ in range(n):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, set_up, arguments))
            process.start()
            theirs.close()
            self._idle.put(ours)
            self._connections.append(ours)
            self._processes.append(process)

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:  # noqa: ANN401 - handed on
        return self._threads.submit(self._do, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the work that is under way, and for the processes to end."""
        self._threads.shutdown(cancel_futures=cancel_futures)
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join()

    def _do(self, work: Callable[..., Result], arguments: tuple[Any, ...], options: dict[str, Any]) -> Result:
        connection = self._idle.get()
        try:
            connection.send((work, arguments, options))
            is_done, outcome = connection.recv()
        except (EOFError, OSError) as error:  # the latter in the middle of an answer
            raise IdxError(
                f"a process that {self._what} was killed, perhaps for want of memory, or could not start (a script that is run needs its "
                "main part under \"if __name__ == '__main__'\"): run the same command again, it goes on where it was"
            ) from error
        finally:
            self._idle.put(connection)
        if not is_done:
            raise outcome
        result: Result = outcome
        return result


def _work(connection: Connection, set_up: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Be one of the processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one, which then ends it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_up(*arguments)
    with contextlib.suppress(EOFError):
        while True:
            connection.send(_outcome(*connection.recv()))


def _outcome(work: Callable[..., object], arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[bool, object]:
    """Return whether some work was done, and what came of it: its result, or what it raised."""
    try:
        return True, work(*arguments, **options)
    except Exception as error:  # noqa: BLE001 - it is raised by the process that wants the result
        if not isinstance(error, IdxError):
            error.add_note(traceback.format_exc())
        return False, error


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # killed, it could not say goodbye
