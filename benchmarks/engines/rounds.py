"""Search speed of engines, measured in turns, round by round, so that noise affects all alike."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from benchmarks.engines.worker import Timing, Worker

_FEWEST, _FEWEST_ALONE = 32, 100
_CLOCK_S = 1e-6  # resolution of the processors' clock
PERCENTS = (50, 95, 99)


class Setting(NamedTuple):
    """Parameters of one measurement; ``size`` is the number of questions of a batch, 0: all in one."""

    engine: str
    threads: int
    k: int
    size: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Number of rounds and questions.

    Attributes:
        rounds: number of rounds.
        seconds: target length of a slow engine's turn: it gets only as many of the first questions as it answers in that time.
        n_questions: number of questions; a fast engine answers all.
    """

    rounds: int
    seconds: float
    n_questions: int


@dataclass(frozen=True, slots=True)
class Rounds:
    """Questions per second, and per second of the processors, in each round of n questions, and percentiles of a batch's seconds."""

    n: int
    per_second: list[float] = field(default_factory=list)
    per_processor_second: list[float] = field(default_factory=list)
    percentiles: list[list[float]] = field(default_factory=list)

    def add(self, timings: Sequence[Timing]) -> None:
        """Add a round."""
        seconds, processors = (sum(column) for column in zip(*timings, strict=True))
        self.per_second.append(self.n / seconds)
        self.per_processor_second.append(self.n / max(processors, _CLOCK_S))
        self.percentiles.append(np.percentile([timing.s for timing in timings], PERCENTS).tolist())

    def latencies(self) -> list[float]:
        """Return the medians of the percentiles over the rounds."""
        return [statistics.median(column) for column in zip(*self.percentiles, strict=True)]


Workers = Mapping[tuple[str, int], Worker]  # by engine and threads


def measure(workers: Workers, ks: Sequence[int], sizes: Sequence[int], plan: Plan) -> dict[Setting, Rounds]:
    """Measure every worker at every k and size of batches; engines get the same questions on any number of threads."""
    numbers: dict[tuple[str, int, int], int] = {}
    found: dict[Setting, Rounds] = {}
    for size in sizes:
        for (engine, threads), worker in workers.items():
            for k in ks:
                if (engine, k, size) not in numbers:
                    numbers[engine, k, size] = _fit_count(worker, k, size, plan)
                n = numbers[engine, k, size]
                worker.search(n, k, size)  # warms up
                found[Setting(engine, threads, k, size)] = Rounds(n)
    for _ in range(plan.rounds):
        for setting, rounds in found.items():
            rounds.add(workers[setting.engine, setting.threads].search(rounds.n, setting.k, setting.size))
    return found


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Return the median over the rounds of the ratio of two figures, which cancels the slowness of a whole round."""
    return statistics.median(this / that for this, that in zip(numerators, denominators, strict=True))


def _fit_count(worker: Worker, k: int, size: int, plan: Plan) -> int:
    """Return the number of questions of a turn: whole batches, all questions of a fast engine."""
    few = min(plan.n_questions, max(size, _FEWEST_ALONE if size == 1 else _FEWEST))
    worker.search(few, k, size)  # the first one also sets things up
    per_second = few / sum(timing.s for timing in worker.search(few, k, size))
    n = max(few, min(int(per_second * plan.seconds), plan.n_questions))
    return max(few, n - n % max(1, size))
