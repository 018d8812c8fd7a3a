"""Comparisons and figures of ``idx check --gpu``: exact search, an encoder and a text model on a device, and the device itself.

The references are products in float64, and transformers alone: each text by itself, in float32 on the CPU. ``tests/gpu`` compares the rest
of what runs on a GPU, and ``benchmarks/gpu`` measures its speed, both with functions of this module.
"""

from __future__ import annotations

import contextlib
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikidx.base.errors import IdxError
from wikidx.base.machine.devices import count_gpus
from wikidx.base.machine.fit import Placement
from wikidx.base.progress import format_bytes
from wikidx.indexer.base import NO_ROW, Hits, Stored, Vectors
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.spec import EncoderSpec, Tokens
from wikidx.indexer.indexes.exact.index import ExactIndex
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.networks.loading import encoder_class, load_network, silent_transformers
from wikidx.indexer.networks.network_size import Dtype
from wikidx.runtimes.llms.base import Call, Generate, Reply
from wikidx.runtimes.llms.options import EngineOptions
from wikidx.runtimes.llms.prompts import Decoding
from wikidx.runtimes.llms.transformers_engine import TransformersEngine

if TYPE_CHECKING:
    import torch

Ids = NDArray[np.int32]
Scores64 = NDArray[np.float64]

PRECISIONS: tuple[Dtype, ...] = ("float32", "float16", "bfloat16")
# Of a score, relative to the length of the query times that of the longest vector. TF32 has some 2e-5 at 24 components.
SEARCH_ALLOWED: Mapping[Stored, float] = {"float32": 2e-6, "float16": 5e-6}
ENCODER_ALLOWED: Mapping[Dtype, float] = {"float32": 1e-5, "float16": 1e-4, "bfloat16": 1e-3}  # of 1 - cosine
TEXT_ALLOWED: Mapping[Dtype, float] = {"float32": 1e-3, "float16": 5e-2, "bfloat16": 0.5}  # of log-probabilities; on a CPU 1e-6, 4e-3, 3e-2
_LENGTHS = (1, 2, 9, 64)  # of texts, in tokens
_LETTERS = list("abcdefghijklmnopqrstuvwxyz .")
_PACKAGES = ("wikidx", "torch", "transformers", "tokenizers", "triton", "faiss-gpu", "faiss-cpu", "numpy")
_ASKED = "driver_version,power.limit,ecc.mode.current,mig.mode.current"
_PAGE_ROWS = 1 << 20
_ROUNDS = 10


class Difference(NamedTuple):
    """The largest difference from a reference in a case."""

    case: str
    difference: float
    allowed: float

    @property
    def passed(self) -> bool:
        """True if the difference is at most the allowed one, which NaN is not."""
        return bool(self.difference <= self.allowed)


class Part(NamedTuple):
    """A comparison: its differences, and the error that ended it, if one did."""

    name: str
    seconds: float
    differences: Sequence[Difference]
    reason: str

    @property
    def passed(self) -> bool:
        """True if it was done, and all differences are allowed."""
        return not self.reason and all(difference.passed for difference in self.differences)


def device_to_check() -> str:
    """Return the first GPU that torch can use, else the CPU."""
    return "cuda:0" if count_gpus() else "cpu"


def compare_all(device: str) -> Iterator[Part]:
    """Run the three comparisons on a device; an error of one does not end the others."""
    for name, compare in (("exact search", compare_search), ("encoder minilm", compare_encoder), ("text model", compare_text_model)):
        started, found, reason = time.perf_counter(), list[Difference](), ""
        try:
            found.extend(compare(device))
        except (IdxError, RuntimeError) as error:  # the latter are torch's
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        yield Part(name, time.perf_counter() - started, found, reason)


def compare_search(device: str) -> Iterator[Difference]:
    """Compare exact searches over made vectors with products in float64."""
    n_rows, dim, k = 200_000 if _is_gpu(device) else 5_000, 96, 100
    for stored, allowed in SEARCH_ALLOWED.items():
        generator = np.random.default_rng(1)
        vectors = generator.standard_normal((n_rows, dim), dtype=np.float32).astype(stored)
        queries = generator.standard_normal((7, dim), dtype=np.float32)
        hits = ExactIndex(vectors, placement=Placement((device if _is_gpu(device) else "cpu:0",), "checked")).search(queries, k)
        wide, exact = vectors.astype(np.float64), queries.astype(np.float64)
        scales = np.linalg.norm(wide, axis=1).max() * np.linalg.norm(exact, axis=1)
        yield Difference(f"{stored}, {n_rows:,} × {dim}, k {k}", largest_difference(hits, exact @ wide.T, scales), allowed)


def largest_difference(hits: Hits, exact: Scores64, scales: Scores64) -> float:
    """Return the largest difference of hits from exact scores; infinity if rows are missing, wrong or repeated.

    Differences are of a returned score from the exact score of its row, and of the exact score of the row in a place from that of the row
    that belongs there.

    Args:
        hits: rows and scores, (Q, k).
        exact: scores of all rows, (Q, N); -inf for rows that are never to be found.
        scales: for each query that by which its differences are divided, (Q,).
    """
    k = hits.rows.shape[1]
    best = -np.sort(-exact, axis=1)[:, :k]
    is_filled = np.zeros(hits.rows.shape, dtype=bool)
    is_filled[:, : best.shape[1]] = np.isfinite(best)
    repeats = any(len(set(rows[filled])) < filled.sum() for rows, filled in zip(hits.rows, is_filled, strict=True))
    if repeats or ((hits.rows == NO_ROW) == is_filled).any():
        return np.inf
    found = np.take_along_axis(exact, np.where(is_filled, hits.rows, 0), axis=1)
    best = np.pad(best, ((0, 0), (0, k - best.shape[1])))
    with np.errstate(invalid="ignore"):  # of -inf, in places that are not filled
        differences = np.where(is_filled, np.maximum(abs(hits.scores - found), abs(best - found)), 0) / scales[:, None]
    return float(differences.max(initial=0))


def compare_encoder(device: str) -> Iterator[Difference]:
    """Compare the vectors of ``minilm`` in each precision, of texts in one batch with padding."""
    spec, generator = encoder_spec("minilm"), np.random.default_rng(3)
    texts = [generator.integers(999, 29_999, length).astype(np.int32) for length in _LENGTHS]
    expected = encode_singly(spec, texts)
    for dtype in PRECISIONS:
        vectors = Model(spec, "passage", device, dtype).encode(join(texts))
        yield Difference(f"{dtype}, 1 - cosine", one_minus_cosine(vectors, expected), ENCODER_ALLOWED[dtype])


def encode_singly(spec: EncoderSpec, texts: Sequence[Ids]) -> Scores64:
    """Return unit vectors, the means of the last hidden states, by transformers alone: each text by itself, float32 on the CPU."""
    import torch

    folder = spec.folder("passage")
    config = {"model_type": "t5"} if folder.name == "t5" else {}
    network = load_network(encoder_class(config), folder, spec.name, "float32")
    with torch.inference_mode():
        means = [network(input_ids=torch.from_numpy(ids[None].astype(np.int64))).last_hidden_state[0].double().mean(dim=0) for ids in texts]
    vectors: Scores64 = torch.nn.functional.normalize(torch.stack(means), dim=1).numpy()
    return vectors


def join(texts: Sequence[Ids]) -> Tokens:
    """Return the tokens of several texts."""
    return Tokens(np.concatenate(texts), np.cumsum([len(ids) for ids in texts]), None)


def one_minus_cosine(vectors: Vectors, expected: Scores64) -> float:
    """Return the largest 1 - cosine of vectors and expected unit vectors; infinity for vectors that are not finite."""
    wide = vectors.astype(np.float64)
    cosines = (wide * expected).sum(axis=1) / np.linalg.norm(wide, axis=1)
    return float((1 - cosines).max()) if np.isfinite(cosines).all() else np.inf


def compare_text_model(device: str) -> Iterator[Difference]:
    """Compare the greedy texts of a small Llama with random weights, which has fewer heads of keys and values than of queries."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "llama"
        save_llama(folder, hidden=64, layers=2, heads=4, kv_heads=2)
        for dtype in PRECISIONS if _is_gpu(device) else PRECISIONS[:1]:
            yield from compare_texts(folder, device, dtype, n_prompts=6, max_tokens=16)


def compare_texts(folder: Path, device: str, dtype: Dtype, *, n_prompts: int, max_tokens: int) -> Iterator[Difference]:
    """Compare greedy texts of prompts of different lengths, generated together, with the likelihoods of each text by itself."""
    import transformers

    generator = np.random.default_rng(6)
    prompts = ["".join(generator.choice(_LETTERS, length)) for length in np.linspace(1, 240, n_prompts).astype(int)]
    engine = TransformersEngine(str(folder), options=EngineOptions(device=device, dtype=dtype))
    calls: list[Call] = [Generate(prompt=prompt, decoding=Decoding(max_tokens=max_tokens), logprobs=True) for prompt in prompts]
    replies = engine.run(calls)
    with silent_transformers():
        network = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    found = [_likelihoods(network, tokenizer(prompt)["input_ids"], reply) for prompt, reply in zip(prompts, replies, strict=True)]
    lacking, off = map(max, zip(*found, strict=True))
    yield Difference(f"{dtype}, log-probability that chosen tokens lack", lacking, TEXT_ALLOWED[dtype])
    yield Difference(f"{dtype}, reported log-probabilities", off, TEXT_ALLOWED[dtype])


def _likelihoods(network: Any, ids: Sequence[int], reply: object) -> tuple[float, float]:  # noqa: ANN401 - transformers has no types
    """Return what chosen tokens lack of the likeliest, and the difference of the reported log-probabilities; the largest."""
    import torch

    if not isinstance(reply, Reply) or not isinstance(reply.result, tuple):
        raise IdxError(f"the text model gave no text: {reply}")
    (gen,) = reply.result
    generated = list(gen.token_ids or ())
    with torch.inference_mode():
        logprobs = network(torch.tensor([[*ids, *generated]])).logits[0, len(ids) - 1 : -1].double().log_softmax(-1)
    chosen = logprobs.gather(1, torch.tensor(generated)[:, None])[:, 0]
    reported = torch.tensor(gen.logprobs, dtype=torch.float64)
    return float((logprobs.amax(dim=1) - chosen).max()), float((chosen - reported).abs().max())


def save_llama(folder: Path, *, hidden: int, layers: int, heads: int, kv_heads: int) -> None:
    """Write a Llama with random weights whose tokens are bytes."""
    import tokenizers
    import torch
    import transformers

    special = ["<s>", "</s>"]
    vocabulary = {token: number for number, token in enumerate([*special, *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())])}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    backend.add_special_tokens(special)
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>").save_pretrained(folder)
    sizes = {"hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": layers, "max_position_embeddings": 1024}
    sizes |= {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": len(vocabulary)}
    config = transformers.LlamaConfig(**sizes, bos_token_id=0, eos_token_id=1, initializer_range=0.05)
    torch.manual_seed(7)
    with silent_transformers():
        transformers.LlamaForCausalLM(config).save_pretrained(folder)


def describe_device(device: str) -> dict[str, str | float]:
    """Return a device's figures, with its ceilings, and the versions of what uses it."""
    import torch

    about: dict[str, str | float] = {"platform": platform.platform(), "python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            about[package] = version(package)
    if _is_gpu(device):
        card = torch.cuda.get_device_properties(device)
        about |= {"card": card.name, "memory": format_bytes(card.total_memory), "capability": f"{card.major}.{card.minor}"}
        about |= {"CUDA": str(torch.version.cuda)} | _ask_driver()
    bandwidth, rate = measure_ceilings(device)
    return about | {"copy GB/s": bandwidth / 1e9, "products TFLOP/s": rate / 1e12}


def _ask_driver() -> dict[str, str]:
    """Return what the driver says of the card; nothing if its program is missing, fails or takes long."""
    command = ("nvidia-smi", f"--query-gpu={_ASKED}", "--format=csv,noheader")
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(("driver", "power limit", "ecc", "mig"), answer[0].split(", "), strict=False)) if answer else {}


def measure_ceilings(device: str) -> tuple[float, float]:
    """Return the bytes per second read and written by a copy, and the rate of products, in operations per second.

    The products are of float16 matrices with float32 results, as in search; on a CPU of float32 ones.
    """
    import torch

    n_bytes, side = (2 << 30, 8192) if _is_gpu(device) else (64 << 20, 512)
    source, target = (torch.zeros(n_bytes, dtype=torch.uint8, device=device) for _ in range(2))
    bandwidth = 2 * n_bytes / median_seconds(device, lambda: target.copy_(source), _ROUNDS)
    left, right = fill_random(device, side, side), fill_random(device, side, side)
    return bandwidth, 2 * side**3 / median_seconds(device, lambda: half_product(left, right), _ROUNDS)


def fill_random(device: str, n_rows: int, dim: int) -> torch.Tensor:
    """Return random vectors of length about 1, float16, made on the device."""
    import torch

    vectors = torch.empty((n_rows, dim), dtype=torch.float16, device=device)
    for start in range(0, n_rows, _PAGE_ROWS):
        vectors[start : start + _PAGE_ROWS].normal_(std=dim**-0.5)
    return vectors


def half_product(left: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the inner products of float16 rows, float32; on a CPU computed in float32, as exact search does."""
    import torch

    return torch.mm(left, rows.T, out_dtype=torch.float32) if rows.is_cuda else left.float() @ rows.float().T


def median_seconds(device: str, work: Callable[[], object], rounds: int) -> float:
    """Return the median duration of a call on the device, after a first call that is not counted."""
    seconds = []
    for _ in range(rounds + 1):
        wait_for(device)
        started = time.perf_counter()
        work()
        wait_for(device)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


def wait_for(device: str) -> None:
    """Wait until a GPU has done all that it was given."""
    import torch

    if _is_gpu(device):
        torch.cuda.synchronize(device)


def _is_gpu(device: str) -> bool:
    return device.startswith("cuda")
