"""Speed of embedding passages: compared with sentence-transformers on a CPU, and as a share of a GPU's peak throughput.

    python -m benchmarks.embed                      # minilm, 2,000 real passages, and sentence-transformers at its best batch size
    python -m benchmarks.embed --device cuda        # bert-base with random weights in bfloat16

The passages are those of the test data (``IDX_TEST_DATA``, or ``../shared/data``). Models are loaded before the clock starts.

On the CPU the two engines take turns, each over all passages; figures are medians. "overhead" is the share of our run that is spent outside
the forward pass: reading the store, tokenising, padding, writing shards.

On a GPU the whole run is timed, including the start of the tokenising processes, and also the time after the first forward pass
("running"), which is the rate of a large corpus. "FLOP/s" counts the matrix products of real tokens, without padding: 24 d² per token and
layer, plus 4 d n for each token of a text of n tokens (d = 768, 12 layers). It is compared with bfloat16 products of square matrices in the
same run. "idle" is the share of time with nothing running on the GPU, from torch's profiler over a second run.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
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
from wikidx.indexer.encoders.tokenizing import Tokenizer
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.vectors.file import VectorFile

if TYPE_CHECKING:
    import torch

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
_TRIED = 200  # passages to find the best batch size on
_LAYERS, _WIDTH = 12, 768
_MATRIX = 8192
_PROFILED = 50_000  # passages; a profile of more takes long to read


class TimedModel(Model):
    """A model that records the time of its forward passes and the start of the first."""

    def __init__(self, spec: EncoderSpec, device: str, dtype: Dtype) -> None:
        super().__init__(spec, "passage", device, dtype)
        self.reset()

    def reset(self) -> None:
        """Start a run."""
        self.forward_s = 0.0
        self.first_at: float | None = None

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return its vectors."""
        started = time.perf_counter()
        self.first_at = self.first_at or started
        vectors = super().forward(batch)
        self.forward_s += time.perf_counter() - started
        return vectors


class Run(NamedTuple):
    """Seconds of a run, its seconds from the first forward pass on, and the vectors."""

    seconds: float
    running_s: float
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
            ended = time.perf_counter()
            return Run(ended - started, ended - (self.model.first_at or started), file.map_readonly().astype(np.float32))


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


def measure_gpu(n: int, options: EmbedOptions) -> list[dict[str, Figure]]:
    """Embed with a bert-base of random weights on one GPU."""
    with tempfile.TemporaryDirectory() as folder, build_corpus(real_passages(n)) as store:
        spec = random_bert_base(Path(folder))
        ours = OwnPipeline(spec, options)
        ours.run("measured", min(n, 2000))  # compiles, allocates
        seconds, running_s, _ = ours.run("measured", n)
        lengths = Tokenizer(spec, "passage").passages(store.get_many(range(n))).lengths()
        flops = float(_LAYERS * (24 * _WIDTH**2 * lengths + 4 * _WIDTH * lengths**2).sum())
        matrix_rate = matrix_flops_per_s(ours.resources.devices[0])
        idle = idle_share(partial(ours.run, "measured", min(n, _PROFILED)))
    return [
        {
            "card": device_name(ours.resources.devices[0]),
            "passages": n,
            "tokens a passage": float(lengths.mean()),
            "computed in": ours.resources.precision.computed,
            "batch tokens": ours.resources.batch_tokens,
            "passages/s": n / seconds,
            "passages/s running": n / running_s,
            "tokens/s running": float(lengths.sum()) / running_s,
            "TFLOP/s running": flops / running_s / 1e12,
            "matrix TFLOP/s": matrix_rate / 1e12,
            "share %": 100 * flops / seconds / matrix_rate,
            "share % running": 100 * flops / running_s / matrix_rate,
            "idle %": 100 * idle,
            "21,015,324 passages, min": (seconds - running_s + 21_015_324 * running_s / n) / 60,
        }
    ]


def random_bert_base(folder: Path) -> EncoderSpec:
    """Write a bert-base with random weights and BERT's vocabulary, and return Contriever's spec with it."""
    import transformers

    vocabulary = data_folder() / "golden_encoders" / "contriever" / "checkpoint"
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((vocabulary / name).read_bytes())
    transformers.BertModel(transformers.BertConfig()).save_pretrained(folder)
    return dataclasses.replace(encoder_spec("contriever"), query_checkpoint=folder, passage_checkpoint=folder)


def matrix_flops_per_s(device: str) -> float:
    """Return a device's rate for large square bfloat16 products, the median of twenty."""
    import torch

    left, right = (torch.randn(_MATRIX, _MATRIX, device=device, dtype=torch.bfloat16) for _ in range(2))
    seconds = []
    for _ in range(25):
        torch.cuda.synchronize(device)
        started = time.perf_counter()
        torch.matmul(left, right)
        torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - started)
    return 2 * _MATRIX**3 / statistics.median(seconds[5:])


def idle_share(work: Callable[[], object]) -> float:
    """Return the share of the time, from the first to the last kernel on the GPU, in which none runs."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
    events = [event for event in profile.events() or () if event.device_type.name == "CUDA"]
    spans = sorted((float(event.time_range.start), float(event.time_range.end)) for event in events)
    busy, reached = 0.0, spans[0][0]
    for start, end in spans:
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return 1 - busy / (reached - spans[0][0])


def device_name(device: str) -> str:
    """Return the name of a GPU."""
    import torch

    return torch.cuda.get_device_name(device)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embed")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--passages", type=int, help="number of passages; default: 2,000 on a CPU, 200,000 on a GPU")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds on a CPU")
    parser.add_argument("--threads", type=int, help="number of torch threads on a CPU, for a shared machine")
    parser.add_argument("--dtype", help="precision; default: float32 on a CPU, bfloat16 on a GPU")
    parser.add_argument("--batch-tokens", type=int)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    is_cpu = args.device == "cpu"
    options = EmbedOptions(device=args.device, dtype=args.dtype or (None if is_cpu else "bfloat16"), batch_tokens=args.batch_tokens)
    if is_cpu:
        import torch

        torch.set_num_threads(args.threads or torch.get_num_threads())
        rows = compare_sentence_transformers(args.passages or 2000, args.rounds, options)
    else:
        rows = measure_gpu(args.passages or 200_000, options)
    print_table("Embedding", rows, environment("torch", "transformers", "sentence-transformers"), args.json)


if __name__ == "__main__":
    main()
