"""One process of the server: uvicorn with a shutdown that loses no request."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import logging
import os
import signal
import socket
import sys
import termios
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import uvicorn
import uvloop

from wikidx.corpora.errors import IdxError
from wikidx.retrievers.opening import OpenRetriever

from .access_log import AccessLog
from .catalog import Catalog, Cluster
from .front import Front
from .metrics import Metrics
from .opened import FirstOpened
from .settings import Settings

_LOG = logging.getLogger("idx.server")

_LAST_S = 1.0  # limit on waiting for the first request of a connection accepted last
_LOOK_S = 0.1  # between two checks for unread requests
_KEEP_ALIVE_S = 75
_GC_THRESHOLDS = (20_000, 20, 50)  # rankings have no cycles: looking for some after every 700 new objects is wasted
_SWITCH_S = 5e-5  # a thread that returns from a kernel waits that long for the interpreter, not 5 ms: a quarter more requests a second


class _Server(uvicorn.Server):
    """uvicorn's server, which ends on SIGTERM or SIGINT without losing a request.

    First every answer closes its connection, while new ones are still accepted; then no connection is accepted, not even from the kernel's
    queue; then the remaining requests are answered, those included that arrived and are not yet read.
    """

    def __init__(self, settings: Settings, front: Front, log: AccessLog, catalog: Catalog) -> None:
        super().__init__(_config(settings, front))
        self._front, self._log, self._catalog, self._limits = front, log, catalog, settings.limits

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on a signal, and return normally; signals are for the main thread only."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        if self._catalog.cluster is not None:
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda number, frame: reload_behind(self._catalog))
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def on_tick(self, counter: int) -> bool:
        """Do periodic work, ten times a second; return whether to end."""
        self._catalog.count_caches()
        self._log.flush()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End; see the class."""
        self._front.is_ending = True
        await asyncio.sleep(0 if self.force_exit else self._limits.linger_s)
        copies = [listening.dup() for listening in sockets or []]
        for server in self.servers:
            server.close()
        await asyncio.sleep(0)  # uvloop releases the socket in its next iteration
        for listening in sockets or []:
            listening.close()
        loop, config = asyncio.get_running_loop(), self.config
        for connection in [connection for listening in copies for connection in _last_of(listening)]:
            await loop.connect_accepted_socket(
                lambda: config.http_protocol_class(config, self.server_state, {}),  # type: ignore[call-arg]  # uvicorn's own protocols
                connection,
            )
        begun = loop.time()
        await asyncio.sleep(_LOOK_S)
        while not self.force_exit and (seconds := loop.time() - begun) < self._limits.deadline_s:
            if not any(_has_request(connection, may_send=seconds < _LAST_S) for connection in self.server_state.connections):
                break
            await asyncio.sleep(_LOOK_S)
        await super().shutdown(sockets)


def _last_of(listening: socket.socket) -> list[socket.socket]:
    """Close the last copy of a listening socket; return the connections in the kernel's queue."""
    connections = []
    end = time.monotonic() + _LAST_S
    with listening, contextlib.suppress(OSError):  # the queue is empty, or this process may open no more files
        while time.monotonic() < end:
            connections.append(listening.accept()[0])
    return connections


def _has_request(connection: Any, *, may_send: bool) -> bool:  # noqa: ANN401  # uvicorn's own protocols
    """Return whether an idle connection has unread input; or, with ``may_send``, has not yet sent a request."""
    cycle = connection.cycle
    if connection.transport.is_closing() or (cycle is not None and not cycle.response_complete):
        return False
    if cycle is None and may_send:
        return True
    unread = fcntl.ioctl(connection.transport.get_extra_info("socket").fileno(), termios.FIONREAD, bytes(4))
    return any(unread)


def reload_behind(catalog: Catalog) -> threading.Thread:
    """Reload the current indexes in the background; return the thread."""

    def reload() -> None:
        try:
            catalog.reload()
            _LOG.info("what is built now is served")
        except IdxError as error:
            _LOG.error("what was served goes on being served: %s", error)
        except Exception:  # logged here, because no caller receives it
            _LOG.exception("what was served goes on being served")

    thread = threading.Thread(target=reload, name="reloading", daemon=True)
    thread.start()
    return thread


class Service:
    """One process of the server on a listening socket.

    Args:
        settings: of the server.
        listening: the socket.
        metrics: the server's metrics.
        source: opens retrievers, or a cluster; by default ``opening.open_retriever``.
        first: files opened by other processes; None: there are none.
    """

    def __init__(
        self,
        settings: Settings,
        listening: socket.socket,
        metrics: Metrics,
        source: OpenRetriever | Cluster | None = None,
        first: FirstOpened | None = None,
    ) -> None:
        self._settings, self._listening, self._metrics, self._source = settings, listening, metrics, source
        self._first = first or FirstOpened(settings)
        self._opening = Future[None]()
        self._has_process = False
        self._server: _Server | None = None
        self._catalog: Catalog | None = None

    def run(self) -> None:
        """Serve until told to end. In the main thread it handles SIGTERM and SIGINT, and tunes the process for serving.

        Raises:
            IdxError: something cannot be opened; the service ends then, too.
        """
        self._has_process = threading.current_thread() is threading.main_thread()
        if self._has_process:
            sys.setswitchinterval(_SWITCH_S)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())
        if not self._opening.done() and self._has_process:
            logging.shutdown()  # waiting until a large index is open is pointless, and exiting while a thread opens one is not safe
            sys.stdout.flush()
            os._exit(0)
        self._opening.result()

    def reload(self) -> None:
        """Reload the current indexes; see ``Catalog.reload``. May be called from another thread once it serves."""
        if self._catalog is not None:
            self._catalog.reload()

    def stop(self) -> None:
        """End; may be called from another thread."""
        if self._server is not None:
            self._server.should_exit = True

    async def _serve(self) -> None:
        settings = self._settings
        self._catalog = catalog = Catalog(settings, self._metrics, self._first, self._source)
        log = AccessLog(is_on=settings.access_log)
        front = Front(settings, self._metrics, log, catalog)
        self._server = _Server(settings, front, log, catalog)
        threading.Thread(target=self._open, args=(catalog, front, self._server), name="opening", daemon=True).start()
        await self._server.serve([self._listening])
        log.close()
        if self._opening.done():
            catalog.stop()

    def _open(self, catalog: Catalog, front: Front, server: _Server) -> None:
        """Open all corpora and retrievers; runs in a thread of its own."""
        try:
            from .pages import Pages  # FastAPI

            front.pages = Pages(self._settings, catalog, self._metrics)
            catalog.open()
            if self._has_process:
                gc.collect()
                gc.freeze()  # loaded objects stay: a full collection, which blocks all answers, need not scan them
                gc.set_threshold(*_GC_THRESHOLDS)
            self._opening.set_result(None)
        except Exception as error:  # ``run`` raises it
            self._opening.set_exception(error)
            server.should_exit = server.force_exit = True


def _config(settings: Settings, front: Front) -> uvicorn.Config:
    return uvicorn.Config(
        front,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(settings.limits.deadline_s) + 1,
    )
