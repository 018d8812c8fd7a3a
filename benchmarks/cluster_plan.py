"""Plan for 21 million, 100 million and a billion passages: disk, memory, nodes, time, and bytes between nodes per question.

    python -m benchmarks.cluster_plan
    python -m benchmarks.cluster_plan --gpus 16 --gpu-passages-per-s 3000 --node-gb 512

Nothing is measured here. The defaults of ``Figures`` are measurements of this folder's README (on a machine with two cores), except those
marked as assumed, here and next to the tables; each is an option. Figures that grow with the corpus are scaled linearly, except for the
vocabulary; speed is scaled linearly with the cores.
The hours of each build step are those of ``idx build --dry-run`` on this machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wikidx.indexer.estimate import StepEstimate, estimate_index, estimate_store

from benchmarks.report import Figure, print_table
from wikidx.base.machine.threads import n_threads
from wikidx.indexer.catalog import index_ref

SIZES = (21_015_324, 100_000_000, 1_000_000_000)

_HIT_BYTES = 8 + 4  # a row and a score
_COMPONENT_BYTES = 4  # of a query vector sent to the shards
_MEASURED_CORES = 2
_HOUR = 3600
_ASSUMED = "assumed"


def _measured(value: float, source: str) -> float:
    """Define a default with the source of its measurement."""
    figure: float = dataclasses.field(default=value, metadata={"help": f"measured: {source}"})
    return figure


def _assumed(value: float, description: str) -> float:
    """Define a default that is assumed, not measured."""
    figure: float = dataclasses.field(default=value, metadata={"help": f"{_ASSUMED}: {description}"})
    return figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Inputs of the plan, for vectors of 768 float16 components."""

    passage_bytes: float = _measured(400, "bytes of a passage's title and text, 'How fast is a store built'")
    store_bytes: float = _measured(290, "bytes of a passage in the store, 'How fast is a store built'")
    bm25_bytes: float = _measured(162.3, "bytes of a passage in BM25's index, 'Size, build and memory'")
    vector_bytes: float = _measured(1536, "bytes of a float16 vector, 'What does each kind of index', flat-fp16")
    ivfpq_disk_bytes: float = _measured(110.4, "bytes of a vector in ivfpq on disk, 'What does each kind of index'")
    ivfpq_memory_bytes: float = _measured(131.7, "bytes of a vector in ivfpq in memory, 'What does each kind of index'")
    bm25_rate: float = _measured(816.9 * 2_500_000, "passages x questions per second, 1 thread, k 100, 'How fast is BM25'")
    exact_rate: float = _measured(1307 * 100_000, "vectors x questions per second, 2 threads, batch 512, 'exact search over vectors'")
    scan_rate: float = _measured(23e9, "bytes per second for one question, 2 threads, 'Where the time goes'")
    ivfpq_rate: float = _measured(846.9, "questions per second over 1,000,000 vectors, 2 threads, 'What does each kind of index'")
    gpu_passages_per_s: float = _assumed(5000, "passages per second of a bert-base on one GPU: 40 % of 312 TFLOP/s, 140 tokens per passage")
    node_scan_rate: float = _assumed(150e9, "memory bandwidth of a node in bytes per second")
    gpus: float = _assumed(8, "number of GPUs that embed: two nodes of four")
    node_gb: float = _assumed(128, "memory of a node in GB")
    node_cores: float = _assumed(32, "number of cores of a node")
    usable: float = _assumed(0.75, "fraction of a node's memory for indexes")
    replicas: float = _assumed(2, "number of copies of each shard")
    depth: float = _assumed(100, "number of results of each shard per question")


def build_estimate(n: int, figures: Figures) -> dict[str, Figure]:
    """Return the resources to build everything of n passages."""
    gpu_hours = n / figures.gpu_passages_per_s / _HOUR
    return {
        "passages": n,
        "store GB": n * figures.store_bytes / 1e9,
        "bm25 GB": n * figures.bm25_bytes / 1e9,
        "vectors GB": n * figures.vector_bytes / 1e9,
        "ivfpq GB": n * figures.ivfpq_disk_bytes / 1e9,
        "store h": _hours(estimate_store(n, figures.passage_bytes)),
        "bm25 h": _hours(estimate_index(index_ref("wiki2018", "bm25"), n, figures.passage_bytes)),
        f"GPU h ({_origin('gpu_passages_per_s', figures)} {figures.gpu_passages_per_s:,g} passages/s each)": gpu_hours,
        f"h on {figures.gpus:g} GPUs": gpu_hours / figures.gpus,
        f"ivfpq h on {n_threads()} cores": _hours(estimate_index(index_ref("wiki2018", "contriever-ivfpq"), n, figures.passage_bytes)),
    }


def _hours(estimate: StepEstimate) -> float:
    assert estimate.time_s is not None  # it is for embedding only, before an encoder is timed
    return estimate.time_s / _HOUR


def serving_estimate(n: int, figures: Figures) -> list[dict[str, Figure]]:
    """Return the resources to serve n passages from memory by each kind of index; while an index is replaced, nodes hold it twice."""
    memory = {"bm25": figures.bm25_bytes, "exact": figures.vector_bytes, "ivfpq": figures.ivfpq_memory_bytes}
    return [_serving_row(kind, n, n_bytes * n, figures) for kind, n_bytes in memory.items()]


def _serving_row(kind: str, n: int, index_bytes: float, figures: Figures) -> dict[str, Figure]:
    is_cut = kind != "bm25"  # each process that answers has all of BM25
    n_shards = max(1, math.ceil(index_bytes / (figures.node_gb * 1e9 * figures.usable))) if is_cut else 1
    per_s, alone_s = _speed(kind, n, n / n_shards, figures)
    return {
        "passages": n,
        "index": kind,
        "memory GB": index_bytes / 1e9,
        "shards": n_shards,
        "nodes": math.ceil(n_shards * figures.replicas),
        "questions/s": per_s,  # independent of replicas: the router runs one batch at a time, on one replica of each shard
        "one question ms": alone_s * 1e3,
        "bytes/question": n_shards * (figures.vector_bytes / 2 * _COMPONENT_BYTES + figures.depth * _HIT_BYTES) if is_cut else 0,
    }


def _speed(kind: str, n: int, n_rows: float, figures: Figures) -> tuple[float, float]:
    """Return a shard's questions per second in batches, and the latency of a single question."""
    scale = figures.node_cores / _MEASURED_CORES
    if kind == "bm25":
        return figures.bm25_rate * figures.node_cores / n_rows, n_rows / figures.bm25_rate
    if kind == "exact":
        scanned = min(figures.scan_rate * scale, figures.node_scan_rate)
        return figures.exact_rate * scale / n_rows, n_rows * figures.vector_bytes / scanned
    of_one_core_pair = figures.ivfpq_rate * math.sqrt(1e6 / n)  # the number of lists and their length grow with the root of n
    return of_one_core_pair * scale, 1 / of_one_core_pair


def _origin(name: str, figures: Figures) -> str:
    """Return the origin of a figure's value: "measured", "assumed", or "given" if it is not the default."""
    (field,) = (field for field in dataclasses.fields(Figures) if field.name == name)
    help_text: str = field.metadata["help"]
    return help_text.partition(":")[0] if getattr(figures, name) == field.default else "given"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_plan")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--json", type=Path)
    for field in dataclasses.fields(Figures):
        help_text = field.metadata["help"].replace("%", "%%")
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=float, default=field.default, help=help_text)
    args = parser.parse_args(arguments)
    figures = Figures(**{field.name: getattr(args, field.name) for field in dataclasses.fields(Figures)})
    changed = {name: value for name, value in dataclasses.asdict(figures).items() if value != getattr(Figures(), name)}
    assumed = {name: value for name, value in dataclasses.asdict(figures).items() if _origin(name, figures) == _ASSUMED}
    about: dict[str, Figure] = {
        "computed, not measured, with": ", ".join(f"{k} {v:g}" for k, v in changed.items()) or "the defaults",
        "of which are assumed": ", ".join(f"{name} {value:g}" for name, value in assumed.items()) or "none",
    }
    print_table("To build", [build_estimate(n, figures) for n in args.sizes], about, None)
    print_table(
        "To serve (memory of one copy of each shard; twice as much while an index is exchanged)",
        [row for n in args.sizes for row in serving_estimate(n, figures)],
        about,
        args.json,
    )


if __name__ == "__main__":
    main()
