"""Soak test of a server: growth of its memory, descriptors and threads under load.

``python -m benchmarks.serve.soak`` starts ``idx serve sample`` with bm25, minilm and the two joined, sends it a mixed load for 20 minutes
while bm25 is rebuilt behind it, and samples its resident memory, descriptors and threads every few seconds. After a warm-up a line is
fitted to the memory; descriptors and threads are compared without load, after the warm-up and at the end. It exits with 1 if memory
grows by more than ``--limit`` percent, if there are more descriptors than before, or over two more threads, or if an answer was
unexpected.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from benchmarks.monitoring import status_bytes
from benchmarks.processes import IDX, Process, idx, use_data_home
from benchmarks.report import Figure, environment, parser, print_tables, run
from benchmarks.serve.mixed import RETRIEVERS, MixedLoad
from benchmarks.serve.processes import Server, idx_serve
from wikidx.base.errors import IdxError
from wikidx.corpora.known.sample import questions

_ROWS = 10  # of the table
_REST_S = 3.0  # after the last connection is closed
_SPARE_THREADS = 2  # thread pools grow when all threads are busy, and shrink when idle
_MB = 1e6


class Sample(NamedTuple):
    """State of the server at a moment: seconds since the start, answers so far, bytes, and numbers of open descriptors and threads."""

    seconds: float
    answers: int
    rss: int
    anonymous: int
    descriptors: int
    threads: int


def sample(server: Server, load: MixedLoad) -> Sample:
    """Take a sample now."""
    server.check_alive()
    pid, seconds = server.process.pid, time.perf_counter() - server.started
    counts = [len(os.listdir(f"/proc/{pid}/{kind}")) for kind in ("fd", "task")]
    return Sample(seconds, load.answers.total(), status_bytes(pid, "VmRSS"), status_bytes(pid, "RssAnon"), *counts)


def phase(server: Server, load: MixedLoad, seconds: float, every_s: float, rebuilds: int = 0) -> list[Sample]:
    """Send load for some time, with some rebuilds of bm25; return samples, the last of the server at rest."""
    found, builds, started = list[Sample](), list[Process](), time.monotonic()
    load.start()
    try:
        while (passed := time.monotonic() - started) < seconds:
            if passed >= seconds * (len(builds) + 1) / (rebuilds + 1):
                builds.append(Process([*IDX, "build", "sample", "--bm25", "--force"]))
            found.append(sample(server, load))
            time.sleep(every_s)
    finally:
        load.stop()
        for build in builds:
            build.process.communicate()
    if any(build.process.returncode for build in builds):
        raise IdxError("idx build failed: see above")
    time.sleep(_REST_S)
    return [*found, sample(server, load)]


@contextmanager
def serving(retrievers: Sequence[str], log: list[str]) -> Iterator[Server]:
    """Serve the sample in a new data home; yield the server when it is ready. Lines of its log are added to ``log``."""
    with TemporaryDirectory() as folder:
        use_data_home(Path(folder))
        idx("build", "sample", "--bm25", *(["--encoder", "minilm"] if any("minilm" in name for name in retrievers) else []))
        named = [word for name in retrievers for word in ("--retriever", name)]
        with idx_serve(Path(folder), "sample", *named, "--device", "cpu") as server:
            reading = threading.Thread(target=lambda: log.extend(server.process.stderr or ()))
            reading.start()
            try:
                server.seconds_until("/ready")
                yield server
            finally:
                server.process.terminate()
                reading.join()


def fitted_growth(seconds: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Return the growth of a least-squares line through some values from the first to the last, and its height at the first."""
    slope, height = np.polyfit(np.asarray(seconds) - seconds[0], values, 1)
    return float(slope) * (seconds[-1] - seconds[0]), float(height)


def time_rows(samples: Sequence[Sample]) -> Iterator[dict[str, Figure]]:
    """Yield a row for each equal part of the time: medians, and the most descriptors and threads."""
    for part in np.array_split(np.asarray(samples, dtype=np.float64), min(_ROWS, len(samples))):
        yield {
            "until min": round(part[-1, 0] / 60, 1),
            "answers": int(part[-1, 1]),
            "RSS MB": round(float(np.median(part[:, 2])) / _MB, 1),
            "anonymous MB": round(float(np.median(part[:, 3])) / _MB, 1),
            "descriptors, at most": int(part[:, 4].max()),
            "threads, at most": int(part[:, 5].max()),
        }


def judge(warm: Sequence[Sample], before: Sample, load: MixedLoad, log: Sequence[str]) -> dict[str, Figure]:
    """Return the judged figures: growth after the warm-up, leftovers at rest, and unexpected answers."""
    *loaded, after = warm
    seconds = [one.seconds for one in loaded]
    growth, height = fitted_growth(seconds, [one.rss for one in loaded])
    anonymous, _ = fitted_growth(seconds, [one.anonymous for one in loaded])
    return {
        "growth of RSS %": round(100 * growth / height, 2),
        "anonymous bytes an answer": round(anonymous / max(1, loaded[-1].answers - loaded[0].answers)),
        "more descriptors": after.descriptors - before.descriptors,
        "more threads": after.threads - before.threads,
        "refused": load.refused,
        "wrong answers": load.wrong.total(),
        "tracebacks": sum("Traceback" in line for line in log),
    }


def is_flat(verdict: dict[str, Figure], limit: float) -> bool:
    """Return whether nothing has grown, and every answer was as expected."""
    limits = {"growth of RSS %": limit, "more descriptors": 0, "more threads": _SPARE_THREADS, "wrong answers": 0, "tracebacks": 0}
    return all(float(verdict[name]) <= most for name, most in limits.items())


def _run(options: argparse.Namespace) -> int:
    """Let the server run under load, and judge it: 0 if its memory stays flat, otherwise 1."""
    retrievers, log = options.retriever or list(RETRIEVERS), list[str]()
    with serving(retrievers, log) as server:
        load = MixedLoad(server.port, [one.question for one in questions()], retrievers, options.clients, options.rate)
        cold = phase(server, load, 60 * options.warm_up, options.every)
        warm = phase(server, load, 60 * (options.minutes - options.warm_up), options.every, options.rebuilds)
    verdict = judge(warm, cold[-1], load, log)
    duration = f"{options.minutes:g} minutes, {options.warm_up:g} of them warm-up, {options.clients} clients"
    tables = {f"The server under a mixed load: {duration}": time_rows([*cold, *warm]), "After the warm-up": [verdict]}
    print_tables(tables, environment("uvicorn", "uvloop", "torch"), options.json)
    print(", ".join(f"{kind} {n:,}" for kind, n in load.answers.most_common()))
    for what, n in load.wrong.most_common(20):
        print(f"wrong: {n:,} × {what}")
    print("flat" if is_flat(verdict, options.limit) else "NOT FLAT")
    return 0 if is_flat(verdict, options.limit) else 1


def main() -> int:
    """Run the command line."""
    made = parser("serve.soak", __doc__)
    made.add_argument("--minutes", type=float, default=20.0)
    made.add_argument("--warm-up", type=float, default=5.0, help="first minutes, which are not judged")
    made.add_argument("--retriever", action="append", choices=RETRIEVERS, help="retriever to search with; default: all three")
    made.add_argument("--clients", type=int, default=8)
    made.add_argument("--rate", type=float, default=10.0, help="requests per second of all clients together; 0: no limit")
    made.add_argument("--rebuilds", type=int, default=3, help="number of rebuilds of bm25 during the run")
    made.add_argument("--every", type=float, default=5.0, help="seconds between two observations of the server")
    made.add_argument("--limit", type=float, default=2.0, help="maximum growth of memory in percent")
    return run(made, _run)


if __name__ == "__main__":
    sys.exit(main())
