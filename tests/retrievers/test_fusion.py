from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.retrievers.plain import Pairs, hits, pairs, plain_cut, plain_merge, plain_scaled
from wikidx.base.errors import IdxError
from wikidx.indexer.base import Hits
from wikidx.retrievers import fusion, kernels
from wikidx.retrievers.fusion import Fusion, concatenate, fuse, make_targets, merge, select, to_lists
from wikidx.retrievers.kernels import Lists

RULES = ["max", "sum", "rrf", "interleave"]
N_ROWS = 9


def ranked(scores: st.SearchStrategy[float], max_size: int = N_ROWS) -> st.SearchStrategy[Pairs]:
    """Return a strategy for one ranked list: distinct rows, best first, ties by ascending row."""
    lines = st.lists(st.tuples(st.integers(0, N_ROWS - 1), scores), max_size=max_size, unique_by=lambda pair: pair[0])
    return lines.map(lambda line: sorted(line, key=lambda pair: (-pair[1], pair[0])))


few_scores = st.integers(-2, 2).map(float)  # many ties
floats = st.floats(-1e6, 1e6, width=32)
line_lists = st.lists(ranked(st.one_of(few_scores, floats)), min_size=1, max_size=5)


def lists_of(*lines: Pairs) -> Lists:
    return to_lists(hits(*lines))


def random_hits(rng: np.random.Generator, n_lists: int, depth: int, n_rows: int) -> Hits:
    rows = np.array([rng.permutation(n_rows)[:depth] for _ in range(n_lists)], dtype=np.int64)
    scores = -np.sort(-rng.integers(0, 9, size=rows.shape).astype(np.float32), axis=1)
    order = np.lexsort((rows, -scores), axis=1)
    return Hits(np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1))


def rounded(line: Pairs) -> Pairs:
    return [(row, float(np.float32(score))) for row, score in line]


@given(line_lists, st.sampled_from(["max", "sum"]), st.integers(1, N_ROWS), st.data())
def test_a_list_alone_is_already_merged(lines: list[Pairs], rule: str, k: int, data: st.DataObject) -> None:
    lists = lists_of(*lines)
    members = data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=1))  # a list may be chosen twice
    merged = merge(lists, make_targets([[member] for member in members]), rule, k=k)
    assert [column.tobytes() for column in select(lists, np.array(members), k)] == [column.tobytes() for column in merged]


@given(
    line_lists, st.sampled_from(RULES), st.none() | st.integers(1, 10), st.none() | st.lists(st.integers(0, 4), min_size=N_ROWS), st.data()
)
def test_merging_is_the_definition(lines: list[Pairs], rule: str, k: int | None, text_key: list[int] | None, data: st.DataObject) -> None:
    groups = [[*range(len(lines))], *data.draw(st.lists(st.lists(st.integers(0, len(lines) - 1)), max_size=3))]
    keys = None if text_key is None else np.array(text_key, dtype=np.uint64)
    found = merge(lists_of(*lines), make_targets(groups), rule, k=k, text_key=keys)
    assert pairs(found) == [plain_cut(plain_merge([lines[member] for member in group], rule), k, text_key) for group in groups]


@given(line_lists, st.data())
def test_fusing_is_the_definition(lines: list[Pairs], data: st.DataObject) -> None:
    """Each line is one retriever's list. Weighted sums are compared with room for the rounding: they are added in another way."""
    factors = data.draw(st.lists(st.floats(-4, 4, width=32), min_size=len(lines), max_size=len(lines)))
    lists = lists_of(*lines)
    for rule in RULES:
        assert pairs(fuse(lists, Fusion(rule, tuple(factors)))) == [plain_merge(lines, rule, factors)]
    for rule in ("weighted", "normalized", "minmax", "zscore"):
        fusion = Fusion("weighted", tuple(factors), normalize=True) if rule == "normalized" else Fusion(rule, tuple(factors))
        (found,) = pairs(fuse(lists, fusion))
        room = 1e-6 * max([1.0, *(abs(score) for line in lines for _, score in line)]) if rule == "weighted" else 1e-5
        assert dict(found) == pytest.approx(dict(plain_scaled(lines, factors, rule)), rel=1e-6, abs=room)
        assert found == sorted(found, key=lambda pair: (-pair[1], pair[0]))


@pytest.mark.parametrize("rule", [kernels.MAX, kernels.SUM, kernels.RRF, kernels.INTERLEAVE])
@pytest.mark.parametrize("by_text", [False, True])
def test_the_kernel_equals_its_python_twin(rule: int, by_text: bool) -> None:
    rng = np.random.default_rng(0)
    lists = to_lists(random_hits(rng, 12, 20, 40))
    targets = make_targets([[0, 1, 2], [], [3, 4, 5, 6, 7, 8, 9], [10, 11]])._replace(factors=rng.random(12), offsets=rng.random(12))
    text_key = rng.integers(0, 15, 40 if by_text else 0).astype(np.uint64)
    results = []
    for function in (kernels.combine, kernels.combine.interpreted):
        sizes = np.array([60, 0, 30, 40])
        out = Lists(np.zeros(130, np.int64), np.zeros(130, np.float32), np.cumsum(sizes) - sizes, np.cumsum(sizes))
        with np.errstate(over="ignore"):  # of the hash
            function(lists, targets, 7 * 20, rule, 60.0, text_key, out)
        results.append([array.tobytes() for array in out])
    assert results[0] == results[1]


def test_ranking_of_extreme_scores() -> None:
    """The order is that of numbers, also where a score is 0 with a sign, tiny, huge or infinite after adding up."""
    scores = [3.4e38, 1.0, 1e-45, 0.0, -1e-45, -1.0, -3.4e38]
    lists = lists_of([*enumerate(scores)])
    (found,) = pairs(merge(lists, make_targets([[0]]), "max"))
    assert found == rounded([*enumerate(scores)])
    zeros = lists_of([(4, 0.0), (2, -0.0)])
    assert pairs(merge(zeros, make_targets([[0]]), "max")) == [[(2, 0.0), (4, 0.0)]]
    (found,) = pairs(merge(lists, make_targets([[0, 0]]), "sum"))
    assert [score for _, score in found][::6] == [np.inf, -np.inf]


def test_high_rows_keep_their_numbers() -> None:
    lists = lists_of([(2**32 - 1, 1.0), (0, 0.5)], [(2**31, 1.0)])
    assert pairs(merge(lists, make_targets([[0, 1]]), "max")) == [[(2**31, 1.0), (2**32 - 1, 1.0), (0, 0.5)]]


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("rule", RULES)
def test_a_groups_result_depends_on_nothing_else(rule: str, n_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "_ENTRIES_PER_TASK", 50)
    monkeypatch.setattr(fusion, "n_threads", lambda: n_threads)
    lists = to_lists(random_hits(np.random.default_rng(1), 40, 30, 99))
    groups = [[3, 1, 2], [], [4], [5, 6, 7, 8, 9], *([n, n + 1] for n in range(10, 38)), [], [*range(40)] * 9]  # the last: most of all
    together = pairs(merge(lists, make_targets(groups), rule, k=20))
    assert together == [pairs(merge(lists, make_targets([group]), rule, k=20))[0] for group in groups]


@given(line_lists, st.integers(1, 5))
def test_origins_are_the_ranks_in_the_lists(lines: list[Pairs], k: int) -> None:
    lists, groups = lists_of(*lines), [[*range(len(lines))], [0], []]
    targets = make_targets(groups)
    best = merge(lists, targets, "max", k=k)
    found = zip(*(column.tolist() for column in kernels.find_origins(lists, targets.members, targets.starts, best)), strict=True)
    rows = ((group, row) for group, line in zip(groups, pairs(best), strict=True) for row, _ in line)
    expected = [
        (number, m, rank, score)
        for number, (group, row) in enumerate(rows)
        for m in group
        for rank, (other, score) in enumerate(lines[m], 1)
        if other == row
    ]
    assert sorted(found, key=lambda place: place[0]) == expected


def test_searches_are_taken_as_far_as_they_are_filled() -> None:
    lists = concatenate([lists_of([(1, 1.0), (2, 0.5)], []), lists_of([(3, 9.0)], [(4, 8.0), (5, 7.0)])])
    assert pairs(lists) == [[(1, 1.0), (2, 0.5)], [], [(3, 9.0)], [(4, 8.0), (5, 7.0)]]
    nowhere = Hits(np.array([[7, 8]]), np.array([[1, -np.inf]], dtype=np.float32))
    assert pairs(to_lists(nowhere)) == [[(7, 1.0)]]


@pytest.mark.parametrize("score", [np.nan, np.inf])
def test_scores_that_are_no_numbers_are_refused(score: float) -> None:
    with pytest.raises(IdxError, match="a search gave query 1 a score that is not a finite number"):
        lists_of([(1, 1.0)], [(1, score)])


def test_rows_that_no_store_can_have_are_refused() -> None:
    with pytest.raises(IdxError, match="a search gave row 4294967296, there are 4294967296: its index belongs to other passages"):
        lists_of([(2**32, 1.0)])
    with pytest.raises(IdxError, match="a search gave row 5, there are 5"):
        to_lists(hits([(5, 1.0)]), 5)
