"""Preloaded state of the process that all commands are forked from: their imports, and small units of work."""

from __future__ import annotations

import dataclasses

import faiss  # noqa: F401
import torch  # noqa: F401

import wikidx.corpora.store.writer
import wikidx.indexer.build
import wikidx.indexer.encoders.contriever
import wikidx.indexer.encoders.transformer
import wikidx.indexer.indexes.bm25
import wikidx.indexer.indexes.faiss.hnsw
import wikidx.indexer.indexes.faiss.ivf
import wikidx.indexer.planning  # noqa: F401
import wikidx.indexer.vectors.corpus_vectors

wikidx.corpora.store.writer._BATCH_PASSAGES = 100
setattr(wikidx.indexer.build, "RANGE_ROWS", 150)  # noqa: B010 - it has it from another module
for module in (wikidx.indexer.vectors.corpus_vectors, wikidx.indexer.indexes.faiss.ivf):
    setattr(module, "BATCH_ROWS", 150)  # noqa: B010
wikidx.indexer.indexes.faiss.ivf._PIECE_BATCHES = 1
wikidx.indexer.indexes.faiss.hnsw._SAVE_EVERY_S = 0.0
for spec in ("SPEC", "BASE"):  # the golden checkpoint stands for both
    setattr(wikidx.indexer.encoders.contriever, spec, dataclasses.replace(getattr(wikidx.indexer.encoders.contriever, spec), dim=32))
