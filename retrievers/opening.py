"""Names -> open retrievers and searchers: a name is an index's, ``bm25``, ``contriever`` or ``contriever-ivfpq``; ``+`` joins several."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from corpora.build import open_store
from corpora.registry import load
from corpora.store import PassageStore
from indexer import INDEXES
from indexer.build import open_lexical_index, open_rescorer, open_vector_index, refuse_other_weights
from indexer.devices import encoder_device
from indexer.encoders.transformer import TransformerEncoder
from indexer.naming import encoder_spec, joined_names, parse_index_name

from . import RERANKERS
from .base import Reranker, Retriever
from .bm25 import BM25Retriever
from .cache import CachedRetriever
from .cross_encoder import CrossEncoder, CrossEncoderSpec
from .dense import DenseRetriever
from .searcher import LocalSearcher

logger = logging.getLogger(__name__)


def open_searcher(
    corpus: str, retriever: str = "bm25", *, device: str = "cpu", reranker: str | None = None, cache_bytes: int = 0
) -> LocalSearcher:
    """Open a built corpus for searching.

    Args:
        corpus: the corpus's name.
        retriever: an index's name, or several joined with "+", whose results are fused.
        device: where encoders and the reranker run, and indexes over vectors are searched; see ``indexer.devices.check_devices``.
        reranker: a cross-encoder for ``rerank="cross-encoder"``; see ``open_reranker``.
        cache_bytes: memory for what each retriever found lately; 0: nothing is remembered.

    Raises:
        InputError: a retriever is named twice; the device cannot be used, or an index does not fit there.
        UnknownNameError: a name is in no table.
        ArtifactError: the corpus or an index is not built, damaged, of another corpus, or made with another checkpoint.
        MissingExtraError: an encoder needs packages that are not installed.
    """
    names = joined_names(retriever)
    for name in names:
        parse_index_name(name, "retriever")
    store = open_store(corpus)
    retrievers = {name: open_retriever(corpus, name, store, device=device) for name in names}
    if cache_bytes:
        retrievers = {name: CachedRetriever(stage, cache_bytes) for name, stage in retrievers.items()}
    return LocalSearcher(store, retrievers, open_reranker(reranker, device=device) if reranker else None)


def open_reranker(name: str, *, device: str = "cpu") -> Reranker:
    """Open a reranker.

    Args:
        name: one of ``RERANKERS``, or a directory with the checkpoint of a cross-encoder: a path with a "/" in it.
        device: where it runs.

    Raises:
        UnknownNameError: there is none of that name.
        MissingExtraError, InputError, ArtifactError, DownloadError: see ``CrossEncoder``.
    """
    if "/" in name:
        return CrossEncoder(CrossEncoderSpec(name=name, checkpoint=Path(name)), device)
    open_named: Callable[[str], Reranker] = load("reranker", name, RERANKERS)
    return open_named(device)


def open_retriever(corpus: str, name: str, store: PassageStore, *, device: str = "cpu") -> Retriever:
    """Open one first stage over a store; raises as ``open_searcher`` does."""
    if name in INDEXES:
        return BM25Retriever(open_lexical_index(corpus, name, store))
    index = open_vector_index(corpus, name, store, device=device)
    logger.info("%s: %s", name, index.placement.reason)
    return DenseRetriever(
        open_query_encoder(corpus, name, device=device), index, open_rescorer(corpus, parse_index_name(name).encoder, store)
    )


def open_query_encoder(corpus: str, name: str, *, device: str) -> TransformerEncoder:
    """Open the encoder for the queries of an index over vectors.

    Raises:
        ArtifactMismatch: the corpus's vectors were made with another checkpoint than the one that is here.
        MissingExtraError, InputError, ArtifactError, DownloadError: see ``TransformerEncoder``.
    """
    spec = encoder_spec(parse_index_name(name).encoder)
    encoder = TransformerEncoder(spec, encoder_device(device))
    refuse_other_weights(corpus, spec)
    return encoder
