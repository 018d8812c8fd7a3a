"""A process that searches without a server, for comparison; ``python -m benchmarks.serve.library RETRIEVER FOLDER`` is that process.

Requests are lines of JSON, ``[queries per batch, k, seconds]``; the answer is the rate in queries per second.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from benchmarks.engines.kinds import NAME, use_data_home
from benchmarks.serve.corpus import open_benchmark_retriever, read_questions
from wikidx.corpora.build import open_store
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.searcher import LocalSearcher


def per_second(searcher: LocalSearcher, questions: list[str], size: int, k: int, seconds: float) -> float:
    """Return the rate in queries per second, in consecutive batches of this size."""
    options, n = SearchOptions(k=k, depth=k), 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        first = n % (len(questions) - size)
        searcher.search(questions[first : first + size], options)
        n += size
    return n / (time.perf_counter() - started)


def main() -> int:
    """Run the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve.library")
    parser.add_argument("retriever")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    use_data_home(options.folder)
    store, questions = open_store(NAME), read_questions(options.folder)
    searcher = LocalSearcher(store, {options.retriever: open_benchmark_retriever(NAME, options.retriever, store, device="cpu")})
    searcher.search(questions)  # warms up mapped files
    print("ready", flush=True)
    for line in sys.stdin:
        size, k, seconds = json.loads(line)
        print(per_second(searcher, questions, size, k, seconds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
