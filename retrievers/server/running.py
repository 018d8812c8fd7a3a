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
from types import FrameType
from typing import Any

import uvicorn
import uvloop
from starlette.middleware.cors import CORSMiddleware

from wikidx.base.errors import IdxError
from wikidx.base.machine.failures import DeviceLost
from wikidx.retrievers.opening import OpenRetriever

from .access_log import AccessLog
from .answerer import Answerer
from .catalog import Catalog, Cluster
from .gate import Gate
from .metrics import Metrics
from .open_searchers import Manifests
from .protocol import Protocol
from .routes import make_routes
from .settings import Settings

_LOG = logging.getLogger("idx.server")

# Time limit at shutdown for accepting queued connections, and for the arrival of their first requests.
_ACCEPT_S = 1.0
_POLL_S = 0.1  # interval of checks for unread requests
_KEEP_ALIVE_S = 75
# Rankings have no reference cycles: Python's collection after every 700 new objects is wasted.
_GC_THRESHOLDS = (20_000, 20, 50)
# Threads back from native code wait 0.5 ms for the GIL, not 5 ms; with 50 µs, all this switching took a quarter more CPU.
_SWITCH_S = 5e-4


class _Server(uvicorn.Server):
    """uvicorn's server, which ends on SIGTERM or SIGINT without losing a request.

    The shutdown has three steps. First, for ``Limits.drain_s`` seconds, new connections are still accepted, and each connection is closed
    after its next answer. Second, the connections in the kernel's queue are accepted, and the listening sockets are closed. Third, all
    remaining requests are answered, including those that have arrived but are not read yet.
    """

    def __init__(self, settings: Settings, gate: Gate, catalog: Catalog, metrics: Metrics, answerer: Answerer | None) -> None:
        super().__init__(_config(settings, gate))
        self._gate, self._catalog, self._limits = gate, catalog, settings.limits
        self._metrics, self._answerer = metrics, answerer

    @property
    def device_lost(self) -> DeviceLost | None:
        """Error of a GPU after which searches or the language model fail; None: no such error."""
        return self._catalog.device_lost or (None if self._answerer is None else self._answerer.device_lost)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while serving, in the main thread only; afterwards restore the previous handlers."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        if self._catalog.cluster is not None:
            previous[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._handle_reload)
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _handle_reload(self, number: int, frame: FrameType | None) -> None:
        threading.Thread(target=_reload, args=(self._catalog,), name="reloading", daemon=True).start()

    async def on_tick(self, counter: int) -> bool:
        """Update cache metrics, ten times per second; return whether to shut down, as after the loss of a GPU."""
        self._catalog.served.update_cache_metrics(self._metrics)
        return await super().on_tick(counter) or self.device_lost is not None

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down in the three steps of the class's docstring."""
        self._gate.is_stopping = True
        self._catalog.ending = self._catalog.ending or "the server ends"
        if self._answerer is not None:
            asyncio.get_running_loop().call_later(self._limits.deadline_s, self._answerer.end)
        await asyncio.sleep(0 if self.force_exit else self._limits.drain_s)
        duplicates = [listener.dup() for listener in sockets or []]
        for server in self.servers:
            server.close()
        await asyncio.sleep(0)  # uvloop releases the socket in its next iteration
        for listener in sockets or []:
            listener.close()
        loop, config = asyncio.get_running_loop(), self.config
        for connection in [connection for listener in duplicates for connection in _accept_queued(listener)]:
            await loop.connect_accepted_socket(
                lambda: config.http_protocol_class(config, self.server_state, {}),  # type: ignore[call-arg]  # uvicorn's own protocols
                connection,
            )
        started = loop.time()
        await asyncio.sleep(_POLL_S)
        while not self.force_exit and (seconds := loop.time() - started) < self._limits.deadline_s:
            if not any(_has_request(connection, may_send=seconds < _ACCEPT_S) for connection in self.server_state.connections):
                break
            await asyncio.sleep(_POLL_S)
        await super().shutdown(sockets)


def _accept_queued(listener: socket.socket) -> list[socket.socket]:
    """Accept and return the connections in the kernel's queue of a listening socket, then close the socket."""
    connections = []
    end = time.monotonic() + _ACCEPT_S
    with listener, contextlib.suppress(OSError):  # the queue is empty, or the process has too many open files
        while time.monotonic() < end:
            connections.append(listener.accept()[0])
    return connections


def _has_request(connection: Any, *, may_send: bool) -> bool:  # noqa: ANN401  # uvicorn's own protocols
    """Return whether an idle connection has unread input or, with ``may_send``, has sent no request yet."""
    cycle = connection.cycle
    if connection.transport.is_closing() or (cycle is not None and not cycle.response_complete):
        return False
    if cycle is None and may_send:
        return True
    unread = fcntl.ioctl(connection.transport.get_extra_info("socket").fileno(), termios.FIONREAD, bytes(4))
    return any(unread)


def _reload(catalog: Catalog) -> None:
    """Call ``Catalog.reload``, and log its errors, because no caller receives them; runs in a thread."""
    try:
        catalog.reload()
        _LOG.info("the current indexes are served")
    except IdxError as error:
        _LOG.error("the old indexes stay in service: %s", error)
    except Exception:
        _LOG.exception("the old indexes stay in service")


class Service:
    """One process of the server on a listening socket.

    Args:
        settings: the server's settings.
        listener: the socket.
        metrics: the server's metrics.
        source: a function that opens retrievers, or a cluster whose processes hold the indexes; None: ``opening.open_retriever``.
        manifests: manifests of the artifacts that all processes of the server open; none: there is one process.
        answerer: answers to questions; None: searches only.
    """

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        metrics: Metrics,
        source: OpenRetriever | Cluster | None = None,
        manifests: Manifests | None = None,
        *,
        answerer: Answerer | None = None,
    ) -> None:
        self._settings, self._listener, self._metrics, self._source = settings, listener, metrics, source
        self._manifests, self._answerer = manifests or {}, answerer
        self._opening = Future[None]()
        self._is_main_thread = False
        self._server: _Server | None = None
        self._catalog: Catalog | None = None

    def run(self, *, opens_first: bool = False) -> None:
        """Serve until stopped. In the main thread, handle SIGTERM and SIGINT, and tune the process for serving.

        Args:
            opens_first: take no connection before everything is open; other processes take them meanwhile.

        Raises:
            IdxError: a corpus or retriever cannot be opened; the service has ended.
            DeviceLost: a GPU that searches or the language model were using has failed; the service has ended.
        """
        self._is_main_thread = threading.current_thread() is threading.main_thread()
        if self._is_main_thread:
            sys.setswitchinterval(_SWITCH_S)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(opens_first))
        if not self._opening.done() and self._is_main_thread:
            # An index is still being opened: waiting for it is pointless, and a normal exit is unsafe.
            logging.shutdown()
            sys.stdout.flush()
            os._exit(0)
        self._opening.result()
        if self._server is not None and self._server.device_lost is not None:
            raise self._server.device_lost

    def reload(self) -> None:
        """Switch to the current indexes (see ``Catalog.reload``); may be called from another thread while serving."""
        if self._catalog is not None:
            self._catalog.reload()

    def stop(self) -> None:
        """Shut down; may be called from another thread."""
        if self._server is not None:
            self._server.should_exit = True

    async def _serve(self, opens_first: bool) -> None:
        settings = self._settings
        self._catalog = catalog = Catalog(settings, self._metrics, self._manifests, self._source)
        log = AccessLog(is_enabled=settings.access_log)
        gate = Gate(settings, self._metrics, log, catalog, make_routes(settings, catalog, self._metrics, self._answerer))
        self._server = _Server(settings, gate, catalog, self._metrics, self._answerer)
        threading.Thread(target=self._open, args=(catalog, self._server), name="opening", daemon=True).start()
        if opens_first:
            await asyncio.wrap_future(self._opening)
        await self._server.serve([self._listener])
        log.close()
        if self._opening.done():
            catalog.stop()

    def _open(self, catalog: Catalog, server: _Server) -> None:
        """Open all corpora and retrievers; runs in a separate thread."""
        try:
            if self._answerer is not None:
                self._answerer.open(catalog)
            catalog.open()
            if self._is_main_thread:
                gc.collect()
                gc.freeze()  # full collections, which block all answers, then skip the loaded objects
                gc.set_threshold(*_GC_THRESHOLDS)
            self._opening.set_result(None)
        except Exception as error:  # ``run`` raises it
            catalog.ending = f"the server cannot open what it serves: {error if isinstance(error, IdxError) else 'its log says why'}"
            self._opening.set_exception(error)
            server.should_exit = server.force_exit = True


def _config(settings: Settings, gate: Gate) -> uvicorn.Config:
    anywhere = {"allow_origins": ["*"], "allow_methods": ["*"], "allow_headers": ["*"]}
    return uvicorn.Config(
        CORSMiddleware(gate, **anywhere) if settings.insecure else gate,  # type: ignore[arg-type]
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(settings.limits.deadline_s) + 1,
    )
