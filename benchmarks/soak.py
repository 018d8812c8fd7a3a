"""Soak test of a server: growth of its memory, descriptors and threads under load.

``python -m benchmarks.soak`` starts ``idx serve sample`` with bm25, minilm and the two joined, sends it a mixed load for 20 minutes while
bm25 is rebuilt behind it, and samples its resident memory, descriptors and threads every few seconds. After a warm-up a line is fitted
to the memory; descriptors and threads are compared without load, after the warm-up and at the end. It exits with 1 if memory
grows by more than ``--limit`` percent, if there are more descriptors than before, or over two more threads, or if an answer was
unexpected.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.mixed_load import RETRIEVERS, MixedLoad
from benchmarks.report import Figure, environment, exit_status, print_table
from benchmarks.serve.processes import Server
from wikidx.base.errors import IdxError
from wikidx.corpora.known.sample import questions

_IDX = ["-c", "from wikidx.runtimes.cli import main; main()"]
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


class Monitor:
    """Samples the server every few seconds under load."""

    def __init__(self, server: Server, load: MixedLoad, every_s: float) -> None:
        self._server, self._load, self._every_s = server, load, every_s
        self._started = time.monotonic()
        self.samples: list[Sample] = []

    def sample(self) -> Sample:
        """Take a sample now."""
        self._server.check_alive()
        process = Path(f"/proc/{self._server.process.pid}")
        fields = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        rss, anonymous = (1024 * int(fields[name].split()[0]) for name in ("VmRSS", "RssAnon"))
        n_descriptors = len(os.listdir(process / "fd"))
        seconds = time.monotonic() - self._started
        return Sample(seconds, self._load.answers.total(), rss, anonymous, n_descriptors, int(fields["Threads"]))

    def phase(self, seconds: float, rebuilds: int = 0) -> Sample:
        """Send load for some time, with some rebuilds of bm25; return the server's state afterwards, at rest."""
        self._load.start()
        builds = list[subprocess.Popen[bytes]]()
        try:
            started = time.monotonic()
            while (passed := time.monotonic() - started) < seconds:
                if passed >= seconds * (len(builds) + 1) / (rebuilds + 1):
                    builds.append(_build("--bm25", "--force"))
                self.samples.append(self.sample())
                time.sleep(self._every_s)
        finally:
            self._load.stop()
            for build in builds:
                _finish(build)
        time.sleep(_REST_S)
        return self.sample()


def _build(*options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, *_IDX, "build", "sample", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _finish(build: subprocess.Popen[bytes]) -> None:
    if build.wait():
        raise IdxError(f"{build.args!r} has ended with {build.returncode}")


@contextmanager
def _serve(retrievers: Sequence[str], log: list[str]) -> Iterator[Server]:
    """Serve the sample; yield the server when it is ready. Lines of its log are added to ``log``."""
    named = [word for name in retrievers for word in ("--retriever", name)]
    with Server([*_IDX, "serve", "sample", *named, "--port", "0", "--device", "cpu"]) as server:
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


def _rows(samples: Sequence[Sample]) -> list[dict[str, Figure]]:
    """Return a table over equal parts of the time: medians, and the most descriptors and threads."""
    parts = [part for part in np.array_split(np.asarray(samples, dtype=np.float64), min(_ROWS, len(samples))) if len(part)]
    return [
        {
            "until min": round(part[-1, 0] / 60, 1),
            "answers": int(part[-1, 1]),
            "RSS MB": round(float(np.median(part[:, 2])) / _MB, 1),
            "anonymous MB": round(float(np.median(part[:, 3])) / _MB, 1),
            "descriptors, at most": int(part[:, 4].max()),
            "threads, at most": int(part[:, 5].max()),
        }
        for part in parts
    ]


def _verdict(samples: Sequence[Sample], rests: tuple[Sample, Sample], load: MixedLoad, log: Sequence[str]) -> dict[str, Figure]:
    """Return the judged figures: growth after the warm-up, leftovers at rest, and unexpected answers."""
    before, after = rests
    seconds = [sample.seconds for sample in samples]
    growth, height = fitted_growth(seconds, [float(sample.rss) for sample in samples])
    anonymous, _ = fitted_growth(seconds, [float(sample.anonymous) for sample in samples])
    return {
        "growth of RSS %": round(100 * growth / height, 2),
        "growth of RSS MB": round(growth / _MB, 2),
        "anonymous bytes an answer": round(anonymous / max(1, samples[-1].answers - samples[0].answers)),
        "descriptors before": before.descriptors,
        "descriptors after": after.descriptors,
        "threads before": before.threads,
        "threads after": after.threads,
        "refused": load.refused,
        "wrong answers": load.wrong.total(),
        "tracebacks": sum("Traceback" in line for line in log),
    }


def _is_flat(verdict: dict[str, Figure], limit: float) -> bool:
    return (
        float(verdict["growth of RSS %"]) <= limit
        and verdict["descriptors after"] == verdict["descriptors before"]
        and int(verdict["threads after"]) <= int(verdict["threads before"]) + _SPARE_THREADS
        and verdict["wrong answers"] == verdict["tracebacks"] == 0
    )


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--warm-up", type=float, default=5.0, help="first minutes, which are not judged")
    parser.add_argument("--retriever", action="append", choices=RETRIEVERS, help="retriever to search with; default: all three")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rate", type=float, default=10.0, help="requests per second of all clients together; 0: no limit")
    parser.add_argument("--rebuilds", type=int, default=3, help="number of rebuilds of bm25 during the run")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two observations of the server")
    parser.add_argument("--limit", type=float, default=2.0, help="maximum growth of memory in percent")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not Path("/proc/self/status").exists():
        parser.error("needs /proc, which Linux has")
    return exit_status(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    """Let the server run under load, and judge it: 0 if its memory stays flat, otherwise 1."""
    retrievers, log = options.retriever or list(RETRIEVERS), list[str]()
    with tempfile.TemporaryDirectory() as home:
        os.environ["IDX_HOME"] = home
        _finish(_build("--bm25", *(["--encoder", "minilm"] if any("minilm" in name for name in retrievers) else [])))
        with _serve(retrievers, log) as server:
            load = MixedLoad(server.port, [one.question for one in questions()], retrievers, options.clients, options.rate)
            watch = Monitor(server, load, options.every)
            before = watch.phase(60 * options.warm_up)
            n_warm = len(watch.samples)
            after = watch.phase(60 * (options.minutes - options.warm_up), options.rebuilds)
    verdict = _verdict(watch.samples[n_warm:], (before, after), load, log)
    return _print_report(watch.samples, verdict, load, options)


def _print_report(samples: Sequence[Sample], verdict: dict[str, Figure], load: MixedLoad, options: argparse.Namespace) -> int:
    about = environment("uvicorn", "uvloop", "torch")
    duration = f"{options.minutes:g} minutes, {options.warm_up:g} of them warm-up, {options.clients} clients"
    print_table(f"The server under a mixed load: {duration}", _rows(samples), about, None)
    print_table("After the warm-up", [verdict], about, options.json)
    print(", ".join(f"{kind} {n:,}" for kind, n in load.answers.most_common()))
    for what, n in load.wrong.most_common(20):
        print(f"wrong: {n:,} × {what}")
    is_flat = _is_flat(verdict, options.limit)
    print("flat" if is_flat else "NOT FLAT")
    return 0 if is_flat else 1


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
