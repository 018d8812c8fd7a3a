"""Growth of building, checking, opening, searching and serving with the corpus, from three sizes up to 5 million passages.

    python -m benchmarks.scale                             # 312,500, 1,250,000 and 5,000,000 passages; half an hour, 20 GB of disk
    python -m benchmarks.scale --minutes 10                # stops before the first step that would start later; the same command resumes
    python -m benchmarks.scale --steps passages build      # only steps of these kinds

Passages are those of ``benchmarks.synthetic``. Their vectors are SYNTHETIC: noise around a thousand centres, stored as float16 with the
encoder's number of components (384). They cost as much as real ones; their results are meaningless. Embedding is measured separately, on
2,000 passages. Query vectors are real where questions are text (open, serve), and synthetic where the index alone is searched (search).

Every step is a process; figures are stored in ``--work``, and a step with stored figures is skipped. Numba's cache is filled with a
small corpus before the first size. "own memory" is RssAnon, "resident memory" includes pages of mapped files; see ``monitoring``.
"disk" is the size of a step's output, "most disk" the peak size of all files of the corpus while it runs. "open" is ``idx search`` with one
question, from the start of the process to its end, "cold" with all files to be read from the disk. "a question of 512" is the time of a
batch divided by its questions, "a request of 4 clients" the time divided by the requests answered.

"exponent" is the power of the number of passages in a figure's growth, through all points, and of the two largest only. Figures at other
sizes are on the power law or the line through these two, whichever gives more. "of text %" is a step's own memory for each further byte of
text. Exponents above 1.05, and memory above 10 % of the text, are flagged.

On a GPU, with a checkpoint of an encoder of 768 components: ``python -m benchmarks.scale --sizes 21015324 --retrievers contriever
--steps passages build make serve --device cuda --clients 64``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.engines.corpus import write_questions
from benchmarks.report import environment, exit_status, print_table
from benchmarks.scale.growth import Series, required_machine, series
from benchmarks.scale.steps import EMBED, FigureStore, measure_embedding, run_build
from benchmarks.synthetic import data_folder

SIZES = (312_500, 1_250_000, 5_000_000)
_WARM_UP = 2_000  # passages
_TABLES = {
    "Building": ("passages", "build", "make", "check"),
    "Opening: one question by the command line": ("open",),
    "Searching": ("search",),
    "Serving": ("serve",),
}


def report(store: FigureStore, options: argparse.Namespace) -> None:
    """Print the tables of all measurements."""
    measured = {n: store.figures[str(n)] for n in options.sizes if str(n) in store.figures}
    about = environment("faiss-cpu", "numba", "numpy", "torch")
    found: list[Series] = list(series(measured)) if len(measured) > 1 else []
    for title, kinds in _TABLES.items():
        rows = [line.row(sorted(measured)) for line in found if line.step.split()[0] in kinds]
        if rows:
            print_table(title, rows, about, None)
    speeds = {name: figures["a_passage_s"] for name, figures in store.figures.get(EMBED, {}).items()}
    if any(line.step.startswith("build") for line in found):
        print_table("The machine that is needed, with two cores like these", required_machine(found, speeds), about, None)
    if options.json:
        options.json.write_text(json.dumps({"about": about, "figures": store.figures}, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--retrievers", nargs="+", default=["bm25", "minilm", "minilm-ivfpq"])
    parser.add_argument("--steps", nargs="+", choices=[kind for kinds in _TABLES.values() for kind in kinds])
    parser.add_argument("--minutes", type=float, default=float("inf"), help="time limit; no step begins later")
    parser.add_argument("--embedded", type=int, default=2_000, help="number of passages to embed; 0: none")
    parser.add_argument("--clients", nargs="+", type=int, default=[4, 32])
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of each measurement of searching and serving")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--source", type=Path, help="JSON lines of articles; default: wiki_intro")
    parser.add_argument("--asked", type=Path, help="JSON lines with 'question'; default: HybridQA's questions in wiki_intro")
    parser.add_argument("--no-warm-up", action="store_true", help="skip the warm-up, if numba's cache has all kernels")
    parser.add_argument("--keep", action="store_true", help="keep a corpus after all its steps are measured")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "idx-scale", help="folder of the run")
    parser.add_argument("--json", type=Path, help="output file for all figures")
    return parser.parse_args()


def _run(options: argparse.Namespace) -> None:
    wiki_intro = data_folder() / "wiki_intro"
    options.work.mkdir(parents=True, exist_ok=True)
    options.work = options.work.resolve()
    options.source = options.source or wiki_intro / "passages.jsonl.gz"
    options.questions = options.work / "questions.json"
    write_questions(options.asked or wiki_intro / "queries.hybridqa_dev.jsonl.gz", options.questions)
    store, started = FigureStore(options.work), time.perf_counter()
    sizes = [*([] if options.no_warm_up else [_WARM_UP]), *sorted(options.sizes)]
    if all([run_build(n, store, options, lambda: time.perf_counter() - started < 60 * options.minutes) for n in sizes]):
        measure_embedding(store, options)
    report(store, options)


def main() -> int:
    """Run the command line."""
    return exit_status(lambda: _run(_options()))


if __name__ == "__main__":
    sys.exit(main())
