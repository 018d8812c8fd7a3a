"""Opening of retrievers and searchers by name. Heavy packages are imported on first use."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from wikidx.base.errors import ArtifactMismatch, ArtifactMissing
from wikidx.base.machine.devices import check_devices
from wikidx.corpora.build import open_store, store_manifest
from wikidx.corpora.resolving import require_built
from wikidx.corpora.store import PassageStore
from wikidx.indexer.naming import encoder_spec, parse_index_name

from .base import Reranker, Retriever
from .bm25 import BM25Retriever
from .cache import CachedRetriever
from .dense import DenseRetriever
from .naming import RetrieverName
from .pipelines.tree import REMOTE
from .rerankers import reranker_name
from .rerankers.by_name import find_reranker

if TYPE_CHECKING:
    from wikidx.indexer.base import Encoder
    from wikidx.indexer.networks.network_size import Dtype

    from .searcher import LocalSearcher

logger = logging.getLogger(__name__)

_SAME_MODEL = 0.99  # least cosine of two vectors that a model gives a passage, in different precision or batches
_LARGE_CORPUS = 1_000_000  # minimum number of passages for which the log reports the device of the search


class OpenRetriever(Protocol):
    """A function that opens a retriever."""

    def __call__(self, corpus: str, name: str, store: PassageStore, *, device: str) -> Retriever:
        """Return the retriever ``name`` over the store."""
        ...


class OpenCorpora:
    """Stores and retrievers of built corpora, each opened once, on first use; thread-safe.

    Args:
        device: device of encoders and vector indexes; see ``base.machine.devices.check_devices``.
        query_dtype: precision in which queries are encoded; None: by the size of the encoder, see ``Model``.
        cache_bytes: memory of each retriever's result cache; 0: no cache.
        opener: function that opens retrievers; None: ``open_retriever``.

    Attributes:
        stores: open stores, by corpus.
        retrievers: open retrievers of one index, by corpus and index, and remote ones, by corpus and name.
        rerankers: open rerankers, by name.
    """

    def __init__(
        self,
        *,
        device: str = "cpu",
        query_dtype: Dtype | None = None,
        cache_bytes: int = 0,
        opener: OpenRetriever | None = None,
    ) -> None:
        self._device, self._cache_bytes = device, cache_bytes
        self._opener, self._query_dtype = opener or partial(open_retriever, query_dtype=query_dtype), query_dtype
        self._lock = threading.RLock()  # an index opened twice would take twice the memory
        self.stores: dict[str, PassageStore] = {}
        self.retrievers: dict[tuple[str, str], Retriever] = {}
        self.rerankers: dict[str, Reranker] = {}

    def before_open(self, corpus: str, index: str | None) -> None:
        """Do nothing before an index is opened, or a store (None)."""

    def store(self, corpus: str) -> PassageStore:
        """Return the store of a corpus; raises as ``open_store`` does."""
        with self._lock:
            if corpus not in self.stores:
                self.before_open(corpus, None)
                self.stores[corpus] = open_store(corpus)
            return self.stores[corpus]

    def searcher(self, corpus: str, name: RetrieverName, reranker: str | None = None) -> LocalSearcher:
        """Return a searcher over the shared store and retrievers; arguments and errors are those of ``open_searcher``."""
        from .searcher import LocalSearcher

        name.check()
        reranker = reranker and reranker_name(reranker)
        named = (*name.rerankers, *([reranker] if reranker else ()))
        with self._lock:
            for unopened in set(named) - self.rerankers.keys():
                find_reranker(unopened)  # refused before an index is opened, which may take long
            store = self.store(corpus)
            retrievers = {str(part): self.retriever(corpus, part) for part in (*name.parts, *name.remotes)}
            rerankers = {each: self.reranker(each) for each in named}
            searcher = LocalSearcher(store, retrievers, rerankers.get(reranker or ""), name.pipeline, rerankers)
        again = partial(open_searcher, corpus, str(name), device=self._device, query_dtype=self._query_dtype)
        searcher.reopen = partial(again, reranker=reranker, cache_bytes=self._cache_bytes)
        return searcher

    def reranker(self, name: str) -> Reranker:
        """Return a reranker; raises as ``open_reranker`` does."""
        with self._lock:
            if name not in self.rerankers:
                self.rerankers[name] = find_reranker(name)(self._device)
            return self.rerankers[name]

    def retriever(self, corpus: str, name: str) -> Retriever:
        """Return the retriever of an index, or a remote one; raises as ``open_searcher`` does."""
        with self._lock:
            if (corpus, name) not in self.retrievers:
                self.retrievers[corpus, name] = self._open_retriever(corpus, name)
            return self.retrievers[corpus, name]

    def _open_retriever(self, corpus: str, name: str) -> Retriever:
        if name.startswith(REMOTE):
            from .pipelines.remote import RemoteRetriever

            return RemoteRetriever(name, self.store(corpus))
        self.before_open(corpus, name)
        opened = self._opener(corpus, name, self.store(corpus), device=self._device)
        return CachedRetriever(opened, self._cache_bytes) if self._cache_bytes else opened


def open_searcher(
    corpus: str,
    retriever: str = "bm25",
    *,
    device: str = "auto",
    query_dtype: Dtype | None = None,
    reranker: str | None = None,
    cache_bytes: int = 0,
) -> LocalSearcher:
    """Open a built corpus for searching.

    >>> with open_searcher("sample", "bm25+minilm") as searcher:
    ...     searcher.search(["river of Egypt"], k=3)

    Args:
        corpus: name of the corpus.
        retriever: an index name, several joined with "+", whose results are fused, or a pipeline or the name of one; see ``pipelines``.
        device: device of encoders, reranker and vector indexes; see ``base.machine.devices.check_devices``.
        query_dtype: precision in which queries are encoded; None: float32, or bfloat16 for large encoders on a GPU.
        reranker: the reranker for ``rerank="cross-encoder"``; see ``open_reranker``.
        cache_bytes: memory of each retriever's result cache; 0: no cache.

    Raises:
        InputError: a pipeline is invalid, a retriever is named twice, the device cannot be used, or an index does not fit into its memory.
        UnknownNameError: a name is unknown.
        ArtifactError: the corpus or an index is not built, is corrupt, or belongs to another corpus or checkpoint.
        MissingExtraError: an encoder needs packages that are not installed.
        DownloadError: a checkpoint is missing and cannot be downloaded.
        ServiceError: a remote retriever does not answer.
    """
    name = RetrieverName.parse(retriever, corpus)
    name.check()
    check_devices(device)
    require_built(corpus)
    if len(name.parts) > 1:
        require_indexes(corpus, name.parts)
    opened = OpenCorpora(device=device, query_dtype=query_dtype, cache_bytes=cache_bytes)
    return opened.searcher(corpus, name, reranker)


def require_indexes(corpus: str, names: Sequence[str]) -> None:
    """Raise ``ArtifactError`` if an index is missing or of another store, before the first is opened, which may take long."""
    from wikidx.indexer.catalog import built_indexes, index_ref

    try:
        for name in names:
            index_ref(corpus, name).manifest(store_manifest(corpus).fingerprint)
    except ArtifactMissing as error:
        raise ArtifactMissing(f"{error}; '{corpus}' has {', '.join(built_indexes(corpus)) or 'no index'}") from None


def open_retriever(
    corpus: str,
    name: str,
    store: PassageStore,
    *,
    device: str = "cpu",
    query_dtype: Dtype | None = None,
) -> Retriever:
    """Open the retriever of one index over a store; raises as ``open_searcher`` does."""
    from wikidx.indexer.build import open_lexical_index, open_vector_index, open_vectors

    if parse_index_name(name).source == "passages":
        return BM25Retriever(open_lexical_index(corpus, name, store))
    index = open_vector_index(corpus, name, store, device=device)
    level = logging.INFO if len(store) >= _LARGE_CORPUS else logging.DEBUG
    logger.log(level, "%s: %s", name, index.placement.reason)
    encoder = open_query_encoder(corpus, name, device=device, dtype=query_dtype)
    if hasattr(encoder, "dtype") and hasattr(encoder, "device"):
        logger.log(level, "%s: queries are encoded in %s on %s", name, encoder.dtype, encoder.device)
    return DenseRetriever(encoder, index, open_vectors(corpus, name, store))


def open_query_encoder(corpus: str, name: str, *, device: str, dtype: Dtype | None = None) -> Encoder:
    """Open the query encoder of a vector index; vectors without an encoder are searched by vectors.

    A server is asked for the vector of a passage, to be compared with the stored one.

    Raises:
        ArtifactMismatch: the corpus's vectors come from another checkpoint than the local one.
        MissingExtraError, InputError, ArtifactError, DownloadError: see ``TransformerEncoder``.
        EndpointError: see ``ServedEncoder``.
    """
    from wikidx.base.machine.devices import encoder_device
    from wikidx.indexer.build import check_query_weights
    from wikidx.indexer.catalog import index_ref
    from wikidx.indexer.encoders.transformer import open_encoder
    from wikidx.retrievers.vector_queries import GivenVectors

    spec = encoder_spec(parse_index_name(name).encoder)
    if spec.query_checkpoint is None:
        return GivenVectors(index_ref(corpus, name).manifest(None).count("dim"))
    encoder = open_encoder(spec, encoder_device(device), dtype)
    check_query_weights(corpus, spec)
    if spec.is_served:
        _check_server(corpus, spec.name, encoder)
    return encoder


def _check_server(corpus: str, name: str, encoder: Encoder) -> None:
    """Raise ``ArtifactMismatch`` if a server gives the first passage of a corpus another vector than the stored one."""
    from wikidx.indexer.build import open_vectors

    store = open_store(corpus)
    vectors = open_vectors(corpus, name, store)
    if vectors is None or 0 in vectors.missing:
        return
    stored, computed = vectors.read(np.array([0]))[0], encoder.encode_passages(store.get_many([0]))[0]
    if not stored.any():
        raise ArtifactMismatch(f"the first vector of '{name}' is all zeros: run 'idx build {corpus} --encoder {name} --force'")
    cosine = float(stored @ computed / (np.linalg.norm(stored) * np.linalg.norm(computed)))
    if not cosine >= _SAME_MODEL:
        raise ArtifactMismatch(
            f"the server of '{name}' gives the first passage of '{corpus}' another vector than the stored one (cosine {cosine:.2f}): "
            f"it has another model under this name; name the right server, or run 'idx build {corpus} --encoder {name} --force'"
        )
