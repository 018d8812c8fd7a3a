"""Work done ahead, in threads or in spawned processes that end with their parent."""

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

from wikidx.corpora.errors import IdxError

Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(submit: Callable[[Item], Future[Result]], items: Iterable[Item], depth: int) -> Generator[Result]:
    """Yield the result of some work on each item, in order, while up to ``depth`` further items are in progress or done."""
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
def processes(
    n: int,
    what: str,
    make: Callable[..., Callable[[Item], Result]],
    *arguments: Any,  # noqa: ANN401 - handed on
) -> Iterator[Callable[[Item], Future[Result]]]:
    """Start processes ("spawn": without copying locks, threads or GPU contexts), and yield a function that sends work to an idle one.

    The work raises ``IdxError`` if its process was killed. ``ProcessPoolExecutor`` would hang if a process was killed while writing a
    result: all of its processes, and this one, hold the writing end of the pipe, so that the reading end never sees its end. Here each
    process has a connection of its own, and a thread that waits for its results.

    Args:
        n: number of processes.
        what: verb for messages, such as "tokenises".
        make: called first in each of them with the arguments; a module-level function. It returns the function that works on an item.
        arguments: for ``make``.
    """
    context, threads, idle = multiprocessing.get_context("spawn"), ThreadPoolExecutor(n), SimpleQueue[Connection]()
    connections, started = list[Connection](), list[SpawnProcess]()
    for _ in range(n):
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, make, arguments))
        process.start()
        theirs.close()
        idle.put(ours)
        connections.append(ours)
        started.append(process)
    try:
        yield lambda item: threads.submit(_answer, idle, item, what)
    finally:
        threads.shutdown(cancel_futures=True)
        for connection in connections:
            connection.close()
        for process in started:
            process.join()


def _answer(idle: SimpleQueue[Connection], item: object, what: str) -> Any:  # noqa: ANN401 - whatever the work returns
    """Run work on an item in an idle process."""
    connection = idle.get()
    try:
        connection.send(item)
        is_done, outcome = connection.recv()
    except (EOFError, OSError) as error:  # OSError in the middle of a result
        raise IdxError(
            f"a process that {what} was killed, perhaps for want of memory, or could not start (a script that is run needs its "
            "main part under \"if __name__ == '__main__'\"): run the same command again, it goes on where it was"
        ) from error
    finally:
        idle.put(connection)
    if not is_done:
        raise outcome
    return outcome


def _work(connection: Connection, make: Callable[..., Callable[[Any], object]], arguments: tuple[Any, ...]) -> None:
    """Main loop of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent, which then ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work = make(*arguments)
    with contextlib.suppress(EOFError):
        while True:
            connection.send(_outcome(work, connection.recv()))


def _outcome(work: Callable[[Any], object], item: object) -> tuple[bool, object]:
    """Return whether some work succeeded, and its result or exception."""
    try:
        return True, work(item)
    except Exception as error:  # noqa: BLE001 - it is raised by the process that wants the result
        if not isinstance(error, IdxError):
            error.add_note(traceback.format_exc())
        return False, _portable(error)


def _portable(error: Exception) -> Exception:
    """Return an error, or its words where another process could not be given it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever its class does
        worded = IdxError(f"{type(error).__name__}: {error}")
        worded.__notes__ = getattr(error, "__notes__", [])
        return worded
    return error


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # the parent was killed
