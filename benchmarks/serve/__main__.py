"""Speed of the server, compared with the library and with a server like Search-R1's, and its behaviour under load.

    python -m benchmarks.serve                    # everything; BM25 over wiki_intro, 284,295 random vectors of 384 components
    python -m benchmarks.serve --parts singles batches --retrievers bm25

Server and load are processes on one machine: on two CPUs the load takes a share of the server's time, whereas the library has both CPUs
to itself. Rounds go through all servers in turn; each figure is the median of its rounds.

singles     requests of one question, k 10, from 1 to 64 clients that each wait for their answer, compared with handlers without a search
peers       the same through /retrieve, compared with a server modelled on Search-R1's; see ``hosts``
batches     requests of 32 questions, compared with ``LocalSearcher.search`` with 32
half        single questions at half of the highest rate: latencies
overload    requests at four times the highest rate: answered and refused ones, and half of the rate right after
long        1,000 questions in one request, and an answer of 10 MB: concurrent searches, memory
start       time until ``idx serve`` answers /health, and /ready
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.engines.kinds import NAME
from benchmarks.report import Figure, environment, exit_status, print_table
from benchmarks.serve.corpus import DENSE, prepare
from benchmarks.serve.load import Report
from benchmarks.serve.processes import Server, idx_serve, library
from benchmarks.serve.run import BATCH, K, Run
from wikidx.retrievers.wire import RETRIEVE, SEARCH

CLIENTS = (1, 4, 16, 64)
OVERLOAD = 4

Rows = list[dict[str, Figure]]


def singles(run: Run) -> Rows:
    """Compare single questions with handlers without a search; over the sample, searches take almost no time either."""
    rows: Rows = []
    for clients in CLIENTS:
        rates = run.rates(["idx-sample", "idx-bm25", "nothing", "fastapi"], SEARCH, 1, clients)
        sample, wiki, same, empty = rates.values()
        rows.append(
            {
                "clients": clients,
                "idx, sample, requests/s": sample,
                "idx, wiki_intro": wiki,
                "nothing, same answers": same,
                "sample, % of it": 100 * sample / same,
                "FastAPI, nothing": empty,
                "sample, % of FastAPI": 100 * sample / empty,
                "wiki_intro, % of FastAPI": 100 * wiki / empty,
            }
        )
    return rows


def peers(run: Run) -> Rows:
    """Measure single questions, compared with Search-R1's server."""
    rows: Rows = []
    for retriever in run.retrievers:
        for clients in CLIENTS:
            rates = run.rates([f"idx-{retriever}", f"search-r1-{retriever}"], RETRIEVE, 1, clients)
            idx, theirs = rates.values()
            rows.append({"retriever": retriever, "clients": clients, "idx requests/s": idx, "Search-R1's way": theirs, "×": idx / theirs})
    return rows


def batches(run: Run) -> Rows:
    """Measure requests of 32 questions, compared with the library."""
    rows: Rows = []
    for retriever in run.retrievers:
        with library("bm25" if retriever == "bm25" else DENSE, run.folder) as alone:
            for clients in CLIENTS:
                library_rates, server_rates = list[float](), list[float]()
                for _ in range(run.rounds):
                    library_rates.append(float(alone.exchange_line([BATCH, K, run.seconds])))
                    server_rates.append(BATCH * run.send_requests(f"idx-{retriever}", SEARCH, BATCH, clients=clients).per_second)
                library_rate, rate = statistics.median(library_rates), statistics.median(server_rates)
                shares = [100 * ours / theirs for ours, theirs in zip(server_rates, library_rates, strict=True)]
                rows.append(
                    {
                        "retriever": retriever,
                        "clients": clients,
                        "library questions/s": library_rate,
                        "server questions/s": rate,
                        "%, median of rounds": statistics.median(shares),
                    }
                )
    return rows


def half(run: Run) -> Rows:
    """Measure latencies at half of the highest rate."""
    rows: Rows = []
    for retriever in run.retrievers:
        kind = f"idx-{retriever}"
        best = _highest(run, kind, 1)
        report = run.send_requests(kind, SEARCH, 1, seconds=2 * run.seconds, rate=best / 2)
        rows.append({"retriever": retriever, "requests/s": best / 2, **_latencies(report), "answered": report.statuses.get("200", 0)})
    return rows


def overload(run: Run) -> Rows:
    """Measure answered and refused requests at four times the highest rate."""
    rows: Rows = []
    for retriever, size in [(retriever, size) for retriever in run.retrievers for size in (1, BATCH)]:
        kind = f"idx-{retriever}"
        best = _highest(run, kind, size)
        report = run.send_requests(kind, SEARCH, size, seconds=2 * run.seconds, rate=OVERLOAD * best)
        after = run.send_requests(kind, SEARCH, size, seconds=run.seconds, rate=best / 2)
        rows.append(
            {
                "retriever": retriever,
                "questions": size,
                "highest requests/s": best,
                "sent/s": OVERLOAD * best,
                "answered/s": report.per_second,
                "%": 100 * report.per_second / best,
                "refused/s": report.statuses.get("503", 0) / report.seconds,
                "unsent/s": report.statuses.get("unsent", 0) / report.seconds,
                "p99 ms": report.latencies_ms["99"],
                "p99 ms after": after.latencies_ms["99"],
                "refused after": sum(n for status, n in after.statuses.items() if status != "200"),
            }
        )
    return rows


def long(run: Run) -> Rows:
    """Measure many questions in a request, and a long answer."""
    rows: Rows = []
    server = run.server("idx-bm25")
    for size, k in ((1000, K), (1000, 20), (200, 100)):
        body = json.dumps({"queries": run.questions[:size], "k": k})
        before, n_before = server.peak_bytes(forget=True), _batches(server)
        report = run.answer(server, body)
        rows.append(
            {
                "questions": size,
                "k": k,
                "ms": report.latencies_ms["50"],
                "answer MB": report.n_bytes / 1e6,
                "searches": _batches(server) - n_before,
                "memory MB": (server.peak_bytes() - before) / 1e6,
            }
        )
    return rows


def start(run: Run) -> Rows:
    """Measure the time until a new server answers."""
    seconds = []
    for _ in range(max(3, run.rounds)):
        with idx_serve(run.folder, NAME) as server:
            seconds.append((server.seconds_until("/health"), server.seconds_until("/ready")))
    healthy, ready = zip(*seconds, strict=True)
    return [
        {
            "/health s": statistics.median(healthy),
            "slowest": max(healthy),
            "/ready s": statistics.median(ready),
            "slowest ready": max(ready),
        }
    ]


def _highest(run: Run, kind: str, size: int) -> float:
    """Return a server's highest rate of requests per second, measured now."""
    return max(run.send_requests(kind, SEARCH, size, clients=clients).per_second for clients in (64, 256))


def _latencies(report: Report) -> dict[str, Figure]:
    return {f"p{percent} ms": value for percent, value in report.latencies_ms.items()}


def _batches(server: Server) -> int:
    lines = (server.get("/metrics") or "").splitlines()
    return int(sum(float(line.split()[-1]) for line in lines if line.startswith("idx_batch_queries_count")))


PARTS: dict[str, tuple[str, Callable[[Run], Rows]]] = {
    "singles": ("Single questions, compared with handlers without a search", singles),
    "peers": ("Single questions through /retrieve, compared with a server modelled on Search-R1's", peers),
    "batches": (f"Requests of {BATCH} questions, compared with the library", batches),
    "half": ("Single questions at half of the highest rate", half),
    "overload": (f"At {OVERLOAD} times the highest rate", overload),
    "long": ("Long requests and answers", long),
    "start": ("From the start of the process", start),
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--retrievers", nargs="+", choices=("bm25", "dense"), default=["bm25", "dense"])
    parser.add_argument("--passages", type=Path, help="a file of passages; default: wiki_intro, split at 100 words")
    parser.add_argument("--questions", type=Path, help="JSON lines with 'question'; default: HybridQA's questions in wiki_intro")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of each measurement")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "idx-serve", help="work folder; it is kept")
    parser.add_argument("--json", type=Path, help="output file for all figures")
    return parser.parse_args()


def _run(options: argparse.Namespace) -> None:
    options.work.mkdir(parents=True, exist_ok=True)
    needed = {"dense": "dense" in options.retrievers, "peers": "peers" in options.parts}
    folder = prepare(options.work.resolve(), options.passages, options.questions, **needed)
    about = environment("fastapi", "uvicorn", "uvloop", "numba", "faiss-cpu", "pyserini")
    found = {}
    with ExitStack() as running:
        run = Run(folder, options.rounds, options.seconds, running, retrievers=options.retrievers)
        for part in options.parts:
            title, measure = PARTS[part]
            found[part] = measure(run)
            print_table(title, found[part], about, None)
    if options.json:
        options.json.write_text(json.dumps({"about": about, "rows": found}, indent=1) + "\n")


def main() -> int:
    """Run the command line."""
    return exit_status(lambda: _run(_options()))


if __name__ == "__main__":
    sys.exit(main())
