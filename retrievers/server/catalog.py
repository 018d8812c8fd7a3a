"""What a server serves: every corpus with every retriever, opened behind the port, and whether its files have been replaced since.

Files that were replaced on disk go on being served as they were, because they stay mapped until the process ends. On a cluster the new ones
can be opened beside them, and then be served in their place.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from wikidx.corpora.build import store_manifest, store_path
from wikidx.corpora.errors import InputError
from wikidx.corpora.registry import near_names
from wikidx.retrievers.base import Reranker, Searcher
from wikidx.retrievers.errors import NotReady, Overloaded
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.opening import OpenCorpora, OpenRetriever, open_reranker
from wikidx.retrievers.options import SearchOptions

from .batcher import Batcher
from .metrics import Metrics
from .parts import PASSAGES, FirstOpened, Name, Part, identity_of
from .settings import Settings

if TYPE_CHECKING:
    from wikidx.corpora.store import PassageStore

_LOG = logging.getLogger("idx.server")

_WARM_UP_CHARACTERS = 100


@runtime_checkable
class Cluster(OpenRetriever, Protocol):
    """Opens first stages whose indexes lie in other processes, which can be exchanged for others while it is served."""

    def begin(self) -> None:
        """Start processes over what is built now; what is opened from then on searches these."""
        ...

    def commit(self) -> None:
        """End those before, once what they have been asked is answered."""
        ...

    def abandon(self) -> None:
        """End those that ``begin`` started."""
        ...

    def stop(self) -> None:
        """End all; what is being begun fails."""
        ...

    def describe(self) -> list[dict[str, Any]]:
        """Return how each shard is."""
        ...


class Opened:
    """What is open, and its files as they were then: a store is the part ``PASSAGES``, the other parts are indexes."""

    def __init__(self, settings: Settings, first: FirstOpened, open_stage: OpenRetriever | None) -> None:
        self._first = first
        self.parts: dict[Name, Part] = {}
        self.corpora = OpenCorpora(device=settings.device, cache_bytes=settings.cache_bytes, open_one=open_stage, before=self._note)
        self.counted: dict[Name, tuple[int, int]] = {}  # of a cache, hits and misses that the metrics have

    def _note(self, corpus: str, index: str | None) -> None:
        """Take note of what is about to be opened: what comes to lie there later is a replacement."""
        from wikidx.indexer.catalog import index_manifest, index_path

        path = store_path(corpus) if index is None else index_path(corpus, index)
        name, identity = (corpus, index or PASSAGES), identity_of(path)
        self._first.check(name, identity)
        manifest = store_manifest(corpus) if index is None else index_manifest(corpus, index, None)
        self.parts[name] = Part(path, manifest, identity)


@dataclass(slots=True, eq=False)
class Served:
    """One corpus with one retriever; ``searcher`` is None until it is open."""

    corpus: str
    retriever: str
    batcher: Batcher
    searcher: Searcher | None = None


class Catalog:
    """Everything that is served; made in the event loop, opened in a thread.

    Args:
        settings: of the server.
        metrics: where it counts.
        first: what other processes of the server have opened.
        open_stage: opens first stages; by default ``opening.open_retriever``. If it is a ``Cluster``, what is served can be exchanged.
    """

    def __init__(self, settings: Settings, metrics: Metrics, first: FirstOpened, open_stage: OpenRetriever | None = None) -> None:
        self._settings, self._metrics = settings, metrics
        self._cluster = open_stage if isinstance(open_stage, Cluster) else None
        self._reloading = threading.Lock()
        self._batchers: dict[Name, Batcher] = {}
        for name in settings.offers:
            if _owner(*name) not in self._batchers:
                self._batchers[_owner(*name)] = Batcher(settings.limits, metrics)
        self._served = {name: Served(*name, self._batchers[_owner(*name)]) for name in settings.offers}
        self._opened = Opened(settings, first, open_stage)
        self._reranker: Reranker | None = None
        self._compiled: Sequence[object] = ()

    def open(self) -> None:
        """Open everything and search once with it, so that whatever a first search has to load or compile is there; takes long.

        Raises:
            IdxError: something cannot be opened.
        """
        with self._reloading:
            self._open()

    def _open(self) -> None:
        started = time.monotonic()
        self._compiled = _compilations()
        if self._settings.reranker is not None:
            self._reranker = open_reranker(self._settings.reranker, device=self._settings.device)
        if self._cluster is not None:
            self._cluster.begin()
        for served in self._served.values():
            served.searcher = self._searcher(served, self._opened)
        if self._cluster is not None:
            self._cluster.commit()
        self._metrics.ready.set(1)
        if self.readiness()["ready"]:
            _LOG.info("ready after %.1f s", time.monotonic() - started)

    @property
    def can_reload(self) -> bool:
        """Whether ``reload`` can be called."""
        return self._cluster is not None

    def reload(self) -> None:
        """Open what is built now beside what is served, then serve it in place of that, without a search that fails; takes long.

        Raises:
            InputError: there is no cluster.
            NotReady: nothing is served yet: what is built now is about to be opened.
            IdxError: something cannot be opened; what was served goes on being so.
        """
        if self._cluster is None:
            raise InputError("what one machine serves is exchanged by starting the server again")
        with self._reloading:
            if any(served.searcher is None for served in self._served.values()):
                raise NotReady("nothing is served yet that could be exchanged", retry_after=1)
            self._cluster.begin()
            try:
                opened = Opened(self._settings, FirstOpened(self._settings), self._cluster)
                searchers = {name: self._searcher(served, opened) for name, served in self._served.items()}
                self._cluster.commit()
            except BaseException:
                self._cluster.abandon()
                raise
            for name, served in self._served.items():
                served.searcher = searchers[name]
            self._opened = opened
        _LOG.info("what is built now is served")

    def find(self, corpus: str | None, retriever: str | None) -> tuple[Served, Searcher]:
        """Return what serves a corpus by a retriever; the first ones if none is named.

        Raises:
            UnknownNameError: it is not served.
            NotReady: it is not open yet.
        """
        corpus, retriever = corpus or self._settings.corpora[0], retriever or self._settings.retrievers[0]
        if retriever not in self._settings.retrievers:
            retriever = str(RetrieverName.parse(retriever))
        served = self._served.get((corpus, retriever))
        if served is None:
            if corpus not in self._settings.corpora:
                raise near_names("corpus", corpus, self._settings.corpora)
            raise near_names("retriever", retriever, self._settings.retrievers)
        if served.searcher is None:
            raise NotReady(f"'{retriever}' over '{corpus}' is being opened: /ready says how far that is", retry_after=1)
        return served, served.searcher

    @property
    def is_full(self) -> bool:
        """Whether too much is waiting for every searcher."""
        return all(batcher.is_full for batcher in self._batchers.values())

    def overload(self) -> Overloaded:
        """Return the error for whatever is searched for then."""
        return next(iter(self._batchers.values())).overload()

    def store(self, corpus: str) -> PassageStore:
        """Return the passages of a corpus; raises as ``find`` does."""
        if corpus not in self._settings.corpora:
            raise near_names("corpus", corpus, self._settings.corpora)
        if corpus not in self._opened.corpora.stores:
            raise NotReady(f"'{corpus}' is being opened: /ready says how far that is", retry_after=1)
        return self._opened.corpora.stores[corpus]

    def readiness(self) -> dict[str, Any]:
        """Return what is open, and what is going on where something is not."""
        n_ready = self._metrics.n_ready()
        doing = "opening, and compiling the kernels of an installation's first search" if self._compiled else "opening"
        found = {
            "ready": n_ready >= self._settings.workers,
            "processes": {"ready": n_ready, "all": self._settings.workers},
            "served": [
                {"corpus": served.corpus, "retriever": served.retriever, "state": doing if served.searcher is None else "ready"}
                for served in self._served.values()
            ],
        }
        if self._cluster is None:
            return found
        shards = self._cluster.describe()
        return {**found, "ready": found["ready"] and all(shard["ready"] for shard in shards), "shards": shards}

    def describe(self) -> list[dict[str, Any]]:
        """Return what is served, with what is on disk of it."""
        return [self._describe(corpus) for corpus in self._settings.corpora]

    def count_caches(self) -> None:
        """Bring the counts of the caches up to date."""
        for name, cache in list(self._opened.corpora.caches.items()):
            hits, misses = self._opened.counted.get(name, (0, 0))
            self._opened.counted[name] = n_hits, n_misses = cache.n_hits, cache.n_misses
            self._metrics.cache_hits.labels(*name).inc(n_hits - hits)
            self._metrics.cache_misses.labels(*name).inc(n_misses - misses)

    def stop(self) -> None:
        """End the threads that search, and what is being opened in place of what they search."""
        for batcher in self._batchers.values():
            batcher.stop()
        if self._cluster is not None:
            self._cluster.stop()
            with self._reloading:  # which has failed by then
                pass

    def _describe(self, corpus: str) -> dict[str, Any]:
        parts = {name: part.describe() for (of, name), part in list(self._opened.parts.items()) if of == corpus}
        store = self._opened.corpora.stores.get(corpus)
        is_replaced = any(about["replaced"] for about in parts.values())
        return {
            "corpus": corpus,
            "replaced": is_replaced,
            "fingerprint": store.fingerprint if store else None,
            "passages": parts.pop(PASSAGES, None),
            "indexes": [{"index": name, **about, "parameters": self._parameters(corpus, name)} for name, about in parts.items()],
            "retrievers": [
                {"retriever": served.retriever, "ready": served.searcher is not None}
                for served in self._served.values()
                if served.corpus == corpus
            ],
        }

    def _parameters(self, corpus: str, name: str) -> dict[str, dict[str, int]]:
        """Return what a request may set of an index's searches."""
        stage = self._opened.corpora.retrievers.get((corpus, name))
        return {parameter: about._asdict() for parameter, about in stage.parameters.items()} if stage else {}

    def _searcher(self, served: Served, opened: Opened) -> Searcher:
        """Open what a searcher needs and is not open yet."""
        searcher = opened.corpora.searcher(served.corpus, RetrieverName.parse(served.retriever), self._reranker)
        query = opened.corpora.store(served.corpus).get_many([0])[0].text[:_WARM_UP_CHARACTERS]
        searcher.search_groups([[query, "warm up"]], SearchOptions(k=1, depth=10))
        return searcher


def _owner(corpus: str, retriever: str) -> Name:
    """Return which thread searches: one for each corpus owns its encoders and vectors, a searcher by words has its own."""
    return corpus, retriever if RetrieverName.parse(retriever).is_lexical else "dense"


def _compilations() -> Sequence[object]:
    """Return a list that grows whenever numba compiles something, which it does once in an installation."""
    from numba.core import event

    compiled = event.RecordingListener()
    event.register("numba:compile", compiled)
    found: Sequence[object] = compiled.buffer
    return found
