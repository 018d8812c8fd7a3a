"""Progress of runs with a model in this process: when answers are on disk, and how many tokens a second it computes.

    python -m benchmarks.execution.local rag cot --llm smollm2 --llm-option dtype=bfloat16

Each method answers the sample's questions. Seconds count from the start of the process. A kill at any moment costs the questions in
flight; *most at once* is the largest number of answers that appear in the file between two looks, a tenth of a second apart.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import Figure, environment, print_table
from wikidx.runtimes.execution.runs import PREDICTIONS, read_predictions

_IDX = (sys.executable, "-c", "from wikidx.runtimes.cli import main; main()")
_LOOK_SECONDS = 0.1


def watch(command: list[str], predictions: Path) -> list[tuple[float, int]]:
    """Run a command; return the seconds and the number of answers on disk whenever this number has grown."""
    grown, start = [(0.0, 0)], time.monotonic()
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            time.sleep(_LOOK_SECONDS)
            n = predictions.read_bytes().count(b"\n") if predictions.is_file() else 0
            if n > grown[-1][1]:
                grown.append((time.monotonic() - start, n))
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return grown


def row(method: str, arguments: argparse.Namespace) -> dict[str, Figure]:
    """Run a method over the sample's questions, and return its figures."""
    models = ["--llm", arguments.llm, *(argument for option in arguments.llm_option for argument in ("--llm-option", option))]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        search = [] if method in ("direct", "cot") else ["--corpus", "sample", "--retriever", "bm25"]
        grown = watch([*_IDX, "run", method, "--questions", "sample", *search, *models, "--out", str(out)], out / PREDICTIONS)
        costs = [record["cost"] for record in dict(read_predictions(out)).values()]
        (session,) = json.loads((out / "run.json").read_text(encoding="utf-8"))["sessions"]
    seconds, n = session["seconds"], grown[-1][1]
    return {
        "method": method,
        "questions": n,
        "in flight": session["in_flight"],
        "first answer s": grown[1][0],
        "half s": next(when for when, answered in grown if 2 * answered >= n),
        "all s": grown[-1][0],
        "most at once": max(later - earlier for (_, earlier), (_, later) in zip(grown, grown[1:], strict=False)),
        "tokens read/s": sum(cost["prompt_tokens"] for cost in costs) / seconds,
        "generated/s": sum(cost["completion_tokens"] for cost in costs) / seconds,
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.execution.local", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--llm", default="smollm2", help="model, as in idx run")
    parser.add_argument("--llm-option", action="append", default=[], help="such as dtype=bfloat16; may be repeated")
    arguments = parser.parse_args()
    subprocess.run([*_IDX, "build", "sample", "--bm25"], check=True)
    rows = [row(method, arguments) for method in arguments.methods]
    print_table(f"{arguments.llm} {' '.join(arguments.llm_option)}".rstrip(), rows, environment("torch", "transformers"), None)


if __name__ == "__main__":
    main()
