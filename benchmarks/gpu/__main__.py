"""The call for groups of queries, and ``idx serve``, over exact search on a GPU; with ``--device cpu`` the same on the CPU.

    python -m benchmarks.gpu --json FILE                # 1,000,000 made passages with 768 components, BERT base with random weights
    python -m benchmarks.gpu --device cpu --n 2000 --hidden 64 --layers 2 --seconds 0.5 --clients 4 --posts 2

groups    200 groups of five queries in one call: distinct queries searched in one batch, merged, duplicates of texts left out, the texts of
          the best k; vectors given, and texts encoded. "index" is the search of the 1,000 vectors alone, "encoder" the encoding alone.
          With a GPU, its rows are followed by those of the CPU, with k 10 only.
serve     ``idx serve`` with both retrievers: clients that each wait for their answer, one query a request, and posts of 64. The
          load has a process of its own; "its load %" is the share of the time that it used a processor.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.engines.kinds import NAME, use_data_home
from benchmarks.gpu.corpus import ENCODED, GIVEN, prepare, random_vectors, sentences
from benchmarks.report import Figure, environment, exit_status, print_table, seconds_of
from benchmarks.serve.load import LoadSpec
from benchmarks.serve.processes import Load, Server, idx_serve
from wikidx.base.compiled import compile_always
from wikidx.base.machine.devices import count_gpus
from wikidx.corpora.build import open_store
from wikidx.indexer.base import Encoder
from wikidx.indexer.build import open_vector_index
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.naming import encoder_spec
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.dense import DenseRetriever
from wikidx.retrievers.searcher import LocalSearcher
from wikidx.retrievers.vector_queries import GivenVectors, vector_query
from wikidx.retrievers.wire import SEARCH

K = 10
DEPTH = 100
GROUP = 5
BATCH = 64
N_QUERIES = 2_048

Rows = Iterator[dict[str, Figure]]


def made_queries(name: str, dim: int) -> list[str]:
    """Return distinct queries of a retriever: vectors as texts, or texts."""
    return [vector_query(vector) for vector in random_vectors(N_QUERIES, dim, 1)] if name == GIVEN else sentences(N_QUERIES, 1)


def groups(device: str, n_groups: int, seconds: float, ks: Sequence[int]) -> Rows:
    """Time the call for groups, its index alone and its encoder alone, with everything on a device."""
    compile_always()  # as a server does
    store = open_store(NAME)
    index = open_vector_index(NAME, GIVEN, store, device=device)
    encoders: dict[str, Encoder] = {GIVEN: GivenVectors(index.dim), ENCODED: TransformerEncoder(encoder_spec(ENCODED), device)}
    for name, encoder in encoders.items():
        asked = made_queries(name, index.dim)[: n_groups * GROUP]
        grouped = [asked[first : first + GROUP] for first in range(0, len(asked), GROUP)]
        searcher, vectors = LocalSearcher(store, {name: DenseRetriever(encoder, index)}), encoder.encode_queries(asked)
        for k in ks:
            options = SearchOptions(k=k, depth=DEPTH, dedup="text")
            call, cpu_s = _times(lambda: searcher.search_groups(grouped, options), seconds)  # noqa: B023 - called here
            alone, _ = _times(lambda: index.search(vectors, DEPTH), seconds)  # noqa: B023
            encoding, _ = _times(lambda: encoder.encode_queries(asked), seconds)  # noqa: B023
            yield {
                "on": index.placement.devices[0],
                "queries": "vectors" if name == GIVEN else "texts",
                "k": k,
                "call ms": 1e3 * statistics.median(call),
                "slowest ms": 1e3 * max(call),
                "index ms": 1e3 * statistics.median(alone),
                "encoder ms": 1e3 * statistics.median(encoding),
                "groups/s": n_groups / statistics.median(call),
                "CPU ms a group": 1e3 * cpu_s / len(call) / n_groups,
            }


def _times(work: Callable[[], object], seconds: float) -> tuple[list[float], float]:
    """Return the durations of a call for some time, after a first one that is not counted, and the processor time of all together."""
    work()
    durations, started = list[float](), time.process_time()
    while not durations or sum(durations) < seconds:
        durations.append(seconds_of(work))
    return durations, time.process_time() - started


def serve(folder: Path, options: argparse.Namespace) -> Rows:
    """Load ``idx serve`` with requests of one query, and with posts."""
    shapes = [(1, clients) for clients in options.clients] + [(BATCH, options.posts)]
    with idx_serve(folder, NAME, "--device", options.device, "--retriever", GIVEN, "--retriever", ENCODED) as server, Load() as load:
        server.seconds_until("/ready")
        for name in (GIVEN, ENCODED):
            queries = made_queries(name, options.hidden)
            for size, clients in shapes:
                search = {"retriever": name, "k": K, "depth": K}
                bodies = [json.dumps({"queries": queries[n : n + size], **search}) for n in range(0, N_QUERIES, size)]
                load.report(LoadSpec(server.port, SEARCH, bodies, options.seconds / 4, clients))
                yield _under_load(server, load, LoadSpec(server.port, SEARCH, bodies, options.seconds, clients), name, size)


def _under_load(server: Server, load: Load, order: LoadSpec, name: str, size: int) -> dict[str, Figure]:
    pids = (server.process.pid, load.process.pid)
    before, counts_before = [_processor_s(pid) for pid in pids], _batches(server)
    report = load.report(order)
    server_s, load_s = (_processor_s(pid) - earlier for pid, earlier in zip(pids, before, strict=True))
    n_batches, n_queries = (now - earlier for now, earlier in zip(_batches(server), counts_before, strict=True))
    return {
        "queries": "vectors" if name == GIVEN else "texts",
        "a request": size,
        "clients": order.clients,
        "queries/s": size * report.per_second,
        **{f"p{percent} ms": value for percent, value in report.latencies_ms.items()},
        "CPU ms a query": 1e3 * server_s / max(1.0, n_queries),
        "queries a batch": n_queries / max(1.0, n_batches),
        "refused or lost": sum(report.statuses.values()) - report.statuses.get("200", 0),
        "its load %": 100 * load_s / report.seconds,
    }


def _processor_s(pid: int) -> float:
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _batches(server: Server) -> tuple[float, float]:
    """Return the number of batches, and of their queries."""
    lines = (server.get("/metrics") or "").splitlines()
    values = {end: [float(line.split()[-1]) for line in lines if line.startswith(f"idx_batch_queries_{end}")] for end in ("count", "sum")}
    return sum(values["count"]), sum(values["sum"])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--device", default="cuda" if count_gpus() else "cpu")
    parser.add_argument("--n", type=int, default=1_000_000, help="number of passages")
    parser.add_argument("--hidden", type=int, default=768, help="components of the vectors")
    parser.add_argument("--layers", type=int, default=12, help="layers of the encoder of texts")
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--clients", type=int, nargs="+", default=[64, 512], help="of requests of one query")
    parser.add_argument("--posts", type=int, default=32, help=f"clients of requests of {BATCH} queries")
    parser.add_argument("--seconds", type=float, default=6.0, help="duration of each load, and six times that of each time")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "idx-gpu", help="work folder; it is kept")
    parser.add_argument("--json", type=Path, help="output file for all figures")
    return parser.parse_args()


def _run(options: argparse.Namespace) -> None:
    folder = options.work.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    use_data_home(folder)
    sizes = {"hidden": options.hidden, "layers": options.layers, "heads": options.hidden // 64}
    building_s = seconds_of(lambda: prepare(folder, options.n, sizes))
    about = environment("torch", "transformers", "numpy") | {"passages": options.n, "built in s": round(building_s)}
    rows: dict[str, Iterable[dict[str, Figure]]] = {
        "groups": groups(options.device, options.groups, options.seconds / 6, (K, DEPTH)),
        "serve": serve(folder, options),
    }
    if options.device != "cpu":
        rows["groups"] = itertools.chain(rows["groups"], groups("cpu", options.groups, options.seconds / 6, (K,)))
    found = {part: list[dict[str, Figure]]() for part in rows}
    for part, title in (("groups", f"{options.groups} groups of {GROUP} queries in one call"), ("serve", "idx serve")):
        print_table(title, _kept(rows[part], found[part]), about, None)
        if options.json:
            options.json.write_text(json.dumps({"about": about, "rows": found}, indent=1) + "\n")


def _kept(rows: Iterable[dict[str, Figure]], kept: list[dict[str, Figure]]) -> Rows:
    """Yield the rows, and keep them in a list."""
    for row in rows:
        kept.append(row)
        yield row


def main() -> int:
    """Run the command line."""
    return exit_status(lambda: _run(_options()))


if __name__ == "__main__":
    sys.exit(main())
