"""The call for groups of queries, and ``idx serve``, over exact search on a GPU; with ``--device cpu`` the same on the CPU.

    python -m benchmarks.gpu --json FILE                # 1,000,000 made passages with 768 components, BERT base with random weights
    python -m benchmarks.gpu --device cpu --n 2000 --hidden 64 --layers 2 --seconds 0.5 --clients 4 --posts 2

groups    200 groups of five queries in one call: distinct queries searched in one batch, merged, duplicates of texts left out, the texts of
          the best k; vectors given, and texts encoded. "index" is the search of the 1,000 vectors alone, "encoder" the encoding alone.
          With a GPU, its rows are followed by those of the CPU, with k 10 only.
serve     ``idx serve`` with both retrievers: clients that each wait for their answer, one query a request, and posts of 64. The
          load has a process of its own.

Random vectors cost an exact search as much as real ones; their results are meaningless. They are imported twice: as those of ``none``,
whose queries are vectors, and of ``bert``, a BERT with random weights that encodes texts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from benchmarks.gpu.made import save_bert, words
from benchmarks.processes import NAME, use_data_home
from benchmarks.report import Figure, environment, parser, print_tables, run, seconds_of
from benchmarks.serve.load import LoadSpec
from benchmarks.serve.processes import Load, Server, idx_serve
from wikidx.base.compiled import compile_always
from wikidx.base.machine.devices import count_gpus
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.corpus import Corpus
from wikidx.corpora.passage import LocatedPassage, Passage
from wikidx.indexer.base import Encoder, Vectors
from wikidx.indexer.build import open_vector_index
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.naming import encoder_spec, name_encoder
from wikidx.indexer.published.formats import find_embeddings
from wikidx.indexer.published.importing import ImportOptions, import_vectors
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.dense import DenseRetriever
from wikidx.retrievers.searcher import LocalSearcher
from wikidx.retrievers.vector_queries import GivenVectors, vector_query
from wikidx.retrievers.wire import SEARCH

GIVEN, ENCODED = "none", "bert"  # the retrievers
K, DEPTH, GROUP, BATCH, N_QUERIES = 10, 100, 5, 64, 2_048
_KINDS = {GIVEN: "vectors", ENCODED: "texts"}
_N_SENTENCES, _SENTENCE_WORDS, _PASSAGE_SENTENCES = 8_192, 12, 8
_BLOCK = 1 << 14

Rows = Iterator[dict[str, Figure]]


def sentences(n: int, seed: int) -> list[str]:
    """Return n texts of some random words."""
    known, _ = words()
    numbers = np.random.default_rng(seed).integers(0, len(known), (n, _SENTENCE_WORDS))
    return [" ".join([known[number] for number in line]) for line in numbers.tolist()]


def random_vectors(n: int, dim: int, seed: int) -> Vectors:
    """Return n random vectors of length 1."""
    vectors: Vectors = np.random.default_rng(seed).standard_normal((n, dim), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def made_passages(n: int) -> Iterator[LocatedPassage]:
    """Yield passages of random sentences."""
    parts = sentences(_N_SENTENCES, 0)
    for start in range(0, n, _BLOCK):
        chosen: Sequence[Sequence[int]] = np.random.default_rng(start).integers(0, len(parts), (_BLOCK, _PASSAGE_SENTENCES)).tolist()
        for number, line in enumerate(chosen[: n - start], start):
            yield LocatedPassage(Passage(str(number), f"passage {number}", ". ".join([parts[part] for part in line])), "made", number)


def prepare(folder: Path, options: argparse.Namespace) -> None:
    """Build in the data home what is missing: the store, the network, and float16 vectors, which have as many components as it."""
    n, path = options.n, folder / "vectors.npy"
    build_store(Corpus(name=NAME, summary="made passages", files=(), read=lambda _, __: made_passages(n), n_passages=n), StoreOptions())
    if not (folder / ENCODED).exists():
        save_bert(folder / ENCODED, hidden=options.hidden, layers=options.layers, heads=options.hidden // 64)
    if not path.exists():
        array: Any = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(n, options.hidden))

        def fill(start: int) -> None:
            stop = min(start + _BLOCK, n)
            array[start:stop] = random_vectors(stop - start, options.hidden, start)

        with ThreadPoolExecutor() as threads:
            list(threads.map(fill, range(0, n, _BLOCK)))
        array.flush()
    for encoder in (GIVEN, name_encoder(str(folder / ENCODED))):
        import_vectors(NAME, encoder_spec(encoder), open_store(NAME), find_embeddings(path), ImportOptions())


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
                "queries": _KINDS[name],
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
    durations, started = list[float](), process_time()
    while not durations or sum(durations) < seconds:
        durations.append(seconds_of(work))
    return durations, process_time() - started


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
                order = LoadSpec(server.port, SEARCH, bodies, options.seconds, clients)
                yield {"queries": _KINDS[name], "a request": size, "clients": clients, **_under_load(server, load, order, size)}


def _under_load(server: Server, load: Load, order: LoadSpec, size: int) -> dict[str, Figure]:
    def counters() -> list[float]:
        return [_processor_s(server.process.pid), *(server.metric(f"idx_batch_queries_{end}") for end in ("count", "sum"))]

    before, report = counters(), load.report(order)
    server_s, n_batches, n_queries = (now - earlier for now, earlier in zip(counters(), before, strict=True))
    return {
        "queries/s": size * report.per_second,
        **{f"p{percent} ms": value for percent, value in report.latencies_ms.items()},
        "CPU ms a query": 1e3 * server_s / max(1.0, n_queries),
        "queries a batch": n_queries / max(1.0, n_batches),
        "refused or lost": sum(report.statuses.values()) - report.statuses.get("200", 0),
    }


def _processor_s(pid: int) -> float:
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _run(options: argparse.Namespace) -> None:
    folder = options.work.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    use_data_home(folder)
    building_s = seconds_of(lambda: prepare(folder, options))
    about = environment("torch", "transformers", "numpy") | {"passages": options.n, "built in s": round(building_s)}
    ks = {options.device: (K, DEPTH)} if options.device == "cpu" else {options.device: (K, DEPTH), "cpu": (K,)}
    rows = itertools.chain.from_iterable(groups(device, options.groups, options.seconds / 6, its_ks) for device, its_ks in ks.items())
    tables = {f"{options.groups} groups of {GROUP} queries in one call": rows, "idx serve": serve(folder, options)}
    print_tables(tables, about, options.json)


def main() -> int:
    """Run the command line."""
    made = parser("gpu", __doc__)
    made.add_argument("--device", default="cuda" if count_gpus() else "cpu")
    made.add_argument("--n", type=int, default=1_000_000, help="number of passages")
    made.add_argument("--hidden", type=int, default=768, help="components of the vectors")
    made.add_argument("--layers", type=int, default=12, help="layers of the encoder of texts")
    made.add_argument("--groups", type=int, default=200)
    made.add_argument("--clients", type=int, nargs="+", default=[64, 512], help="of requests of one query")
    made.add_argument("--posts", type=int, default=32, help=f"clients of requests of {BATCH} queries")
    made.add_argument("--seconds", type=float, default=6.0, help="duration of each load, and six times that of each time")
    return run(made, _run)


if __name__ == "__main__":
    sys.exit(main())
