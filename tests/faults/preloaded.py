"""What the process has from which all commands are forked: what they import, and pieces of work made small."""

from __future__ import annotations

import dataclasses

import faiss  # noqa: F401
import torch  # noqa: F401

import corpora.store.writer
import indexer.build
import indexer.encoders.contriever
import indexer.encoders.transformer
import indexer.indexes.bm25
import indexer.indexes.faiss.hnsw
import indexer.indexes.faiss.ivf
import indexer.planning  # noqa: F401
import indexer.vectors.corpus_vectors

corpora.store.writer._BATCH_PASSAGES = 100
setattr(indexer.build, "RANGE_ROWS", 150)  # noqa: B010 - it has it from another module
for module in (indexer.vectors.corpus_vectors, indexer.indexes.faiss.ivf):
    setattr(module, "BATCH_ROWS", 150)  # noqa: B010
indexer.indexes.faiss.ivf._PIECE_BATCHES = 1
indexer.indexes.faiss.hnsw._SAVE_EVERY_S = 0.0
for spec in ("SPEC", "BASE"):  # the golden checkpoint stands for both
    setattr(indexer.encoders.contriever, spec, dataclasses.replace(getattr(indexer.encoders.contriever, spec), dim=32))
