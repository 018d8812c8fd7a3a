"""The steps of a size, in order, and their execution: each a process, measured, its figures stored in a file.

A step with stored figures is not repeated, so that an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.engines.kinds import NAME, use_data_home
from benchmarks.monitoring import folder_bytes, run_monitored
from benchmarks.scale.worker import PASSAGES, arguments
from wikidx.base.artifacts.durable import atomic_write
from wikidx.indexer.naming import parse_index_name

_IDX = ("-c", "from wikidx.runtimes.cli import main; main()")
_KEPT = "figures.json"
EMBED = "embed"

Figures = dict[str, Any]  # numbers, and where a benchmark says so, words


@dataclass(frozen=True, slots=True)
class Step:
    """A step of one size.

    Attributes:
        name: its kind, "build", "open", "search" and so on, and usually its object.
        arguments: of Python.
        prints: whether it prints its own figures as JSON.
        is_cold: whether its files are to be read from the disk.
    """

    name: str
    arguments: list[str]
    prints: bool = False
    is_cold: bool = False


class FigureStore:
    """The stored figures of a run in its folder: for each size, those of each step."""

    def __init__(self, work: Path) -> None:
        self._path = work / _KEPT
        self.figures: dict[str, dict[str, Figures]] = json.loads(self._path.read_bytes()) if self._path.exists() else {}

    def has(self, size: str, step: str) -> bool:
        """Return whether a step is done."""
        return step in self.figures.get(size, {})

    def put(self, size: str, step: str, figures: Figures) -> None:
        """Store the figures of a step."""
        self.figures.setdefault(size, {})[step] = figures
        with atomic_write(self._path) as file:
            file.write(json.dumps(self.figures, indent=1).encode())


def required_encoders(retrievers: list[str]) -> list[str]:
    """Return the encoders whose vectors are needed."""
    return list(dict.fromkeys(filter(None, (parse_index_name(name).encoder for name in retrievers))))


def list_steps(n: int, folder: Path, options: argparse.Namespace) -> Iterator[Step]:
    """Yield all steps of a size."""
    search_options = {"questions": options.questions, "device": options.device, "seconds": options.seconds}
    retrievers: list[str] = options.retrievers
    yield Step("passages", arguments("passages", folder, n=n, source=options.source), prints=True)
    yield Step("build passages", arguments("store", folder), prints=True)
    for encoder in required_encoders(retrievers):
        yield Step(f"make {encoder}", arguments("vectors", folder, retriever=encoder), prints=True)
    for name in retrievers:
        encoder, kind, _ = parse_index_name(name)
        if encoder and kind:
            yield Step(f"build {name}", [*_IDX, "build", NAME, "--encoder", encoder, "--index", kind, "--force"])
        elif kind:
            yield Step(f"build {name}", [*_IDX, "build", NAME, "--index", name, "--force"])
    yield Step("check", [*_IDX, "check", NAME])
    question = json.loads(options.questions.read_bytes())[0]
    for name in retrievers:
        command = [*_IDX, "search", NAME, question, "--retriever", name]
        yield Step(f"open {name}, cold", command, is_cold=True)
        yield Step(f"open {name}", command)
    for name in retrievers:
        yield Step(f"search {name}", arguments("search", folder, retriever=name, **search_options), prints=True)
    for name in retrievers:
        yield Step(f"serve {name}", arguments("serve", folder, retriever=name, clients=options.clients, **search_options), prints=True)


def run_build(n: int, store: FigureStore, options: argparse.Namespace, is_time: Callable[[], bool]) -> bool:
    """Run the steps of a size that have no figures yet, while there is time; return whether all are done.

    The files of a size are removed with its last step.
    """
    size, folder = str(n), options.work / str(n)
    for step in list_steps(n, folder, options):
        if store.has(size, step.name) or (options.steps and step.name.split()[0] not in options.steps):
            continue
        if not is_time():
            return False
        _print_progress(f"{n:,} passages: {step.name}")
        store.put(size, step.name, measure_step(step, folder))
        if step.name == "build passages":
            (folder / PASSAGES).unlink()
    is_done = all(store.has(size, step.name) for step in list_steps(n, folder, options))
    if is_done and not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return is_done


def measure_step(step: Step, folder: Path) -> Figures:
    """Run a step and return its figures; ``kept`` is the size of its output in the data home."""
    folder.mkdir(parents=True, exist_ok=True)
    use_data_home(folder)
    for left in folder.rglob(".*.partial"):  # by an interrupted step: a resumed one would not be measured completely
        shutil.rmtree(left)
    before = folder_bytes(folder / "home")
    if step.is_cold:
        drop_from_page_cache(folder)
    usage, printed = run_monitored(step.arguments, folder)
    own = json.loads(printed) if step.prints else {}
    return {**asdict(usage), "kept": folder_bytes(folder / "home") - before, **own}


def drop_from_page_cache(folder: Path) -> None:
    """Drop a folder's files from the page cache, so that they are read from the disk."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())  # dirty pages are not dropped
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure_embedding(store: FigureStore, options: argparse.Namespace) -> None:
    """Measure the speed of embedding, unless that is done."""
    for encoder in required_encoders(options.retrievers):
        if options.embedded and not store.has(EMBED, encoder):
            _print_progress(f"{options.embedded:,} passages: embedding by {encoder}")
            part = arguments("embed", options.work, n=options.embedded, source=options.source, retriever=encoder, device=options.device)
            store.put(EMBED, encoder, measure_step(Step(EMBED, part, prints=True), options.work / EMBED))


def _print_progress(text: str) -> None:
    print(text, flush=True)
