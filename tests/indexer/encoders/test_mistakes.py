"""Each usual mistake costs on our code what ``mistakes.json`` lists, and our vectors differ from the mistaken ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.indexer.encoders.golden import Golden, angles, differences, encoded, is_equal
from tests.indexer.encoders.mistakes import MISTAKES, made

pytestmark = pytest.mark.slow  # three quarters of a minute

_ROUNDED = 0.06  # the listed figures have two digits
_ROUNDING = 1e-6  # of float32, where a figure is but that


def _listed_costs() -> list[object]:
    slow = {"minilm": [pytest.mark.slow]}  # the only network here that is not tiny
    return [pytest.param(name, what, marks=slow.get(name, [])) for name, mistakes in MISTAKES.items() for what in mistakes]


@pytest.mark.parametrize("name", MISTAKES)
def test_every_listed_mistake_is_made(name: str, shared_data: Path) -> None:
    listed = Golden(shared_data / "golden_encoders" / name).mistakes()
    assert MISTAKES[name].keys() == {what for what in listed if not what.startswith("OK")}


@pytest.mark.parametrize(("name", "what"), _listed_costs())
def test_a_mistake_costs_what_is_listed(name: str, what: str, shared_data: Path) -> None:
    golden, mistake = Golden(shared_data / "golden_encoders" / name), MISTAKES[name][what]
    listed = golden.mistakes()[what]
    expected = golden.vectors(f"{mistake.side}_vectors")
    assert is_equal(encoded(golden, mistake.side), expected).all()
    got = made(golden, mistake)
    wrong = ~is_equal(got, expected)
    worst, largest = angles(got, expected).max(), differences(got, expected).max()
    if not listed["affected"]:  # listed because it makes no difference
        assert not wrong.any()
        return
    assert wrong.any()
    if mistake.is_rounding:
        assert listed["max_abs"] / 3 <= largest <= listed["max_abs"] * 3
        return
    if mistake.is_listed_for_other_rows:
        return
    # The list is over these rows and others: of its figures the extremes hold for these too.
    assert wrong.sum() <= listed["affected"]
    assert worst <= listed["one_minus_cos_max"] * (1 + _ROUNDED) + _ROUNDING
    assert largest <= listed["max_abs"] * (1 + _ROUNDED) + _ROUNDING
    assert angles(got, expected)[wrong].min() >= listed["one_minus_cos_min_affected"] * (1 - _ROUNDED) - _ROUNDING
    assert differences(got, expected)[wrong].min() >= listed["max_abs_min_affected"] * (1 - _ROUNDED) - _ROUNDING
