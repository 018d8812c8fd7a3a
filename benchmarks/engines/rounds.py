"""Search speed of engines, measured in turns, round by round, so that noise affects all alike."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from benchmarks.engines.worker import Timing, Worker

_FEWEST_ALONE = 100
_CLOCK_S = 1e-6  # resolution of the processors' clock


class Setting(NamedTuple):
    """Parameters of one measurement."""

    engine: str
    threads: int
    k: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Number of rounds and questions.

    Attributes:
        rounds: number of rounds.
        seconds: target length of a slow engine's turn: it gets only as many of the first questions as it answers in that time.
        n_questions: number of questions; a fast engine answers all.
        min_questions: the smallest batch for the slowest engine; all questions for engines that treat large batches differently.
    """

    rounds: int
    seconds: float
    n_questions: int
    min_questions: int = 32


@dataclass(frozen=True, slots=True)
class Batches:
    """Questions per second, and per second of the processors, in each round, in batches of n questions."""

    n: int
    per_second: list[float] = field(default_factory=list)
    per_processor_second: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median over the rounds."""
        return statistics.median(self.per_second)

    def add(self, timing: Timing) -> None:
        """Add a round."""
        self.per_second.append(self.n / timing.s)
        self.per_processor_second.append(self.n / max(timing.processor_s, _CLOCK_S))


@dataclass(frozen=True, slots=True)
class Singles:
    """Seconds for one of n questions alone, percentiles of each round, and questions per second of the processors."""

    n: int
    p50: list[float] = field(default_factory=list)
    p95: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    per_processor_second: list[float] = field(default_factory=list)

    def add(self, timings: Sequence[Timing]) -> None:
        """Add a round."""
        seconds = [timing.s for timing in timings]
        for percentile, kept in ((50, self.p50), (95, self.p95), (99, self.p99)):
            kept.append(float(np.percentile(seconds, percentile)))
        self.per_processor_second.append(len(timings) / max(sum(timing.processor_s for timing in timings), _CLOCK_S))


Workers = Mapping[tuple[str, int], Worker]  # by engine and threads


def batches(workers: Workers, ks: Sequence[int], plan: Plan) -> dict[Setting, Batches]:
    """Measure batches with each worker."""
    found: dict[Setting, Batches] = {}
    n_of: dict[tuple[str, int], int] = {}  # shared by all numbers of threads
    for (engine, threads), worker in workers.items():
        for k in ks:
            if (engine, k) not in n_of:
                n_of[engine, k] = _batch_size(worker, k, plan)
            found[Setting(engine, threads, k)] = Batches(n_of[engine, k])
            worker.batch(n_of[engine, k], k)  # warms up
    for _ in range(plan.rounds):
        for k in ks:
            for (engine, threads), worker in workers.items():
                batch = found[Setting(engine, threads, k)]
                batch.add(worker.batch(batch.n, k))
    return found


def measure_by_size(workers: Workers, k: int, sizes: Sequence[int], plan: Plan) -> dict[tuple[str, int], Batches]:
    """Measure batches of several sizes with each worker, all with the same number of threads; by engine and size."""
    found: dict[tuple[str, int], Batches] = {}
    for (engine, _), worker in workers.items():
        for size in sizes:
            worker.batch(size, k)  # also sets things up
            n = _fit_count(size / worker.batch(size, k).s, size, plan)
            found[engine, size] = Batches(max(size, n - n % size))
    for _ in range(plan.rounds):
        for size in sizes:
            for (engine, _), worker in workers.items():
                batch = found[engine, size]
                batch.add(worker.batch(batch.n, k, size))
    return found


def singles(workers: Workers, ks: Sequence[int], plan: Plan, threads: int) -> dict[Setting, Singles]:
    """Measure single questions, with the workers of this many threads."""
    selected = {Setting(engine, n, k): worker for k in ks for (engine, n), worker in workers.items() if n == threads}
    timings = {setting: Singles(_single_count(worker, setting.k, plan)) for setting, worker in selected.items()}
    for _ in range(plan.rounds):
        for setting, worker in selected.items():
            timings[setting].add(worker.singles(timings[setting].n, setting.k))
    return timings


def _batch_size(worker: Worker, k: int, plan: Plan) -> int:
    few = min(plan.min_questions, plan.n_questions)
    worker.batch(few, k)  # the first one also sets things up
    return _fit_count(few / worker.batch(few, k).s, few, plan)


def _single_count(worker: Worker, k: int, plan: Plan) -> int:
    few = min(_FEWEST_ALONE, plan.n_questions)
    worker.singles(few, k)
    return _fit_count(few / sum(timing.s for timing in worker.singles(few, k)), few, plan)


def _fit_count(per_second: float, min_questions: int, plan: Plan) -> int:
    return max(min_questions, min(int(per_second * plan.seconds), plan.n_questions))
