"""Settings of a server, and the socket it listens on."""

from __future__ import annotations

import errno
import ipaddress
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from wikidx.corpora.errors import InputError

from .api_key import ApiKey
from .limits import Limits

_PATIENCE_S = 3.0  # wait for a port in use: processes of a server killed a moment ago may still be ending


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a server.

    Attributes:
        corpora: the names of the corpora; the first is the default.
        retrievers: the same for each corpus: an index's name, or several joined with "+"; the first is the default.
        device: device of encoders, reranker and vector indexes; see ``indexer.machine.devices.check_devices``.
        reranker: a cross-encoder for all searches that ask for one; see ``opening.open_reranker``.
        cache_bytes: memory of each retriever's result cache, in each process; 0: no cache.
        host: the address to listen on.
        port: the port; 0 selects a free one.
        api_key: required of requests; None: none.
        insecure: without a key, answer requests from other machines and from web pages elsewhere, too.
        topk: default number of passages of ``/retrieve``.
        workers: processes.
        access_log: log every request as a line of JSON on standard output.
        limits: see ``Limits``.
    """

    corpora: tuple[str, ...]
    retrievers: tuple[str, ...] = ("bm25",)
    device: str = "cpu"
    reranker: str | None = None
    cache_bytes: int = 0
    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    insecure: bool = False
    topk: int = 3
    workers: int = 1
    access_log: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        """Raise ``InputError`` if the API key is invalid."""
        if self.api_key is not None:
            ApiKey(self.api_key)

    @property
    def offers(self) -> list[tuple[str, str]]:
        """Every corpus with every retriever."""
        return [(corpus, retriever) for corpus in self.corpora for retriever in self.retrievers]


def listen(settings: Settings) -> socket.socket:
    """Return a listening socket for the settings; waits a little for a port in use.

    Raises:
        InputError: the address is not of this machine or is in use, or other machines could reach it without a key.
    """
    address = f"{settings.host}:{settings.port}"
    try:
        family, _, _, _, where = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError, OverflowError) as error:
        raise InputError(f"there is no address {address}: {error}") from error
    if not (ipaddress.ip_address(str(where[0]).partition("%")[0]).is_loopback or settings.api_key or settings.insecure):
        raise InputError(
            f"{settings.host} can be reached from other machines: give an API key in IDX_API_KEY, or say --insecure to let anybody search"
        )
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return _listening(family, where)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise InputError(f"cannot listen on {address} ({error.strerror}): choose another --port or --host") from error
            time.sleep(0.1)


def _listening(family: socket.AddressFamily, where: tuple[Any, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen(2048)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


def url_of(listening: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
