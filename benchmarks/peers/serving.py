"""``idx serve`` compared with a server like Search-R1's: requests per second, latency, start, memory, and agreement of results."""

from __future__ import annotations

import json
import statistics
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.engines.kinds import NAME
from benchmarks.peers.measuring import Rows, Task
from benchmarks.peers.recall import K as RECALL_K
from benchmarks.peers.recall import recall
from benchmarks.serve.processes import Server
from benchmarks.serve.run import BATCH, Run
from wikidx.corpora.build import open_store
from wikidx.retrievers.wire import RETRIEVE

CLIENTS = (1, 4, 16, 64)


def serve(task: Task, retrievers: Sequence[str], seconds: float) -> tuple[Rows, Rows]:
    """Return a row for each retriever and number of clients, and one for each server."""
    by_clients: Rows = []
    by_server: Rows = []
    with ExitStack() as running:
        run = Run(task.folder, task.plan.rounds, seconds, running, retrievers=retrievers)
        for retriever in retrievers:
            kinds = [f"idx-{retriever}", f"search-r1-{retriever}"]
            for clients in CLIENTS:
                reports = run.alternate(kinds, RETRIEVE, 1, clients)
                rates = [statistics.median(report.per_second for report in reports[kind]) for kind in kinds]
                p95 = [statistics.median(report.latencies_ms["95"] for report in reports[kind]) for kind in kinds]
                by_clients.append(
                    {
                        "retriever": retriever,
                        "clients": clients,
                        "idx requests/s": rates[0],
                        "Search-R1's way": rates[1],
                        "×": rates[0] / rates[1],
                        "idx p95 ms": p95[0],
                        "Search-R1's way p95 ms": p95[1],
                    }
                )
            by_server += [
                {
                    "server": name,
                    "R@20 %": recall(_rows_found(run.server(kind), run.questions), task.answers, open_store(NAME)),
                    "first answer s": statistics.median(run.first_answer_s(kind, RETRIEVE) for _ in range(task.starts)),
                    "own memory, most, MB": run.server(kind).peak_bytes() / 1e6,
                }
                for name, kind in zip((f"idx serve, {retriever}", f"Search-R1's way, {retriever}"), kinds, strict=True)
            ]
    return by_clients, by_server


def _rows_found(server: Server, questions: Sequence[str]) -> list[list[int]]:
    """Return the rows of a server's results for questions, through ``/retrieve``."""
    found: list[Any] = []
    for first in range(0, len(questions), BATCH):
        body = json.dumps({"queries": questions[first : first + BATCH], "topk": RECALL_K, "return_scores": True}).encode()
        request = urllib.request.Request(f"{server.url}{RETRIEVE}", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            found += json.load(answer)["result"]
    ids = [[hit["document"]["id"] for hit in line] for line in found]
    distinct = list(dict.fromkeys(id_ for line in ids for id_ in line))
    row_of = dict(zip(distinct, open_store(NAME).rows_of(distinct).tolist(), strict=True))
    return [[row_of[id_] for id_ in line] for line in ids]
