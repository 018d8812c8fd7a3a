"""Speed of parts that have no peers: the command line's start, the passage store, and text analysis.

    python -m benchmarks.parts                              # the start, and the analysis of wiki_intro, on one thread
    python -m benchmarks.parts --files FILE.jsonl …         # the store as well; ``python -m benchmarks.synthetic`` makes files

Each file is built in a process of its own, whose peak memory is the figure; reading is measured in this process, warm: every requested row
has been read before. "start" is whole commands; ``benchmarks.engines`` measures how soon a process answers.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.engines.kinds import contents
from benchmarks.monitoring import folder_bytes, run_monitored
from benchmarks.processes import NAME, idx, use_data_home
from benchmarks.report import Figure, environment, parser, print_tables, run, seconds_of
from benchmarks.synthetic import data_folder, real_passages
from wikidx.corpora.build import open_store
from wikidx.indexer.analysis.english import TermNumbers

_COMMANDS = (("--help",), ("list",), ("search", "sample", "highest mountain"))
_STORE = f"""
import pathlib, sys
from wikidx.corpora.build import StoreOptions, build_store
from wikidx.corpora.known.custom import ReadOptions, custom_corpus
build_store(custom_corpus(pathlib.Path(sys.argv[1]), "{NAME}", ReadOptions()), StoreOptions())
"""
_BATCH, _OPENINGS, _READINGS = 1000, 20, 200
_ANALYSED = 4096  # texts at once

Rows = Iterator[dict[str, Figure]]


def start(rounds: int) -> Rows:
    """Time commands of idx in new processes."""
    with tempfile.TemporaryDirectory() as folder:
        use_data_home(Path(folder))
        idx("build", "sample")
        for command in _COMMANDS:
            seconds = _times(lambda: idx(*command), rounds)  # noqa: B023 - called here
            yield {"command": f"idx {' '.join(command)}", "median s": statistics.median(seconds), "slowest s": max(seconds)}


def store(files: list[Path], rounds: int) -> Rows:
    """Build, open and read the store of each file; the build is the one of median time."""
    for file in files:
        with tempfile.TemporaryDirectory() as folder:
            built = []
            for number in range(rounds):
                use_data_home(Path(folder, str(number)))
                built.append(run_monitored(["-c", _STORE, str(file)])[0])
            usage = sorted(built, key=lambda one: one.s)[rounds // 2]
            opened = open_store(NAME)
            rows = np.random.default_rng(0).integers(0, len(opened), size=(_READINGS, _BATCH))
            n_bytes = sum(len(passage.text.encode()) for line in rows for passage in opened.get_many(line))  # warms up
            rates = [_BATCH / seconds_of(partial(opened.get_many, line)) for line in rows]
            n = len(opened)
            del opened
            gc.collect()  # otherwise the next opening would find it open
            yield {
                "passages": n,
                "build s": usage.s,
                "passages/s": n / usage.s,
                "own memory MB": usage.own / 1e6,
                "resident MB": usage.resident / 1e6,
                "store bytes/passage": folder_bytes(Path(folder, "0")) / n,
                "text bytes/passage": n_bytes / rows.size,
                "open ms (median)": 1e3 * statistics.median(_times(lambda: open_store(NAME), _OPENINGS)),
                f"get_many({_BATCH}) passages/s (median)": statistics.median(rates),
            }


def analysis(passages: Path, n: int, rounds: int) -> Rows:
    """Time the analysis of passages, on one thread; Lucene's analyzer is not timed, as crossing into Java costs more than the analysis."""
    texts = [contents(passage) for passage in real_passages(passages)[:n]]
    numbers = TermNumbers()
    numbers.add(texts[:10])  # compiles

    def analyse() -> int:
        terms = TermNumbers()
        return sum(len(terms.add(texts[first : first + _ANALYSED])[0]) for first in range(0, len(texts), _ANALYSED))

    rates = [len(texts) / seconds for seconds in _times(analyse, rounds)]
    yield {"passages": len(texts), "terms": analyse(), "passages/s, best": max(rates), "median": statistics.median(rates)}


def _times(work: Callable[[], object], rounds: int) -> list[float]:
    return [seconds_of(work) for _ in range(rounds)]


def _run(options: argparse.Namespace) -> None:
    tables = {"Command line": start(options.rounds), "Analysis": analysis(options.passages, options.n, options.rounds)}
    if options.files:
        tables["Passage store"] = store(options.files, options.rounds)
    print_tables(tables, environment("typer", "numba", "lmdb", "zstandard"), options.json)


def main() -> int:
    """Run the command line."""
    made = parser("parts", __doc__)
    made.add_argument("--files", nargs="*", type=Path, default=[], help="files of passages whose stores are measured")
    made.add_argument("--passages", type=Path, default=data_folder() / "wiki_intro" / "passages.jsonl.gz", help="passages to analyse")
    made.add_argument("--n", type=int, default=100_000, help="number of passages to analyse")
    made.add_argument("--rounds", type=int, default=5)
    return run(made, _run)


if __name__ == "__main__":
    sys.exit(main())
