"""Searches an inverted file that is mapped into memory; a list is compared with its checksums when it is first probed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from corpora.store import Rows
from indexer.base import Scores, Vectors
from indexer.page_checks import CheckedFile

from .faiss_library import load_faiss

_ID_BYTES = 8


class CheckedLists:
    """An inverted file in a mapped file. Several threads may search at once."""

    def __init__(self, index: Any, file: CheckedFile) -> None:  # noqa: ANN401 - FAISS has no types
        """Compare all but the lists; raises ``ArtifactDamaged`` if it is damaged."""
        faiss = load_faiss()
        self._index, self._file = index, file
        self._lists = faiss.downcast_InvertedLists(index.invlists).lists
        self._is_seen = np.zeros(index.nlist, dtype=np.bool_)
        file.check(0, file.n_bytes - index.ntotal * (index.code_size + _ID_BYTES))

    def search(self, queries: Vectors, k: int, settings: Mapping[str, int]) -> tuple[Scores, Rows]:
        """Return the scores and rows that FAISS's own search gives, in its two steps: which lists, and what is in them.

        Args:
            queries: float32, shape (Q, dim).
            k: results a query.
            settings: "nprobe", lists a query.

        Returns:
            Of shape (Q, k); row -1 where there is none.

        Raises:
            ArtifactDamaged: a list is.
        """
        faiss = load_faiss()
        n_lists = settings["nprobe"]
        nearness, lists = self._index.quantizer.search(queries, n_lists)
        self._check(np.unique(lists))
        scores, rows = np.empty((len(queries), k), dtype=np.float32), np.empty((len(queries), k), dtype=np.int64)
        arrays = (np.ascontiguousarray(queries, dtype=np.float32), lists, nearness, scores, rows)
        given, chosen, coarse, found_scores, found_rows = map(faiss.swig_ptr, arrays)
        parameters = faiss.SearchParametersIVF(nprobe=n_lists)
        self._index.search_preassigned_c(len(queries), given, k, chosen, coarse, found_scores, found_rows, False, parameters)
        return scores, rows

    def _check(self, lists: Rows) -> None:
        """Compare lists that have not been."""
        unseen = lists[~self._is_seen[lists]]
        for number in unseen.tolist():
            there = self._lists.at(number)
            self._file.check(there.offset, there.offset + there.size * (self._index.code_size + _ID_BYTES))
        self._is_seen[unseen] = True
