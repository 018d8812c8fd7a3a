"""A corpus of the size of the DPR Wikipedia, 21,015,324 passages of real word statistics, built whole by ``idx build`` and measured.

    python -m benchmarks.full_size                                      # hours, and 60 GB of disk
    python -m benchmarks.full_size --n 200000                           # minutes
    python -m benchmarks.full_size --steps passages estimate resume     # the only build is the one that is interrupted
    python -m benchmarks.full_size --steps search --again               # measures a step again

Steps, in order; each is stored in ``--work`` and not repeated, so that an interrupted run resumes:

passages    those of ``benchmarks.synthetic``, unless their file is there
estimate    ``idx build --dry-run``
build       ``idx build``: time, private (RssAnon) and all memory, disk, of each artifact; bytes by file
resume      the same, ended by SIGKILL within the store and within BM25, and run again; in a data home of its own, whose checksums are
            compared with the first one's, or in the corpus's if it has none yet
open        a process that opens the index and answers one question: with no file in the page cache, and at once again
search      NQ's short and HybridQA's long questions: one at a time on one thread, and in batches on one and two; k = 10, 100 and 1,000
groups      the multi-query call on GAR's groups of five queries
check       ``idx check``
serve       ``idx serve`` with 1, 16 and 64 clients
limits      build, open and serve with RLIMIT_DATA, which leaves mapped files out, of 1, 2 and 4 GB: finished, or refused in which words
vectors     made vectors of 64 components: exact search, int8 and ivfpq; see ``benchmarks.vector_indexes``

A run at a small ``--n`` before fills numba's cache; otherwise the first figures include its compilation. "deviation" is that of a measured
figure from its estimate. Times are those of a machine without other work; seconds of processors count all threads. The folder of a size is
that of ``benchmarks.bm25 --synthetic N`` in the same ``--work``, which finds the index built.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks.engines.build import Build
from benchmarks.engines.corpus import nq_questions, write_questions
from benchmarks.engines.kinds import NAME, use_data_home
from benchmarks.full_size import asking, building
from benchmarks.full_size.building import IDX, Figures
from benchmarks.monitoring import run_monitored
from benchmarks.report import Figure, environment, exit_status, print_table
from benchmarks.scale.steps import FigureStore
from benchmarks.scale.worker import PASSAGES, arguments
from benchmarks.synthetic import data_folder, real_passages, synthetic, write

FULL = 21_015_324
STEPS = ("passages", "estimate", "build", "resume", "open", "search", "groups", "check", "serve", "limits", "vectors")
_CLIENTS = (1, 16, 64)
_VECTOR_KINDS = ("exact", "int8", "ivfpq")

Measure = Callable[[], Figures]


def list_steps(options: argparse.Namespace, stored: Mapping[str, Figures]) -> Iterator[tuple[str, Measure]]:
    """Yield the steps by name; the first word is the step's kind. ``stored`` has the figures of those that are done."""
    folder, short, long = options.folder, options.short, options.long
    file = folder / PASSAGES
    question = json.loads(short.read_bytes())[0]
    yield "passages", partial(_passages, file, options.n)
    yield "estimate", partial(building.estimate, file)
    yield "build", partial(_build, options)
    yield "resume", lambda: _resume(options, stored["estimate"])
    for state in ("cold", "warm"):
        yield f"open {state}", partial(asking.open_index, folder, short, is_cold=state == "cold")
    for name, questions in (("short", short), ("long", long)):
        yield f"search {name}", partial(asking.search, folder, questions, options)
    yield "groups", partial(_monitored, folder, "-m", "benchmarks.full_size.groups", str(folder), "--seconds", str(options.seconds))
    yield "check", partial(_monitored, folder, *IDX, "check", NAME)
    serving = {"retriever": "bm25", "clients": list(_CLIENTS), "questions": short, "seconds": options.seconds}
    yield "serve", partial(_monitored, folder, *arguments("serve", folder, **serving))
    for gigabytes in options.limits:
        limit = int(gigabytes * 1e9)
        yield f"limits {gigabytes:g} GB, build", partial(building.build_limited, file, folder / "limited", limit)
        yield f"limits {gigabytes:g} GB, open", partial(asking.open_limited, folder, question, limit)
        yield f"limits {gigabytes:g} GB, serve", partial(asking.serve_limited, folder, question, limit)
    vectors = ("-m", "benchmarks.vector_indexes", "--dim", str(options.dim))
    yield "vectors", partial(_monitored, folder, *vectors, "--step", "vectors", "--kept")
    for kind in _VECTOR_KINDS:
        if kind != "exact":
            yield f"vectors {kind}, build", partial(_monitored, folder, *vectors, "--step", "build", "--kinds", kind)
        yield f"vectors {kind}, search", partial(_monitored, folder, *vectors, "--step", "search", "--kinds", kind)


def _passages(file: Path, n: int) -> Figures:
    if not file.exists():
        unfinished = file.with_name("unfinished.jsonl")
        write(synthetic(n, source=real_passages(data_folder() / "wiki_intro" / "passages.jsonl.gz")), unfinished)
        unfinished.rename(file)
    return {"text": file.stat().st_size}


def _build(options: argparse.Namespace) -> Figures:
    found = building.build(options.folder / PASSAGES, options.folder / "home")
    _tell_bm25(options.folder, found)
    return found


def _resume(options: argparse.Namespace, expected: Figures) -> Figures:
    """Interrupt a build twice, in the data home if it has no index, else in another one, which is compared and removed."""
    folder: Path = options.folder
    file, home = folder / PASSAGES, folder / "home"
    if not building.artifact_path(home, "bm25").exists():
        found = building.build_interrupted(file, home, expected)
        _tell_bm25(folder, found)
        return found
    other = folder / "interrupted"
    shutil.rmtree(other, ignore_errors=True)
    found = building.build_interrupted(file, other, expected) | building.compare(home, other)
    shutil.rmtree(other)
    return found


def _tell_bm25(folder: Path, found: Figures) -> None:
    """Store the build's figures where ``benchmarks.bm25`` looks for them; the time is that of passages and index, built in one pass."""
    n_bytes = sum(size for file, size in found["files"].items() if file.startswith(building.ARTIFACTS["bm25"]))
    for_bm25 = Build("bm25", 2, found["s"], n_bytes, found["bm25_resident"])
    (folder / "build-bm25-2.json").write_text(json.dumps(asdict(for_bm25)))


def _monitored(folder: Path, *arguments: str) -> Figures:
    """Run a command over the data home; what it prints as JSON is added to its resources."""
    use_data_home(folder)
    usage, printed = run_monitored(arguments, folder)
    return asdict(usage) | (json.loads(printed) if printed.startswith("{") else {})


def report(figures: Mapping[str, Figures], options: argparse.Namespace) -> None:
    """Print all figures, and the estimates beside what was measured; write them as JSON if a path is given."""
    about = environment("numba", "numpy", "faiss-cpu")
    rows: list[dict[str, Figure]] = [
        {"step": step, "figure": key, "value": value if isinstance(value, int | float | str) else json.dumps(value)}
        for step, of_step in figures.items()
        for key, value in of_step.items()
        if step != "estimate"
    ]
    print_table(f"{options.n:,} passages; seconds and bytes", rows, about, None)
    deviations = list(deviation_rows(figures))
    if deviations:
        print_table("Estimates of idx build --dry-run", deviations, about, None)
    if options.json:
        options.json.write_text(json.dumps({"about": about, "n": options.n, "figures": figures, "estimates": deviations}, indent=1) + "\n")


def deviation_rows(figures: Mapping[str, Figures]) -> Iterator[dict[str, Figure]]:
    """Yield a row for each estimate, beside what the build took, whichever build there was; disk is the most of all at one time."""
    built, estimates = figures.get("build") or figures.get("resume"), figures.get("estimate")
    if built is None or estimates is None:
        return
    pairs = {(name, key): (estimates[name][key], built[f"{name}_{key}"]) for name in building.ARTIFACTS for key in ("own", "s")}
    pairs["all", "disk"] = sum(estimates[name]["disk"] for name in building.ARTIFACTS), built["disk"]
    pairs["all", "s"] = sum(estimates[name]["s"] for name in building.ARTIFACTS), built["s"]
    for (name, key), (estimated, measured) in pairs.items():
        yield {
            "artifact": name,
            "figure": key,
            "estimate": float(estimated),
            "measured": float(measured),
            "deviation %": 100 * (measured / estimated - 1),
        }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.full_size")
    parser.add_argument("--n", type=int, default=FULL, help="number of passages")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--again", action="store_true", help="repeat steps that are done")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--k", nargs="+", type=int, default=[10, 100, 1000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each measurement of searching and serving")
    parser.add_argument("--limits", nargs="+", type=float, default=[1, 2, 4], help="memory limits in GB")
    parser.add_argument("--dim", type=int, default=64, help="components of the made vectors")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "idx-bm25", help="work folder; it is kept")
    parser.add_argument("--json", type=Path, help="output file for all figures")
    return parser.parse_args()


def _run(options: argparse.Namespace) -> None:
    work: Path = options.work.resolve()
    options.folder = work / f"synthetic-{options.n}"
    options.folder.mkdir(parents=True, exist_ok=True)
    options.short, options.long = work / "questions-short.json", work / "questions-long.json"
    options.short.write_text(json.dumps(nq_questions()))
    write_questions(data_folder() / "wiki_intro" / "queries.hybridqa_dev.jsonl.gz", options.long)
    store, size = FigureStore(work), str(options.n)
    stored = store.figures.setdefault(size, {})
    for name, measure in list_steps(options, stored):
        if name.split()[0] in options.steps and (options.again or not store.has(size, name)):
            print(name, flush=True)
            store.put(size, name, measure())
    report(stored, options)


def main() -> int:
    """Run the command line."""
    return exit_status(lambda: _run(_options()))


if __name__ == "__main__":
    sys.exit(main())
