"""Measures one group of engines: builds, starts, batches, single questions, memory, and results."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.engines.build import Build, build
from benchmarks.engines.kinds import NAME, kind_of
from benchmarks.engines.rounds import Batches, Plan, Setting, Singles, batches, by_size, singles
from benchmarks.engines.worker import Opening, Worker
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
class Found:
    """All figures of a group; builds, openings, peaks (bytes) and recall (percent) by engine, sizes by engine and size."""

    builds: Mapping[str, Build]
    openings: Mapping[str, Sequence[Opening]]
    batches: Mapping[Setting, Batches]
    singles: Mapping[Setting, Singles]
    sizes: Mapping[tuple[str, int], Batches]
    peaks: Mapping[str, int]
    recalls: Mapping[str, float]


def measure(engines: Sequence[str], sizes: Sequence[int], task: Task) -> Found:
    """Measure engines side by side."""
    most = max(task.threads)
    for engine in engines:
        kind_of(engine).prepare(task.folder)
    builds = {engine: build(engine, task.folder, most) for engine in engines}
    with ExitStack() as running:
        workers = {
            (engine, threads): running.enter_context(Worker(engine, task.folder, threads, task.questions))
            for threads in task.threads
            for engine in engines
        }
        openings = {engine: [workers[engine, most].opening] for engine in engines}
        plan = replace(task.plan, fewest=task.plan.n_questions) if sizes else task.plan  # FAISS multiplies matrices for large batches only
        all_at_once = batches(workers, task.ks, plan)
        alone = singles(workers, task.ks, task.plan, most)
        widest = {(engine, threads): worker for (engine, threads), worker in workers.items() if threads == most}
        of_sizes = by_size(widest, max(task.ks), [size for size in sizes if size <= task.plan.n_questions], task.plan)
        peaks = {engine: worker.peak_bytes() for (engine, _), worker in widest.items()}
        recalls = {engine: _recall(worker, task) for (engine, _), worker in widest.items()}
    _start_again(openings, task)
    return Found(builds, openings, all_at_once, alone, of_sizes, peaks, recalls)


def table(group: Group, found: Found, task: Task) -> Rows:
    """Return a row for each k and engine."""
    most, fewest = max(task.threads), min(task.threads)
    rows: Rows = []
    for k in task.ks:
        for engine in found.builds:
            asked = Setting(engine, most, k)
            batch, single = found.batches[asked], found.singles[asked]
            rows.append(
                {
                    "k": k,
                    "engine": group.engines[engine],
                    "R@20 %": found.recalls[engine],
                    "questions/s": max(batch.per_second),
                    "(median)": batch.median,
                    f"on {fewest}": max(found.batches[asked._replace(threads=fewest)].per_second),
                    "p50 ms": 1e3 * statistics.median(single.p50),
                    "p95 ms": 1e3 * statistics.median(single.p95),
                    "first answer s": statistics.median(opening.first_answer_s for opening in found.openings[engine]),
                    "peak MB": found.peaks[engine] / 1e6,
                    "index MB": found.builds[engine].index_bytes / 1e6,
                    "build s": round(found.builds[engine].seconds, 2),
                }
            )
    return rows


def size_table(group: Group, found: Found) -> Rows:
    """Return a row for each batch size: questions per second of each engine, the median of the rounds."""
    sizes = sorted({size for _, size in found.sizes})
    engines = list(found.builds)
    return [{"batch": size, **{group.engines[engine]: found.sizes[engine, size].median for engine in engines}} for size in sizes]


def _start_again(openings: Mapping[str, list[Opening]], task: Task) -> None:
    """Start each engine in turn for the missing measurements, and end it when it has answered one question."""
    for _ in range(task.starts - 1):
        for engine, of_engine in openings.items():
            with Worker(engine, task.folder, max(task.threads), task.questions) as worker:
                of_engine.append(worker.opening)


def _recall(worker: Worker, task: Task) -> float:
    hits = worker.hits(len(task.answers), _DEPTH)
    return recall(best_rows(hits), task.answers, open_store(NAME))
