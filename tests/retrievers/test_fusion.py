from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.base import Hits
from retrievers import kernels
from retrievers.fusion import combine, cut

Pairs = list[tuple[int, float]]


def hits(*lines: Pairs) -> Hits:
    """Return ranked lists as arrays, empty places filled."""
    depth = max(map(len, lines), default=0)
    rows = np.array([[row for row, _ in line] + [-1] * (depth - len(line)) for line in lines], dtype=np.int64)
    scores = np.array([[score for _, score in line] + [-np.inf] * (depth - len(line)) for line in lines], dtype=np.float32)
    return Hits(rows.reshape(len(lines), depth), scores.reshape(len(lines), depth))


def pairs(found: Hits, line: int = 0) -> Pairs:
    return [(row, score) for row, score in zip(found.rows[line].tolist(), found.scores[line].tolist(), strict=True) if row >= 0]


def slow_combine(lists: list[Pairs], rule: str) -> Pairs:
    """The definition over a dictionary."""
    values: dict[int, float] = {}
    for line in lists:
        for rank, (row, score) in enumerate(line, 1):
            value = float(np.float32(score)) if rule == "max" else 1 / (60 + rank)
            values[row] = max(values.get(row, -np.inf), value) if rule == "max" else values.get(row, 0.0) + value
    return sorted(((row, float(np.float32(value))) for row, value in values.items()), key=lambda pair: (-pair[1], pair[0]))


def test_max_keeps_the_best_score() -> None:
    lists = hits([(7, 3.0), (2, 1.0)], [(2, 2.5), (9, 2.5), (7, 0.5)])
    assert pairs(combine(lists, [[0, 1]], "max")) == [(7, 3.0), (2, 2.5), (9, 2.5)]


def test_rrf_adds_reciprocal_ranks() -> None:
    lists = hits([(7, 3.0), (2, 1.0)], [(2, 2.5), (9, 2.5)])
    expected = [(2, 1 / 62 + 1 / 61), (7, 1 / 61), (9, 1 / 62)]
    assert pairs(combine(lists, [[0, 1]], "rrf")) == [(row, float(np.float32(score))) for row, score in expected]


def test_targets_choose_their_lists() -> None:
    lists = hits([(1, 1.0)], [(2, 2.0)], [(3, 3.0)])
    found = combine(lists, [[2], [], [0, 1], [1, 1]], "max")
    assert [pairs(found, line) for line in range(4)] == [[(3, 3.0)], [], [(2, 2.0), (1, 1.0)], [(2, 2.0)]]


ranked = st.lists(st.tuples(st.integers(0, 8), st.integers(-2, 2).map(float)), max_size=9, unique_by=lambda pair: pair[0]).map(
    lambda line: sorted(line, key=lambda pair: (-pair[1], pair[0]))
)


@given(st.lists(ranked, min_size=1, max_size=5), st.sampled_from(["max", "rrf"]))
def test_combining_is_the_definition(lists: list[Pairs], rule: str) -> None:
    assert pairs(combine(hits(*lists), [range(len(lists))], rule)) == slow_combine(lists, rule)


@pytest.mark.parametrize("rule", [kernels.MAX, kernels.RRF])
def test_the_kernel_equals_its_python_twin(rule: int) -> None:
    rng = np.random.default_rng(0)
    rows = np.array([rng.permutation(40)[:20] for _ in range(12)], dtype=np.int64)
    scores = -np.sort(-rng.integers(0, 9, size=rows.shape).astype(np.float32), axis=1)
    members, starts = np.arange(12), np.array([0, 3, 3, 10, 12])
    compiled = kernels.combine(rows, scores, members, starts, rule)
    python = kernels.combine.py_func(rows, scores, members, starts, rule)
    assert [array.tobytes() for array in compiled] == [array.tobytes() for array in python]


def test_a_groups_result_does_not_depend_on_its_neighbours() -> None:
    rng = np.random.default_rng(1)
    lists = hits(
        *([(int(row), float(score)) for score, row in zip(range(30, 0, -1), rng.permutation(99)[:30], strict=True)] for _ in range(9))
    )
    together = combine(lists, [[0, 1, 2], [3, 4, 5], [6, 7, 8]], "rrf")
    for line, group in enumerate([[0, 1, 2], [3, 4, 5], [6, 7, 8]]):
        assert pairs(combine(lists, [group], "rrf")) == pairs(together, line)


def test_lists_that_are_not_there_and_unknown_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="lists 0 to 3 are asked for, there are 2"):
        combine(hits([(1, 1.0)], [(2, 1.0)]), [[0, 3]], "max")
    with pytest.raises(ValueError, match="unknown rule 'sum': known are max, rrf"):
        combine(hits([(1, 1.0)]), [[0]], "sum")


def test_cutting_keeps_the_first_places() -> None:
    assert pairs(cut(hits([(4, 3.0), (2, 2.0), (9, 1.0)]), 2)) == [(4, 3.0), (2, 2.0)]


def test_cutting_by_text_keeps_the_first_of_equal_texts() -> None:
    text_key = np.array([5, 6, 5, 7, 6], dtype=np.uint64)
    found = cut(hits([(4, 5.0), (1, 4.0), (2, 3.0), (0, 2.0), (3, 1.0)], [(3, 1.0)]), 3, text_key)
    assert [pairs(found, line) for line in (0, 1)] == [[(4, 5.0), (2, 3.0), (3, 1.0)], [(3, 1.0)]]
