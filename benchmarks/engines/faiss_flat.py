"""FAISS's ``IndexFlatIP``, with its defaults and with its best settings, searched with ready query vectors.

By default FAISS searches query by query unless a batch is very large. With its best settings it multiplies matrices
(``distance_compute_blas_threshold`` 1) wherever that is faster, with the fastest sizes of vector blocks and query batches for
the number of queries and results; all combinations are tried when a batch size is first used, which is not timed.
"""

from __future__ import annotations

import importlib
import itertools
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.engines.embedded import passage_vectors, question_vectors, require
from benchmarks.engines.kinds import Kind
from wikidx.indexer.base import Hits, Vectors

_FOLDER, _FILE = "faiss", "index.faiss"
_BLOCKS = (1_024, 4_096, 16_384)  # vectors per block; 1,024 is the default
_PIECES = (512, 1_024)  # queries per batch; fewer were never faster (``benchmarks.vectors``)
_TRIES = 2

RawHits = tuple[Any, Any]  # scores and rows, both of shape (Q, k)


class Setting(NamedTuple):
    """Settings of FAISS's matrix products: vectors per block (None: FAISS's default) and queries per call."""

    block: int | None
    piece: int


class FaissEngine:
    """An open index; ``is_tuned`` selects the best settings."""

    def __init__(self, is_tuned: bool, folder: Path, threads: int) -> None:
        self._faiss = _package()
        self._faiss.omp_set_num_threads(threads)
        self._index = self._faiss.read_index(str(folder / _FOLDER / _FILE))
        self._vectors = question_vectors(folder)
        self._is_tuned = is_tuned
        self._best: dict[tuple[int, int], Setting] = {}
        cvar = self._faiss.cvar
        self._default = cvar.distance_compute_blas_threshold, cvar.distance_compute_blas_database_bs

    def set_questions(self, _questions: Sequence[str]) -> None:
        """Do nothing: their vectors are already there."""

    def batch(self, span: slice, k: int) -> list[RawHits]:
        """Search for some vectors."""
        vectors = self._vectors[span]
        if not self._is_tuned:
            return self._search(vectors, k, Setting(None, len(vectors)))
        setting = len(vectors), k
        if setting not in self._best:
            self._best[setting] = self._fastest(vectors, k)
        return self._search(vectors, k, self._best[setting])

    def single(self, number: int, k: int) -> list[RawHits]:
        """Search for one vector."""
        return self.batch(slice(number, number + 1), k)

    def hits(self, n: int, k: int) -> Hits:
        """Return the results of ``batch``."""
        scores, rows = (np.concatenate(parts) for parts in zip(*self.batch(slice(n), k), strict=True))
        return Hits(rows, scores)

    def _search(self, vectors: Vectors, k: int, setting: Setting) -> list[RawHits]:
        threshold, block = self._default if setting.block is None else (1, setting.block)
        self._faiss.cvar.distance_compute_blas_threshold, self._faiss.cvar.distance_compute_blas_database_bs = threshold, block
        return [self._index.search(vectors[first : first + setting.piece], k) for first in range(0, len(vectors), setting.piece)]

    def _fastest(self, vectors: Vectors, k: int) -> Setting:
        pieces = [*(piece for piece in _PIECES if piece < len(vectors)), len(vectors)]
        seconds: dict[Setting, float] = {}
        for setting in itertools.starmap(Setting, itertools.product((None, *_BLOCKS), pieces)):
            for _ in range(_TRIES):
                started = time.perf_counter()
                self._search(vectors, k, setting)
                seconds[setting] = min(seconds.get(setting, np.inf), time.perf_counter() - started)
        return min(seconds, key=lambda setting: seconds[setting])


def _build(folder: Path, threads: int) -> Path:
    faiss = _package()
    faiss.omp_set_num_threads(threads)
    vectors = passage_vectors(folder)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    (folder / _FOLDER).mkdir(exist_ok=True)
    faiss.write_index(index, str(folder / _FOLDER / _FILE))
    return folder / _FOLDER


def read_flat(folder: Path) -> Any:  # noqa: ANN401 - FAISS has no types
    """Return the built index in a corpus's folder."""
    return _package().read_index(str(folder / _FOLDER / _FILE))


def _package() -> Any:  # noqa: ANN401 - FAISS has no types
    return importlib.import_module("faiss")


_check = partial(require, "faiss", "dense")

FAISS = Kind(build=_build, open=partial(FaissEngine, False), load=_package, check=_check)
FAISS_BEST = Kind(build=_build, open=partial(FaissEngine, True), load=_package, check=_check)
