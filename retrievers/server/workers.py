"""Several processes that serve on one socket. Their parent holds only the socket and the folder of their metrics."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from multiprocessing import connection
from multiprocessing.context import ForkProcess
from multiprocessing.queues import SimpleQueue
from types import FrameType

from wikidx.corpora.errors import IdxError
from wikidx.indexer.machine.threads import n_threads

from .opened import FirstOpened
from .settings import Settings

_LOG = logging.getLogger("idx.server")
_PAUSE_S = 1.0  # before a process that exited is replaced
_CANNOT_OPEN = 2  # exit status
_SIGNALS = {signal.SIGINT, signal.SIGTERM}


def serve(settings: Settings, listening: socket.socket) -> None:
    """Serve on a listening socket until SIGTERM or SIGINT; called in the main thread.

    Raises:
        IdxError: something cannot be opened.
    """
    if settings.workers == 1:
        _run(settings, listening, FirstOpened(settings))
        return
    with tempfile.TemporaryDirectory(prefix="idx-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # before prometheus_client is imported; see ``metrics``
        _Workers(settings, listening, folder).run()


def _run(settings: Settings, listening: socket.socket, first: FirstOpened) -> None:
    from .metrics import Metrics
    from .running import Service  # imports FastAPI, which the parent process does not need

    Service(settings, listening, Metrics(), first=first).run()


class _Workers:
    """Forks before anything heavy is loaded, and replaces processes that exit by themselves.

    A process that cannot open its corpora ends all of them at start-up; later, when files may have been removed or replaced, only itself.
    """

    def __init__(self, settings: Settings, listening: socket.socket, metrics_folder: str) -> None:
        self._settings, self._listening, self._metrics_folder = settings, listening, metrics_folder
        self._first = FirstOpened(settings)
        self._context = multiprocessing.get_context("fork")
        self._failures: SimpleQueue[str] = self._context.SimpleQueue()
        self._processes: dict[int, ForkProcess] = {}
        self._replaced = set[int]()
        self._is_ending = False

    def run(self) -> None:
        """Start the processes, and wait until they have exited."""
        before = {number: signal.signal(number, self._end) for number in _SIGNALS}
        try:
            for number in range(self._settings.workers):
                self._start(number)
            while self._processes:
                connection.wait([process.sentinel for process in self._processes.values()])
                for number, process in list(self._processes.items()):
                    if not process.is_alive():
                        self._replace(number, process)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if not self._failures.empty():
            raise IdxError(self._failures.get())

    def _start(self, number: int) -> None:
        process = self._context.Process(target=self._serve, args=(number,), name=f"server {number}")
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # a signal now is delivered to the process once it can handle it
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        self._processes[number] = process

    def _replace(self, number: int, process: ForkProcess) -> None:
        """Record a process that has exited, and start another one unless all are ending."""
        from prometheus_client.multiprocess import mark_process_dead

        del self._processes[number]
        mark_process_dead(process.pid, self._metrics_folder)  # type: ignore[no-untyped-call]  # what it had open or waiting is gone
        if self._is_ending:
            return
        if process.exitcode != _CANNOT_OPEN:
            _LOG.error("process %s has ended with status %s: another one is started", process.pid, process.exitcode)
            time.sleep(_PAUSE_S)
            if not self._is_ending:
                self._replaced.add(number)
                self._start(number)
        elif number not in self._replaced:
            self._end()
        elif self._processes:  # otherwise ``run`` says why
            _LOG.error("no other process is started, and %d go on: %s", len(self._processes), self._failures.get())

    def _end(self, number: int | None = None, frame: FrameType | None = None) -> None:
        """Tell all processes to end, and close this process's copy of the socket."""
        self._is_ending = True
        self._listening.close()
        for process in self._processes.values():
            process.terminate()

    def _serve(self, number: int) -> None:
        """Run one of the processes."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent, which then ends this process
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, n_threads() // self._settings.workers)))
        try:
            _run(self._settings, self._listening, self._first)
        except IdxError as error:
            self._failures.put(str(error))
            sys.exit(_CANNOT_OPEN)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
