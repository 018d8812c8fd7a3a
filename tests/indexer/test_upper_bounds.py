"""Search by bounds over many blocks, against the scores of all rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from wikidx.base.compiled import kernel
from wikidx.base.machine.chunks import CHUNK, clear, lowest_bit, reach
from wikidx.indexer.base import empty_hits
from wikidx.indexer.indexes.bm25.files import Documents
from wikidx.indexer.indexes.bm25.index import _search_queries
from wikidx.indexer.indexes.bm25.scoring import ScoringTables
from wikidx.indexer.indexes.bm25.search import MAX_FILTERED_TERMS, Allowed, SearchTables, WorkingMemory
from wikidx.indexer.indexes.bm25.similarity import denominators, impact, inverse_norms
from wikidx.indexer.indexes.postings import selection
from wikidx.indexer.indexes.postings.cursors import Terms
from wikidx.indexer.indexes.postings.files import BLOCK_ROWS, DTYPES, Postings
from wikidx.indexer.scope import NO_WORDS


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Make an array what those of files are: for other types all kernels would be compiled again, which takes a minute."""
    array.flags.writeable = False
    return array


N_BLOCKS = 17  # blocks 0, 8 and 16 are the sample
N_ROWS = (N_BLOCKS - 1) * BLOCK_ROWS + 12_345
SAMPLED = np.concatenate([np.arange(block * BLOCK_ROWS, block * BLOCK_ROWS + 12_000) for block in (0, 8, 16)])
LENGTH, K = 10, 64
INVERSE = inverse_norms(0.9, 0.4, LENGTH)
DOCUMENTS = Documents(
    read_only(np.full(N_ROWS, LENGTH, np.uint8)),
    *(read_only(np.empty(0, dtype)) for dtype in (np.int64, np.uint16, np.int64)),
)
IMPACTS = np.array([0, *(impact(tf, INVERSE[LENGTH]) for tf in range(1, 64))], np.uint8)

Tfs = NDArray[np.int64]


def postings_of(tfs: Sequence[Tfs], frequent: NDArray[np.uint8]) -> Postings:
    """An index of a term for each array of the tf of every row, and of a frequent one with these tf, all rows ten terms long."""
    arrays: dict[str, list[NDArray[Any]]] = {name: [np.empty(0, np.int64)] for name in DTYPES}
    arrays["posting_starts"], arrays["segment_starts"] = [np.array([0])], [np.array([0])]
    for tf_of_row in tfs:
        rows = np.flatnonzero(tf_of_row)
        blocks, sizes = np.unique(rows // BLOCK_ROWS, return_counts=True)
        arrays["rows"].append(rows % BLOCK_ROWS)
        arrays["impacts"].append(IMPACTS[tf_of_row[rows]])
        arrays["segment_blocks"].append(blocks)
        arrays["segment_sizes"].append(sizes - 1)
        arrays["posting_starts"].append(arrays["posting_starts"][-1] + len(rows))
        arrays["segment_starts"].append(arrays["segment_starts"][-1] + len(blocks))
    found = {name: np.concatenate(parts).astype(DTYPES[name]) for name, parts in arrays.items()} | {"frequent_impacts": IMPACTS[frequent]}
    return Postings(**{name: read_only(array) for name, array in found.items()}, n_rows=N_ROWS)


def best(postings: Postings, terms: Terms, k: int, max_filtered_terms: int) -> tuple[list[int], list[float]]:
    tables = SearchTables(ScoringTables(postings, DOCUMENTS, denominators(INVERSE)), max_filtered_terms)
    memory = WorkingMemory(np.zeros(BLOCK_ROWS, np.uint16), np.full(BLOCK_ROWS, -1, np.int32))
    hits = empty_hits(1, k)
    _search_queries(tables, terms, np.array([0, len(terms.numbers)]), Allowed(NO_WORDS, np.empty(0, np.int64)), memory, hits)
    assert not memory.upper_bounds.any()
    return hits.rows[0].tolist(), hits.scores[0].tolist()


def random_tfs(rng: np.random.Generator, n: int) -> Tfs:
    tfs, rows = np.zeros(N_ROWS, np.int64), rng.choice(N_ROWS, n, replace=False)
    tfs[rows] = rng.geometric(0.7, n)
    return tfs


def frequent_tfs(rng: np.random.Generator) -> NDArray[np.uint8]:
    return rng.choice(4, N_ROWS, p=[0.7, 0.2, 0.08, 0.02]).astype(np.uint8)


def best_in_sample(n: int) -> tuple[Postings, Terms]:
    """Three terms, one of them twice, and a frequent one; so many of the best rows are in the sample."""
    rng = np.random.default_rng(n)
    tfs = [random_tfs(rng, n_rows) for n_rows in (500, 4000, 90_000)]
    for row in rng.choice(SAMPLED, n, replace=False).tolist():
        for tf_of_row in tfs:
            tf_of_row[row] = int(rng.integers(9, 14))
    terms = Terms(np.array([0, 1, 2, 2]), np.array([-1, -1, -1, 0]), np.array([7, 5, 2, 1], np.float32))
    return postings_of(tfs, frequent_tfs(rng)), terms


@functools.cache
def random_index(seed: int) -> tuple[Postings, Terms]:
    """One frequent and two to six other terms, of which rarer ones have higher weights, as in real queries."""
    rng = np.random.default_rng(seed)
    sizes = np.sort(np.exp(rng.uniform(np.log(20), np.log(120_000), rng.integers(2, 7))).astype(int))
    tfs = [random_tfs(rng, n) for n in sizes.tolist()]
    weights = np.log(N_ROWS / sizes) + rng.uniform(-0.3, 0.3, len(sizes))
    terms = Terms(
        np.arange(len(sizes) + 1), np.array([-1] * len(sizes) + [0]), np.array([*weights, rng.uniform(0.2, 2)]).astype(np.float32)
    )
    terms.numbers[-1] = 0  # a frequent term has no postings of its own
    return postings_of(tfs, frequent_tfs(rng)), terms


def absent_and_back() -> tuple[Postings, Terms]:
    """Three terms. The first is in one block only, after the trial that puts it among those to look up, and makes the best rows there."""
    rng = np.random.default_rng(0)
    rare, common, best_elsewhere = np.zeros((3, N_ROWS), np.int64)
    for block in range(N_BLOCKS - 1):
        rows = rng.permutation(BLOCK_ROWS) + block * BLOCK_ROWS
        best_elsewhere[rows[:40]] = 1 if block == 8 else 2
        common[rows[100:60_100]] = 1
        if block == 11:
            rare[rows[100:105]] = common[rows[100:105]] = 60
    terms = Terms(np.array([0, 1, 2]), np.array([-1, -1, -1]), np.array([1.3, 1.4, 3.0], np.float32))
    return postings_of([rare, common, best_elsewhere], np.zeros(N_ROWS, np.uint8)), terms


MADE: dict[str, Callable[[], tuple[Postings, Terms]]] = {
    **{f"{n} of the best in the sample": functools.partial(best_in_sample, n) for n in (0, 40, 300)},  # 40: the guess is above the k-th
    **{f"random {seed}": functools.partial(random_index, seed) for seed in (0, 1, 2, 4, 6, 9)},
    "a term to look up that blocks lack": absent_and_back,
}


@pytest.mark.parametrize("make", MADE.values(), ids=list(MADE))
def test_the_best_of_many_blocks_are_the_best_of_all(make: Callable[[], tuple[Postings, Terms]]) -> None:
    postings, terms = make()
    rows, scores = best(postings, terms, 1000, 0)
    for k in (1, K, 1000):
        assert best(postings, terms, k, MAX_FILTERED_TERMS) == (rows[:k], scores[:k])


@pytest.mark.parametrize(("seed", "k", "most", "last"), [(1, 10, 2, 2), (6, 100, 1, 0)])
def test_common_terms_are_looked_up_for_a_time(seed: int, k: int, most: int, last: int, monkeypatch: pytest.MonkeyPatch) -> None:
    postings, terms = random_index(seed)
    n_looked_up, look_up_terms = [], selection._look_up_terms

    def counted(query: object, maxima: object, lookups: selection.Lookups, *rest: object) -> object:
        n_looked_up.append(lookups.n_terms)
        return look_up_terms(query, maxima, lookups, *rest)

    monkeypatch.setattr(selection, "_look_up_terms", counted)
    candidates, _ = selection._scan.py_func(postings, terms, k, 1, 1, NO_WORDS, np.zeros(BLOCK_ROWS, np.uint16))
    assert (n_looked_up[0], max(n_looked_up), n_looked_up[-1]) == (0, most, last)
    assert set(best(postings, terms, k, 0)[0]) <= set(candidates.rows.tolist())
    assert len(candidates.rows) < k + k // 4 + 16


@pytest.mark.parametrize("seed", [1, 6])
def test_python_finds_what_machine_code_finds(seed: int) -> None:
    index, bounds = random_index(seed), np.zeros(BLOCK_ROWS, np.uint16)
    with np.errstate(over="ignore"):
        rows = selection.select_candidates.interpreted(*index, 10, NO_WORDS, bounds)
    assert not bounds.any()
    assert rows.tolist() == selection.select_candidates(*index, 10, NO_WORDS, bounds).tolist()


@kernel
def compiled_reach(values: NDArray[np.uint16], start: int, limit: np.uint16) -> np.uint64:
    return reach(values, start, limit)


@kernel
def compiled_clear(values: NDArray[np.uint16], start: int) -> None:
    clear(values, start)


@kernel
def compiled_lowest_bit(bits: np.uint64) -> np.int64:
    return lowest_bit(bits)


@given(
    st.lists(st.sampled_from([0, 1, 2, 32_767, 32_768, 65_535]), min_size=CHUNK, max_size=CHUNK), st.integers(0, 5), st.integers(0, 65_535)
)
def test_comparisons_of_chunks_are_of_their_values(numbers: list[int], start: int, limit: int) -> None:
    values = np.array([7] * start + numbers + [7] * 3, np.uint16)
    bits = sum(1 << i for i, number in enumerate(numbers) if number >= limit)
    for reached in (np.uint64(function(values, start, np.uint16(limit))) for function in (compiled_reach, reach)):
        assert int(reached) == bits
        if bits:
            assert lowest_bit(reached) == compiled_lowest_bit(reached) == f"{bits:b}"[::-1].index("1")
    for function in (clear, compiled_clear):
        cleared = values.copy()
        function(cleared, start)
        assert cleared.tolist() == [7] * start + [0] * CHUNK + [7] * 3
