"""All corpora and retrievers of a server, which are opened in the background and, on a cluster, reopened while serving."""

from __future__ import annotations

import logging
import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from wikidx.base.machine.failures import DeviceLost
from wikidx.base.registry import unknown_name_error
from wikidx.retrievers.base import Searcher
from wikidx.retrievers.errors import NotReady
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.opening import OpenRetriever

from .batcher import Batcher, QueueMemory
from .metrics import Metrics
from .open_searchers import Manifests, Name, OpenSearchers
from .settings import Settings

if TYPE_CHECKING:
    from wikidx.corpora.store import PassageStore

_LOG = logging.getLogger("idx.server")

PIPELINE = "pipeline"  # name of every pipeline that a request composes, in metrics and logs


@runtime_checkable
class Cluster(Protocol):
    """Remote processes that hold indexes and can be replaced while serving."""

    def exchange(self) -> AbstractContextManager[OpenRetriever]:
        """Start processes over the current indexes, and yield a function that opens retrievers.

        The new processes serve when the context ends, and the old processes end after their last answers. After an error, the new processes
        end.
        """
        ...

    def describe(self) -> list[dict[str, Any]]:
        """Return the state of each shard."""
        ...

    def stop(self) -> None:
        """End all processes; an exchange in progress is abandoned."""
        ...


class Served(NamedTuple):
    """A searcher, the thread that calls it, its parsed retriever, and the names of corpus and retriever for metrics and logs."""

    name: Name
    batcher: Batcher
    searcher: Searcher
    retriever: RetrieverName


class Catalog:
    """All corpora and retrievers of a server; created in the event loop, opened in a thread.

    Args:
        settings: settings of the server.
        metrics: the server's metrics.
        manifests: manifests of the artifacts that all processes of the server open; see ``read_manifests``.
        source: a function that opens retrievers, or a cluster with replaceable processes; None: ``opening.open_retriever``.

    Attributes:
        cluster: the cluster; None without one.
        ending: why nothing more will be opened; None: it may.
        embedding: thread that embeds texts; None unless the settings ask for it.
        served: what is open; exchanged as a whole when the indexes are opened again.
        memory: memory of what waits for any of the threads, or until its index is open.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        manifests: Manifests,
        source: OpenRetriever | Cluster | None = None,
    ) -> None:
        self._settings, self._metrics, self._manifests = settings, metrics, manifests
        self.ending: str | None = None
        self.cluster = source if isinstance(source, Cluster) else None
        self._open_retriever = None if isinstance(source, Cluster) else source
        self.served = OpenSearchers(settings, manifests, self._open_retriever)
        self.memory = QueueMemory(settings.limits.max_queued_bytes)
        # One thread for all dense retrievers of a corpus, and one for each lexical retriever.
        owners: dict[Name, Batcher] = {}
        self._batchers: dict[Name, Batcher] = {}
        self._names: dict[Name, RetrieverName] = {}
        for corpus, retriever in settings.served_pairs:
            self._names[corpus, retriever] = RetrieverName.parse(retriever, corpus)
            owner = corpus, retriever if self._names[corpus, retriever].is_lexical else "dense"
            owners[owner] = self._batchers[corpus, retriever] = owners.get(owner) or Batcher(settings.limits, metrics, self.memory)
        self.embedding = Batcher(settings.limits, metrics, self.memory) if settings.embeddings else None

    def open(self) -> None:
        """Open all corpora and retrievers, which may take long.

        Raises:
            IdxError: a corpus or retriever cannot be opened.
        """
        started = time.monotonic()
        self.reload()
        self._metrics.ready.set(1)
        if self.readiness()["ready"]:
            _LOG.info("ready after %.1f s", time.monotonic() - started)

    def reload(self) -> None:
        """Open the current indexes while the old indexes serve, then switch to the current ones; no search fails.

        Raises:
            IdxError: an index cannot be opened; the old indexes stay in service.
        """
        with self.cluster.exchange() if self.cluster else nullcontext(self._open_retriever) as open_retriever:
            searchers = OpenSearchers(self._settings, self._manifests, open_retriever)
            searchers.rerankers.update(self.served.rerankers)
            if not self.served.searchers:
                self.served = searchers  # each searcher serves once it is open
            searchers.open()
        self.served = searchers

    def find(self, corpus: str | None, retriever: str | None) -> Served:
        """Return the searcher of a corpus (None: the first) and a retriever (None: the first), which may be a pipeline of served ones.

        Raises:
            UnknownNameError: the corpus, the retriever or a part of the pipeline is not served.
            InputError: the pipeline does not follow the notation.
            NotReady: the retriever is not open yet.
        """
        corpus, retriever = corpus or self._settings.corpora[0], retriever or self._settings.retrievers[0]
        if corpus not in self._settings.corpora:
            raise unknown_name_error("corpus", corpus, self._settings.corpora)
        parsed = self._names.get((corpus, retriever)) or RetrieverName.parse(retriever, corpus)
        if retriever not in self._settings.retrievers:
            retriever = str(parsed)
        if retriever not in self._settings.retrievers:
            if parsed.pipeline is None:
                raise unknown_name_error("retriever", retriever, self._settings.retrievers)
            return self._compose(corpus, parsed)
        searcher = self._searcher(corpus, retriever)
        return Served((corpus, retriever), self._batchers[corpus, retriever], searcher, self._names[corpus, retriever])

    def _searcher(self, corpus: str, retriever: str) -> Searcher:
        searcher = self.served.searchers.get((corpus, retriever))
        if searcher is None:
            raise self.not_ready(f"'{retriever}' over '{corpus}' is being opened: /ready says how far that is")
        return searcher

    def _compose(self, corpus: str, name: RetrieverName) -> Served:
        """Return a pipeline over served retrievers, once all are open. The thread of the dense ones calls it if it has one of them."""
        for retriever in self._settings.retrievers:
            self._searcher(corpus, retriever)
        searcher = self.served.compose(corpus, name)
        owner = min(self._settings.retrievers, key=lambda retriever: self._names[corpus, retriever].is_lexical != name.is_lexical)
        return Served((corpus, PIPELINE), self._batchers[corpus, owner], searcher, name)

    def not_ready(self, message: str) -> NotReady:
        """Return the error for a request of what is not open yet; without ``retry_after`` if it will not be opened."""
        return NotReady(message, retry_after=1) if self.ending is None else NotReady(self.ending)

    @property
    def device_lost(self) -> DeviceLost | None:
        """Error of a GPU after which all searches fail; None: no such error."""
        return next((batcher.device_lost for batcher in self._threads() if batcher.device_lost), None)

    def _threads(self) -> set[Batcher]:
        return {*self._batchers.values(), *([self.embedding] if self.embedding else [])}

    def store(self, corpus: str) -> PassageStore:
        """Return the store of a corpus; raises as ``find`` does."""
        if corpus not in self._settings.corpora:
            raise unknown_name_error("corpus", corpus, self._settings.corpora)
        if corpus not in self.served.stores:
            raise self.not_ready(f"'{corpus}' is being opened: /ready says how far that is")
        return self.served.stores[corpus]

    def readiness(self) -> dict[str, Any]:
        """Return the state of all retrievers, processes and shards."""
        n_ready, shards = self._metrics.n_ready(), self.cluster.describe() if self.cluster else []
        state = {
            "ready": n_ready >= self._settings.workers and all(shard["ready"] for shard in shards),
            "processes": {"ready": n_ready, "total": self._settings.workers},
            "served": [
                {
                    "corpus": corpus,
                    "retriever": retriever,
                    "state": "ready" if (corpus, retriever) in self.served.searchers else "opening",
                }
                for corpus, retriever in self._settings.served_pairs
            ],
        }
        return {**state, "shards": shards} if self.cluster else state

    def describe(self) -> list[dict[str, Any]]:
        """Return the served corpora, with the state of their files on disk."""
        return [self.served.describe(corpus) for corpus in self._settings.corpora]

    def stop(self) -> None:
        """End the search threads and the cluster; a reload in progress is abandoned."""
        for batcher in self._threads():
            batcher.stop()
        if self.cluster is not None:
            self.cluster.stop()
