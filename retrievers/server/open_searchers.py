"""Open stores, retrievers and searchers, and the artifacts they were opened from.

An artifact that is replaced on disk is still served in its old version, because its files stay mapped until the process ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from wikidx.base.artifacts.manifest import Manifest, load_manifest
from wikidx.base.compiled import compile_always, interpret_always
from wikidx.base.errors import ArtifactMismatch, IdxError
from wikidx.base.registry import unknown_name_error
from wikidx.corpora.build import store_manifest, store_path
from wikidx.corpora.resolving import article_url
from wikidx.indexer.base import Vectors
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.encoders.spec import EncoderSpec, Side
from wikidx.indexer.naming import parse_index_name
from wikidx.retrievers import compiling
from wikidx.retrievers.base import Searcher
from wikidx.retrievers.cache import CachedRetriever
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.opening import OpenCorpora, OpenRetriever
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.searcher import LocalSearcher
from wikidx.retrievers.vector_queries import QueriesRefused, vector_query

from .settings import Settings

if TYPE_CHECKING:
    from .metrics import Metrics

Name = tuple[str, str]  # corpus, retriever
Artifact = tuple[str, str | None]  # corpus, index; None: the store
Manifests = Mapping[Artifact, Manifest | None]

_WARM_UP_CHARACTERS = 100
_MAX_COMPOSED = 100
_MOST_INTERPRETED = 5_000  # passages that are searched in Python while kernels are compiled; a question takes up to 0.1 s


def read_manifests(settings: Settings) -> Manifests:
    """Return the manifests of all artifacts that a server is to open; several processes get them, so that they serve the same versions."""
    served = ((corpus, RetrieverName.parse(retriever, corpus)) for corpus, retriever in settings.served_pairs)
    return {(corpus, part): _on_disk(corpus, part) for corpus, retriever in served for part in (None, *retriever.parts)}


def _on_disk(corpus: str, index: str | None) -> Manifest | None:
    """Return the manifest of the artifact that is there now; None if there is none."""
    with suppress(OSError, ValueError):
        return load_manifest(store_path(corpus) if index is None else index_ref(corpus, index).path)
    return None


@runtime_checkable
class TextEncoder(Protocol):
    """Encoder of texts without titles.

    Attributes:
        spec: settings of the encoder.
        dim: components of a vector.
    """

    spec: EncoderSpec
    dim: int

    def encode_texts(self, side: Side, texts: Sequence[str]) -> tuple[Vectors, NDArray[np.int64]]:
        """Return the vectors of texts as queries or as passages, (len(texts), dim), and the number of tokens of each."""
        ...


class OpenSearchers(OpenCorpora):
    """Open stores, retrievers and searchers of a server.

    Args:
        settings: settings of the server.
        manifests: manifests of the artifacts that are to be opened; see ``read_manifests``. Others may have any.
        open_retriever: function that opens retrievers; None: ``opening.open_retriever``.

    Attributes:
        searchers: open searchers, by corpus and retriever.
    """

    def __init__(self, settings: Settings, manifests: Manifests, open_retriever: OpenRetriever | None) -> None:
        super().__init__(device=settings.device, query_dtype=settings.query_dtype, cache_bytes=settings.cache_bytes, opener=open_retriever)
        self._served_pairs, self._reranker, self._manifests = settings.served_pairs, settings.reranker, manifests
        self._is_alone = settings.workers == 1  # not one of several processes that would compile the same
        self._opened: dict[Artifact, Manifest] = {}  # the manifests at the time when they were opened
        # Hits and misses of each cache that the metrics already include.
        self._cache_counts: dict[Name, tuple[int, int]] = {}
        self.searchers: dict[Name, Searcher] = {}
        self._composed = OrderedDict[Name, LocalSearcher]()

    def open(self) -> None:
        """Open the searchers one after the other, and search once with each, to load models and compile kernels.

        Where BM25's kernels are not compiled, another process compiles them, while small corpora are searched in Python.
        """
        names = {(corpus, retriever): RetrieverName.parse(retriever, corpus) for corpus, retriever in self._served_pairs}
        lexical = {pair: name for pair, name in names.items() if name.is_lexical}
        if lexical and self._is_alone and compiling.is_needed():
            self._search_while_compiling(lexical)
        compile_always()
        for (corpus, retriever), name in names.items():
            searcher = self.searcher(corpus, name, self._reranker)
            query = self.store(corpus).get_many([0])[0].text[:_WARM_UP_CHARACTERS]
            try:
                searcher.search_groups([[query, "warm up"]], SearchOptions(k=1, depth=10))
            except QueriesRefused as error:
                searcher.search_groups([[vector_query(np.ones(error.dim))]], SearchOptions(k=1, depth=10))
            self.searchers[corpus, retriever] = searcher

    def _search_while_compiling(self, names: Mapping[Name, RetrieverName]) -> None:
        """Open the searchers of small corpora, and wait until another process has compiled what they need."""
        small = {pair: name for pair, name in names.items() if len(self.store(pair[0])) <= _MOST_INTERPRETED}
        if not small:
            return
        with interpret_always():
            for (corpus, retriever), name in small.items():
                self.searchers[corpus, retriever] = self.searcher(corpus, name, self._reranker)
            with suppress(IdxError):  # what is not in the cache is compiled by the first search
                compiling.compile_kernels("search")

    def compose(self, corpus: str, name: RetrieverName) -> LocalSearcher:
        """Return a searcher with a pipeline over open retrievers and rerankers; the latest are kept, so that their searches share batches.

        Raises:
            UnknownNameError: a retriever or reranker of the pipeline is not open.
        """
        text = str(name.pipeline)
        if (corpus, text) not in self._composed:
            open_retrievers = {part: retriever for (of, part), retriever in self.retrievers.items() if of == corpus}
            for kind, named, known in (
                ("retriever", (*name.parts, *name.remotes), open_retrievers),
                ("reranker", name.rerankers, self.rerankers),
            ):
                for part in named:
                    if part not in known:
                        raise unknown_name_error(f"{kind} of the pipeline on this server", part, known)
            sources = {str(part): open_retrievers[part] for part in (*name.parts, *name.remotes)}
            self._composed[corpus, text] = LocalSearcher(self.store(corpus), sources, None, name.pipeline, self.rerankers)
            if len(self._composed) > _MAX_COMPOSED:
                self._composed.popitem(last=False)
        return self._composed[corpus, text]

    def describe(self, corpus: str) -> dict[str, Any]:
        """Return the open artifacts of a corpus, with the state of their files on disk."""
        artifacts = {
            name: {
                "rows": manifest.count("rows"),
                "bytes": manifest.n_bytes,
                "created": manifest.created,
                "replaced": _on_disk(of, name) != manifest,
            }
            for (of, name), manifest in list(self._opened.items())
            if of == corpus
        }
        opened = {name: retriever.parameters for (of, name), retriever in list(self.retrievers.items()) if of == corpus}
        store = self.stores.get(corpus)
        return {
            "corpus": corpus,
            "article_url": article_url(corpus),
            "replaced": any(artifact["replaced"] for artifact in artifacts.values()),
            "fingerprint": store.fingerprint if store else None,
            "passages": artifacts.pop(None, None),
            "indexes": [
                {"index": name, **artifact, "parameters": {key: param._asdict() for key, param in opened.get(name or "", {}).items()}}
                for name, artifact in artifacts.items()
            ],
            "retrievers": [{"retriever": name, "ready": (of, name) in self.searchers} for of, name in self._served_pairs if of == corpus],
        }

    def encoders(self) -> dict[str, TextEncoder]:
        """Return the open encoders by name."""
        opened = {name: getattr(retriever, "encoder", None) for (_, name), retriever in list(self.retrievers.items())}
        return {parse_index_name(name).encoder: encoder for name, encoder in opened.items() if isinstance(encoder, TextEncoder)}

    def update_cache_metrics(self, metrics: Metrics) -> None:
        """Update the metrics of the caches."""
        caches = {name: cache for name, cache in list(self.retrievers.items()) if isinstance(cache, CachedRetriever)}
        for name, cache in caches.items():
            hits, misses = self._cache_counts.get(name, (0, 0))
            self._cache_counts[name] = n_hits, n_misses = cache.n_hits, cache.n_misses
            metrics.cache_hits.labels(*name).inc(n_hits - hits)
            metrics.cache_misses.labels(*name).inc(n_misses - misses)

    def before_open(self, corpus: str, index: str | None) -> None:
        """Record an artifact, so that a later replacement on disk is recognised.

        Raises:
            ArtifactMismatch: it is another than it is to be.
        """
        manifest = store_manifest(corpus) if index is None else index_ref(corpus, index).manifest(None)
        if manifest != self._manifests.get((corpus, index), manifest):
            raise ArtifactMismatch(
                f"'{index or 'passages'}' of '{corpus}' has been replaced since the server was started: restart it to serve the new one"
            )
        self._opened[corpus, index] = manifest
