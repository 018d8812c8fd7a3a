"""Cost of a Ray cluster on this machine, and agreement of its results with those of one process.

python -m benchmarks.ray serving sample             # searches of a built corpus through shards
python -m benchmarks.ray embedding --nodes 1 2      # passages per second by minilm, and the bytes

Every node is a Ray process with one CPU, and all share this machine: more nodes than CPUs bring no speed-up. A search includes its fan-out,
way back and merge, but not the encoding of its queries; "groups" of three queries are sent at once.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.embed import build_corpus, real_passages
from benchmarks.report import Figure, environment, exit_status, print_table
from wikidx.base.artifacts.home import home
from wikidx.base.cluster import connect, load_ray
from wikidx.corpora.build import open_store
from wikidx.indexer.base import VectorIndex
from wikidx.indexer.build import open_vector_index
from wikidx.indexer.embedding.embed import EmbedProgress, embed, resolve_resources
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.embedding.pipeline import Job
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.vectors.file import VectorFile
from wikidx.retrievers.cluster.service import ShardService
from wikidx.retrievers.dense import DenseRetriever
from wikidx.retrievers.server.metrics import Metrics
from wikidx.retrievers.server.settings import Settings

_NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}
_ROUNDS = 7


@contextmanager
def start_cluster(n_nodes: int) -> Iterator[str]:
    """Start nodes of a cluster on this machine; yield its address."""
    load_ray()
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster(initialize_head=True, head_node_args=_NODE)
    try:
        for _ in range(n_nodes - 1):
            cluster.add_node(**_NODE)
        yield cluster.address
    finally:
        cluster.shutdown()


def median_ms(index: VectorIndex, vectors: np.typing.NDArray[np.float32]) -> float:
    """Return the median time of a search for the 100 best rows of each vector."""
    times = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        index.search(vectors, 100)
        times.append(1e3 * (time.perf_counter() - started))
    return float(np.median(times))


def measure_serving(options: argparse.Namespace) -> Iterator[dict[str, Figure]]:
    """Search by an index in this process, and by its shards."""
    corpus, name, store = options.corpus, options.index, open_store(options.corpus)
    whole = open_vector_index(corpus, name, store)
    shards = ShardService(Settings(corpora=(corpus,), retrievers=(name,)), Metrics(), options.shards)
    with shards.exchange() as opener:
        retriever = opener(corpus, name, store, device="cpu")
        assert isinstance(retriever, DenseRetriever)
        passages = [passage.text for passage in store.get_many(np.random.default_rng(1).integers(0, len(store), 192))]
        for n in (1, 192):
            vectors = retriever.encoder.encode_queries(passages[:n])
            found, expected = retriever._index.search(vectors, 100), whole.search(vectors, 100)
            times = {"shards ms": median_ms(retriever._index, vectors), "one process ms": median_ms(whole, vectors)}
            same = np.array_equal(found.rows, expected.rows) and np.array_equal(found.scores, expected.scores)
            yield {"index": name, "groups": max(1, n // 3), **times, "same": "yes" if same else "no"}
    shards.stop()


def embed_passages(options: argparse.Namespace, how: EmbedOptions) -> tuple[float, bytes]:
    """Embed the built passages; return the seconds and the file of vectors."""
    spec = encoder_spec("minilm")
    with tempfile.TemporaryDirectory(dir=home()) as folder:  # which the nodes also see
        resources, started = resolve_resources(how, spec), time.perf_counter()
        file = VectorFile(Path(folder), options.passages, resources.precision.stored, options.range_rows)
        embed(Job(spec, partial(open_store, "measured"), file.write, resources), file, EmbedProgress())
        return time.perf_counter() - started, file.path.read_bytes()


def measure_embedding(options: argparse.Namespace) -> Iterator[dict[str, Figure]]:
    """Embed in this process with one thread, then on clusters of these numbers of nodes."""
    import torch

    torch.set_num_threads(1)
    with build_corpus(real_passages(options.passages)):
        seconds, expected = embed_passages(options, EmbedOptions(device="cpu"))
        yield {"nodes": "this process", "passages": options.passages, "seconds": seconds, "same bytes": "-"}
        for n_nodes in options.nodes:
            with start_cluster(n_nodes) as address, connect(address):
                seconds, vectors = embed_passages(options, EmbedOptions(device="cpu", on_ray=True, ray_cpus=1))
            same = "yes" if vectors == expected else "no"
            yield {"nodes": str(n_nodes), "passages": options.passages, "seconds": seconds, "same bytes": same}


def main(arguments: Sequence[str]) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    serving, embedding = parts.add_parser("serving"), parts.add_parser("embedding")
    serving.add_argument("corpus", help="a built corpus")
    serving.add_argument("--index", default="minilm", help="one of its vector indexes")
    serving.add_argument("--shards", type=int, default=3)
    embedding.add_argument("--passages", type=int, default=400)
    embedding.add_argument("--range-rows", type=int, default=50)
    embedding.add_argument("--nodes", type=int, nargs="+", default=[1, 2])
    for part in (serving, embedding):
        part.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    about = environment("ray", "numpy", "torch")
    if options.part == "embedding":
        print_table(f"minilm, ranges of {options.range_rows} passages", measure_embedding(options), about, options.json)
    else:
        with start_cluster(options.shards) as address, connect(address):
            print_table(f"{options.corpus}: {options.shards} shards on one machine", measure_serving(options), about, options.json)


if __name__ == "__main__":
    sys.exit(exit_status(lambda: main(sys.argv[1:])))
