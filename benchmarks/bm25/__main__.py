"""BM25 by this project and by its peers, side by side in one run: speed, size, and agreement of results.

    python -m benchmarks.bm25                                    # wiki_intro, split at 100 words
    python -m benchmarks.bm25 --synthetic 2500000
    python -m benchmarks.bm25 --synthetic 2500000 --nq       # NQ's short questions instead of HybridQA's long ones
    python -m benchmarks.bm25 --growth                           # builds and openings at three sizes

Engines: ``bm25`` is the project's index and ``lucene`` Lucene's ``IndexSearcher``, from strings to ``Hits``; ``pyserini`` is Pyserini's
``batch_search`` and ``search``, from strings to docids and scores; ``bm25s`` has its numba backend. It, PISA (``pisa``, ``pisa-
quantized``), Tantivy (``tantivy``) and SQLite's FTS5 (``sqlite``) receive the terms of this project's analysis, so that all index the same
words. Tantivy and SQLite have fixed parameters of BM25, 1.2 and 0.75; the others' are 0.9 and 0.4.

Every engine is a process pinned to as many CPUs as it may use threads, with the same number in its own option. Rounds go through
all of them in turn, so that the noise of a shared machine affects all alike; ratios are medians of each round's ratio. Every measured
search has been run once before. A slow engine gets only the first of the shuffled questions, as many as it answers in ``--seconds``.

Results are compared with Lucene's raw scores (``lucene``). "same set": the share of questions with Lucene's k rows, except for rows that
share the k-th score; "same rows": the share of all rows; "score difference": the largest relative one; "exact": the share of questions
whose k scores an exhaustive search with the engine's own scores gives too; Pyserini takes a millionth off each tied score, so that many
ties count as a difference. Without ``lucene`` the reference is ``bm25``, then ``pyserini``.
"questions/processor s" counts the time of all of a process's threads.

Corpora, indexes and the figures of their builds are stored in ``--work``: after a change of an engine name it with ``--rebuild``. A small
corpus is built and searched first, to fill numba's cache.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from benchmarks.bm25 import tables
from benchmarks.bm25.quality import agreements
from benchmarks.bm25.tables import OURS, WIKI2018_PASSAGES, WIKI2018_TOKENS, Results
from benchmarks.engines.build import build
from benchmarks.engines.corpus import (
    BenchmarkCorpus,
    compile_kernels,
    load_corpus,
    nq_questions,
    real_corpus,
    synthetic_corpus,
    write_questions,
)
from benchmarks.engines.kinds import find_kind
from benchmarks.engines.rounds import Plan, batches, singles
from benchmarks.engines.worker import Worker
from benchmarks.report import environment, exit_status, print_table
from benchmarks.synthetic import data_folder
from wikidx.base.errors import InputError

GROWTH_SYNTHETIC = 2_500_000
ENGINES = ("bm25", "bm25s", "pyserini", "lucene")
PEERS = ("pisa", "pisa-quantized", "tantivy", "sqlite")  # only if they are named


def measure(corpus: BenchmarkCorpus, questions: Path, options: argparse.Namespace) -> Results:
    """Build and open every engine's index of a corpus, and search it unless only growth is measured."""
    threads: list[int] = options.threads
    engines: list[str] = options.engines
    builds = {engine: build(engine, corpus.folder, max(threads), force=engine in options.rebuild) for engine in engines}
    if options.growth:
        openings = {}
        for engine in engines:
            with Worker(engine, corpus.folder, threads[0], questions) as worker:
                openings[engine] = worker.opening
        return Results(corpus, builds, openings, {}, {}, {})
    plan = Plan(options.rounds, options.seconds, len(json.loads(questions.read_bytes())))
    with ExitStack() as running:
        workers = {(engine, n): running.enter_context(Worker(engine, corpus.folder, n, questions)) for n in threads for engine in engines}
        return Results(
            corpus,
            builds,
            {engine: workers[engine, threads[0]].opening for engine in engines},
            batches(workers, options.k, plan),
            singles(workers, options.k, plan, min(threads)),
            agreements(workers, options.k, min(options.sample, plan.n_questions)),
        )


def report(results: Sequence[Results], options: argparse.Namespace) -> None:
    """Print the tables, and write all figures as JSON if a path is given."""
    about = environment("numba", "bm25s", "pyserini", "pyterrier-pisa", "tantivy")
    print_table("Corpora", tables.corpus_rows(results), about, None)
    print_table(f"Indexes, built on {max(options.threads)} threads", tables.index_rows(results), about, None)
    for result in results:
        if result.batches:
            print_table(f"Batches on {result.corpus.label}", list(tables.batch_rows(result)), about, None)
        if result.singles:
            print_table(f"Single questions on {result.corpus.label}", list(tables.single_rows(result)), about, None)
    if len({result.corpus.counts.tokens for result in results}) > 1:
        title = f"The {WIKI2018_PASSAGES:,} passages ({WIKI2018_TOKENS:,} terms) of the DPR Wikipedia, on the line through the two largest"
        print_table(title, tables.wiki2018_rows(results), about, None)
    if options.json:
        options.json.write_text(json.dumps({"about": about, "corpora": [_raw(result) for result in results]}, indent=1) + "\n")


def _raw(result: Results) -> dict[str, object]:
    """Return all figures of a corpus in JSON types."""
    return {
        "corpus": result.corpus.label,
        "counts": asdict(result.corpus.counts),
        "builds": [asdict(figures) for figures in result.builds.values()],
        "openings": [{"engine": engine, **asdict(figures)} for engine, figures in result.openings.items()],
        "batches": [{**setting._asdict(), **asdict(figures)} for setting, figures in result.batches.items()],
        "singles": [{**setting._asdict(), **asdict(figures)} for setting, figures in result.singles.items()],
        "agreements": [{**setting._asdict(), **figures._asdict()} for setting, figures in result.agreements.items()],
    }


def _corpora(options: argparse.Namespace) -> list[BenchmarkCorpus]:
    """Return the requested corpora."""
    work: Path = options.work
    corpora = [load_corpus(file, work) for file in options.passages]
    corpora += [synthetic_corpus(n, work) for n in options.synthetic]
    if not corpora and options.growth:
        corpora = [load_corpus(data_folder() / "dpr_union" / "passages.jsonl.gz", work)]
        corpora += [real_corpus(work), synthetic_corpus(GROWTH_SYNTHETIC, work)]
    return corpora or [real_corpus(work)]


def _options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bm25")
    parser.add_argument("--passages", nargs="+", type=Path, default=[], help="files of passages; default: wiki_intro, split at 100 words")
    parser.add_argument("--synthetic", nargs="+", type=int, default=[], metavar="N", help="numbers of synthetic passages")
    parser.add_argument(
        "--growth", action="store_true", help="measure builds and openings only; default data: dpr_union, wiki_intro, 2.5 M synthetic"
    )
    parser.add_argument("--questions", type=Path, help="JSON lines with 'question'; default: HybridQA's questions in wiki_intro")
    parser.add_argument("--nq", action="store_true", help="NQ's test questions instead, which are short")
    parser.add_argument("--engines", nargs="+", choices=[*ENGINES, *PEERS], default=ENGINES)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2], help="numbers of threads; builds use the largest")
    parser.add_argument("--k", nargs="+", type=int, default=[10, 100, 1000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of one turn of a slow engine")
    parser.add_argument("--sample", type=int, default=200, help="number of questions whose results are compared")
    parser.add_argument("--rebuild", nargs="+", choices=[*ENGINES, *PEERS], default=[], help="build these again, although they exist")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "idx-bm25", help="work folder; it is kept")
    parser.add_argument("--json", type=Path, help="output file for all figures")
    return parser.parse_args()


def _run(options: argparse.Namespace) -> None:
    if not hasattr(os, "sched_setaffinity"):
        raise InputError("this measurement pins processes to processors, which needs Linux")
    n_processors = len(os.sched_getaffinity(0))
    if not all(1 <= threads <= n_processors for threads in options.threads):
        raise InputError(f"--threads {options.threads}: this process may use 1 to {n_processors} processors")
    for engine in options.engines:
        find_kind(engine).check()
    options.work.mkdir(parents=True, exist_ok=True)
    options.work = options.work.resolve()
    questions = options.work / "questions.json"
    if options.nq:
        questions.write_text(json.dumps(nq_questions()))
    else:
        write_questions(options.questions or data_folder() / "wiki_intro" / "queries.hybridqa_dev.jsonl.gz", questions)
    corpora = _corpora(options)
    if OURS in options.engines:
        compile_kernels(corpora[0], options.work, questions, options.k)
    report([measure(corpus, questions, options) for corpus in corpora], options)


def main() -> int:
    """Run the command line."""
    return exit_status(lambda: _run(_options()))


if __name__ == "__main__":
    sys.exit(main())
