"""Server processes that share one socket. The parent process holds only the socket and the folder of the metrics."""

from __future__ import annotations

import dataclasses
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import connection
from multiprocessing.context import ForkProcess
from multiprocessing.queues import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING

from wikidx.base.errors import IdxError
from wikidx.base.machine.devices import ask_all_gpus, gpu_numbers, may_use_gpus, resolve_gpus
from wikidx.base.machine.threads import n_threads
from wikidx.base.machine.workers import end_with_parent

from .open_searchers import read_manifests
from .settings import Settings

if TYPE_CHECKING:
    from .answerer import Answerer

_LOG = logging.getLogger("idx.server")
_RESTART_PAUSE_S = 1.0  # wait before an exited process is replaced
_CANNOT_OPEN = 2  # exit status of a process that cannot open its corpora
_SIGNALS = {signal.SIGINT, signal.SIGTERM}


def serve(settings: Settings, listener: socket.socket, answerer: Answerer | None = None) -> None:
    """Serve on a listening socket until SIGTERM or SIGINT; must be called in the main thread.

    An ``answerer`` needs a single process.

    Raises:
        IdxError: a corpus or retriever cannot be opened.
    """
    if settings.workers == 1:
        from .metrics import Metrics
        from .running import Service  # not in the parent of several processes, which needs none of it

        Service(settings, listener, Metrics(), answerer=answerer).run()
        return
    with tempfile.TemporaryDirectory(prefix="idx-metrics-") as folder:
        # Must precede the import of prometheus_client; see ``metrics``.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        _WorkerPool(settings, listener, folder, place_workers(settings)).run()


def place_workers(settings: Settings) -> list[str]:
    """Return the device of each of several processes, every one of which has all indexes, encoders and the reranker.

    Each takes one of the GPUs that are named, in turn; "auto" is the CPU. GPUs are counted by another process: after a use of CUDA, no
    process may be forked.

    Raises:
        InputError: all GPUs are named, and there is none.
    """
    device = settings.device
    if device == "auto" and may_use_gpus(device):
        _LOG.info("%d processes on the CPU: --device cuda:0,1 gives each one of these GPUs", settings.workers)
    numbers = resolve_gpus(device, len(ask_all_gpus())) if device == "all" else gpu_numbers(device, 0)
    names = [f"cuda:{number}" for number in numbers] or ["cpu" if device == "auto" else device]
    return [names[process % len(names)] for process in range(settings.workers)]


class _WorkerPool:
    """Server processes, forked before heavy modules are imported, and replaced when they exit on their own.

    If one of the first processes cannot open its corpora, all processes are ended. If a replacement cannot open its corpora, for instance
    because files have changed, the other processes continue.
    """

    def __init__(self, settings: Settings, listener: socket.socket, metrics_folder: str, devices: Sequence[str]) -> None:
        self._devices = devices
        self._settings, self._listener, self._metrics_folder = settings, listener, metrics_folder
        self._manifests = read_manifests(settings)
        self._context = multiprocessing.get_context("fork")
        self._failures: SimpleQueue[str] = self._context.SimpleQueue()
        self._processes: dict[int, ForkProcess] = {}
        self._replaced = set[int]()
        self._is_stopping = False

    def run(self) -> None:
        """Start the processes, and wait until they have exited."""
        previous = {number: signal.signal(number, self._terminate) for number in _SIGNALS}
        try:
            for number in range(self._settings.workers):
                if not self._is_stopping:
                    self._start(number)
            while self._processes:
                connection.wait([process.sentinel for process in self._processes.values()])
                for number, process in list(self._processes.items()):
                    if not process.is_alive():
                        self._replace(number, process)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        if not self._failures.empty():
            raise IdxError(self._failures.get())

    def _start(self, number: int) -> None:
        process = self._context.Process(target=self._serve, args=(number,), name=f"server {number}")
        # The new process receives signals only once it can handle them.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            process.start()
            self._processes[number] = process  # before a signal can end all that are known
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def _replace(self, number: int, process: ForkProcess) -> None:
        """Replace an exited process, unless all processes are ending or the exited one could not open its corpora."""
        from prometheus_client.multiprocess import mark_process_dead

        del self._processes[number]
        mark_process_dead(process.pid, self._metrics_folder)  # type: ignore[no-untyped-call]  # its gauges are no longer summed
        if self._is_stopping:
            return
        if process.exitcode != _CANNOT_OPEN:
            _LOG.error("process %s has ended with status %s: a new one is started", process.pid, process.exitcode)
            time.sleep(_RESTART_PAUSE_S)
            if not self._is_stopping:
                self._replaced.add(number)
                self._start(number)
        elif number not in self._replaced:
            self._terminate()
        elif self._processes:  # otherwise ``run`` raises the error
            _LOG.error("no other process is started, and %d continue: %s", len(self._processes), self._failures.get())

    def _terminate(self, number: int | None = None, frame: FrameType | None = None) -> None:
        """Terminate all processes, and close the parent's copy of the socket."""
        self._is_stopping = True
        self._listener.close()
        for process in self._processes.values():
            process.terminate()

    def _serve(self, number: int) -> None:
        """Serve in a forked process; only the first takes connections before its indexes are open, and only while no other is ready."""
        from .metrics import Metrics
        from .running import Service

        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C, the parent ends this process
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        end_with_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, n_threads() // self._settings.workers)))
        try:
            settings, metrics = dataclasses.replace(self._settings, device=self._devices[number]), Metrics()
            service = Service(settings, self._listener, metrics, manifests=self._manifests)
            service.run(opens_first=number > 0 or metrics.n_ready() > 0)
        except IdxError as error:
            self._failures.put(str(error))
            sys.exit(_CANNOT_OPEN)
