"""Speed of embedding passages on a CPU, compared with sentence-transformers; ``benchmarks.gpu.networks`` measures it on a GPU.

    python -m benchmarks.embed                      # minilm, 2,000 real passages, and sentence-transformers at its best batch size

The passages are those of the test data (``IDX_TEST_DATA``, or ``../shared/data``). Models are loaded before the clock starts.

The two engines take turns, each over all passages; figures are medians. "overhead" is the share of our run that is spent outside
the forward pass: reading the store, tokenising, padding, writing shards.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.engines.kinds import fastest
from benchmarks.report import Figure, environment, parser, print_table, run, seconds_of
from benchmarks.synthetic import data_folder, synthetic, write
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.known.custom import ReadOptions, custom_corpus
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Vectors
from wikidx.indexer.embedding.embed import resolve_resources
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.embedding.pipeline import Job, run_pipeline
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.networks.network import Batch
from wikidx.indexer.networks.network_size import Dtype
from wikidx.indexer.vectors.file import VectorFile

if TYPE_CHECKING:
    import torch

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
_TRIED = 200  # passages to find the best batch size on


class TimedModel(Model):
    """A model that records the time of its forward passes."""

    def __init__(self, spec: EncoderSpec, device: str, dtype: Dtype) -> None:
        super().__init__(spec, "passage", device, dtype)
        self.forward_s = 0.0

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return its vectors."""
        started = time.perf_counter()
        vectors = super().forward(batch)
        self.forward_s += time.perf_counter() - started
        return vectors


class Run(NamedTuple):
    """Seconds of a run, of these the forward passes, and the vectors."""

    seconds: float
    forward_s: float
    vectors: Vectors


class OwnPipeline:
    """This project's path from the store to the file of vectors, with one model that is loaded once."""

    def __init__(self, spec: EncoderSpec, options: EmbedOptions) -> None:
        self.spec, self.resources = spec, resolve_resources(options, spec)
        self.model = TimedModel(spec, self.resources.devices[0], self.resources.precision.computed)

    def run(self, corpus: str, n_passages: int) -> Run:
        """Embed a built corpus."""
        with tempfile.TemporaryDirectory() as folder:
            file = VectorFile(Path(folder), n_passages, self.resources.precision.stored)
            job = Job(self.spec, partial(open_store, corpus), file.write, self.resources)
            self.model.forward_s = 0.0
            seconds = seconds_of(lambda: run_pipeline(job, self.model, file.ranges(), lambda n_passages, n_tokens: None))
            return Run(seconds, self.model.forward_s, np.load(file.path).astype(np.float32))


def real_passages(n: int) -> list[Passage]:
    """Return the first DPR-style passages; beyond their number, passages joined from the longer source."""
    with gzip.open(data_folder() / "dpr_union" / "passages.jsonl.gz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in islice(lines, n)]
    passages = [Passage(record["id"], record["title"], record["text"]) for record in records]
    return passages if len(passages) == n else list(synthetic(n, source=passages))


@contextmanager
def build_corpus(passages: Sequence[Passage]) -> Iterator[PassageStore]:
    """Build the store of some passages in a separate data home."""
    with tempfile.TemporaryDirectory() as folder:
        write(passages, Path(folder, "passages.jsonl"))
        os.environ["IDX_HOME"] = folder
        build_store(custom_corpus(Path(folder, "passages.jsonl"), "measured", ReadOptions()), StoreOptions())
        yield open_store("measured")


def compare_sentence_transformers(n: int, rounds: int, options: EmbedOptions) -> dict[str, Figure]:
    """Embed with minilm by both libraries alternately."""
    import sentence_transformers
    import torch

    spec = encoder_spec("minilm")
    passages = real_passages(n)
    texts = [str(spec.passage_text(passage)) for passage in passages]
    encode = partial(sentence_transformers.SentenceTransformer(str(spec.folder("passage")), device="cpu").encode, show_progress_bar=False)
    with build_corpus(passages):
        ours = OwnPipeline(spec, options)
        best = fastest(BATCH_SIZES, lambda size: encode(texts[:_TRIED], batch_size=size))
        expected, found = encode(texts, batch_size=best), ours.run("measured", n).vectors
        pairs = [(seconds_of(lambda: encode(texts, batch_size=best)), ours.run("measured", n)) for _ in range(rounds)]
    cosine = (found * expected).sum(axis=1) / (np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1))
    ratios = [theirs / run.seconds for theirs, run in pairs]
    return {
        "passages": n,
        "threads": torch.get_num_threads(),
        "sentence-transformers passages/s": n / statistics.median(theirs for theirs, _ in pairs),
        "(batch size)": best,
        "idx passages/s": n / statistics.median(run.seconds for _, run in pairs),
        "(batch tokens)": ours.resources.batch_tokens,
        "ratio": statistics.median(ratios),
        "(lowest)": min(ratios),
        "overhead %": 100 * statistics.median(1 - run.forward_s / run.seconds for _, run in pairs),
        "max difference": float(np.abs(found - expected).max()),
        "1 - cosine": float((1 - cosine).max()),
    }


def _run(options: argparse.Namespace) -> None:
    import torch

    torch.set_num_threads(options.threads or torch.get_num_threads())
    found = EmbedOptions(device="cpu", dtype=options.dtype, batch_tokens=options.batch_tokens)
    row = compare_sentence_transformers(options.passages, options.rounds, found)
    print_table("Embedding", [row], environment("torch", "transformers", "sentence-transformers"), options.json)


def main() -> int:
    """Run the command line."""
    made = parser("embed", __doc__)
    made.add_argument("--passages", type=int, default=2_000)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--threads", type=int, help="number of torch threads, for a shared machine")
    made.add_argument("--dtype", help="precision; default: float32")
    made.add_argument("--batch-tokens", type=int)
    return run(made, _run)


if __name__ == "__main__":
    sys.exit(main())
