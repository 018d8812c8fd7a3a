"""Prints a row for each method, latency and number of concurrent calls. Options: see ``--help``."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from wikidx.runtimes.execution.opening import Plan, SearchTarget, open_services
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.questions.reading import sample_questions

from . import __doc__ as description
from .endpoint import KINDS, ROOT, serving
from .simulation import Bounds, Simulation

IDX = """
import importlib, os, sys
sys.path.insert(0, sys.argv.pop(1))
package = "wikidx.runtimes.cli" if os.path.isdir(os.path.join(sys.path[0], "wikidx")) else "runtimes.cli"  # as it was once
importlib.import_module(package).main()
"""
COMPILE = "from wikidx.base.compiled import compile_always\ncompile_always()\n"
METHODS = ("ircot", "ra_isf", "retrorag", "react", "rag")
COLUMNS = (
    *("method", "latency", "at a time", "questions", "calls", "work s", "longest chain s", "in order s", "with foresight s"),
    *("calls before", "before s", "now s", "before / now", "now / ideal", "now / in order", "now / with foresight"),
)


def home(source: Path) -> str:
    """Return the folder of the corpora of the version in a folder."""
    return f"{tempfile.gettempdir()}/idx-execution-{source.name}"


def idx(source: Path, *arguments: str, first: str = "") -> str:
    """Run a command of the version in a folder, and Python code before it; return its output."""
    environment = {**os.environ, "IDX_HOME": home(source), "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", first + IDX, str(source), *arguments]
    return subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=True).stdout


def measure(source: Path, method: str, kind: str, concurrency: int, questions: Path) -> tuple[float, int]:
    """Run a method over a file of questions; return its duration in seconds, and its number of calls."""
    with serving(kind) as url, tempfile.TemporaryDirectory() as folder:
        options = ["--corpus", "sample", "--retriever", "bm25", "--concurrency", str(concurrency), "--llm", f"openai:{method}@{url}/v1"]
        ran = json.loads(idx(source, "run", method, "--questions", str(questions), *options, "--out", f"{folder}/run", "--json"))
        assert ran["answered"] == ran["questions"], ran
        with urllib.request.urlopen(f"{url}/totals") as response:
            return ran["seconds"], json.load(response)["calls"]


def row(bounds: Bounds, ran: list[tuple[float, int]]) -> list[str]:
    """Return the figures of a row, from the number of calls on; what stands in ``measure`` of the earlier version, if any, and of this."""
    _, work, chain, in_order, with_foresight = bounds
    *before, (now, _) = ran
    figures = [f"{seconds:.1f}" for seconds in (work, chain, in_order, with_foresight)]
    figures += (
        [str(before[0][1]), f"{before[0][0]:.1f}", f"{now:.1f}", f"{before[0][0] / now:.2f}"] if before else ["", "", f"{now:.1f}", ""]
    )
    return [str(bounds.n_calls), *figures, *(f"{now / bound:.2f}" for bound in (max(work, chain), in_order, with_foresight))]


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--latency", nargs="+", default=KINDS)
    parser.add_argument("--concurrency", nargs="+", type=int, default=[8, 32, 128])
    parser.add_argument("--questions", type=int, default=107, help="only the first questions of the sample")
    parser.add_argument("--commit", type=Path, help="also measure the version in this folder, a worktree of an earlier commit")
    arguments = parser.parse_args()
    sources = [*([arguments.commit.resolve()] if arguments.commit else []), ROOT]
    for source in sources:
        idx(source, "build", "sample", "--bm25")
        idx(source, "search", "sample", "gold", first=COMPILE if source == ROOT else "")
    os.environ["IDX_HOME"] = home(ROOT)
    questions, target = sample_questions()[: arguments.questions], SearchTarget(corpus="sample", retriever="bm25")
    plan = Plan(method=find_method("rag"), options=None, target=target, is_dry=True)
    print("|".join(("", *COLUMNS, "")), "|".join(("", *["---"] * len(COLUMNS), "")), sep="\n")
    with open_services(plan) as services, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "questions.jsonl"
        file.write_text("".join(f"{json.dumps({'id': q.id, 'question': q.text, 'golden_answers': q.golden_answers})}\n" for q in questions))
        for method, kind in ((method, kind) for method in arguments.methods for kind in arguments.latency):
            simulation = Simulation(method, kind, questions, services)
            for concurrency in arguments.concurrency:
                bounds = simulation.bounds(concurrency)
                ran = [measure(source, method, kind, concurrency, file) for source in sources]
                assert ran[-1][1] == bounds.n_calls, "the simulation has other calls than the run"
                print("", method, kind, concurrency, len(questions), *row(bounds, ran), "", sep="|", flush=True)


if __name__ == "__main__":
    main()
