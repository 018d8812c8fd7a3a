"""Threads for requests to servers."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from wikidx.base.errors import ClosedError

Given = ParamSpec("Given")
Result = TypeVar("Result")

_Jobs = SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]


class RequestThreads(Executor):
    """Threads that wait for servers, and are waited for by nobody: neither by ``shutdown`` nor by the end of the process.

    ``ThreadPoolExecutor`` lets the process end only when its last call has ended. Calls of native code need that; a request to a server may
    take for ever.

    Args:
        n: maximum number of concurrent calls.
        name: name of the threads.

    Raises:
        ValueError: ``n`` is not positive.
    """

    def __init__(self, n: int, name: str = "requests") -> None:
        if n < 1:
            raise ValueError(f"{n} threads: at least one is needed")
        self._n, self._name, self._is_closed = n, name, False
        self.begin()
        _all.add(self)

    def begin(self) -> None:
        """Have no threads and no calls, as at first and in a forked process."""
        self._n_left, self._jobs, self._lock = self._n, _Jobs(), threading.Lock()
        weakref.finalize(self, self._jobs.put, None)

    def submit(self, fn: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs) -> Future[Result]:
        """Call a function in a thread; raises ``ClosedError`` after ``shutdown``."""
        future = Future[Result]()
        with self._lock:
            if self._is_closed:
                raise ClosedError("the connection is closed: open it again")
            self._jobs.put((future, partial(fn, *args, **kwargs)))
            if self._n_left:
                self._n_left -= 1
                threading.Thread(target=_work, args=(self._jobs,), name=self._name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:  # noqa: ARG002 - as ``Executor`` has them
        """Cancel the calls that have not begun, and tell those who wait for them; the others go on."""
        with self._lock:
            self._is_closed = True
            with contextlib.suppress(Empty):
                while job := self._jobs.get_nowait():
                    job[0].cancel()
                    job[0].set_running_or_notify_cancel()
            self._jobs.put(None)


_all = weakref.WeakSet[RequestThreads]()
os.register_at_fork(after_in_child=lambda: list(map(RequestThreads.begin, _all)))


def _work(jobs: _Jobs) -> None:
    while job := jobs.get():
        future, call = job
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
                future.set_exception(error)
        del job, future, call  # this thread may wait long for the next job
    jobs.put(None)  # for the next thread
