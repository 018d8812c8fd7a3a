"""Labels at the ends of lines."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.peers.charts import spread


@given(st.lists(st.floats(-50, 50), max_size=8), st.floats(0.1, 10))
def test_spread_heights_keep_their_order_and_distance(heights: list[float], least: float) -> None:
    placed = spread(heights, least)
    order = sorted(range(len(heights)), key=lambda at: heights[at])
    assert all(placed[later] - placed[earlier] >= least - 1e-9 for earlier, later in itertools.pairwise(order))
    apart = all(heights[later] - heights[earlier] >= least for earlier, later in itertools.pairwise(order))
    if apart:
        assert placed == pytest.approx(heights)
    assert sum(placed) == pytest.approx(sum(heights), abs=1e-6)


def test_heights_too_near_are_moved_evenly() -> None:
    assert spread([5, 5, 20], 2) == [4, 6, 20]
    assert spread([0, 1, 2.5], 2) == pytest.approx([-5 / 6, 7 / 6, 19 / 6])
    assert spread([], 1) == []
