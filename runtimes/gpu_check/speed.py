"""Speed of exact search, embedding, encoding of queries and reranking, with the device's ceilings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from wikidx.corpora.build import open_store
from wikidx.indexer.base import Vectors
from wikidx.indexer.embedding.embed import resolve_resources
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.embedding.pipeline import Job, run_pipeline
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.tokenizing import Tokenizer
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.indexes.exact.gpu import DeviceShard, TorchEngine, load_shards
from wikidx.indexer.indexes.exact.gpu_best import TopK, select_by_torch
from wikidx.indexer.indexes.exact.memory import WORK_BYTES
from wikidx.indexer.vectors.file import GPU_RANGE_ROWS, VectorFile

from .encoders import build_made_corpus, join
from .machine import fill_random, measure_ceilings, median_seconds, wait_for
from .models import cross_encoder_in, made_pairs
from .networks import encoder_in, made_passages, save_bert
from .task import Task

_NONE = np.empty(0, dtype=np.int64)
_N_SHAPES = 8
_TOKENIZED = 2_000
_PROFILED = 20_000  # passages; a profile of more takes long to read
_OPENED_ROWS = 1 << 20


def measure_search(task: Task, *, n_rows: int, dim: int, batches: Sequence[int], ks: Sequence[int], rounds: int) -> None:
    """Time searches over as many float16 vectors as fit, up to ``n_rows``, by queries that are float16 and by others.

    "product" is the time of the scores alone, "pick" that of the best k of each tile when its scores are there, and "gap" the search less
    the product. "copy %" is the rate at which the vectors are read, of that of a copy, and "FLOP %" the rate of
    their products with the queries, of that of large square ones.
    """
    import torch

    bandwidth, rate = measure_ceilings(task)
    if task.on_gpu:
        torch.cuda.empty_cache()
        n_rows = min(n_rows, max(0, torch.cuda.mem_get_info(task.device)[0] - WORK_BYTES) // (2 * dim))
        _measure_opening(task, dim)
    task.record("vectors, and then the queries at a time", {"rows": n_rows, "components": dim})
    shard = DeviceShard(fill_random(task.device, n_rows, dim), 0, _NONE)
    task.record("best rows are listed by", {"kernel": "torch alone" if shard.select is select_by_torch else "Triton"})
    engine = TorchEngine([shard])
    for batch in batches:
        for kind in ("float16", "float32"):
            queries = np.random.default_rng(batch).standard_normal((batch, dim), dtype=np.float32)
            queries = queries.astype(np.float16).astype(np.float32) if kind == "float16" else queries
            product_s = median_seconds(task, partial(_products, shard, queries), rounds)
            for k in ks:
                if not task.has_time:
                    task.note("the searches after these: no time left")
                    return
                seconds = median_seconds(task, partial(engine.search, queries, k), rounds)
                task.record(
                    f"{batch:,} {kind}, k {k:,}",
                    {
                        "ms": 1e3 * seconds,
                        "queries/s": batch / seconds,
                        "product ms": 1e3 * product_s,
                        "pick ms": 1e3 * _pick_seconds(task, shard, queries, k),
                        "gap ms": 1e3 * max(0.0, seconds - product_s),
                        "copy %": 100 * shard.vectors.nbytes / seconds / bandwidth,
                        "FLOP %": 100 * 2 * batch * n_rows * dim / seconds / rate,
                    },
                )


def _measure_opening(task: Task, dim: int) -> None:
    """Time the copy of vectors from memory to the GPU."""
    vectors = np.zeros((_OPENED_ROWS, dim), dtype=np.float16)
    seconds = median_seconds(task, lambda: load_shards(vectors, _NONE, [task.device]), 3)
    task.record("vectors copied from memory", {"GB/s": vectors.nbytes / seconds / 1e9, "s for 32 GB": 32e9 * seconds / vectors.nbytes})


def _products(shard: DeviceShard, queries: Vectors) -> None:
    """Compute the scores of all rows by the queries' first terms, and drop them."""
    import torch

    with torch.inference_mode():
        terms, n_rows = [shard.split_queries(queries).first], shard.tile_rows(len(queries))
        for start in range(0, len(shard.vectors), n_rows):
            shard.scores(terms, start, start + n_rows)


def _pick_seconds(task: Task, shard: DeviceShard, queries: Vectors, k: int) -> float:
    """Return the time of picking from tiles whose scores are there, by events of the GPU or the clock."""
    import torch

    with torch.inference_mode():
        terms, seconds = shard.split_queries(queries), 0.0
        best = TopK(min(k, len(shard.vectors)), terms.scales, shard.select)
        for start, scores in shard.tiles([terms.first], best):
            wait_for(task.device)
            seconds += _timed(task, partial(best.offer, scores, start))
        return seconds + _timed(task, best.keys)


def _timed(task: Task, work: Callable[[], object]) -> float:
    import torch

    if not task.on_gpu:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    before.record()
    work()
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after)) / 1e3


def measure_embedding(task: Task, *, n_passages: int, n_words: int, sizes: Mapping[str, int]) -> None:
    """Time the embedding of made passages from the store to the file, the tokenizer alone, and batches of shapes not seen before."""
    spec = encoder_in(save_bert(task.folder / "bert", **sizes))
    build_made_corpus(n_passages, n_words)
    resources = resolve_resources(EmbedOptions(device=task.device), spec)
    model = Model(spec, "passage", task.device, resources.precision.computed)
    sample, tokenizer = list(made_passages(min(n_passages, _TOKENIZED), n_words)), Tokenizer(spec, "passage")
    tokenizing_s = _seconds(lambda: tokenizer.passages(sample))
    _measure_shapes(task, model)

    def embed_first(n: int) -> float:
        """Return the passages embedded per second from the first batch on: processes that tokenise take seconds to start."""
        folder = task.folder / f"{n}-{time.monotonic_ns()}"
        folder.mkdir()
        file = VectorFile(folder, n, resources.precision.stored, GPU_RANGE_ROWS)
        job = Job(spec, partial(open_store, "made"), file.write, resources)
        reports = list[tuple[float, int]]()
        run_pipeline(job, model, file.ranges(), lambda passages, tokens: reports.append((time.perf_counter(), passages)))
        (started, n_first), (ended, _) = reports[0], reports[-1]
        return (n - n_first) / max(ended - started, 1e-9)

    embed_first(min(n_passages, GPU_RANGE_ROWS))
    task.record(
        f"{n_passages:,} passages of about {len(tokenizer.passages(sample).ids) / len(sample):.0f} tokens, {resources.precision.computed}",
        {
            "passages/s": embed_first(n_passages),
            "tokenised on all cores/s": len(sample) / tokenizing_s,
            "processes that tokenise": resources.n_tokenizing,
        },
    )
    if task.on_gpu and task.has_time:
        task.record("GPU idle during embedding", {"%": 100 * _idle_share(lambda: embed_first(min(n_passages, _PROFILED)))})


def _measure_shapes(task: Task, model: Model) -> None:
    """Time batches of shapes not seen before, and the same ones again."""
    generator = np.random.default_rng(9)

    def forward(length: int) -> float:
        tokens = join([generator.integers(999, 29_999, size).astype(np.int32) for size in (length, length - 1, length - 2)])
        return _seconds(partial(model.encode, tokens))

    forward(5)
    new, again = ([forward(length) for length in range(40, 40 + 8 * _N_SHAPES, 8)] for _ in range(2))
    task.record(f"{_N_SHAPES} new shapes", {"first ms": 1e3 * float(np.median(new)), "again ms": 1e3 * float(np.median(again))})


def _idle_share(work: Callable[[], object]) -> float:
    """Return the share of the time, from the first to the last kernel on the GPU, in which none runs."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
    events = [event for event in profile.events() or () if event.device_type.name == "CUDA"]
    if not events:
        raise RuntimeError("torch's profiler saw nothing on the GPU")
    spans = sorted((float(event.time_range.start), float(event.time_range.end)) for event in events)
    busy, reached = 0.0, spans[0][0]
    for start, end in spans:
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return 1 - busy / (reached - spans[0][0])


def measure_queries(task: Task, *, batches: Sequence[int], rounds: int, sizes: Mapping[str, int]) -> None:
    """Time the encoding of queries in batches, text in and vectors out."""
    encoder = TransformerEncoder(encoder_in(save_bert(task.folder / "bert", **sizes)), task.device)
    texts = [passage.text for passage in made_passages(max(batches), 12)]
    for batch in batches:
        if not task.has_time:
            task.note("the batches after these: no time left")
            return
        seconds = median_seconds(task, partial(encoder.encode_queries, texts[:batch]), rounds)
        task.record(f"{batch:,} queries, {encoder.dtype}", {"ms": 1e3 * seconds, "queries/s": batch / seconds})


def measure_reranking(task: Task, *, n_requests: int, n_passages: int, n_words: int, sizes: Mapping[str, int]) -> None:
    """Time requests of one query with its passages."""
    reranker = cross_encoder_in(save_bert(task.folder / "reranker", n_labels=1, **sizes), task.device)
    queries, passages = made_pairs(n_requests, n_passages, n_words)
    seconds = list[float]()
    for start in range(0, len(queries), n_passages):
        pairs = slice(start, start + n_passages)
        seconds.append(_seconds(partial(reranker.score, queries[pairs], passages[pairs])))
        if not task.has_time:
            break
    first, *later = seconds
    task.record(
        f"{len(seconds)} requests of {n_passages} pairs",
        {"first ms": 1e3 * first} | {f"p{percent} ms": 1e3 * float(np.percentile(later or seconds, percent)) for percent in (50, 95)},
    )


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
