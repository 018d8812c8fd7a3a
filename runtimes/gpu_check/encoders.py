"""Encoders on a device against transformers alone, text by text on the CPU in float32; and embedding that is killed and resumes."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wikidx.base.machine.failures import first_line
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.corpus import Corpus
from wikidx.corpora.passage import LocatedPassage
from wikidx.indexer.base import Vectors
from wikidx.indexer.embedding.embed import EmbedProgress, embed, resolve_resources
from wikidx.indexer.embedding.options import EmbedOptions, Resources
from wikidx.indexer.embedding.pipeline import Job
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.spec import EncoderSpec, Tokens
from wikidx.indexer.encoders.tokenizing import Tokenizer
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.networks.loading import encoder_class, load_network
from wikidx.indexer.networks.network_size import Dtype
from wikidx.indexer.vectors.file import VectorFile

from .networks import encoder_in, made_passages, save_bert, save_t5
from .task import Task

_ALLOWED: Mapping[Dtype, float] = {"float32": 1e-5, "float16": 1e-4, "bfloat16": 1e-3}  # of 1 - cosine
_ORDER_ALLOWED = 1e-3  # difference of a component between batches, of unit vectors
_SWITCHES = {"flash": "enable_flash_sdp", "efficient": "enable_mem_efficient_sdp", "math": "enable_math_sdp", "cudnn": "enable_cudnn_sdp"}
# What torch says if the only attention takes no mask or not this precision; on an H100 the last.
_NO_KERNEL = ("No available kernel", "No viable backend", "Invalid backend")

Ids = NDArray[np.int32]


def check_encoder(
    task: Task,
    *,
    network: Literal["bert", "t5", "minilm"],
    lengths: Sequence[int],
    dtypes: Sequence[Dtype],
    backends: Sequence[str],
    sizes: Mapping[str, int],
) -> None:
    """Compare vectors in each precision and with each attention of torch, of texts in one batch with a mask, and of equal length without.

    cuDNN's attention is recorded and not checked: idx switches it off.
    """
    folder = task.folder / network
    spec = encoder_spec("minilm") if network == "minilm" else encoder_in({"bert": save_bert, "t5": save_t5}[network](folder, **sizes))
    generator = np.random.default_rng(3)
    texts = [generator.integers(999, 29_999, min(length, spec.max_passage_tokens)).astype(np.int32) for length in lengths]
    expected = encode_singly(spec, texts)
    models = {dtype: Model(spec, "passage", task.device, dtype) for dtype in dtypes}
    for backend, (dtype, model) in itertools.product(sorted(backends, key="cudnn".__eq__), models.items()):  # it may spoil what follows
        for form, encode in (("masked", _encode_masked), ("unmasked", _encode_unmasked)):
            case = f"{form}, {dtype}, {backend} attention"
            try:
                with _only(backend):
                    difference = one_minus_cosine(encode(model, texts), expected)
            except RuntimeError as error:
                if backend != "cudnn" and not str(error).startswith(_NO_KERNEL):
                    raise
                task.note(f"{case}: {first_line(error)}")
                continue
            if backend == "cudnn":
                task.record(case, {"1 - cosine": difference, "used by idx": "no"})
            else:
                task.check(case, difference, _ALLOWED[dtype])
    _check_order(task, spec, texts)


def encode_singly(spec: EncoderSpec, texts: Sequence[Ids]) -> NDArray[np.float64]:
    """Return unit vectors, the means of the last hidden states, by transformers alone: each text by itself, float32 on the CPU."""
    import torch

    folder = spec.folder("passage")
    config = {"model_type": "t5"} if folder.name == "t5" else {}
    network = load_network(encoder_class(config), folder, spec.name, "float32")
    with torch.inference_mode():
        means = [network(input_ids=torch.from_numpy(ids[None].astype(np.int64))).last_hidden_state[0].double().mean(dim=0) for ids in texts]
    vectors: NDArray[np.float64] = torch.nn.functional.normalize(torch.stack(means), dim=1).numpy()
    return vectors


def join(texts: Sequence[Ids]) -> Tokens:
    """Return the tokens of several texts."""
    return Tokens(np.concatenate(texts), np.cumsum([len(ids) for ids in texts]), None)


def one_minus_cosine(vectors: Vectors, expected: NDArray[np.float64]) -> float:
    """Return the largest 1 - cosine of vectors and expected unit vectors; infinity for vectors that are not finite."""
    wide = vectors.astype(np.float64)
    cosines = (wide * expected).sum(axis=1) / np.linalg.norm(wide, axis=1)
    return float((1 - cosines).max()) if np.isfinite(cosines).all() else np.inf


def _encode_masked(model: Model, texts: Sequence[Ids]) -> Vectors:
    return model.encode(join(texts))


def _encode_unmasked(model: Model, texts: Sequence[Ids]) -> Vectors:
    """Return the vectors of texts, each in a batch with itself, which needs no mask."""
    return np.concatenate([model.encode(join([ids, ids]))[:1] for ids in texts])


@contextlib.contextmanager
def _only(backend: str) -> Iterator[None]:
    """Leave torch only one kind of attention; "default" leaves what idx leaves."""
    import torch

    try:
        for name, switch in _SWITCHES.items() if backend != "default" else ():
            getattr(torch.backends.cuda, switch)(name == backend)
        yield
    finally:
        for name, switch in _SWITCHES.items():
            getattr(torch.backends.cuda, switch)(name != "cudnn")


def _check_order(task: Task, spec: EncoderSpec, texts: Sequence[Ids]) -> None:
    """Compare the vectors of one batch with those of smaller ones in another order."""
    model = Model(spec, "passage", task.device, spec.gpu_dtype if task.on_gpu else "float32")
    together, order = model.encode(join(texts)), np.random.default_rng(4).permutation(len(texts))
    apart = np.empty_like(together)
    for numbers in np.array_split(order, max(2, len(order) // 3)):
        apart[numbers] = model.encode(join([texts[number] for number in numbers]))
    task.check(f"batches in another order, {model.dtype}", float(abs(together - apart).max()), _ORDER_ALLOWED)


def check_embedding(task: Task, *, n_passages: int, n_compared: int, range_rows: int, n_processes: int, sizes: Mapping[str, int]) -> None:
    """Embed made passages, kill the process, resume with ``n_processes`` on the device, and compare with a run that was not interrupted.

    Some vectors are compared with transformers alone.
    """
    spec = encoder_in(save_bert(task.folder / "bert", **sizes)) if sizes else encoder_spec("minilm")
    build_made_corpus(n_passages, 128 if task.on_gpu else 20)
    resources = resolve_resources(EmbedOptions(device=task.device), spec)
    resources = resources._replace(n_tokenizing=min(2, resources.n_tokenizing))
    files = {name: VectorFile(task.folder / name, n_passages, resources.precision.stored, range_rows) for name in ("killed", "whole")}
    for file in files.values():
        file.folder.mkdir()
    process = multiprocessing.get_context("spawn").Process(target=_embed_until_killed, args=(spec, resources, files["killed"]))
    process.start()
    process.join()
    n_left = len(files["killed"].unfinished_ranges())
    task.check("the process was killed (0: yes)", float(process.exitcode != -signal.SIGKILL), 0)
    task.check("ranges that are lost by the kill, of those written", max(0, n_left + 1 - len(files["killed"].ranges())), 0)
    embed_into(files["killed"], spec, resources._replace(devices=resources.devices * n_processes))
    embed_into(files["whole"], spec, resources)
    vectors = {name: np.load(file.path).astype(np.float32) for name, file in files.items()}
    task.check("ranges that are left after the second run", len(files["killed"].unfinished_ranges()), 0)
    task.check(f"resumed by {n_processes} at once, against one run", float(abs(vectors["killed"] - vectors["whole"]).max()), _ORDER_ALLOWED)
    rows = np.linspace(0, n_passages - 1, n_compared).astype(np.int64)
    tokens = Tokenizer(spec, "passage").passages(open_store("made").get_many(rows.tolist()))
    expected = encode_singly(spec, np.split(tokens.ids, tokens.ends[:-1]))
    allowed = max(1e-6, _ALLOWED[resources.precision.computed])
    task.check(
        f"{n_compared:,} of {n_passages:,} passages, {resources.precision.computed}",
        one_minus_cosine(vectors["whole"][rows], expected),
        allowed,
    )


def build_made_corpus(n_passages: int, n_words: int) -> None:
    """Build the corpus ``made``."""

    def read(files: Sequence[Path], on_bad: Any) -> Iterator[LocatedPassage]:  # noqa: ANN401 - unused
        return (LocatedPassage(passage, "made", number) for number, passage in enumerate(made_passages(n_passages, n_words)))

    build_store(Corpus(name="made", summary="made passages", files=(), read=read, n_passages=n_passages), StoreOptions())


def embed_into(file: VectorFile, spec: EncoderSpec, resources: Resources) -> None:
    """Embed the corpus ``made`` into a file of vectors."""
    embed(Job(spec, partial(open_store, "made"), file.write, resources), file, EmbedProgress())


def _embed_until_killed(spec: EncoderSpec, resources: Resources, file: VectorFile) -> None:
    """Embed, and kill this process when the first range is on disk."""

    def write(rows: range, vectors: Vectors) -> None:
        file.write(rows, vectors)
        os.kill(os.getpid(), signal.SIGKILL)

    embed(Job(spec, partial(open_store, "made"), write, resources), file, EmbedProgress())
