"""Speed of a BERT base and a MiniLM with random weights on a GPU; with ``--device cpu`` the same on the CPU.

    python -m benchmarks.gpu.networks --json FILE
    python -m benchmarks.gpu.networks --device cpu --passages 200 --hidden 64 --layers 2 --words 30 --requests 4 --pairs 10 --rounds 3

embedding   passages from the store to the file, the tokenizer alone, batches of shapes not seen before, and the share of the time in
            which a GPU is idle
queries     queries in batches, text in and vectors out
reranking   requests of one query with its passages
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.gpu.made import build_made_corpus, cross_encoder_in, encoder_in, made_pairs, made_passages, save_bert
from benchmarks.processes import use_data_home
from benchmarks.report import Figure, environment, parser, print_tables, run, seconds_of
from wikidx.base.machine.devices import count_gpus
from wikidx.corpora.build import open_store
from wikidx.indexer.embedding.embed import resolve_resources
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.embedding.pipeline import Job, run_pipeline
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.encoders.tokenizing import Tokenizer
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.vectors.file import GPU_RANGE_ROWS, VectorFile
from wikidx.runtimes.cli.check_gpu import describe_device, join, median_seconds

_SHAPES = range(40, 104, 8)  # lengths of texts
_TOKENIZED = 2_000
_PROFILED = 20_000  # passages; a profile of more takes long to read
_BATCHES = (1, 64, 1_024)

Rows = Iterator[dict[str, Figure]]


def embedding(folder: Path, spec: EncoderSpec, options: argparse.Namespace) -> Rows:
    """Time the parts of embedding."""
    n, device = options.passages, options.device
    build_made_corpus(n, options.words)
    resources = resolve_resources(EmbedOptions(device=device), spec)
    model = Model(spec, "passage", device, resources.precision.computed)
    tokenizer, sample = Tokenizer(spec, "passage"), list(made_passages(min(n, _TOKENIZED), options.words))
    tokenizing_s = seconds_of(lambda: tokenizer.passages(sample))
    yield {"what": "tokens a passage", "figure": len(tokenizer.passages(sample).ids) / len(sample)}
    yield {"what": "passages/s tokenised on all cores", "figure": len(sample) / tokenizing_s}
    yield {"what": "processes that tokenise", "figure": resources.n_tokenizing}
    first, again = ([_forward_s(model, length) for length in _SHAPES] for _ in range(2))
    yield {"what": "ms of a batch of a new shape", "figure": 1e3 * float(np.median(first))}
    yield {"what": "ms of the same again", "figure": 1e3 * float(np.median(again))}
    embed_first = partial(_passages_per_s, folder, Job(spec, partial(open_store, "made"), lambda *_: None, resources), model)
    embed_first(min(n, GPU_RANGE_ROWS))
    yield {"what": f"passages/s, {resources.precision.computed}", "figure": embed_first(n)}
    if device.startswith("cuda"):
        yield {"what": "% of the time in which the GPU is idle", "figure": 100 * _idle_share(lambda: embed_first(min(n, _PROFILED)))}


def _forward_s(model: Model, length: int) -> float:
    generator = np.random.default_rng(length)
    tokens = join([generator.integers(999, 29_999, size).astype(np.int32) for size in (length, length - 1, length - 2)])
    return seconds_of(partial(model.encode, tokens))


def _passages_per_s(folder: Path, job: Job, model: Model, n: int) -> float:
    """Embed the first n passages; return the rate from the first batch on: processes that tokenise take seconds to start."""
    target = folder / f"{n}-{time.monotonic_ns()}"
    target.mkdir()
    file = VectorFile(target, n, job.resources.precision.stored, GPU_RANGE_ROWS)
    reports = list[tuple[float, int]]()
    run_pipeline(
        job._replace(write=file.write), model, file.ranges(), lambda passages, tokens: reports.append((time.perf_counter(), passages))
    )
    (started, n_first), (ended, _) = reports[0], reports[-1]
    return (n - n_first) / max(ended - started, 1e-9)


def _idle_share(work: Callable[[], object]) -> float:
    """Return the share of the time, from the first to the last kernel on the GPU, in which none runs."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
    spans = sorted(
        (float(event.time_range.start), float(event.time_range.end)) for event in profile.events() or () if event.device_type.name == "CUDA"
    )
    busy, reached = 0.0, spans[0][0]
    for start, end in spans:
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return 1 - busy / (reached - spans[0][0])


def queries(spec: EncoderSpec, device: str, rounds: int) -> Rows:
    """Time the encoding of queries."""
    encoder = TransformerEncoder(spec, device)
    texts = [passage.text for passage in made_passages(max(_BATCHES), 12)]
    for batch in _BATCHES:
        seconds = median_seconds(device, partial(encoder.encode_queries, texts[:batch]), rounds)
        yield {"queries": batch, "precision": str(encoder.dtype), "ms": 1e3 * seconds, "queries/s": batch / seconds}


def reranking(folder: Path, options: argparse.Namespace) -> Rows:
    """Time requests of pairs: the first, and those after it."""
    size = options.pairs
    reranker = cross_encoder_in(folder, options.device)
    asked, passages = made_pairs(options.requests, size, options.words)
    first, *later = (seconds_of(partial(reranker.score, asked[n : n + size], passages[n : n + size])) for n in range(0, len(asked), size))
    p50, p95 = np.percentile(later, (50, 95))
    yield {"requests": options.requests, "pairs": size, "first ms": 1e3 * first, "p50 ms": 1e3 * float(p50), "p95 ms": 1e3 * float(p95)}


def _run(options: argparse.Namespace) -> None:
    folder = options.work.resolve() / str(time.monotonic_ns())
    folder.mkdir(parents=True)
    use_data_home(folder)
    spec = encoder_in(save_bert(folder / "bert", hidden=options.hidden, layers=options.layers, heads=options.hidden // 64))
    reranker = save_bert(
        folder / "reranker", hidden=options.hidden // 2, layers=options.layers // 2, heads=options.hidden // 64, n_labels=1
    )
    tables = {
        "Embedding": embedding(folder, spec, options),
        "Queries": queries(spec, options.device, options.rounds),
        "Reranking": reranking(reranker, options),
    }
    print_tables(tables, environment() | describe_device(options.device) | {"passages": options.passages}, options.json)


def main() -> int:
    """Run the command line."""
    made = parser("gpu.networks", __doc__)
    made.add_argument("--device", default="cuda:0" if count_gpus() else "cpu")
    made.add_argument("--passages", type=int, default=100_000)
    made.add_argument("--words", type=int, default=128, help="of a passage")
    made.add_argument("--hidden", type=int, default=768, help="components of the encoder; the reranker has half of them")
    made.add_argument("--layers", type=int, default=12, help="of the encoder; the reranker has half of them")
    made.add_argument("--requests", type=int, default=20, help="of the reranker")
    made.add_argument("--pairs", type=int, default=100, help="of a request")
    made.add_argument("--rounds", type=int, default=20)
    return run(made, _run)


if __name__ == "__main__":
    sys.exit(main())
