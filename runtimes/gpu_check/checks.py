"""The parts of the check, with their sizes, and ``check_gpu``."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wikidx.base.errors import MissingExtraError
from wikidx.base.machine.devices import has_gpu_driver

from .running import Kind, Outcome, Part, run_part

Cases = list[list[Any]]
Sizes = Mapping[str, Any]

_SMALL = {"hidden": 64, "layers": 2, "heads": 4}
_BASE = {"hidden": 768, "layers": 12, "heads": 12}  # bert-base
_MINILM = {"hidden": 384, "layers": 6, "heads": 12}  # MiniLM's cross-encoder
_PRECISIONS = ["float32", "float16", "bfloat16"]


def _part(name: str, function: str, limit_s: float, on_gpu: Sizes, on_cpu: Sizes) -> Part:
    """Return a part, which a function of this package runs."""
    kinds: dict[str, Kind] = {"machine": "machine", "speed": "speed"}
    return Part(name, kinds.get(function.partition(":")[0], "correctness"), f"{__package__}.{function}", limit_s, on_gpu, on_cpu)


def _kinds(n_rows: int, dim: int) -> Cases:
    """Return a search of each kind; see ``search.Case``."""
    kinds = ("ties", "extremes", "missing", "edges", "halves", "shards", "all GPUs")
    return [[n_rows, dim, 100, 7, kind] for kind in kinds]


_CPU_CASES: Cases = [
    [1, 24, 1, 1],
    [129, 24, 129, 2],
    [3_000, 96, 100, 64],
    [2_500, 24, 1, 1_024],
    [6_000, 24, 5_000, 7],
    *_kinds(2_000, 24),
]
_SMALL_GPU_CASES: Cases = [[1, 24, 1, 1], [129, 96, 129, 7], [16_385, 384, 16_385, 2], [200_000, 384, 100, 1_024], [300_000, 768, 100, 2]]
_GPU_CASES: Cases = [*_SMALL_GPU_CASES, [200_000, 768, 5_000, 64], [2_000_000, 96, 100, 1], [2_000_000, 24, 1, 1_024], *_kinds(200_000, 96)]
_TF32_CASES: Cases = [[100_000, 24, 100, 64], [100_000, 768, 100, 64]]


def _encoder(network: str, on_gpu: Sizes, on_cpu: Sizes, *, has_backends: bool = True) -> Part:
    lengths = [1, 2, 7, 8, 9, 63, 64, 65, 128, 255, 256, 384, 511, 512]
    attention = (["default", "flash", "efficient", "math", "cudnn"], ["flash", "math"]) if has_backends else (["default"], ["default"])
    gpu = {"network": network, "dtypes": _PRECISIONS, "lengths": lengths, "backends": attention[0], "sizes": on_gpu}
    cpu = {"network": network, "dtypes": _PRECISIONS, "lengths": [1, 2, 9, 64], "backends": attention[1], "sizes": on_cpu}
    return _part(f"encoder {network}", "encoders:check_encoder", 180, gpu, cpu)


_GPU_RERANKED = {"n_passages": 100, "n_words": 128, "sizes": _MINILM}
_LLAMA = {"hidden": 256, "layers": 4, "heads": 8, "kv_heads": 2}
_SMALL_LLAMA = {"hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2}
_GRID = {"n_rows": 21_015_324, "dim": 768, "batches": [1, 8, 64, 256, 1_024], "ks": [10, 100, 1_000], "rounds": 5}

PARTS = (
    _part("machine", "machine:describe_machine", 120, {}, {}),
    *(
        _part(
            f"exact search {stored}",
            "search:check_search",
            180,
            *({"stored": stored, "cases": cases} for cases in (_GPU_CASES, _CPU_CASES)),
        )
        for stored in ("float16", "float32")
    ),
    _part(
        "exact search where TF32 is on", "search:check_without_tf32", 120, {"cases": _TF32_CASES}, {"cases": [[2_000, 24, 10, 8]]}
    )._replace(environment={"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}),
    _part("large products", "search:check_wide_product", 120, {"n_rows": 12_600_000, "dim": 768}, {"n_rows": 50_000, "dim": 24}),
    _encoder("bert", _BASE, _SMALL),
    _encoder("t5", _SMALL, _SMALL, has_backends=False),
    _encoder("minilm", {}, {}),
    _part(
        "embedding with a kill",
        "encoders:check_embedding",
        180,
        {"n_passages": 20_000, "n_compared": 500, "range_rows": 4_096, "n_processes": 2, "sizes": {}},
        {"n_passages": 300, "n_compared": 50, "range_rows": 64, "n_processes": 1, "sizes": _SMALL},
    ),
    _part(
        "FAISS",
        "indexes:check_faiss",
        120,
        {"n_rows": 200_000, "dim": 96, "n_queries": 256, "k": 100},
        {"n_rows": 2_000, "dim": 16, "n_queries": 32, "k": 10},
    ),
    _part(
        "cross-encoder",
        "models:check_reranker",
        120,
        {"n_queries": 4, **_GPU_RERANKED},
        {"n_queries": 2, "n_passages": 12, "n_words": 30, "sizes": _SMALL},
    ),
    _part(
        "language model",
        "models:check_language_model",
        120,
        {"n_prompts": 32, "max_tokens": 64, "dtypes": _PRECISIONS, "sizes": _LLAMA},
        {"n_prompts": 6, "max_tokens": 16, "dtypes": ["float32"], "sizes": _SMALL_LLAMA},
    ),
    _part(
        "memory refused",
        "memory:check_refusals",
        120,
        {"n_rows": 200_000, "dim": 64, "n_queries": 1_024, "n_texts": 64, "sizes": _BASE},
        {"n_rows": 1_000, "dim": 8, "n_queries": 7, "n_texts": 4, "sizes": _SMALL},
    ),
    _part(
        "speed of exact search",
        "speed:measure_search",
        150,
        _GRID,
        {"n_rows": 20_000, "dim": 64, "batches": [1, 8], "ks": [10], "rounds": 2},
    ),
    _part(
        "speed of embedding",
        "speed:measure_embedding",
        150,
        {"n_passages": 100_000, "n_words": 128, "sizes": _BASE},
        {"n_passages": 200, "n_words": 30, "sizes": _SMALL},
    ),
    _part(
        "speed of query encoding",
        "speed:measure_queries",
        120,
        {"batches": [1, 64, 1_024], "rounds": 20, "sizes": _BASE},
        {"batches": [1, 64], "rounds": 3, "sizes": _SMALL},
    ),
    _part(
        "speed of reranking",
        "speed:measure_reranking",
        120,
        {"n_requests": 20, **_GPU_RERANKED},
        {"n_requests": 4, "n_passages": 10, "n_words": 30, "sizes": _SMALL},
    ),
)
_FINDING = _part("GPU", "machine:find_gpu", 120, {}, {})


def check_gpu(seconds: float, parts: Sequence[Part]) -> Iterator[Outcome]:
    """Run the parts one after the other, each in a process of its own, and yield their outcomes; after Ctrl-C the rest is not run.

    They run on the first GPU, if there is one that torch can use, and otherwise at small sizes on the CPU.

    Args:
        seconds: time for all parts together. A part is ended when it is over, and those after it are not run.
        parts: the parts, such as ``PARTS``.

    Raises:
        MissingExtraError: torch or transformers is not installed.
    """
    if not all(map(importlib.util.find_spec, ("torch", "transformers"))):
        raise MissingExtraError("idx check --gpu", "gpu")
    ends_at, device, is_interrupted = time.monotonic() + seconds, "cpu", False
    if has_gpu_driver():
        found = run_part(_FINDING, device, seconds)
        device = next((str(record["figures"]["device"]) for record in found.figures), device)
        is_interrupted = found.status == "interrupted"
        if found.status != "passed":
            yield found
    for part in parts:
        if is_interrupted:
            yield Outcome(part, "not run", reason="interrupted")
            continue
        outcome = run_part(part, device, ends_at - time.monotonic())
        is_interrupted = outcome.status == "interrupted"
        yield outcome
