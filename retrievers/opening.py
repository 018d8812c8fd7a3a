"""Names -> open retrievers and searchers: ``bm25``, an encoder's name, or several joined with ``+``."""

from __future__ import annotations

from corpora.build import open_store
from corpora.errors import InputError
from corpora.registry import near_names
from corpora.store import PassageStore
from indexer import ENCODERS, INDEXES
from indexer.build import open_index, refuse_other_weights
from indexer.embed import encoder_spec
from indexer.encoders.transformer import TransformerEncoder
from indexer.indexes.exact import ExactIndex

from .base import Retriever
from .bm25 import BM25Retriever
from .dense import DenseRetriever
from .searcher import LocalSearcher


def open_searcher(corpus: str, retriever: str = "bm25", *, device: str = "cpu") -> LocalSearcher:
    """Open a built corpus for searching.

    Args:
        corpus: the corpus's name.
        retriever: an index's name, or several joined with "+", whose results are fused.
        device: where encoders run.

    Raises:
        InputError: a retriever is named twice.
        UnknownNameError: a name is in no table.
        ArtifactError: the corpus or an index is not built, damaged, of another corpus, or made with another checkpoint.
        MissingExtraError: an encoder needs packages that are not installed.
    """
    names = retriever.split("+")
    if len(set(names)) < len(names):
        raise InputError(f"'{retriever}' names a retriever twice")
    for name in names:
        if name not in (*INDEXES, *ENCODERS):
            raise near_names("retriever", name, (*INDEXES, *ENCODERS))
    store = open_store(corpus)
    return LocalSearcher(store, {name: open_retriever(corpus, name, store, device=device) for name in names})


def open_retriever(corpus: str, name: str, store: PassageStore, *, device: str = "cpu") -> Retriever:
    """Open one first stage over a store; raises as ``open_searcher`` does."""
    index = open_index(corpus, name, store)
    if isinstance(index, ExactIndex):
        encoder = TransformerEncoder(encoder_spec(name), device)
        refuse_other_weights(corpus, encoder_spec(name))
        return DenseRetriever(encoder, index)
    return BM25Retriever(index)
