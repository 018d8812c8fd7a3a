"""Fixtures of the contracts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Train with one thread: on a busy machine OpenMP's threads wait for each other most of the time."""
    import faiss

    n_threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    yield
    faiss.omp_set_num_threads(n_threads)
