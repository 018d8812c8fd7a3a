"""All corpora and retrievers of a server, opened in the background; on a cluster they can be reopened while serving."""

from __future__ import annotations

import logging
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from wikidx.corpora.registry import near_names
from wikidx.retrievers.base import Reranker, Searcher
from wikidx.retrievers.errors import NotReady, Overloaded
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.opening import OpenRetriever, open_reranker

from .batcher import Batcher
from .metrics import Metrics
from .opened import FirstOpened, Name, Opened
from .settings import Settings

if TYPE_CHECKING:
    from wikidx.corpora.store import PassageStore

_LOG = logging.getLogger("idx.server")


@runtime_checkable
class Cluster(Protocol):
    """Remote processes that hold indexes, and that can be replaced while serving."""

    def exchange(self) -> AbstractContextManager[OpenRetriever]:
        """Start processes over the current indexes, and return the opener of retrievers over them.

        They serve when the context ends, and the old ones end once their searches are answered; after an error the new ones end.
        """
        ...

    def describe(self) -> list[dict[str, Any]]:
        """Return the state of each shard."""
        ...

    def stop(self) -> None:
        """End all processes; a start in progress fails."""
        ...


class Catalog:
    """All corpora and retrievers of a server; created in the event loop, opened in a thread.

    Args:
        settings: of the server.
        metrics: the server's metrics.
        first: files opened by other processes of the server.
        source: opens retrievers, or a cluster, whose processes can be replaced; None: ``opening.open_retriever``.

    Attributes:
        cluster: the cluster, if there is one.
    """

    def __init__(self, settings: Settings, metrics: Metrics, first: FirstOpened, source: OpenRetriever | Cluster | None = None) -> None:
        self._settings, self._metrics, self._first = settings, metrics, first
        self.cluster = source if isinstance(source, Cluster) else None
        self._open_retriever = None if isinstance(source, Cluster) else source
        self._opened = Opened(settings, first, self._open_retriever)
        self._reranker: Reranker | None = None
        owners: dict[Name, Batcher] = {}  # one thread for each corpus owns the encoders and vectors; a lexical retriever has its own
        self._batchers: dict[Name, Batcher] = {}
        for corpus, retriever in settings.offers:
            owner = corpus, retriever if RetrieverName.parse(retriever).is_lexical else "dense"
            owners[owner] = self._batchers[corpus, retriever] = owners.get(owner) or Batcher(settings.limits, metrics)

    def open(self) -> None:
        """Open everything; takes long.

        Raises:
            IdxError: something cannot be opened.
        """
        started = time.monotonic()
        if self._settings.reranker is not None:
            self._reranker = open_reranker(self._settings.reranker, device=self._settings.device)
        self.reload()
        self._metrics.ready.set(1)
        if self.readiness()["ready"]:
            _LOG.info("ready after %.1f s", time.monotonic() - started)

    def reload(self) -> None:
        """Open the current indexes beside those being served, if any, then switch to them without failing a search.

        Raises:
            IdxError: something cannot be opened; the old indexes stay in service.
        """
        with self.cluster.exchange() if self.cluster else nullcontext(self._open_retriever) as open_retriever:
            opened = Opened(self._settings, FirstOpened(self._settings) if self.cluster else self._first, open_retriever)
            if not self._opened.searchers:
                self._opened = opened  # each searcher serves once it is open
            opened.open(self._reranker)
        self._opened = opened

    def find(self, corpus: str | None, retriever: str | None) -> tuple[Name, Batcher, Searcher]:
        """Return corpus and retriever, by default the first ones, with the thread that searches and the searcher.

        Raises:
            UnknownNameError: it is not served.
            NotReady: it is not open yet.
        """
        corpus, retriever = corpus or self._settings.corpora[0], retriever or self._settings.retrievers[0]
        if corpus not in self._settings.corpora:
            raise near_names("corpus", corpus, self._settings.corpora)
        if retriever not in self._settings.retrievers:
            retriever = str(RetrieverName.parse(retriever))
        if retriever not in self._settings.retrievers:
            raise near_names("retriever", retriever, self._settings.retrievers)
        searcher = self._opened.searchers.get((corpus, retriever))
        if searcher is None:
            raise NotReady(f"'{retriever}' over '{corpus}' is being opened: /ready says how far that is", retry_after=1)
        return (corpus, retriever), self._batchers[corpus, retriever], searcher

    @property
    def is_full(self) -> bool:
        """True if every searcher's queue is full."""
        return all(batcher.is_full for batcher in self._batchers.values())

    def overload(self) -> Overloaded:
        """Return the error for a search that is refused then."""
        return next(iter(self._batchers.values())).overload()

    def store(self, corpus: str) -> PassageStore:
        """Return the passages of a corpus; raises as ``find`` does."""
        if corpus not in self._settings.corpora:
            raise near_names("corpus", corpus, self._settings.corpora)
        if corpus not in self._opened.corpora.stores:
            raise NotReady(f"'{corpus}' is being opened: /ready says how far that is", retry_after=1)
        return self._opened.corpora.stores[corpus]

    def readiness(self) -> dict[str, Any]:
        """Return the open corpora and retrievers, and the state of the others."""
        n_ready, shards = self._metrics.n_ready(), self.cluster.describe() if self.cluster else []
        found = {
            "ready": n_ready >= self._settings.workers and all(shard["ready"] for shard in shards),
            "processes": {"ready": n_ready, "all": self._settings.workers},
            "served": [
                {"corpus": corpus, "retriever": retriever, "state": "ready" if (corpus, retriever) in self._opened.searchers else "opening"}
                for corpus, retriever in self._settings.offers
            ],
        }
        return {**found, "shards": shards} if self.cluster else found

    def describe(self) -> list[dict[str, Any]]:
        """Return the served corpora, with the state of their files on disk."""
        return [self._opened.describe(corpus) for corpus in self._settings.corpora]

    def count_caches(self) -> None:
        """Update the metrics of the caches."""
        self._opened.count_caches(self._metrics)

    def stop(self) -> None:
        """End the threads that search, and give up a reload in progress."""
        for batcher in set(self._batchers.values()):
            batcher.stop()
        if self.cluster is not None:
            self.cluster.stop()
