"""Engines side by side on one corpus: their builds, starts, searches and results, and the rows of the tables."""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engines.corpus import Questions
from benchmarks.engines.kinds import find_kind
from benchmarks.engines.quality import Agreement, agreements, recalls
from benchmarks.engines.rounds import PERCENTS, Plan, Rounds, Setting, measure, ratio
from benchmarks.engines.worker import Build, StartupTimes, Worker, build
from benchmarks.processes import use_data_home
from benchmarks.report import Figure
from wikidx.base.errors import InputError

Row = dict[str, Figure]


@dataclass(frozen=True, slots=True)
class Results:
    """All figures of engines on one corpus, by engine; the last three are empty if nothing is searched."""

    builds: Mapping[str, Build]
    openings: Mapping[str, Sequence[StartupTimes]]
    searches: Mapping[Setting, Rounds]
    agreements: Mapping[tuple[str, int], Agreement]
    peaks: Mapping[str, int]
    recalls: Mapping[str, float]


def add_options(parser: argparse.ArgumentParser, engines: Sequence[str], default: Sequence[str]) -> None:
    """Add the options of a measurement of engines."""
    parser.add_argument("--engines", nargs="+", choices=engines, default=default)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], help="numbers of threads; builds use the largest")
    parser.add_argument("--k", nargs="+", type=int, default=[10, 100])
    parser.add_argument(
        "--batch", nargs="*", type=int, default=[0, 1], help="questions of a batch; 0: all in one; none: only build and open"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--starts", type=int, default=1, help="number of starts of each engine")
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of one turn of a slow engine")
    parser.add_argument("--sample", type=int, default=200, help="number of questions whose results are compared")
    parser.add_argument("--rebuild", nargs="+", choices=engines, default=[], help="build these again, although they exist")


def check_options(options: argparse.Namespace) -> None:
    """Raise ``InputError`` unless the processors and the engines are there."""
    n_processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    if not all(1 <= threads <= n_processors for threads in options.threads):
        raise InputError(f"--threads {options.threads}: this process can be pinned to 1 to {n_processors} processors (none but on Linux)")
    for engine in options.engines:
        find_kind(engine).check()


def compare(folder: Path, questions: Questions, options: argparse.Namespace) -> Results:
    """Build and open the engines' indexes of the corpus in a folder, and search them, in turns."""
    threads, engines = max(options.threads), options.engines
    builds = {engine: build(engine, folder, threads, force=engine in options.rebuild) for engine in engines}
    openings = {engine: list[StartupTimes]() for engine in engines}
    for _ in range(options.starts - bool(options.batch)):
        for engine in engines:
            with Worker(engine, folder, threads, questions.file) as worker:
                openings[engine].append(worker.opening)
    if not options.batch:
        return Results(builds, openings, {}, {}, {}, {})
    plan = Plan(options.rounds, options.seconds, len(questions))
    with ExitStack() as running:
        workers = {
            (engine, n): running.enter_context(Worker(engine, folder, n, questions.file)) for n in options.threads for engine in engines
        }
        for engine in engines:
            openings[engine].append(workers[engine, threads].opening)
        searches = measure(workers, options.k, options.batch, plan)
        peaks = {engine: workers[engine, threads].peak_bytes() for engine in engines}
        listed = {key: worker for key, worker in workers.items() if key[0] != "groups"}  # a group has one ranking
        use_data_home(folder)
        agreed = agreements(listed, options.k, min(options.sample, len(questions)))
        found = recalls(listed, questions.answers) if any(questions.answers) else {}
    return Results(builds, openings, searches, agreed, peaks, found)


def index_rows(results: Results, n_passages: int, n_postings: int) -> Iterator[Row]:
    """Yield a row for each engine: build time, size, opening time and memory of its index, and R@20."""
    for engine, built in results.builds.items():
        openings = results.openings[engine]
        first = statistics.median(opening.ready_s + opening.first_search_s for opening in openings)
        yield {
            "engine": engine,
            "R@20 %": results.recalls.get(engine, ""),
            "build s": built.seconds,
            "passages/s": n_passages / built.seconds,
            "build peak MB": built.peak_bytes / 1e6,
            "index MB": built.index_bytes / 1e6,
            "bytes/passage": built.index_bytes / n_passages,
            "bytes/posting": built.index_bytes / n_postings if n_postings else "",
            "open s": statistics.median(opening.open_s for opening in openings),
            "first answer s": first,
            "own MB at open": openings[-1].own_bytes / 1e6,
            "RSS MB at open": openings[-1].rss_bytes / 1e6,
            "peak MB": results.peaks[engine] / 1e6 if engine in results.peaks else "",
        }


def search_rows(results: Results) -> Iterator[Row]:
    """Yield a row for each k, batch size, number of threads and engine: speed beside the first engine, and agreement of the results."""
    ours = next(iter(results.builds))
    for setting, rounds in sorted(results.searches.items(), key=lambda item: (item[0].k, item[0].size, item[0].threads)):
        agreed = results.agreements.get((setting.engine, setting.k))
        latencies: list[Figure] = [1e3 * value if setting.size == 1 else "" for value in rounds.latencies()]
        yield {
            "k": setting.k,
            "batch": setting.size or "all",
            "threads": setting.threads,
            "engine": setting.engine,
            "questions/s, best": max(rounds.per_second),
            "median": statistics.median(rounds.per_second),
            "questions/processor s": statistics.median(rounds.per_processor_second),
            f"{ours} is × faster": ratio(results.searches[setting._replace(engine=ours)].per_second, rounds.per_second),
            **{f"p{percent} ms": value for percent, value in zip(PERCENTS, latencies, strict=True)},
            "same set %": 100 * agreed.same_sets if agreed else "",
            "same rows %": 100 * agreed.same_rows if agreed else "",
            "score difference": agreed.score_difference if agreed else "",
            "exact %": 100 * agreed.exact if agreed and agreed.exact is not None else "",
        }
