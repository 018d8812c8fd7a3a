"""Look-ahead over futures, and spawned worker processes that end with their parent."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from typing import Any, TypeVar

from wikidx.base.errors import IdxError

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_ahead(submit: Callable[[Item], Future[Result]], items: Iterable[Item], depth: int) -> Generator[Result]:
    """Yield the results of ``submit`` in the order of ``items``. Up to ``depth`` further items are submitted ahead."""
    pending = deque[Future[Result]]()
    try:
        for item in items:
            pending.append(submit(item))
            if len(pending) > depth:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


@contextlib.contextmanager
def worker_processes(
    n: int,
    verb: str,
    make: Callable[..., Callable[[Item], Result]],
    *arguments: Any,  # noqa: ANN401 - passed on
) -> Iterator[Callable[[Item], Future[Result]]]:
    """Start worker processes, and yield a function that sends an item to an idle process and returns its future.

    The processes are spawned, not forked: they copy no locks, threads or GPU contexts. A future raises ``IdxError`` if its process was
    killed.

    Each process has its own connection, and a thread waits for each result. ``ProcessPoolExecutor`` would hang if a process was killed
    while writing a result: all its processes share the write end of one pipe, so that the reader never sees the end of the file.

    Args:
        n: number of processes.
        verb: verb for the processes' task, for messages, such as "tokenises".
        make: module-level function that each process calls once with ``arguments``. It returns the function that processes an item.
        arguments: arguments of ``make``.
    """
    context, threads, idle = multiprocessing.get_context("spawn"), ThreadPoolExecutor(n), SimpleQueue[Connection]()
    connections, started = list[Connection](), list[SpawnProcess]()
    try:
        for _ in range(n):
            ours, theirs = context.Pipe()
            connections.append(ours)
            process = context.Process(target=_worker_main, args=(theirs, make, arguments))
            process.start()
            theirs.close()
            idle.put(ours)
            started.append(process)
        yield lambda item: threads.submit(_call_worker, idle, item, verb)
    finally:
        threads.shutdown(cancel_futures=True)
        for connection in connections:
            connection.close()
        for process in started:
            process.join()


def _call_worker(idle: SimpleQueue[Connection], item: object, verb: str) -> Any:  # noqa: ANN401 - whatever the work returns
    """Process an item in an idle process, and return the result."""
    connection = idle.get()
    try:
        connection.send(item)
        is_done, outcome = connection.recv()
    except (EOFError, OSError) as error:  # OSError: the result breaks off
        raise IdxError(
            f"a process that {verb} was killed, perhaps for want of memory, or could not start (a script that is run needs its "
            "main part under \"if __name__ == '__main__'\"): run the same command again to resume"
        ) from error
    finally:
        idle.put(connection)
    if not is_done:
        raise outcome
    return outcome


def _worker_main(connection: Connection, make: Callable[..., Callable[[Any], object]], arguments: tuple[Any, ...]) -> None:
    """Main loop of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, and ends this process
    end_with_parent(lambda: os._exit(1))
    work = make(*arguments)
    with contextlib.suppress(EOFError):
        while True:
            connection.send(_run_item(work, connection.recv()))


def _run_item(work: Callable[[Any], object], item: object) -> tuple[bool, object]:
    """Return whether ``work`` succeeded on an item, and its result or exception."""
    try:
        return True, work(item)
    except Exception as error:  # noqa: BLE001 - the parent raises it
        if not isinstance(error, IdxError):
            error.add_note(traceback.format_exc())
        return False, _make_picklable(error)


def _make_picklable(error: Exception) -> Exception:
    """Return the error if it can be pickled, otherwise an ``IdxError`` with its message."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - pickling may raise anything
        replacement = IdxError(f"{type(error).__name__}: {error}")
        replacement.__notes__ = getattr(error, "__notes__", [])
        return replacement
    return error


def end_with_parent(end: Callable[[], None]) -> None:
    """Have a thread call ``end`` when the parent of this process has ended, such as by a kill."""

    def wait() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
            end()

    threading.Thread(target=wait, daemon=True).start()
