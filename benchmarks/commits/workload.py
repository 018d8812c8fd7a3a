"""Workloads of one checkout, in a separate process: ``python workload.py QUESTIONS PREFIX``, with the checkout as ``PYTHONPATH``.

Only interfaces of both commits are called. A line of JSON on standard input names a workload and its time limit in seconds; the
answer is a line with the rate, in units of the workload per second.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

CORPUS, FEW, N_FEW = "measured", "few", 256  # the second is embedded
_AT_ONCE = 512
_GROUP = 5
_FETCHED = 100
PREFIX = sys.argv[2] if len(sys.argv) > 2 else ""  # of the names of its packages


def import_name(name: str, *modules: str) -> Any:  # noqa: ANN401 - of either commit
    """Import a name of the checkout from the first module that has it."""
    for module in modules:
        loaded = importlib.import_module(PREFIX + module)
        if not str(loaded.__file__).startswith(os.environ["PYTHONPATH"]):
            raise ImportError(f"{loaded.__name__} is not the checkout's: {loaded.__file__}")
        if hasattr(loaded, name):
            return getattr(loaded, name)
    raise ImportError(f"none of {', '.join(modules)} has {name}")


def workloads(questions: Sequence[str]) -> dict[str, tuple[int, Callable[[], object]]]:
    """Return the workloads by name: the units of one call, and the call."""
    options = import_name("SearchOptions", "retrievers.base")
    searcher = import_name("open_searcher", "retrievers.opening")(CORPUS, "bm25")
    store = import_name("open_store", "corpora.build")(CORPUS)
    open_index = import_name("open_index", "indexer.build")
    bm25, exact = open_index(CORPUS, "bm25", store), open_index(CORPUS, "contriever", store)
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((_AT_ONCE, exact.dim)).astype(np.float32)
    batch = list(questions[:_AT_ONCE])
    groups = [list(questions[start : start + _GROUP]) for start in range(0, _AT_ONCE, _GROUP)]
    rows = rng.choice(len(store), size=(64, _FETCHED))
    turn = iter(range(sys.maxsize))

    def one() -> object:
        return searcher.search([questions[next(turn) % len(questions)]], options(k=10))

    return {
        "BM25, k 10": (len(batch), lambda: bm25.search(batch, 10)),
        "BM25, k 100": (len(batch), lambda: bm25.search(batch, 100)),
        "exact search, batch 1": (1, lambda: exact.search(vectors[:1], 100)),
        "exact search, batch 32": (32, lambda: exact.search(vectors[:32], 100)),
        "exact search, batch 512": (_AT_ONCE, lambda: exact.search(vectors, 100)),
        "search_groups, groups of 5": (len(groups), lambda: searcher.search_groups(groups, options(k=10))),
        "search, one question": (1, one),
        "get_many, 100 passages": (1, lambda: store.get_many(np.sort(rows[next(turn) % len(rows)]))),
    }


def embedding() -> tuple[int, Callable[[], object]]:
    """Return the number of passages of the subset, and a call that embeds them."""
    store = import_name("open_store", "corpora.build")(f"{FEW}@{N_FEW}")
    encoder = import_name("TransformerEncoder", "indexer.encoders.transformer")(
        import_name("encoder_spec", "indexer.naming", "indexer.embed")("minilm")
    )
    passages = store.get_many(np.arange(len(store)))
    return len(passages), lambda: encoder.encode_passages(passages)


def rate(units: int, work: Callable[[], object], seconds: float) -> float:
    """Repeat a call for some seconds after a warm-up; return the fastest call's units per second."""
    work()
    best, until = float("inf"), time.perf_counter() + seconds
    while (started := time.perf_counter()) < until:
        work()
        best = min(best, time.perf_counter() - started)
    return units / best


def main() -> None:
    """Process orders until the input ends."""
    known = workloads(json.loads(Path(sys.argv[1]).read_text()))
    for line in sys.stdin:
        order = json.loads(line)
        chosen = embedding() if order["name"] == "embedding" else known[order["name"]]
        print(json.dumps(rate(*chosen, order["seconds"])), flush=True)


if __name__ == "__main__":
    main()
