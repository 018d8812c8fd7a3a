"""Speed of embedding passages on a CPU, compared with sentence-transformers; ``idx check --gpu`` measures it on a GPU.

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
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.report import Figure, environment, print_table
from benchmarks.synthetic import data_folder, synthetic
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.known.custom import ReadOptions, custom_corpus
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import Vectors
from wikidx.indexer.embedding.embed import resolve_resources
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.embedding.pipeline import Job, run_pipeline
from wikidx.indexer.encoders.model import Batch, Model
from wikidx.indexer.encoders.spec import Dtype, EncoderSpec
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.vectors.file import VectorFile

if TYPE_CHECKING:
    import torch

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
_TRIED = 200  # passages to find the best batch size on


class TimedModel(Model):
    """A model that records the time of its forward passes."""

    def __init__(self, spec: EncoderSpec, device: str, dtype: Dtype) -> None:
        super().__init__(spec, "passage", device, dtype)
        self.reset()

    def reset(self) -> None:
        """Start a run."""
        self.forward_s = 0.0

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return its vectors."""
        started = time.perf_counter()
        vectors = super().forward(batch)
        self.forward_s += time.perf_counter() - started
        return vectors


class Run(NamedTuple):
    """Seconds of a run, and the vectors."""

    seconds: float
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
            self.model.reset()
            started = time.perf_counter()
            run_pipeline(job, self.model, file.ranges(), lambda n_passages, n_tokens: None)
            return Run(time.perf_counter() - started, file.map_readonly().astype(np.float32))


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
        source = Path(folder, "passages.jsonl")
        source.write_text("".join(json.dumps(passage._asdict()) + "\n" for passage in passages))
        os.environ["IDX_HOME"] = folder
        build_store(custom_corpus(source, "measured", ReadOptions()), StoreOptions())
        yield open_store("measured")


def compare_sentence_transformers(n: int, rounds: int, options: EmbedOptions) -> list[dict[str, Figure]]:
    """Embed with minilm by both libraries alternately."""
    import sentence_transformers
    import torch

    spec = encoder_spec("minilm")
    passages = real_passages(n)
    texts = [str(spec.passage_text(passage)) for passage in passages]
    model = sentence_transformers.SentenceTransformer(str(spec.folder("passage")), device="cpu")

    def encode_with_sentence_transformers(texts: Sequence[str], batch_size: int) -> tuple[float, Vectors]:
        started = time.perf_counter()
        vectors: Vectors = model.encode(texts, batch_size=batch_size, show_progress_bar=False)
        return time.perf_counter() - started, vectors

    with build_corpus(passages):
        ours = OwnPipeline(spec, options)
        best = min(BATCH_SIZES, key=lambda size: min(encode_with_sentence_transformers(texts[:_TRIED], size)[0] for _ in range(2)))
        _, expected = encode_with_sentence_transformers(texts, best)
        found = ours.run("measured", n).vectors
        times: dict[str, list[float]] = {"theirs": [], "ours": [], "forward": []}
        for _ in range(rounds):
            times["theirs"].append(encode_with_sentence_transformers(texts, best)[0])
            times["ours"].append(ours.run("measured", n).seconds)
            times["forward"].append(ours.model.forward_s)
    cosine = (found * expected).sum(axis=1) / (np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1))
    median = {name: statistics.median(values) for name, values in times.items()}
    ratios = [theirs_s / ours_s for theirs_s, ours_s in zip(times["theirs"], times["ours"], strict=True)]
    overheads = [1 - forward_s / ours_s for forward_s, ours_s in zip(times["forward"], times["ours"], strict=True)]
    return [
        {
            "passages": n,
            "threads": torch.get_num_threads(),
            "sentence-transformers passages/s": n / median["theirs"],
            "(batch size)": best,
            "idx passages/s": n / median["ours"],
            "(batch tokens)": ours.resources.batch_tokens,
            "ratio": statistics.median(ratios),
            "(lowest)": min(ratios),
            "overhead %": 100 * statistics.median(overheads),
            "max difference": float(np.abs(found - expected).max()),
            "1 - cosine": float((1 - cosine).max()),
        }
    ]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embed")
    parser.add_argument("--passages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="number of torch threads, for a shared machine")
    parser.add_argument("--dtype", help="precision; default: float32")
    parser.add_argument("--batch-tokens", type=int)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    import torch

    torch.set_num_threads(args.threads or torch.get_num_threads())
    options = EmbedOptions(device="cpu", dtype=args.dtype, batch_tokens=args.batch_tokens)
    rows = compare_sentence_transformers(args.passages, args.rounds, options)
    print_table("Embedding", rows, environment("torch", "transformers", "sentence-transformers"), args.json)


if __name__ == "__main__":
    main()
