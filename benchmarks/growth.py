"""Growth of building, checking, opening, searching and serving with the corpus, up to the 21,015,324 passages of the DPR Wikipedia.

    python -m benchmarks.growth                             # 312,500, 1,250,000 and 5,000,000 passages: half an hour, 20 GB of disk
    python -m benchmarks.growth --sizes 21015324            # full size: hours, and 60 GB of disk
    python -m benchmarks.growth --minutes 10                # no step begins later; the same command resumes
    python -m benchmarks.growth --steps serve --again       # only some kinds of steps, and measured again

Passages are those of ``benchmarks.synthetic``; the folder of a size is that of ``benchmarks.engines --corpora N`` in the same ``--work``,
which finds the index built. Every step is a process; figures are stored in ``--work``, and a step with stored figures is skipped. A run
at a small size before fills numba's cache.

passages    the file, unless it is there; bytes of text
build       ``idx build --bm25``, in one pass; what ``idx build --dry-run`` estimates stands beside it as "estimated"
vectors     made vectors in place of an encoder's, with ``--vectors``; then the steps below search them too
check       ``idx check``
open        ``idx search`` with one question, from the start of the process to its end; cold: with all files to be read from the disk
search      questions one at a time and in batches, on one thread; see ``benchmarks.engines``
serve       ``idx serve`` with some numbers of clients, each waiting for its answers

"own" is RssAnon, "resident" includes pages of mapped files; "disk" is the peak size of all files of the corpus while a step runs.
"exponent" is the power of the number of passages in a figure's growth, through all points, and of the two largest only: above 1.05 a
figure is flagged.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.engines.corpus import Questions, prepare_questions
from benchmarks.engines.embedded import ENCODER, made_vectors, put_vectors, share_vectors
from benchmarks.engines.rounds import PERCENTS, Plan, measure
from benchmarks.engines.worker import Worker
from benchmarks.monitoring import Monitor, run_monitored
from benchmarks.processes import IDX, NAME, idx, use_data_home
from benchmarks.report import Figure, environment, parser, print_tables, run
from benchmarks.serve.load import LoadSpec
from benchmarks.serve.processes import Load, idx_serve
from benchmarks.synthetic import data_folder, real_passages, synthetic, write
from wikidx.base.artifacts.durable import atomic_write
from wikidx.indexer.naming import encoder_spec
from wikidx.retrievers.wire import SEARCH

SIZES = (312_500, 1_250_000, 5_000_000)
STEPS = ("passages", "build", "vectors", "check", "open", "search", "serve")
LINEAR = 1.05  # larger exponents grow faster than the corpus
_BATCHES = (1, 32, 512)

Figures = dict[str, float]
Measured = Mapping[int, Mapping[str, Figures]]  # by size and step


class Task(NamedTuple):
    """A size's folder, with the passages and the data home, the number of passages, the questions and the options."""

    folder: Path
    n: int
    questions: Questions
    options: argparse.Namespace

    @property
    def file(self) -> Path:
        """File of the passages."""
        return self.folder / "passages.jsonl"


def list_steps(task: Task) -> Iterator[tuple[str, Callable[[], Figures]]]:
    """Yield the steps of a size by name; the first word is the step's kind."""
    yield "passages", partial(write_passages, task)
    yield "build", partial(build, task)
    retrievers = {"bm25": "bm25", **({ENCODER: "exact"} if task.options.vectors else {})}
    if task.options.vectors:
        yield "vectors", partial(make_vectors, task)
    yield "check", partial(command, task, "check", NAME)
    for name, engine in retrievers.items():
        question = json.loads(task.questions.file.read_bytes())[0]
        for state in (", cold", ""):
            yield f"open {name}{state}", partial(command, task, "search", NAME, question, "--retriever", name, is_cold=bool(state))
        yield f"search {name}", partial(search, task, engine)
        yield f"serve {name}", partial(serve, task, name)


def write_passages(task: Task) -> Figures:
    """Write the passages, unless they are there."""
    if not task.file.exists():
        unfinished = task.file.with_name("unfinished.jsonl")
        write(synthetic(task.n, source=real_passages(task.options.source)), unfinished)
        unfinished.rename(task.file)
    return {"text": task.file.stat().st_size}


def build(task: Task) -> Figures:
    """Build store and index, and add the estimates."""
    arguments = ("build", str(task.file), "--name", NAME, "--bm25")
    steps = json.loads(idx(*arguments, "--dry-run", "--json").stdout)["estimates"]
    estimates = {
        "estimated disk": float(sum(one["disk_bytes"] for one in steps)),
        "estimated own": float(max(one["memory_bytes"] for one in steps)),
    }
    return command(task, *arguments) | estimates


def make_vectors(task: Task) -> Figures:
    """Put made vectors in place of the encoder's, and of the questions', as files for the engines."""
    dim = encoder_spec(ENCODER).dim
    put_vectors(dim)
    share_vectors(task.folder, made_vectors(len(task.questions), dim, -1 % 2**32))
    return {}


def command(task: Task, *arguments: str, is_cold: bool = False) -> Figures:
    """Run a command of idx over the size's data home."""
    if is_cold:
        drop_from_page_cache(task.folder)
    usage, _ = run_monitored([*IDX, *arguments], task.folder / "home")
    return asdict(usage)


def drop_from_page_cache(folder: Path) -> None:
    """Drop a folder's files from the page cache, so that they are read from the disk."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())  # dirty pages are not dropped
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def search(task: Task, engine: str) -> Figures:
    """Search an index on one thread after a warm-up."""
    plan = Plan(task.options.rounds, task.options.seconds, len(task.questions))
    found: Figures = {}
    with Worker(engine, task.folder, 1, task.questions.file) as worker, Monitor(worker.process.pid) as watch:
        sizes = [size for size in _BATCHES if size <= len(task.questions)]
        for setting, rounds in measure({(engine, 1): worker}, task.options.k, sizes, plan).items():
            name = f"k {setting.k}, batch {setting.size}: "
            found |= {
                f"{name}s": 1 / float(np.median(rounds.per_second)),
                f"{name}cpu_s": 1 / float(np.median(rounds.per_processor_second)),
            }
            if setting.size == 1:
                found |= {f"{name}p{percent}_s": value for percent, value in zip(PERCENTS, rounds.latencies(), strict=True)}
        found |= {"ready_s": worker.opening.ready_s, "first_search_s": worker.opening.first_search_s}
    return found | {"own": watch.own, "resident": watch.resident}


def serve(task: Task, retriever: str) -> Figures:
    """Start ``idx serve``, and send requests of one question; memory is the server's."""
    texts: list[str] = json.loads(task.questions.file.read_bytes())
    bodies = [json.dumps({"queries": [question], "k": 10}) for question in texts]
    with (
        idx_serve(task.folder, NAME, "--retriever", retriever, "--no-access-log", "--device", task.options.device) as server,
        Load() as load,
    ):
        with Monitor(server.process.pid) as watch:
            found = {f"{name}_s": server.seconds_until(f"/{name}") for name in ("health", "ready")}
            load.report(LoadSpec(server.port, SEARCH, bodies, task.options.seconds, clients=1))  # maps files
            for clients in task.options.clients:
                report = load.report(LoadSpec(server.port, SEARCH, bodies, task.options.seconds, clients=clients))
                found[f"{clients} clients: s"] = 1 / max(report.per_second, 1e-9)
        server.check_alive()
    return found | {"own": watch.own, "resident": watch.resident}


def growth_rows(measured: Measured, targets: Sequence[int]) -> Iterator[dict[str, Figure]]:
    """Yield a row for each figure of each step: its values, the exponents of its growth, and estimates at other sizes."""
    steps = {step: figures for of_size in measured.values() for step, figures in of_size.items()}
    for step, figures in steps.items():
        sizes = [n for n in sorted(measured) if step in measured[n]]
        for figure in figures:
            values = [measured[n][step][figure] for n in sizes]
            row: dict[str, Figure] = {"step": step, "figure": figure, **{f"{n:,}": "" for n in sorted(measured)}}
            row |= {f"{n:,}": value for n, value in zip(sizes, values, strict=True)}
            exponents = exponent(sizes, values), exponent(sizes[-2:], values[-2:])
            row |= {"exponent": round(exponents[0], 2), "(largest two)": round(exponents[1], 2)}
            row |= {f"at {n:,}": estimate(sizes, values, n) for n in targets}
            yield row | {"remark": "worse than linear" if max(exponents) > LINEAR else ""}


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return the slope of the line through the logarithms of sizes and values; 0 if there is none."""
    if len(sizes) < 2 or min(values) <= 0:
        return 0.0
    return float(np.polyfit([math.log(n) for n in sizes], [math.log(value) for value in values], 1)[0])


def estimate(sizes: Sequence[int], values: Sequence[float], n: int) -> Figure:
    """Return the value at another size, from the two largest: on the power law or the straight line, whichever gives more.

    The line is right for a process with fixed costs; decreasing figures are assumed to stay constant.
    """
    if len(sizes) < 2:
        return ""
    line = values[-1] + (values[-1] - values[-2]) / (sizes[-1] - sizes[-2]) * (n - sizes[-1])
    law: float = values[-1] * (n / sizes[-1]) ** max(0.0, exponent(sizes[-2:], values[-2:]))
    return max(law, line)


def _measure(options: argparse.Namespace, stored: dict[str, dict[str, Figures]], keep: Callable[[], None]) -> None:
    """Run the steps that have no figures yet, while there is time."""
    questions, started = prepare_questions(options.questions, options.work), time.perf_counter()
    for n in sorted(options.sizes):
        task = Task(options.work / f"synthetic-{n}", n, questions, options)
        task.folder.mkdir(parents=True, exist_ok=True)
        use_data_home(task.folder)
        of_size = stored.setdefault(str(n), {})
        for name, work in list_steps(task):
            is_done = name in of_size and not options.again
            if name.split()[0] not in options.steps or is_done or time.perf_counter() - started > 60 * options.minutes:
                continue
            print(f"{n:,} passages: {name}", flush=True)
            of_size[name] = work()
            keep()


def _run(options: argparse.Namespace) -> None:
    options.work.mkdir(parents=True, exist_ok=True)
    options.work = options.work.resolve()
    path = options.work / "figures.json"
    stored = json.loads(path.read_bytes()) if path.exists() else {}

    def keep() -> None:
        with atomic_write(path) as file:
            file.write(json.dumps(stored, indent=1).encode())

    _measure(options, stored, keep)
    measured = {n: stored[str(n)] for n in options.sizes}
    print_tables({"Growth, in seconds and bytes": growth_rows(measured, options.at)}, environment("numba", "numpy"), options.json)


def main() -> int:
    """Run the command line."""
    made = parser("growth", __doc__)
    made.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    made.add_argument("--at", nargs="*", type=int, default=[21_015_324, 35_600_000], help="sizes of the estimates")
    made.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    made.add_argument("--again", action="store_true", help="repeat steps that are done")
    made.add_argument("--minutes", type=float, default=float("inf"), help="time limit; no step begins later")
    made.add_argument("--vectors", action="store_true", help="also search made vectors")
    made.add_argument("--questions", default="nq", help="nq, hybridqa, dpr_union or a file of questions")
    made.add_argument("--source", type=Path, default=data_folder() / "wiki_intro" / "passages.jsonl.gz", help="articles as JSON lines")
    made.add_argument("--k", nargs="+", type=int, default=[10, 100])
    made.add_argument("--clients", nargs="+", type=int, default=[1, 16, 64])
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--seconds", type=float, default=5.0, help="duration of each measurement of searching and serving")
    made.add_argument("--device", default="cpu")
    return run(made, _run)


if __name__ == "__main__":
    sys.exit(main())
