"""Opening, searching and serving a built corpus, each in processes of their own."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from benchmarks.engines.kinds import NAME, use_data_home
from benchmarks.engines.rounds import Plan, batches, singles
from benchmarks.engines.worker import Worker
from benchmarks.full_size.building import IDX, Figures, limited, outcome
from benchmarks.monitoring import memory_use
from benchmarks.scale.steps import drop_from_page_cache
from wikidx.retrievers.wire import SEARCH

_ENGINE = "bm25"
_PATIENCE_S = 600.0


def open_index(folder: Path, questions: Path, *, is_cold: bool) -> Figures:
    """Start a process that opens the index and answers a question; cold: with no file in the page cache."""
    if is_cold:
        drop_from_page_cache(folder / "home")
    with Worker(_ENGINE, folder, 1, questions) as worker:
        now = memory_use(worker.pid)
        return {**asdict(worker.opening), "own": now.own, "resident": now.resident}


def search(folder: Path, questions: Path, options: argparse.Namespace) -> Figures:
    """Ask one at a time on one thread, and in batches on one and two, at each k."""
    plan = Plan(options.rounds, options.seconds, len(json.loads(questions.read_bytes())))
    found: Figures = {}
    with ExitStack() as running:
        workers = {(_ENGINE, n): running.enter_context(Worker(_ENGINE, folder, n, questions)) for n in options.threads}
        for setting, single in singles(workers, options.k, plan, min(options.threads)).items():
            of_single = {"p50_s": single.p50, "p99_s": single.p99, "per_processor_s": single.per_processor_second}
            found |= {f"k{setting.k}_alone_{name}": statistics.median(values) for name, values in of_single.items()}
        for setting, batch in batches(workers, options.k, plan).items():
            name = f"k{setting.k}_batch_{setting.threads}_threads"
            found |= {f"{name}_per_s": batch.median, f"{name}_per_processor_s": statistics.median(batch.per_processor_second)}
        memory = [memory_use(worker.pid) for worker in workers.values()]
    return {**found, "own": max(use.own for use in memory), "resident": max(use.resident for use in memory)}


def open_limited(folder: Path, question: str, limit: int) -> Figures:
    """Answer a question by the command line with limited memory."""
    use_data_home(folder)
    command = limited([*IDX, "search", NAME, question], limit)
    ran = subprocess.run(command, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    return {"outcome": outcome(ran.returncode, ran.stderr)}


def serve_limited(folder: Path, question: str, limit: int) -> Figures:
    """Start the server with limited memory, and let it answer questions."""
    use_data_home(folder)
    command = limited([*IDX, "serve", NAME, "--port", "0", "--no-access-log"], limit)
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        said = list[str]()
        try:
            for line in process.stderr or ():
                said.append(line)
                if "http://" in line and _ask(process, next(word for word in line.split() if word.startswith("http://")), question):
                    return {"outcome": "finished", "own": memory_use(process.pid).own}
        except OSError as error:
            return {"outcome": f"failed: {error}"}
        finally:
            process.terminate()
    return {"outcome": outcome(process.wait(), "".join(said))}


def _ask(process: subprocess.Popen[str], url: str, question: str) -> bool:
    """Ask once the server is ready; return whether that was answered, False if the server has ended.

    Raises:
        OSError: there was no answer, or the server was not ready in ten minutes.
    """
    body = json.dumps({"queries": [question] * 64, "k": 100}).encode()
    for _ in _until(_PATIENCE_S):
        if process.poll() is not None:
            return False
        try:
            urllib.request.urlopen(url + "/ready", timeout=60).close()
        except OSError:
            continue
        request = urllib.request.Request(url + SEARCH, body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
        return True
    raise TimeoutError("the server was never ready")


def _until(seconds: float) -> Iterator[None]:
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        yield
        time.sleep(0.1)
