"""Settings of a server, and its listening socket."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import time
from dataclasses import dataclass, field

from wikidx.base.errors import InputError
from wikidx.base.machine.devices import check_devices
from wikidx.base.net.endpoint import check_key
from wikidx.indexer.networks.network_size import Dtype
from wikidx.retrievers.naming import RetrieverName

from .limits import Limits

_BACKLOG = 2048
_BUSY_PORT_WAIT_S = 3.0  # time to retry a port in use, because a server that was just killed may still be ending


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a server.

    Attributes:
        corpora: names of the corpora; the first is the default.
        retrievers: retrievers of every corpus, each an index name or several joined with "+"; the first is the default.
        device: device of encoders, reranker and vector indexes; see ``base.machine.devices.check_devices``.
        query_dtype: precision in which queries are encoded; see ``opening.open_searcher``.
        reranker: the reranker for searches that request it; see ``rerankers.by_name.open_reranker``.
        cache_bytes: memory of each retriever's result cache, in each process; 0: no cache.
        host: the address to listen on.
        port: the port; 0 selects a free one.
        api_key: key that requests must have; None: no key.
        insecure: without a key, also answer requests from other machines; and let web pages of any site read the answers.
        topk: default number of passages for each query of ``/retrieve``.
        workers: number of processes.
        access_log: whether to log each request as a line of JSON on standard output.
        embeddings: whether to embed texts by the encoders of the retrievers, at ``/v1/embeddings``.
        limits: limits on requests and on the queue.
    """

    corpora: tuple[str, ...]
    retrievers: tuple[str, ...] = ("bm25",)
    device: str = "cpu"
    query_dtype: Dtype | None = None
    reranker: str | None = None
    cache_bytes: int = 0
    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    insecure: bool = False
    topk: int = 3
    workers: int = 1
    access_log: bool = False
    embeddings: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        """Raise ``InputError`` if the device or the API key is invalid, or if there is no encoder to serve."""
        check_devices(self.device)
        if self.api_key is not None:
            check_key(self.api_key)
        if self.embeddings and all(RetrieverName.parse(retriever, corpus).is_lexical for corpus, retriever in self.served_pairs):
            raise InputError(f"--embeddings serves encoders, and {', '.join(self.retrievers)} has none: add --retriever minilm")

    @property
    def served_pairs(self) -> list[tuple[str, str]]:
        """Every corpus with every retriever."""
        return [(corpus, retriever) for corpus in self.corpora for retriever in self.retrievers]


def listen(settings: Settings) -> socket.socket:
    """Return a listening socket for the settings; a port in use is retried for some seconds.

    Raises:
        InputError: the address is not this machine's, is in use, or lets other machines search without a key.
    """
    text = f"{settings.host}:{settings.port}"
    try:
        family, _, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError, OverflowError) as error:
        raise InputError(f"there is no address {text}: {error}") from error
    if not (ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback or settings.api_key or settings.insecure):
        raise InputError(
            f"{settings.host} can be reached from other machines: give an API key in IDX_API_KEY, or use --insecure to let anybody search"
        )
    give_up_at = time.monotonic() + _BUSY_PORT_WAIT_S
    while True:
        try:
            listener = socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=family == socket.AF_INET6)
            listener.setblocking(False)
            return listener
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > give_up_at:
                raise InputError(f"cannot listen on {text} ({os.strerror(error.errno or 0)}): choose another --port or --host") from error
            time.sleep(0.1)


def server_url(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
