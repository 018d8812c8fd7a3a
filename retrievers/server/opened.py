"""Open stores, retrievers and searchers, and their files as they were when opened.

Files that are replaced on disk continue to be served in their old version, because they stay mapped until the process ends.
"""

from __future__ import annotations

import os
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wikidx.corpora.artifacts.manifest import MANIFEST, Manifest
from wikidx.corpora.build import store_manifest, store_path
from wikidx.corpora.errors import ArtifactMismatch
from wikidx.retrievers.base import Reranker, Searcher
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.opening import OpenCorpora, OpenRetriever
from wikidx.retrievers.options import SearchOptions

from .settings import Settings

if TYPE_CHECKING:
    from .metrics import Metrics

Identity = tuple[int, int, int] | None
Name = tuple[str, str]  # corpus, index or PASSAGES

PASSAGES = "passages"

_WARM_UP_CHARACTERS = 100


def identity_of(path: Path) -> Identity:
    """Return the identity of the artefact at a path, distinct from any other ever there; None if there is none."""
    try:
        stat = os.stat(path / MANIFEST)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns


class FirstOpened:
    """Record of the files opened first, in memory shared by the processes: a process that starts later must not serve other files.

    Args:
        settings: of the server; they determine the order of the records in all processes.
    """

    def __init__(self, settings: Settings) -> None:
        offers = ((corpus, RetrieverName.parse(retriever)) for corpus, retriever in settings.offers)
        names = dict.fromkeys((corpus, part) for corpus, retriever in offers for part in (PASSAGES, *retriever.parts))
        self._places = {name: place for place, name in enumerate(names)}
        self._found = RawArray("q", len(names))

    def check(self, name: Name, identity: Identity) -> None:
        """Record an artefact that is about to be opened for the first time.

        Raises:
            ArtifactMismatch: another process has opened a different one.
        """
        if identity is None:
            return  # opening it raises the error
        place, found = self._places[name], hash(identity)
        if self._found[place] == 0:
            self._found[place] = found
        elif self._found[place] != found:
            corpus, index = name
            raise ArtifactMismatch(
                f"'{index}' of '{corpus}' has been replaced since the server was started: restart it to serve the new one"
            )


class Part(NamedTuple):
    """A store or an index as it was when opened; its files stay mapped even if they are replaced on disk."""

    path: Path
    manifest: Manifest
    identity: Identity

    def describe(self) -> dict[str, Any]:
        """Return its description, and whether it has been replaced on disk."""
        return {
            "rows": self.manifest.count("rows"),
            "bytes": self.manifest.n_bytes,
            "created": self.manifest.created,
            "replaced": identity_of(self.path) != self.identity,
        }


class Opened:
    """Stores, retrievers and searchers that a server has open.

    Args:
        settings: of the server.
        first: files opened by other processes of the server.
        open_retriever: opens retrievers; None: the default opener.

    Attributes:
        corpora: their stores and retrievers.
        searchers: by corpus and retriever.
    """

    def __init__(self, settings: Settings, first: FirstOpened, open_retriever: OpenRetriever | None) -> None:
        self._offers, self._first = settings.offers, first
        self._parts: dict[Name, Part] = {}
        self._counted: dict[Name, tuple[int, int]] = {}  # hits and misses of each cache that the metrics already include
        self.corpora = OpenCorpora(device=settings.device, cache_bytes=settings.cache_bytes, open_one=open_retriever, before=self._note)
        self.searchers: dict[Name, Searcher] = {}

    def open(self, reranker: Reranker | None) -> None:
        """Open the searchers one after the other, and search once with each, so that everything is loaded and compiled."""
        for corpus, retriever in self._offers:
            searcher = self.corpora.searcher(corpus, RetrieverName.parse(retriever), reranker)
            query = self.corpora.store(corpus).get_many([0])[0].text[:_WARM_UP_CHARACTERS]
            searcher.search_groups([[query, "warm up"]], SearchOptions(k=1, depth=10))
            self.searchers[corpus, retriever] = searcher

    def describe(self, corpus: str) -> dict[str, Any]:
        """Return the open parts of a corpus, with the state of their files on disk."""
        parts = {name: part.describe() for (of, name), part in list(self._parts.items()) if of == corpus}
        store, retrievers = self.corpora.stores.get(corpus), self.corpora.retrievers
        parameters = {name: dict(retrievers[corpus, name].parameters) if (corpus, name) in retrievers else {} for name in parts}
        return {
            "corpus": corpus,
            "replaced": any(about["replaced"] for about in parts.values()),
            "fingerprint": store.fingerprint if store else None,
            "passages": parts.pop(PASSAGES, None),
            "indexes": [
                {"index": name, **about, "parameters": {key: bounds._asdict() for key, bounds in parameters[name].items()}}
                for name, about in parts.items()
            ],
            "retrievers": [{"retriever": name, "ready": (of, name) in self.searchers} for of, name in self._offers if of == corpus],
        }

    def count_caches(self, metrics: Metrics) -> None:
        """Update the metrics of the caches."""
        for name, cache in list(self.corpora.caches.items()):
            hits, misses = self._counted.get(name, (0, 0))
            self._counted[name] = n_hits, n_misses = cache.n_hits, cache.n_misses
            metrics.cache_hits.labels(*name).inc(n_hits - hits)
            metrics.cache_misses.labels(*name).inc(n_misses - misses)

    def _note(self, corpus: str, index: str | None) -> None:
        """Record an artefact about to be opened; a later one at its path is a replacement."""
        from wikidx.indexer.catalog import index_ref

        path = store_path(corpus) if index is None else index_ref(corpus, index).path
        name, identity = (corpus, index or PASSAGES), identity_of(path)
        self._first.check(name, identity)
        manifest = store_manifest(corpus) if index is None else index_ref(corpus, index).manifest(None)
        self._parts[name] = Part(path, manifest, identity)
