"""Plots as data, without matplotlib: what ``plots`` draws when a page is written."""

from __future__ import annotations

from typing import Any, NamedTuple

from wikidx.runtimes.evaluation.uncertainty import Interval


class Drawing(NamedTuple):
    """A plot: its alternative text, the function of ``plots`` that draws it, and the function's arguments."""

    alt: str
    function: str
    arguments: tuple[Any, ...]


class Mark(NamedTuple):
    """A paper's figure, drawn as a mark on the bar of a run.

    Attributes:
        name: the run.
        paper: the paper, for the legend.
        value: the figure, from 0 to 1.
    """

    name: str
    paper: str
    value: float


class Point(NamedTuple):
    """A run in a plot of cost against accuracy."""

    cost: Interval
    accuracy: Interval
