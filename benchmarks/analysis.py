"""Speed of text analysis on one thread, on the passages of wiki_intro split at 100 words: ``python -m benchmarks.analysis``.

Lucene's own analyzer, called through the project's Java, is not timed: crossing into Java costs more than the analysis.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from benchmarks.report import environment, print_table
from benchmarks.synthetic import data_folder, real_passages
from wikidx.indexer.analysis import TermNumbers

_BATCH = 4096
_ROUNDS = 5


def main() -> None:
    """Time the analysis of a file of passages."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.analysis", description=__doc__)
    parser.add_argument("--passages", type=Path, help="a file of passages; default: wiki_intro")
    parser.add_argument("--n", type=int, default=100_000, help="number of passages to read from it")
    options = parser.parse_args()
    passages = real_passages(options.passages or data_folder() / "wiki_intro" / "passages.jsonl.gz")[: options.n]
    texts = [f"{passage.title}\n{passage.text}" for passage in passages]
    TermNumbers().add(texts[:10])  # compiles
    rates: list[float] = []
    n_terms = 0
    for _ in range(_ROUNDS):
        numbers, started = TermNumbers(), time.perf_counter()
        n_terms = 0
        for start in range(0, len(texts), _BATCH):
            n_terms += len(numbers.add(texts[start : start + _BATCH])[0])
        rates.append(len(texts) / (time.perf_counter() - started))
    figures = {"passages": len(texts), "terms": n_terms, "passages/s, best": max(rates), "median": statistics.median(rates)}
    print_table("Analysis", [figures], environment("numba"), None)


if __name__ == "__main__":
    main()
