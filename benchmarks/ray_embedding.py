"""Cost of embedding on a Ray cluster rather than in this process, and equality of the bytes written.

    python -m benchmarks.ray embedding                       # minilm, 400 real passages, one and two nodes on this machine

Every node is a Ray process with one CPU, and all share this machine: more nodes than CPUs bring no speed-up. The baseline is embedding in
this process with one thread. "start s" is the time to the first reported passage (processes start, import torch and load the model; the
nodes are compared), "passages/s running" the rate from there on.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.embed import build_corpus, real_passages
from benchmarks.ray_serving import start_cluster
from benchmarks.report import Figure, environment, print_table
from wikidx.base.artifacts.home import home
from wikidx.corpora.build import open_store
from wikidx.indexer.embedding.cluster.nodes import connect
from wikidx.indexer.embedding.embed import EmbedProgress, embed, resolve_resources
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.embedding.pipeline import Job
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.vectors.file import VectorFile


class Clock:
    """Records the time and the number of the first reported passages."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.first_at, self.n_first = self.started, 0

    def report(self, done: int, total: int | None) -> None:
        """Receive a report."""
        if done and not self.n_first:
            self.first_at, self.n_first = time.perf_counter(), done


@contextmanager
def folder_in_home() -> Iterator[Path]:
    """Create a folder for vectors that the nodes also see."""
    with tempfile.TemporaryDirectory(dir=home()) as folder:
        yield Path(folder)


def embed_passages(n: int, range_rows: int, options: EmbedOptions) -> tuple[dict[str, Figure], bytes]:
    """Embed a built corpus; return the figures and the file of vectors."""
    spec = encoder_spec("minilm")
    with folder_in_home() as folder:
        found = resolve_resources(options, spec)
        file = VectorFile(folder, n, found.precision.stored, range_rows)
        job = Job(spec, partial(open_store, "measured"), file.write, found)
        clock = Clock()
        embed(job, file, EmbedProgress(clock.report))
        ended = time.perf_counter()
        vectors = file.path.read_bytes()
    figures: dict[str, Figure] = {
        "passages": n,
        "start s": clock.first_at - clock.started,
        "seconds": ended - clock.started,
        "passages/s running": (n - clock.n_first) / max(ended - clock.first_at, 1e-9),
    }
    return figures, vectors


def measure(n: int, range_rows: int, nodes: list[int]) -> list[dict[str, Figure]]:
    """Embed in this process, then on clusters of these numbers of nodes."""
    import torch

    torch.set_num_threads(1)
    with build_corpus(real_passages(n)):
        figures, expected = embed_passages(n, range_rows, EmbedOptions(device="cpu"))
        rows = [{"nodes": "this process", **figures, "same bytes": "-"}]
        for n_nodes in nodes:
            with start_cluster(n_nodes) as address, connect(address):
                options = EmbedOptions(device="cpu", on_ray=True, ray_cpus=1)
                figures, vectors = embed_passages(n, range_rows, options)
            rows.append({"nodes": str(n_nodes), **figures, "same bytes": "yes" if vectors == expected else "no"})
    return rows


def main(arguments: Sequence[str]) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray embedding")
    parser.add_argument("--passages", type=int, default=400)
    parser.add_argument("--range-rows", type=int, default=50)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    rows = measure(args.passages, args.range_rows, args.nodes)
    print_table(f"minilm, ranges of {args.range_rows} passages", rows, environment("ray", "torch"), args.json)
