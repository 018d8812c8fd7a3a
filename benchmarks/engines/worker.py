"""Processes of an engine: one builds its index, one opens it and answers questions; ``python -m benchmarks.engines.worker`` is either.

The second stays alive, so that several engines can be measured in turns. Requests and answers are lines of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.engines.kinds import Engine, find_kind, pin
from benchmarks.monitoring import run_monitored, status_bytes
from benchmarks.processes import Process, use_data_home
from benchmarks.report import run, seconds_of
from wikidx.indexer.base import Hits

_FIRST_K = 10
_MODULE = ("-m", "benchmarks.engines.worker")


@dataclass(frozen=True, slots=True)
class Build:
    """A build's figures; ``peak_bytes`` is of all its processes, with mapped files as far as they were read."""

    seconds: float
    index_bytes: int
    peak_bytes: int


def build(engine: str, folder: Path, threads: int, *, force: bool = False) -> Build:
    """Return the figures of a build on this many CPUs; a stored measurement is not repeated, unless ``force``.

    Raises:
        IdxError: the build failed.
    """
    stored = folder / f"build-{engine}-{threads}.json"
    if force or not stored.exists():
        stored.unlink(missing_ok=True)
        use_data_home(folder)
        find_kind(engine).prepare(folder)
        usage, printed = run_monitored([*_MODULE, engine, str(folder), "--threads", str(threads)])
        seconds, n_bytes = json.loads(printed.splitlines()[-1])
        stored.write_text(json.dumps(asdict(Build(seconds, n_bytes, usage.resident))))
    return Build(**json.loads(stored.read_bytes()))


@dataclass(frozen=True, slots=True)
class StartupTimes:
    """Time for a new process to open its index, and the time of its first search.

    Attributes:
        ready_s: from the start of the process to the open index, including imports and the start of Java if needed.
        open_s: the opening alone.
        first_search_s: the first search, of one question; bm25s compiles during it.
        rss_bytes: of the process when the index is open, with mapped files.
        own_bytes: without them.
    """

    ready_s: float
    open_s: float
    first_search_s: float
    rss_bytes: int
    own_bytes: int


class Timing(NamedTuple):
    """Duration of a search: seconds, and seconds of the processors, those of all threads of the process."""

    s: float
    processor_s: float


class Worker(Process):
    """A process with an open engine."""

    def __init__(self, engine: str, folder: Path, threads: int, questions: Path) -> None:
        """Start the process and wait until it has answered one question.

        Raises:
            IdxError: it exited.
        """
        arguments = [*_MODULE, engine, str(folder), "--threads", str(threads), "--questions", str(questions)]
        super().__init__(arguments, env=os.environ | {"NUMBA_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)})
        try:
            self.opening = StartupTimes(**self.answer())
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def search(self, n: int, k: int, size: int = 0) -> list[Timing]:
        """Search for the first n questions in batches of the given size, 0: in one batch; return the time of each batch."""
        return [Timing(*timing) for timing in self.exchange(["search", n, k, size or n])]

    def hits(self, n: int, k: int) -> Hits:
        """Return the results of the first n questions in one batch."""
        return _as_hits(self.exchange(["hits", n, k]))

    def exhaustive(self, n: int, k: int) -> Hits | None:
        """Return the results of a search for the same scores that leaves nothing out; None if the engine has no such search."""
        found = self.exchange(["exhaustive", n, k])
        return None if found is None else _as_hits(found)

    def peak_bytes(self) -> int:
        """Return the peak memory of the process so far."""
        return status_bytes(self.process.pid, "VmHWM")


def _as_hits(answer: tuple[list[list[int]], list[list[float]]]) -> Hits:
    rows, scores = answer
    return Hits(np.array(rows, dtype=np.int64), np.array(scores, dtype=np.float32))


def _handle(engine: Engine, request: str, n: int, k: int, size: int = 0) -> object:
    """Process a request."""
    if request != "search":
        hits = getattr(engine, request)(n, k)
        return None if hits is None else [part.tolist() for part in hits]
    if size == 1:
        return [_time(partial(engine.single, number, k)) for number in range(n)]
    return [_time(partial(engine.batch, slice(first, min(n, first + size)), k)) for first in range(0, n, size)]


def _time(search: Callable[[], object]) -> Timing:
    """Return the time of a search, without the time to free its results."""
    started, started_processors = time.perf_counter(), time.process_time()
    found = search()
    timing = Timing(time.perf_counter() - started, time.process_time() - started_processors)
    del found
    return timing


def _open_engine(name: str, folder: Path, threads: int, questions: Path) -> tuple[Engine, StartupTimes]:
    """Open an engine in this process and search for one question."""
    kind = find_kind(name)
    kind.load()
    started = time.perf_counter()
    engine = kind.open(folder, threads)
    open_s, ready_s = time.perf_counter() - started, time.time() - _process_start()
    memory = status_bytes(os.getpid(), "VmRSS"), status_bytes(os.getpid(), "RssAnon")
    engine.set_questions(json.loads(questions.read_bytes()))
    return engine, StartupTimes(ready_s, open_s, _time(lambda: engine.single(0, _FIRST_K)).s, *memory)


def _process_start() -> float:
    """Return the start time of this process, in seconds since 1970."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])  # since the machine was started
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def _run(options: argparse.Namespace) -> None:
    pin(options.threads)
    use_data_home(options.folder)
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keeps other output out of the answers
        if options.questions is None:
            index = list[Path]()
            seconds = seconds_of(lambda: index.append(find_kind(options.engine).build(options.folder, options.threads)))
            n_bytes = sum(file.stat().st_size for file in index[0].rglob("*") if file.is_file())
            answers.write(json.dumps([seconds, n_bytes]) + "\n")
            return
        engine, opening = _open_engine(options.engine, options.folder, options.threads, options.questions)
        print(json.dumps(asdict(opening)), file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(_handle(engine, *json.loads(line))), file=answers, flush=True)


def main() -> int:
    """Run the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines.worker")
    parser.add_argument("engine")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--questions", type=Path)
    return run(parser, _run)


if __name__ == "__main__":
    sys.exit(main())
