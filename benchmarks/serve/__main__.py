"""Speed of ``idx serve``, beside an empty handler and a server like Search-R1's, and its behaviour under load.

    python -m benchmarks.serve                    # all, on dpr_union
    python -m benchmarks.serve --parts requests --retrievers bm25 --clients 1 64

Server and load are processes on one machine: on two CPUs the load takes a share of the server's time. Rounds go through all servers in
turn; each figure is the median of its rounds.

requests    one question through /retrieve, k 10, from clients that each wait for their answer, beside a FastAPI handler without a search
            and a server modelled on Search-R1's; see ``hosts``
servers     R@20, first answer to a question from the start of the process, start until /health and /ready, peak of own memory
batches     requests of 32 questions; ``benchmarks.engines --engines bm25 call --batch 32`` has the library's speed
overload    single questions and batches at half of the highest rate, at four times that, and at half right after

``python -m benchmarks.serve.soak`` looks whether memory grows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.engines.corpus import Questions, prepare_corpus, prepare_questions
from benchmarks.engines.embedded import embed
from benchmarks.engines.kinds import find_kind
from benchmarks.engines.quality import RECALL_K, recall
from benchmarks.engines.worker import build
from benchmarks.processes import NAME, use_data_home
from benchmarks.report import Figure, environment, parser, print_tables, run
from benchmarks.serve.load import LoadSpec, Report
from benchmarks.serve.processes import Load, Server, host, idx_serve
from wikidx.corpora.build import open_store
from wikidx.retrievers.wire import RETRIEVE, SEARCH

K, BATCH, OVERLOAD = 10, 32, 4
PEERS = {"bm25": ("pyserini",), "minilm": ("faiss", "sentence-transformers")}  # engines of Search-R1's way
_HIGHEST = (64, 256)  # clients

Rows = Iterator[dict[str, Figure]]


class Run:
    """The processes of a run, which end with ``running``; servers are started on first use."""

    def __init__(self, folder: Path, questions: Questions, running: ExitStack, options: argparse.Namespace) -> None:
        self.folder, self.questions, self.options = folder, questions, options
        self.texts: list[str] = json.loads(questions.file.read_bytes())
        self._running, self._servers = running, dict[str, Server]()
        self._load = running.enter_context(Load())

    def start(self, kind: str) -> Server:
        """Start a server."""
        name, _, retriever = kind.partition("-")
        return idx_serve(self.folder, NAME, "--retriever", retriever, "--no-access-log") if name == "idx" else host(kind, self.folder)

    def server(self, kind: str) -> Server:
        """Return a server that has been warmed up."""
        if kind not in self._servers:
            self._servers[kind] = server = self._running.enter_context(self.start(kind))
            server.seconds_until(RETRIEVE, self.body(RETRIEVE, self.texts[:1]))
            for size, clients in ((BATCH, 2), (1, 8)):
                self.send(kind, RETRIEVE, size, clients=clients)
        return self._servers[kind]

    def body(self, path: str, queries: Sequence[str]) -> dict[str, object]:
        """Return a request."""
        more: dict[str, object] = {"topk": K, "return_scores": True} if path == RETRIEVE else {"k": K, "depth": K}
        return {"queries": list(queries), **more}

    def send(self, kind: str, path: str, size: int, *, clients: int = 0, rate: float = 0.0) -> Report:
        """Send requests of some questions each to a server."""
        groups = [self.texts[first : first + size] for first in range(0, max(1, len(self.texts) - size), size)]
        bodies = [json.dumps(self.body(path, group)) for group in groups]
        return self._load.report(LoadSpec(self.server(kind).port, path, bodies, self.options.seconds, clients, rate))


def requests(run: Run) -> Rows:
    """Compare single questions with an empty handler, and with Search-R1's server."""
    for retriever in run.options.retrievers:
        kinds = (f"idx-{retriever}", "empty", f"search-r1-{retriever}")
        for clients in run.options.clients:
            rounds = [[run.send(kind, RETRIEVE, 1, clients=clients) for kind in kinds] for _ in range(run.options.rounds)]
            reports = list(zip(*rounds, strict=True))
            idx, empty, theirs = (statistics.median(report.per_second for report in of_kind) for of_kind in reports)
            p95 = [statistics.median(report.latencies_ms["95"] for report in of_kind) for of_kind in reports]
            yield {
                "retriever": retriever,
                "clients": clients,
                "idx requests/s": idx,
                "empty handler": empty,
                "idx, % of it": 100 * idx / empty,
                "Search-R1's way": theirs,
                "×": idx / theirs,
                "idx p95 ms": p95[0],
                "Search-R1's way p95 ms": p95[2],
            }


def servers(run: Run) -> Rows:
    """Measure starts, memory, and what is found."""
    for retriever in run.options.retrievers:
        for kind, name in ((f"idx-{retriever}", "idx serve"), (f"search-r1-{retriever}", "Search-R1's way")):
            firsts, starts = list[float](), list[tuple[float, ...]]()
            for _ in range(run.options.rounds):
                with run.start(kind) as server:
                    if name == "idx serve":
                        starts.append((server.seconds_until("/health"), server.seconds_until("/ready")))
                    firsts.append(server.seconds_until(RETRIEVE, run.body(RETRIEVE, run.texts[:1])))
            health, ready = map(statistics.median, zip(*starts, strict=True)) if starts else ("", "")
            yield {
                "server": f"{name}, {retriever}",
                "R@20 %": recall(_rows_found(run, kind), run.questions.answers) if any(run.questions.answers) else "",
                "/health s": health,
                "/ready s": ready,
                "first answer s": statistics.median(firsts),
                "own memory, most, MB": run.server(kind).peak_bytes() / 1e6,
            }


def _rows_found(run: Run, kind: str) -> list[list[int]]:
    """Return the rows of a server's results for all questions, through ``/retrieve``."""
    ids = list[list[str]]()
    for first in range(0, len(run.texts), BATCH):
        body = run.body(RETRIEVE, run.texts[first : first + BATCH]) | {"topk": RECALL_K}
        found = json.loads(run.server(kind).ask(RETRIEVE, body) or b'{"result": []}')["result"]
        ids += [[hit["document"]["id"] for hit in line] for line in found]
    use_data_home(run.folder)
    distinct = list(dict.fromkeys(id_ for line in ids for id_ in line))
    row_of = dict(zip(distinct, open_store(NAME).rows_of(distinct).tolist(), strict=True))
    return [[row_of[id_] for id_ in line] for line in ids]


def batches(run: Run) -> Rows:
    """Measure requests of 32 questions."""
    for retriever in run.options.retrievers:
        for clients in run.options.clients:
            reports = [run.send(f"idx-{retriever}", SEARCH, BATCH, clients=clients) for _ in range(run.options.rounds)]
            rate = BATCH * statistics.median(report.per_second for report in reports)
            yield {"retriever": retriever, "clients": clients, "questions/s": rate}


def overload(run: Run) -> Rows:
    """Measure latencies at half of the highest rate, and what is answered and refused at four times that rate."""
    for retriever, size in ((retriever, size) for retriever in run.options.retrievers for size in (1, BATCH)):
        kind = f"idx-{retriever}"
        best = max(run.send(kind, SEARCH, size, clients=clients).per_second for clients in _HIGHEST)
        half, above, after = (run.send(kind, SEARCH, size, rate=factor * best) for factor in (0.5, OVERLOAD, 0.5))
        yield {
            "retriever": retriever,
            "questions": size,
            "highest requests/s": best,
            **{f"half: p{percent} ms": value for percent, value in half.latencies_ms.items()},
            f"{OVERLOAD} ×: answered/s": above.per_second,
            "% of the highest": 100 * above.per_second / best,
            "refused/s": above.statuses.get("503", 0) / above.seconds,
            "unsent/s": above.statuses.get("unsent", 0) / above.seconds,
            "p99 ms": above.latencies_ms["99"],
            "p99 ms after": after.latencies_ms["99"],
            "not answered after": sum(n for status, n in after.statuses.items() if status != "200"),
        }


PARTS: dict[str, tuple[str, Callable[[Run], Rows]]] = {
    "requests": ("Single questions through /retrieve", requests),
    "servers": ("The servers", servers),
    "batches": (f"Requests of {BATCH} questions", batches),
    "overload": (f"At half and at {OVERLOAD} times the highest rate", overload),
}


def _run(options: argparse.Namespace) -> None:
    options.work.mkdir(parents=True, exist_ok=True)
    options.work = options.work.resolve()
    questions = prepare_questions(options.questions, options.work)
    folder = prepare_corpus(options.corpus, options.work).folder
    if "minilm" in options.retrievers:
        embed(folder, questions.file)
    for engine in (engine for retriever in options.retrievers for engine in ("bm25", *PEERS[retriever])):
        find_kind(engine).check()
        build(engine, folder, 1)
    about = environment("fastapi", "uvicorn", "uvloop", "numba", "faiss-cpu", "pyserini", "sentence-transformers")
    with ExitStack() as running:
        run = Run(folder, questions, running, options)
        print_tables({PARTS[part][0]: PARTS[part][1](run) for part in options.parts}, about, options.json)


def main() -> int:
    """Run the command line."""
    made = parser("serve", __doc__)
    made.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    made.add_argument("--retrievers", nargs="+", choices=PEERS, default=list(PEERS))
    made.add_argument("--corpus", default="dpr_union", help="as in benchmarks.engines")
    made.add_argument("--questions", default="dpr_union", help="as in benchmarks.engines")
    made.add_argument("--clients", nargs="+", type=int, default=[1, 4, 16, 64])
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--seconds", type=float, default=2.0, help="duration of each measurement")
    return run(made, _run)


if __name__ == "__main__":
    sys.exit(main())
