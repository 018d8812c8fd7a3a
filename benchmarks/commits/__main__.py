"""Speed of this commit relative to another: both are measured in turns, each from its own checkout, on the same passages and questions.

    git worktree add ../before COMMIT
    python -m benchmarks.commits ../before

Commands are whole: ``idx build --bm25`` with the passage store, ``idx import embeddings`` of random vectors of 768 components, and
``idx search``. Searches are calls in a process with everything open and compiled, and "server" is ``idx serve`` with BM25 and that many
clients. Every figure is a rate, or its inverse for commands; ``ratio`` is this commit's over the other's, the median of the rounds, with
the minimum and the maximum: above 1 is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from benchmarks.commits.workload import CORPUS, FEW, N_FEW
from benchmarks.engines.corpus import prepare_questions
from benchmarks.processes import IDX, ROOT, Process, idx
from benchmarks.report import Figure, describe, environment, parser, print_table, run, seconds_of
from benchmarks.serve.load import LoadSpec
from benchmarks.serve.processes import Load, Server
from benchmarks.synthetic import data_folder, real_passages, write
from wikidx.base.errors import IdxError

_DIM = 768
_CLIENTS = (1, 16, 64)
_BATCH = 32


class Side(NamedTuple):
    """One of the two commits: its checkout, and a folder for its data home."""

    name: str
    checkout: Path
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Environment of its processes."""
        return {**os.environ, "PYTHONPATH": str(self.checkout), "IDX_HOME": str(self.folder / "home")}

    def idx(self, *arguments: str) -> float:
        """Run a command; return its rate, in runs per second."""
        return 1 / seconds_of(lambda: idx(*arguments, cwd=self.folder, env=self.environment))


Rates = dict[str, dict[str, list[float]]]  # by workload and side, one per round


def measure(sides: tuple[Side, Side], passages: Path, questions: Path, options: argparse.Namespace) -> Rates:
    """Measure both sides alternately, in changing order."""
    rates: Rates = defaultdict(lambda: defaultdict(list))
    for side in sides:
        prepare(side, passages)
    for number in range(options.rounds):
        for side in sides if number % 2 else sides[::-1]:
            parts = (commands(side, passages), searches(side, questions, options.seconds), server(side, questions, options.seconds))
            for name, rate in (figure for part in parts for figure in part):
                rates[name][side.name].append(rate)
                print(f"{number + 1}/{options.rounds} {side.name}: {name}: {rate:,.2f}", file=sys.stderr, flush=True)
    return rates


def prepare(side: Side, passages: Path) -> None:
    """Build and search once, so that everything is compiled, and write the random vectors."""
    side.folder.mkdir()
    side.idx("build", str(passages), "--name", FEW, "--limit", str(N_FEW))
    ids = [json.loads(line)["id"] for line in passages.open(encoding="utf-8")]
    vectors = np.random.default_rng(0).standard_normal((len(ids), _DIM)).astype(np.float32)
    with (side.folder / "passages_00").open("wb") as file:
        pickle.dump((ids, vectors), file)
    list(commands(side, passages))


def commands(side: Side, passages: Path) -> Iterator[tuple[str, float]]:
    """Measure commands."""
    yield "idx build --bm25", side.idx("build", str(passages), "--name", CORPUS, "--bm25", "--force")
    imported = ("import", "embeddings", str(side.folder / "passages_00"), "--corpus", CORPUS, "--encoder", "contriever", "--force")
    yield "idx import embeddings", side.idx(*imported)
    yield "idx search", side.idx("search", CORPUS, "who found phosphorus", "-k", "3")


def searches(side: Side, questions: Path, seconds: float) -> Iterator[tuple[str, float]]:
    """Measure calls in a separate process."""
    workload = str(Path(__file__).with_name("workload.py"))
    with Process([workload, str(questions)], cwd=side.folder, env=side.environment) as process:
        for name in process.answer():
            yield name, process.exchange([name, seconds])


def server(side: Side, questions: Path, seconds: float) -> Iterator[tuple[str, float]]:
    """Measure a server with single questions, and with batches; a first load warms it up."""
    texts = json.loads(questions.read_bytes())
    singles, batches = (
        [json.dumps({"queries": texts[at : at + size], "k": 10}) for at in range(0, len(texts), size)] for size in (1, _BATCH)
    )
    orders = [("warm", singles, 1), *(("singles", singles, clients) for clients in _CLIENTS), (f"batches of {_BATCH}", batches, 4)]
    with (
        Server([*IDX, "serve", CORPUS, "--port", "0", "--no-access-log"], cwd=side.folder, env=side.environment) as running,
        Load() as load,
    ):
        running.seconds_until("/ready")
        for kind, bodies, clients in orders:
            report = load.report(LoadSpec(running.port, "/v1/search", bodies, seconds, clients))
            if set(report.statuses) != {"200"}:
                raise IdxError(f"{side.checkout}: the server answered {dict(report.statuses)}")
            if kind != "warm":
                yield f"server, {kind}, {clients} client{'s' * (clients > 1)}", report.per_second


def table(rates: Rates) -> Iterator[dict[str, Figure]]:
    """Yield a row for each workload: the best rates, and the ratios of the rounds."""
    for name, of in rates.items():
        ratios = [new / old for new, old in zip(of["now"], of["before"], strict=True)]
        yield {
            "workload": name,
            "before, best /s": max(of["before"]),
            "now, best /s": max(of["now"]),
            "ratio": statistics.median(ratios),
            "least": min(ratios),
            "largest": max(ratios),
        }


def _run(options: argparse.Namespace) -> None:
    with TemporaryDirectory() as folder:
        work = Path(folder)
        passages = work / "passages.jsonl"
        write(real_passages(options.passages), passages)
        questions = prepare_questions("dpr_union", work).file
        sides = (Side("before", options.other.resolve(), work / "before"), Side("now", ROOT, work / "now"))
        rates = measure(sides, passages, questions, options)
    title = f"{describe(ROOT)} compared with {describe(options.other)}"
    print_table(title, table(rates), environment("numba", "torch"), options.json)


def main() -> int:
    """Run the command line."""
    made = parser("commits", __doc__)
    made.add_argument("other", type=Path, help="a checkout of the commit to compare with")
    made.add_argument("--rounds", type=int, default=7)
    made.add_argument("--seconds", type=float, default=2.0, help="duration of each search and of each load on a server")
    made.add_argument("--passages", type=Path, default=data_folder() / "dpr_union" / "passages.jsonl.gz", help="JSON Lines")
    return run(made, _run)


if __name__ == "__main__":
    sys.exit(main())
