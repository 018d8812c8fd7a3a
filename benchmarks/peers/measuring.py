"""Measures one group of engines: builds, starts, batches, single questions, memory, and results."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.engines.build import Build, build
from benchmarks.engines.kinds import NAME, find_kind
from benchmarks.engines.rounds import Batches, Plan, Setting, Singles, batches, measure_by_size, singles
from benchmarks.engines.worker import StartupTimes, Worker
from benchmarks.peers.groups import Group
from benchmarks.peers.recall import best_rows, recall
from benchmarks.report import Figure
from wikidx.corpora.build import open_store

Rows = list[dict[str, Figure]]

_DEPTH = 100  # depth of the search for R@20


@dataclass(frozen=True, slots=True)
class Task:
    """Inputs of a measurement.

    Attributes:
        folder: folder of the corpus.
        questions: file with the questions, a JSON list.
        answers: answers of each question.
        plan: number of rounds and questions.
        threads: numbers of threads to measure, ascending.
        ks: numbers of passages to ask for.
        starts: number of starts of each engine.
    """

    folder: Path
    questions: Path
    answers: Sequence[Sequence[str]]
    plan: Plan
    threads: Sequence[int]
    ks: Sequence[int]
    starts: int


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """All figures of a group; builds, openings, peaks (bytes) and recall (percent) by engine, sizes by engine and size."""

    builds: Mapping[str, Build]
    openings: Mapping[str, Sequence[StartupTimes]]
    batches: Mapping[Setting, Batches]
    singles: Mapping[Setting, Singles]
    sizes: Mapping[tuple[str, int], Batches]
    peaks: Mapping[str, int]
    recalls: Mapping[str, float]


def measure(engines: Sequence[str], sizes: Sequence[int], task: Task) -> GroupFigures:
    """Measure engines side by side."""
    max_threads = max(task.threads)
    for engine in engines:
        find_kind(engine).prepare(task.folder)
    builds = {engine: build(engine, task.folder, max_threads) for engine in engines}
    with ExitStack() as running:
        workers = {
            (engine, threads): running.enter_context(Worker(engine, task.folder, threads, task.questions))
            for threads in task.threads
            for engine in engines
        }
        openings = {engine: [workers[engine, max_threads].opening] for engine in engines}
        plan = replace(task.plan, min_questions=task.plan.n_questions) if sizes else task.plan  # FAISS: matrices for large batches only
        all_at_once = batches(workers, task.ks, plan)
        alone = singles(workers, task.ks, task.plan, max_threads)
        widest = {(engine, threads): worker for (engine, threads), worker in workers.items() if threads == max_threads}
        by_size = measure_by_size(widest, max(task.ks), [size for size in sizes if size <= task.plan.n_questions], task.plan)
        peaks = {engine: worker.peak_bytes() for (engine, _), worker in widest.items()}
        recalls = {engine: _recall(worker, task) for (engine, _), worker in widest.items()}
    _repeat_starts(openings, task)
    return GroupFigures(builds, openings, all_at_once, alone, by_size, peaks, recalls)


def table(group: Group, figures: GroupFigures, task: Task) -> Rows:
    """Return a row for each k and engine."""
    max_threads, min_threads = max(task.threads), min(task.threads)
    rows: Rows = []
    for k in task.ks:
        for engine in figures.builds:
            setting = Setting(engine, max_threads, k)
            batch, single = figures.batches[setting], figures.singles[setting]
            rows.append(
                {
                    "k": k,
                    "engine": group.engines[engine],
                    "R@20 %": figures.recalls[engine],
                    "questions/s": max(batch.per_second),
                    "(median)": batch.median,
                    f"on {min_threads}": max(figures.batches[setting._replace(threads=min_threads)].per_second),
                    "p50 ms": 1e3 * statistics.median(single.p50),
                    "p95 ms": 1e3 * statistics.median(single.p95),
                    "first answer s": statistics.median(opening.first_answer_s for opening in figures.openings[engine]),
                    "peak MB": figures.peaks[engine] / 1e6,
                    "index MB": figures.builds[engine].index_bytes / 1e6,
                    "build s": round(figures.builds[engine].seconds, 2),
                }
            )
    return rows


def size_table(group: Group, figures: GroupFigures) -> Rows:
    """Return a row for each batch size: questions per second of each engine, the median of the rounds."""
    sizes = sorted({size for _, size in figures.sizes})
    engines = list(figures.builds)
    return [{"batch": size, **{group.engines[engine]: figures.sizes[engine, size].median for engine in engines}} for size in sizes]


def _repeat_starts(openings: Mapping[str, list[StartupTimes]], task: Task) -> None:
    """Start each engine in turn for the missing measurements, and end it when it has answered one question."""
    for _ in range(task.starts - 1):
        for engine, of_engine in openings.items():
            with Worker(engine, task.folder, max(task.threads), task.questions) as worker:
                of_engine.append(worker.opening)


def _recall(worker: Worker, task: Task) -> float:
    hits = worker.hits(len(task.answers), _DEPTH)
    return recall(best_rows(hits), task.answers, open_store(NAME))
