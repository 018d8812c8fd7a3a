"""A range of a FAISS index's rows as a separate index in memory. It has the quantisers of the whole index, and therefore its scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wikidx.corpora.errors import InputError
from wikidx.corpora.progress import format_bytes
from wikidx.indexer.machine.memory import available_bytes

from .library import faiss_errors, load_faiss

ID_BYTES = 8  # size of a row number; a list stores one with each code


def select_ivf_range(path: Path, mapped: Any, rows: range) -> Any:  # noqa: ANN401 - FAISS has no types
    """Return an inverted file with the entries of a mapped inverted file for a range of rows, in the same lists.

    Raises:
        InputError: there is too little memory.
        ArtifactCorrupt: FAISS cannot read the lists.
    """
    faiss = load_faiss()
    check_memory(path, len(rows), mapped.code_size + ID_BYTES)
    part = copy_without_lists(mapped)
    with faiss_errors(path):
        mapped.copy_subset_to(part, faiss.InvertedLists.SUBSET_TYPE_ID_RANGE, rows.start, rows.stop)
    return part


def copy_without_lists(index: Any) -> Any:  # noqa: ANN401
    """Return an empty inverted file that shares the quantisers of ``index`` and keeps ``index`` alive."""
    faiss = load_faiss()
    if isinstance(index, faiss.IndexIVFPQ):
        empty = faiss.IndexIVFPQ(index.quantizer, index.d, index.nlist, index.pq.M, index.pq.nbits, index.metric_type)
        empty.pq, empty.by_residual = index.pq, index.by_residual
    else:
        empty = faiss.IndexIVFScalarQuantizer(index.quantizer, index.d, index.nlist, index.sq.qtype, index.metric_type, index.by_residual)
        empty.sq = index.sq
    empty.is_trained, empty.own_fields = True, False
    empty.referenced_objects = [index]
    return empty


def check_memory(path: Path, n_vectors: int, vector_bytes: int, advice: str = "use more shards, or a node with more memory") -> None:
    """Raise ``InputError`` unless vectors of an index fit into the available memory."""
    needed, available = n_vectors * vector_bytes, available_bytes()
    if needed > available:
        raise InputError(
            f"opening {path} takes {format_bytes(needed)} of memory ({n_vectors:,} vectors × {vector_bytes} bytes), of which "
            f"{format_bytes(available)} can be had: {advice}"
        )
