"""This project compared with Pyserini, bm25s, FAISS, sentence-transformers and a server like Search-R1's: speed, size and quality.

    python -m benchmarks.peers                              # everything on dpr_union; tables, and charts in benchmarks/charts
    python -m benchmarks.peers --parts bm25 --rounds 3      # a part; the charts of the other parts stay
    python -m benchmarks.peers --parts --work FOLDER        # no measurement: the charts again, from FOLDER/figures.json

All have the same passages, questions, CPUs and k. Every engine is a process pinned to as many CPUs as it may use threads,
with the same number in its own option. Rounds go through all engines of a part in turn. Every measured search has been run once before. A
slow engine gets only the first of the shuffled questions, as many as it answers in ``--seconds``, but in "vectors" all, in one batch.

R@20             share of all questions with an answer in the text of one of the first 20 passages (DPR's has_answer)
questions/s      all questions in one batch; best and median round on the most threads, and the best one on the fewest ("on 1")
p50, p95         a question alone, on the most threads; medians of the rounds
first answer     from the start of a new process to the answer to its first question, files in the page cache; median of ``--starts``
peak MB          peak memory of the process during the measurement, mapped files as far as they were read
index MB, build  files read by a search, without texts; vectors are embedded once for all ("embedding" compares that)

bm25, dense, vectors   engines; see ``groups`` for the inputs of each
server                 single questions through /retrieve, from clients that wait for their answers and run on the same CPUs
embedding              ``benchmarks.embed`` on 500 passages
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Container
from functools import partial
from pathlib import Path

from benchmarks.engines.corpus import compile_kernels, load_corpus
from benchmarks.engines.embedded import embed
from benchmarks.engines.kinds import find_kind, use_data_home
from benchmarks.engines.rounds import Plan
from benchmarks.peers.groups import GROUPS, describe_inputs
from benchmarks.peers.measuring import Rows, Task, measure, size_table, table
from benchmarks.peers.serving import serve
from benchmarks.report import environment, exit_status, print_table
from benchmarks.synthetic import data_folder
from wikidx.base.errors import InputError, MissingExtraError
from wikidx.runtimes.questions import read_questions

CHARTS = Path(__file__).parents[1] / "charts"
_EMBEDDED_PASSAGES = 500

Tables = dict[str, Rows]  # by title


def measure_group(name: str, task: Task, requested: Container[str]) -> Tables:
    """Measure the requested engines of a group that are installed, and name the others."""
    group = GROUPS[name]
    engines = [engine for engine in group.engines if engine in requested and _is_installed(engine)]
    if not engines:
        return {}
    found = measure(engines, group.sizes, task)
    notes: Rows = [{"engine": group.engines[engine], "was given": describe_inputs(engine)} for engine in engines]
    tables = {group.title: table(group, found, task), f"{group.title}: inputs": notes}
    if found.sizes:
        tables[f"{group.title}: questions/s by batch, k {max(task.ks)}"] = size_table(group, found)
    return tables


def measure_servers(task: Task, seconds: float) -> Tables:
    """Measure servers, for retrievers whose engines are installed."""
    needed = {"bm25": ("pyserini",), "minilm": ("faiss", "sentence-transformers")}
    retrievers = [retriever for retriever, engines in needed.items() if all(map(_is_installed, engines))]
    for engine in (engine for retriever in retrievers for engine in ("bm25", *needed[retriever])):
        _build_engine(engine, task)
    by_clients, by_server = serve(task, retrievers, seconds)
    return {"Single questions through /retrieve": by_clients, "The servers": by_server}


def measure_embedding() -> Tables:
    """Measure the speed of embedding passages."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "embed.json")
        options = ["--passages", str(_EMBEDDED_PASSAGES), "--rounds", "2", "--json", str(out)]
        subprocess.run([sys.executable, "-m", "benchmarks.embed", *options], check=True, stdout=subprocess.DEVNULL)
        rows: Rows = json.loads(out.read_bytes())["rows"]
    return {"Embedding passages": rows}


def _build_engine(engine: str, task: Task) -> None:
    from benchmarks.engines.build import build

    find_kind(engine).prepare(task.folder)
    build(engine, task.folder, max(task.threads))


def _is_installed(engine: str) -> bool:
    try:
        find_kind(engine).check()
    except MissingExtraError as error:
        print(f"{engine} is left out: {error}", file=sys.stderr)
        return False
    return True


def _task(options: argparse.Namespace) -> Task:
    """Build the inputs of all parts: the store, the questions, the vectors."""
    source: Path = options.passages or data_folder() / "dpr_union" / "passages.jsonl.gz"
    records = list(read_questions(options.questions or data_folder() / "dpr_union" / "queries.nq_oracle.jsonl.gz"))
    random.Random(0).shuffle(records)  # so that the first n are representative
    corpus = load_corpus(source, options.work)
    questions = corpus.folder / "questions.json"
    questions.write_text(json.dumps([question.text for question in records]))
    if {"bm25", "server"} & set(options.parts):
        compile_kernels(corpus, options.work, questions, options.k)
    use_data_home(corpus.folder)
    if _is_installed("minilm"):
        embed(corpus.folder, questions)
    plan = Plan(options.rounds, options.seconds, len(records))
    answers = [question.golden_answers for question in records]
    return Task(corpus.folder, questions, answers, plan, sorted(options.threads), options.k, options.starts)


def _run(options: argparse.Namespace) -> None:
    n_processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    if not all(1 <= threads <= n_processors for threads in options.threads):
        raise InputError(f"--threads {options.threads}: this process can be pinned to 1 to {n_processors} processors (none but on Linux)")
    options.work.mkdir(parents=True, exist_ok=True)
    options.work = options.work.resolve()
    stored = options.work / "figures.json"
    figures = json.loads(stored.read_bytes()) if stored.exists() else {}
    if options.parts:
        task = _task(options)
        parts: dict[str, Callable[[], Tables]] = {
            **{name: partial(measure_group, name, task, options.engines) for name in GROUPS},
            "server": partial(measure_servers, task, options.seconds),
            "embedding": measure_embedding,
        }
        for part in options.parts:
            about = environment("numba", "bm25s", "pyserini", "faiss-cpu", "torch", "sentence-transformers", "fastapi")
            tables = parts[part]()
            figures[part] = {"about": about, "tables": tables}
            for title, rows in tables.items():
                print_table(title, rows, about, None)
            stored.write_text(json.dumps(figures, indent=1) + "\n")
    if options.charts:
        from benchmarks.peers.charts import draw

        for path in draw(figures, options.charts):
            print(path)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    every_engine = [engine for group in GROUPS.values() for engine in group.engines]
    parser.add_argument("--engines", nargs="+", choices=every_engine, default=every_engine, help="engines to compare")
    parser.add_argument("--passages", type=Path, help="a file of passages; default: dpr_union of the test data")
    parser.add_argument("--questions", type=Path, help="questions with answers; default: the questions of dpr_union")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--k", nargs="+", type=int, default=[10, 100])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of one turn of a slow engine or of a server")
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "idx-peers", help="work folder; it is kept")
    parser.add_argument("--charts", type=Path, default=CHARTS, help="folder of the charts")
    return parser.parse_args()


PARTS = (*GROUPS, "server", "embedding")


def main() -> int:
    """Run the command line."""
    return exit_status(lambda: _run(_options()))


if __name__ == "__main__":
    sys.exit(main())
