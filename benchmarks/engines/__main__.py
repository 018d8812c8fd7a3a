"""This project and its peers, side by side in one run: speed, size, growth, and quality and agreement of results.

    python -m benchmarks.engines                                                    # wiki_intro, split at 100 words, HybridQA
    python -m benchmarks.engines --corpora 2500000 --questions nq                   # synthetic passages, NQ's short questions
    python -m benchmarks.engines --corpora dpr_union wiki_intro 2500000 --batch     # growth: builds and openings at three sizes
    python -m benchmarks.engines --corpora dpr_union --questions dpr_union --engines minilm sentence-transformers --starts 3
    python -m benchmarks.engines --engines bm25 call --batch 1 32 512               # the whole call beside its index

``kinds`` says what each engine is given. All that take parameters have k1 0.9 and b 0.4; Tantivy and SQLite have 1.2 and 0.75.

Every engine is a process pinned to as many CPUs as it may use threads, with the same number in its own option. Rounds go through
all of them in turn, so that the noise of a shared machine affects all alike; ratios are medians of each round's ratio. Every measured
search has been run once before. A slow engine gets only the first of the shuffled questions, as many as it answers in ``--seconds``.

R@20             share of all questions with an answer in the text of one of the first 20 passages (DPR's has_answer), if answers are known
same set         share of questions with the reference's k rows, except for rows that share the k-th score; same rows: share of all rows.
                 The reference is ``bm25``, ``pyserini`` or ``exact``; "score difference" is the largest relative one
exact            share of questions whose k scores an exhaustive search with the engine's own scores gives too (``bm25`` and ``pyserini``:
                 each other's); Pyserini takes a millionth off each tied score, so that many ties count as a difference
first answer     from the start of a new process to the answer to its first question, files in the page cache; median of ``--starts``
peak MB          peak memory of the process during the measurement, mapped files as far as they were read
processor s      time of all of a process's threads

Corpora, indexes and the figures of their builds are stored in ``--work``: after a change of an engine name it with ``--rebuild``. A small
corpus is built and searched first, to fill numba's cache.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.engines.corpus import BenchmarkCorpus, Questions, prepare_corpus, prepare_questions, warm_up_corpus
from benchmarks.engines.embedded import embed
from benchmarks.engines.kinds import DENSE, ENGINES
from benchmarks.engines.measuring import Row, add_options, check_options, compare, index_rows, search_rows
from benchmarks.engines.worker import Worker, build
from benchmarks.report import environment, parser, print_tables, run

DEFAULT = ("bm25", "bm25s", "pyserini")


def warm_up(corpus: BenchmarkCorpus, questions: Questions, options: argparse.Namespace) -> None:
    """Build and search the first passages, so that numba's cache contains the project's BM25 kernels, as after the first search."""
    small = warm_up_corpus(corpus, options.work)
    build("bm25", small.folder, 1, force=True)
    with Worker("bm25", small.folder, 1, questions.file) as worker:
        for k in options.k:
            worker.search(1, k)


def corpus_row(corpus: BenchmarkCorpus) -> Row:
    """Return a row with a corpus's size."""
    counts = corpus.counts
    return {
        "corpus": corpus.label,
        "passages": counts.passages,
        "text bytes/passage": counts.text_bytes / counts.passages,
        "terms/passage": counts.tokens / counts.passages,
        "postings/passage": counts.postings / counts.passages,
    }


def _run(options: argparse.Namespace) -> None:
    check_options(options)
    options.work.mkdir(parents=True, exist_ok=True)
    options.work = options.work.resolve()
    questions = prepare_questions(options.questions, options.work)
    corpora = [prepare_corpus(name, options.work) for name in options.corpora]
    if "bm25" in options.engines:
        warm_up(corpora[0], questions, options)
    about = environment("numba", "bm25s", "pyserini", "pyterrier-pisa", "tantivy", "faiss-cpu", "torch", "sentence-transformers")
    tables: dict[str, list[Row]] = {"Corpora": [corpus_row(corpus) for corpus in corpora]}
    for corpus in corpora:
        if set(options.engines) & set(DENSE):
            embed(corpus.folder, questions.file)
        results = compare(corpus.folder, questions, options)
        title = f"Indexes of {corpus.label}, built on {max(options.threads)} threads"
        tables[title] = list(index_rows(results, corpus.counts.passages, corpus.counts.postings))
        if results.searches:
            tables[f"Searches of {corpus.label}"] = list(search_rows(results))
    print_tables(tables, about, options.json)


def main() -> int:
    """Run the command line."""
    made = parser("engines", __doc__)
    made.add_argument("--corpora", nargs="+", default=["wiki_intro"], help="wiki_intro, dpr_union, numbers of synthetic passages, files")
    made.add_argument("--questions", default="hybridqa", help="hybridqa, nq, dpr_union or a file of questions")
    add_options(made, list(ENGINES), DEFAULT)
    return run(made, _run)


if __name__ == "__main__":
    sys.exit(main())
