"""Workloads of one checkout, in a separate process: ``python workload.py QUESTIONS``, with the checkout as ``PYTHONPATH``.

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
_AT_ONCE, _GROUP, _FETCHED = 512, 5, 100

Workload = tuple[int, Callable[[], object]]  # units of one call, and the call


def import_name(name: str, module: str) -> Any:  # noqa: ANN401 - of either commit
    """Import a name of the checkout."""
    loaded = importlib.import_module(f"wikidx.{module}")
    if not str(loaded.__file__).startswith(os.environ["PYTHONPATH"]):
        raise ImportError(f"{loaded.__name__} is not the checkout's: {loaded.__file__}")
    return getattr(loaded, name)


def workloads(questions: Sequence[str]) -> dict[str, Workload]:
    """Return the workloads by name."""
    options = import_name("SearchOptions", "retrievers.options")
    searcher = import_name("open_searcher", "retrievers.opening")(CORPUS, "bm25")
    store = import_name("open_store", "corpora.build")(CORPUS)
    bm25 = import_name("open_lexical_index", "indexer.build")(CORPUS, "bm25", store)
    exact = import_name("open_vector_index", "indexer.build")(CORPUS, "contriever", store)
    few = import_name("open_store", "corpora.build")(f"{FEW}@{N_FEW}")
    spec = import_name("encoder_spec", "indexer.naming")("minilm")
    encoder = import_name("TransformerEncoder", "indexer.encoders.transformer")(spec)
    passages = few.get_many(np.arange(len(few)))
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((_AT_ONCE, exact.dim)).astype(np.float32)
    batch = list(questions[:_AT_ONCE])
    groups = [batch[start : start + _GROUP] for start in range(0, len(batch), _GROUP)]
    rows = np.sort(rng.choice(len(store), size=(64, _FETCHED)))
    turn = iter(range(sys.maxsize))
    return {
        "BM25, k 10": (len(batch), lambda: bm25.search(batch, 10)),
        "BM25, k 100": (len(batch), lambda: bm25.search(batch, 100)),
        "exact search, batch 1": (1, lambda: exact.search(vectors[:1], 100)),
        "exact search, batch 32": (32, lambda: exact.search(vectors[:32], 100)),
        "exact search, batch 512": (_AT_ONCE, lambda: exact.search(vectors, 100)),
        "search_groups, groups of 5": (len(groups), lambda: searcher.search_groups(groups, options(k=10))),
        "search, one question": (1, lambda: searcher.search([questions[next(turn) % len(questions)]], options(k=10))),
        "get_many, 100 passages": (1, lambda: store.get_many(rows[next(turn) % len(rows)])),
        "embedding": (len(passages), lambda: encoder.encode_passages(passages)),
    }


def rate(units: int, work: Callable[[], object], seconds: float) -> float:
    """Repeat a call for some seconds after a warm-up; return the fastest call's units per second."""
    work()
    best, until = float("inf"), time.perf_counter() + seconds
    while (started := time.perf_counter()) < until:
        work()
        best = min(best, time.perf_counter() - started)
    return units / best


def main() -> None:
    """Print the names, and process orders until the input ends."""
    known = workloads(json.loads(Path(sys.argv[1]).read_text()))
    print(json.dumps(list(known)), flush=True)
    for line in sys.stdin:
        name, seconds = json.loads(line)
        print(json.dumps(rate(*known[name], seconds)), flush=True)


if __name__ == "__main__":
    main()
