"""Speed of this commit relative to another: both are measured in turns, each from its own checkout, on the same passages and questions.

    git worktree add ../before b93c095
    python -m benchmarks.commits ../before

"Builds" are whole commands: ``idx build --bm25`` with the passage store, ``idx import embeddings`` of random vectors of 768 components, and
the start of ``idx search``. "Searches" are calls in a process with everything open and compiled, and "server" is ``idx serve`` with
BM25 and that many clients. Every figure is a rate, or its inverse for commands; ``ratio`` is this commit's over the other's, the median
of the rounds, with the minimum and the maximum: above 1 is faster.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pickle
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.commits.workload import CORPUS, FEW, N_FEW
from benchmarks.report import Figure, environment, exit_status, print_table
from benchmarks.serve.load import LoadSpec
from benchmarks.serve.processes import Load
from benchmarks.synthetic import data_folder
from wikidx.base.errors import IdxError

_HERE = Path(__file__).parents[2]
_DIM = 768
_SEARCHES = (
    "BM25, k 10",
    "BM25, k 100",
    "exact search, batch 1",
    "exact search, batch 32",
    "exact search, batch 512",
    "search_groups, groups of 5",
    "search, one question",
    "get_many, 100 passages",
    "embedding",
)
_CLIENTS = (1, 16, 64)


class Side(NamedTuple):
    """One of the two commits: its checkout, and a folder for its data home."""

    name: str
    checkout: Path
    folder: Path

    @property
    def prefix(self) -> str:
        """Prefix of the names of its packages, empty for commits before the packages had a common parent.

        Importing would not tell: an installed ``wikidx`` would be found if the checkout has none.
        """
        return "wikidx." if (self.checkout / "wikidx").is_dir() else ""

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of its ``idx``."""
        return [sys.executable, "-c", f"from {self.prefix}runtimes.cli import main; main()", *arguments]

    def environment(self) -> dict[str, str]:
        """Return the environment of its processes."""
        return {**os.environ, "PYTHONPATH": str(self.checkout), "IDX_HOME": str(self.folder / "home")}

    def idx(self, *arguments: str) -> float:
        """Run a command; return its rate, in runs per second."""
        started = time.perf_counter()
        done = subprocess.run(
            self.command(*arguments), cwd=self.folder, env=self.environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise IdxError(f"{self.checkout}: idx {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return 1 / (time.perf_counter() - started)


Rates = dict[str, dict[str, list[float]]]  # by workload and side, one per round


def measure(sides: tuple[Side, Side], passages: Path, questions: Path, rounds: int, seconds: float) -> Rates:
    """Measure both sides alternately, in changing order."""
    rates: Rates = defaultdict(lambda: defaultdict(list))
    for side in sides:
        prepare(side, passages)
    texts: list[str] = json.loads(questions.read_text())
    for number in range(rounds):
        for side in sides if number % 2 else sides[::-1]:
            for name, rate in (
                *measure_builds(side, passages),
                *measure_searches(side, questions, seconds),
                *measure_server(side, texts, seconds),
            ):
                rates[name][side.name].append(rate)
                print(f"{number + 1}/{rounds} {side.name}: {name}: {rate:,.2f}", file=sys.stderr, flush=True)
    return rates


def prepare(side: Side, passages: Path) -> None:
    """Build and search once, so that everything is compiled, and write the random vectors."""
    (side.folder / "home").mkdir(parents=True)
    side.idx("build", str(passages), "--name", CORPUS, "--bm25")
    side.idx("build", str(passages), "--name", FEW, "--limit", str(N_FEW))
    ids = [json.loads(line)["id"] for line in passages.open(encoding="utf-8")]
    vectors = np.random.default_rng(0).standard_normal((len(ids), _DIM)).astype(np.float32)
    with (side.folder / "passages_00").open("wb") as file:
        pickle.dump((ids, vectors), file)
    list(measure_builds(side, passages))
    side.idx("search", CORPUS, "a warm question", "-k", "3")


def measure_builds(side: Side, passages: Path) -> Iterator[tuple[str, float]]:
    """Measure commands."""
    yield "idx build --bm25", side.idx("build", str(passages), "--name", CORPUS, "--bm25", "--force")
    imported = ("import", "embeddings", str(side.folder / "passages_00"), "--corpus", CORPUS, "--encoder", "contriever", "--force")
    yield "idx import embeddings", side.idx(*imported)
    yield "idx search", side.idx("search", CORPUS, "who found phosphorus", "-k", "3")


def measure_searches(side: Side, questions: Path, seconds: float) -> Iterator[tuple[str, float]]:
    """Measure calls in a separate process."""
    command = [sys.executable, str(Path(__file__).with_name("workload.py")), str(questions), side.prefix]
    with subprocess.Popen(
        command, cwd=side.folder, env=side.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("both are pipes")
        for name in _SEARCHES:
            print(json.dumps({"name": name, "seconds": seconds}), file=process.stdin, flush=True)
            line = process.stdout.readline()
            if not line:
                raise IdxError(f"{side.checkout}: the workload '{name}' has ended: see above")
            yield name, float(line)
        process.stdin.close()


def measure_server(side: Side, questions: list[str], seconds: float) -> Iterator[tuple[str, float]]:
    """Measure a server with single questions, and with batches of 32; a first, short run warms it up."""
    singles = [json.dumps({"queries": [question], "k": 10}) for question in questions]
    batches = [json.dumps({"queries": questions[at : at + 32], "k": 10}) for at in range(0, len(questions), 32)]
    orders = [
        ("warm", 1, singles, 1.0),
        *(("singles", clients, singles, seconds) for clients in _CLIENTS),
        ("batches of 32", 4, batches, seconds),
    ]
    with server(side) as port, Load() as load:
        for kind, clients, bodies, length in orders:
            report = load.report(LoadSpec(port=port, path="/v1/search", bodies=bodies, seconds=length, clients=clients))
            if set(report.statuses) != {"200"}:
                raise IdxError(f"{side.checkout}: the server answered {dict(report.statuses)}")
            if kind != "warm":
                yield f"server, {kind}, {clients} client{'s' * (clients > 1)}", report.per_second


@contextmanager
def server(side: Side) -> Iterator[int]:
    """Run ``idx serve`` of one side within a context; yields its port."""
    log = side.folder / "server.log"
    with log.open("w") as errors:
        command = side.command("serve", CORPUS, "--port", "0")
        process = subprocess.Popen(command, cwd=side.folder, env=side.environment(), stdout=subprocess.DEVNULL, stderr=errors)
    try:
        while not (address := re.search(r"http://[\w.]+:(\d+)", log.read_text())):
            if process.poll() is not None:
                raise IdxError(f"{side.checkout}: idx serve has ended: {log.read_text()}")
            time.sleep(0.05)
        wait_until_ready(int(address[1]))
        yield int(address[1])
    finally:
        process.terminate()
        process.wait()


def wait_until_ready(port: int) -> None:
    """Wait until a server has opened its indexes."""
    while True:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=60):
            return
        time.sleep(0.05)


def table(rates: Rates) -> list[dict[str, Figure]]:
    """Return a row for each workload: the best rates, and the ratios of the rounds."""
    rows: list[dict[str, Figure]] = []
    for name, of in rates.items():
        ratios = [new / old for new, old in zip(of["now"], of["before"], strict=True)]
        rows.append(
            {
                "workload": name,
                "before, best /s": max(of["before"]),
                "now, best /s": max(of["now"]),
                "ratio": statistics.median(ratios),
                "least": min(ratios),
                "largest": max(ratios),
                "of the best": max(of["now"]) / max(of["before"]),
            }
        )
    return rows


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commits")
    parser.add_argument("other", type=Path, help="a checkout of the commit to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of each search and of each load on a server")
    parser.add_argument("--passages", type=Path, help="JSON Lines; default: dpr_union of the test data")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    data = data_folder() / "dpr_union"
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        passages, questions = work / "passages.jsonl", work / "questions.json"
        with gzip.open(data / "passages.jsonl.gz", "rb") if options.passages is None else options.passages.open("rb") as file:
            passages.write_bytes(file.read())
        with gzip.open(data / "queries.nq_oracle.jsonl.gz", "rt") as file:
            questions.write_text(json.dumps([json.loads(line)["question"] for line in file]))
        sides = (Side("before", options.other.resolve(), work / "before"), Side("now", _HERE, work / "now"))
        rates = measure(sides, passages, questions, options.rounds, options.seconds)
    commits = {side.name: describe(side.checkout) for side in sides}
    print_table(f"{commits['now']} compared with {commits['before']}", table(rates), environment("numba", "torch"), options.json)
    return 0


def describe(checkout: Path) -> str:
    """Return the commit of a checkout."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(exit_status(main))
