"""Steps that are not commands of idx, each a process: ``python -m benchmarks.scale.worker PART FOLDER`` prints its figures as JSON."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from benchmarks.embed import OwnPipeline, build_corpus
from benchmarks.engines.kinds import NAME, use_data_home
from benchmarks.monitoring import Monitor
from benchmarks.report import seconds_of
from benchmarks.serve.load import LoadSpec
from benchmarks.serve.processes import Load, idx_serve
from benchmarks.synthetic import real_passages, synthetic, write
from benchmarks.vector_indexes import made_vectors, put_vectors
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.known.custom import ReadOptions, custom_corpus
from wikidx.indexer.build import open_lexical_index, open_vector_index
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.naming import encoder_spec, parse_index_name
from wikidx.retrievers.wire import SEARCH

PASSAGES = "passages.jsonl"
BATCHES = (32, 512)
DEPTH = 100  # rows of each retriever for a question, as with the default search options
K = 10
_MOST_SINGLES, _MOST_BATCHES = 200, 50  # timed searches

Figures = dict[str, float]


def passages(options: argparse.Namespace) -> Figures:
    """Write the corpus."""
    file = options.folder / PASSAGES
    write(synthetic(options.n, source=real_passages(options.source)), file)
    return {"text": file.stat().st_size}


def store(options: argparse.Namespace) -> Figures:
    """Build the store as ``idx build`` does, which would also build an index."""
    build_store(custom_corpus(options.folder / PASSAGES, NAME, ReadOptions()), StoreOptions(rebuild=True))
    return {}


def vectors(options: argparse.Namespace) -> Figures:
    """Make synthetic vectors in place of an encoder's."""
    put_vectors(NAME, open_store(NAME), options.retriever, encoder_spec(options.retriever).dim)
    return {}


def search(options: argparse.Namespace) -> Figures:
    """Search an index in this process after a warm-up; vector indexes get synthetic query vectors, without encoding."""
    ask, n = _load_questions(options)
    for size in (1, max(BATCHES)):
        ask(0, size)
    singles, _ = _repeat(lambda number: ask(number % n, 1), options.seconds, _MOST_SINGLES)
    found: Figures = {"single_s": statistics.median(singles), "p95_s": sorted(singles)[len(singles) * 95 // 100]}
    for size in BATCHES:
        seconds, processors = _repeat(lambda number, size=size: ask(number * size % n, size), options.seconds, _MOST_BATCHES)  # type: ignore[misc]
        found[f"batch_{size}_s"] = statistics.median(seconds) / size
        found[f"processors_{size}_s"] = statistics.median(processors) / size
    return found


def _load_questions(options: argparse.Namespace) -> tuple[Callable[[int, int], object], int]:
    """Return a function that searches for some questions from a number on, and the number of questions."""
    opened = open_store(NAME)
    if not parse_index_name(options.retriever).encoder:
        lexical = open_lexical_index(NAME, options.retriever, opened)
        questions: list[str] = json.loads(options.questions.read_bytes())
        return lambda first, size: lexical.search(questions[first : first + size], DEPTH), max(1, len(questions) - max(BATCHES))
    dense = open_vector_index(NAME, options.retriever, opened, device=options.device)
    queries = made_vectors(2 * max(BATCHES), dense.dim, -1 % 2**32)
    return lambda first, size: dense.search(queries[first : first + size], DEPTH), max(BATCHES)


def _repeat(ask: Callable[[int], object], seconds: float, max_calls: int) -> tuple[list[float], list[float]]:
    """Return the seconds, and the CPU seconds, of repeated calls, limited by time or number; three at least."""
    times, processors = list[float](), list[float]()
    started = time.perf_counter()
    while len(times) < 3 or (len(times) < max_calls and time.perf_counter() - started < seconds):
        before = time.process_time()
        times.append(seconds_of(partial(ask, len(times))))
        processors.append(time.process_time() - before)
    return times, processors


def serve(options: argparse.Namespace) -> Figures:
    """Start ``idx serve``, and send requests of one question; memory is the server's."""
    questions: list[str] = json.loads(options.questions.read_bytes())
    bodies = [json.dumps({"queries": [question], "k": K}) for question in questions]
    chosen = ["--retriever", options.retriever, "--no-access-log", "--device", options.device]
    with idx_serve(options.folder, NAME, *chosen) as server, Load() as load:
        with Monitor(server.process.pid) as watch:
            found = {"health_s": server.seconds_until("/health"), "ready_s": server.seconds_until("/ready")}
            for n_clients in (1, *options.clients):  # the first one maps files, and is not shown
                report = load.report(LoadSpec(server.port, SEARCH, bodies, options.seconds, clients=n_clients))
                found[f"clients_{n_clients}_s"] = 1 / max(report.per_second, 1e-9)
        server.check_alive()
    return found | {"own": watch.own, "resident": watch.resident}


def embed(options: argparse.Namespace) -> Figures:
    """Embed some passages of the corpus with the real encoder."""
    some = list(islice(synthetic(options.n, source=real_passages(options.source)), options.n))
    with build_corpus(some):
        run = OwnPipeline(encoder_spec(options.retriever), EmbedOptions(device=options.device)).run(NAME, options.n)
    return {"passages": options.n, "a_passage_s": run.seconds / options.n}


PARTS = {part.__name__: part for part in (passages, store, vectors, search, serve, embed)}


def arguments(part: str, folder: Path, **options: object) -> list[str]:
    """Return the command line of a part."""
    words = [word for name, value in options.items() for word in (f"--{name}", *_words(value))]
    return ["-m", "benchmarks.scale.worker", part, str(folder), *words]


def _words(value: object) -> Sequence[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def main() -> None:
    """Run the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.worker")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--n", type=int)
    parser.add_argument("--retriever")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clients", type=int, nargs="+")
    parser.add_argument("--seconds", type=float)
    options = parser.parse_args()
    use_data_home(options.folder)
    sys.stdout.write(json.dumps(PARTS[options.part](options)))


if __name__ == "__main__":
    main()
