"""A process that opens an engine's index and answers questions on request; ``python -m benchmarks.engines.worker`` is that process.

It stays alive, so that several engines can be measured in turns. Requests and answers are lines of JSON, on standard input and output.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from benchmarks.engines.kinds import Engine, find_kind, peak_bytes, pin, use_data_home
from wikidx.base.errors import IdxError
from wikidx.indexer.base import Hits

_USERS_MISTAKE = 2  # exit status
_FIRST_K = 10


@dataclass(frozen=True, slots=True)
class StartupTimes:
    """Time for a new process to open its index, and the time of its first search.

    Attributes:
        ready_s: from the start of the process to the open index, including imports and the start of Java if needed.
        open_s: the opening alone.
        rss_bytes: of the process when the index is open.
        first_search_s: the first search, of one question; bm25s compiles during it.
    """

    ready_s: float
    open_s: float
    rss_bytes: int
    first_search_s: float

    @property
    def first_answer_s(self) -> float:
        """Seconds from the start of the process to its first answer."""
        return self.ready_s + self.first_search_s


class Timing(NamedTuple):
    """Duration of some searches: seconds, and seconds of the processors, those of all threads of the process."""

    s: float
    processor_s: float


class Worker:
    """A process with an open engine."""

    def __init__(self, engine: str, folder: Path, threads: int, questions: Path) -> None:
        """Start the process and wait until it has answered one question.

        Raises:
            IdxError: it exited.
        """
        self.engine, self.threads = engine, threads
        command = [sys.executable, "-m", "benchmarks.engines.worker", engine, str(folder), str(questions), "--threads", str(threads)]
        environment = os.environ | {"NUMBA_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(
            command, cwd=Path(__file__).parents[2], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            self.opening = StartupTimes(**self._answer())
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def batch(self, n: int, k: int, size: int = 0) -> Timing:
        """Search for the first n questions, in batches of the given size; 0: in one batch."""
        return Timing(*self._send("batch", n, k, size or n))

    def singles(self, n: int, k: int) -> list[Timing]:
        """Search for each of the first n questions alone."""
        return [Timing(*timing) for timing in self._send("singles", n, k)]

    def hits(self, n: int, k: int) -> Hits:
        """Return the results of the first n questions in one batch."""
        return _as_hits(self._send("hits", n, k))

    def exhaustive(self, n: int, k: int) -> Hits | None:
        """Return the results of a search for the same scores that leaves nothing out; None if the engine has no such search."""
        found = self._send("exhaustive", n, k)
        return None if found is None else _as_hits(found)

    def peak_bytes(self) -> int:
        """Return the peak memory of the process so far."""
        n_bytes: int = self._send("peak")
        return n_bytes

    def _send(self, request: str, *numbers: int) -> Any:  # noqa: ANN401 - from JSON
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # the process is gone and will not answer
                self._process.stdin.write(json.dumps([request, *numbers]) + "\n")
                self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:  # noqa: ANN401 - from JSON
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            status = self._process.wait()
            raise IdxError(f"'{self.engine}' ended with status {status}, see above: if its index is at fault, --rebuild {self.engine}")
        return json.loads(line)

    def _stop(self) -> None:
        self._process.kill()
        with suppress(BrokenPipeError):
            self._process.communicate()


def _as_hits(answer: tuple[list[list[int]], list[list[float]]]) -> Hits:
    rows, scores = answer
    return Hits(np.array(rows, dtype=np.int64), np.array(scores, dtype=np.float32))


def _handle(engine: Engine, request: str, n: int = 0, k: int = 0, size: int = 0) -> object:
    """Process a request."""
    if request == "peak":
        return peak_bytes()
    if request in ("hits", "exhaustive"):
        search = getattr(engine, request, None)
        return None if search is None else [part.tolist() for part in search(n, k)]
    if request == "batch":
        timings = [_time(partial(engine.batch, slice(first, min(n, first + size)), k)) for first in range(0, n, size)]
        return [sum(column) for column in zip(*timings, strict=True)]
    return [_time(partial(engine.single, number, k)) for number in range(n)]


def _time(search: Callable[[], object]) -> Timing:
    """Return the time of a search, without the time to free its results."""
    started, started_processors = time.perf_counter(), time.process_time()
    found = search()
    timing = Timing(time.perf_counter() - started, time.process_time() - started_processors)
    del found
    return timing


def _open_engine(name: str, folder: Path, threads: int, questions: Path) -> tuple[Engine, StartupTimes]:
    """Open an engine in this process and search for one question."""
    pin(threads)
    use_data_home(folder)
    kind = find_kind(name)
    kind.load()
    started = time.perf_counter()
    engine = kind.open(folder, threads)
    open_s = time.perf_counter() - started
    ready_s = time.time() - _process_start()
    rss_bytes = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    engine.set_questions(json.loads(questions.read_bytes()))
    return engine, StartupTimes(ready_s, open_s, rss_bytes, _time(lambda: engine.single(0, _FIRST_K)).s)


def _process_start() -> float:
    """Return the start time of this process, in seconds since 1970."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])  # since the machine was started
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Run the worker process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines.worker")
    parser.add_argument("engine")
    parser.add_argument("folder", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    options = parser.parse_args()
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keeps other output out of the answers
        try:
            engine, opening = _open_engine(options.engine, options.folder, options.threads, options.questions)
            answers.write(json.dumps(asdict(opening)) + "\n")
            answers.flush()
            for line in sys.stdin:
                answers.write(json.dumps(_handle(engine, *json.loads(line))) + "\n")
                answers.flush()
        except IdxError as error:
            print(error, file=sys.stderr)
            return _USERS_MISTAKE
    return 0


if __name__ == "__main__":
    sys.exit(main())
