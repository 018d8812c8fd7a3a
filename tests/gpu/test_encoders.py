"""Encoders against transformers alone, text by text on the CPU in float32; and embedding that is killed and resumes."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from benchmarks.gpu.made import build_made_corpus, copy_tokenizer, encoder_in, save_bert, words
from tests.gpu.comparing import BASE, SMALL, failed, sized
from wikidx.corpora.build import open_store
from wikidx.indexer.base import Vectors
from wikidx.indexer.embedding.embed import EmbedProgress, embed, resolve_resources
from wikidx.indexer.embedding.options import EmbedOptions, Resources
from wikidx.indexer.embedding.pipeline import Job
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.spec import EncoderSpec
from wikidx.indexer.encoders.tokenizing import Tokenizer
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.networks.network import Batch
from wikidx.indexer.networks.network_size import Dtype
from wikidx.indexer.vectors.file import VectorFile
from wikidx.runtimes.cli.check_gpu import ENCODER_ALLOWED, PRECISIONS, Difference, Ids, encode_singly, join, one_minus_cosine

_ORDER_ALLOWED = 1e-3  # difference of a component between batches, of unit vectors
_SWITCHES = {"flash": "enable_flash_sdp", "efficient": "enable_mem_efficient_sdp", "math": "enable_math_sdp"}
of_each_network = pytest.mark.parametrize("network", ["bert", "t5", pytest.param("minilm", marks=pytest.mark.slow)])  # no tiny one
# What torch says if the only attention takes no mask or not this precision; on an H100 the last.
_NO_KERNEL = ("No available kernel", "No viable backend", "Invalid backend")


def spec_of(network: str, device: str, folder: Path) -> EncoderSpec:
    if network == "minilm":
        return encoder_spec("minilm")
    return encoder_in(save_bert(folder / "bert", **sized(device, BASE, SMALL)) if network == "bert" else save_t5(folder / "t5", **SMALL))


def save_t5(folder: Path, *, hidden: int, layers: int, heads: int) -> Path:
    """Write the encoder of a T5. It is used without a tokenizer, whose file is there because encoders need one."""
    copy_tokenizer(folder)
    sizes = {"d_model": hidden, "d_kv": hidden // heads, "d_ff": 4 * hidden, "num_layers": layers, "num_heads": heads}
    torch.manual_seed(7)
    transformers.T5EncoderModel(transformers.T5Config(vocab_size=len(words()[1]), **sizes)).eval().save_pretrained(folder)
    return folder


def made_texts(spec: EncoderSpec, lengths: tuple[int, ...]) -> list[Ids]:
    generator = np.random.default_rng(3)
    return [generator.integers(999, 29_999, min(length, spec.max_passage_tokens)).astype(np.int32) for length in lengths]


def differences(spec: EncoderSpec, device: str, dtypes: tuple[Dtype, ...], backends: tuple[str, ...]) -> Iterator[Difference]:
    """Compare vectors in each precision and each attention of torch, of texts in a batch with a mask, and of equal length without."""
    texts = made_texts(spec, sized(device, (1, 2, 7, 8, 9, 63, 64, 65, 128, 255, 256, 384, 511, 512), (1, 2, 9, 64)))
    expected = encode_singly(spec, texts)
    for dtype, backend in itertools.product(dtypes, backends):
        model = Model(spec, "passage", device, dtype)
        for form, encode in {"masked": encode_masked, "unmasked": encode_unmasked}.items():
            try:
                with only(backend):
                    difference = one_minus_cosine(encode(model, texts), expected)
            except RuntimeError as error:
                if not str(error).startswith(_NO_KERNEL):
                    raise
                continue
            yield Difference(f"{form}, {dtype}, {backend} attention", difference, ENCODER_ALLOWED[dtype])


def encode_masked(model: Model, texts: list[Ids]) -> Vectors:
    return model.encode(join(texts))


def encode_unmasked(model: Model, texts: list[Ids]) -> Vectors:
    """Return the vectors of texts, each in a batch with itself, which needs no mask."""
    return np.concatenate([model.encode(join([ids, ids]))[:1] for ids in texts])


@contextlib.contextmanager
def only(backend: str) -> Iterator[None]:
    """Leave torch only one kind of attention; "default" leaves what idx leaves."""
    try:
        for name, switch in _SWITCHES.items() if backend != "default" else ():
            getattr(torch.backends.cuda, switch)(name == backend)
        yield
    finally:
        for switch in _SWITCHES.values():
            getattr(torch.backends.cuda, switch)(True)


@of_each_network
def test_encoder(network: str, device: str, tmp_path: Path) -> None:
    one, gpu, cpu = ("default",), ("default", "flash", "efficient", "math"), ("flash", "math")
    spec = spec_of(network, device, tmp_path)
    assert failed(differences(spec, device, PRECISIONS, one if network == "t5" else sized(device, gpu, cpu))) == []
    assert not torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call] # whose attention has been wrong


@of_each_network
def test_vectors_do_not_depend_on_the_batch(network: str, device: str, tmp_path: Path) -> None:
    spec = spec_of(network, device, tmp_path)
    model, texts = (
        Model(spec, "passage", device, sized(device, spec.gpu_dtype, "float32")),
        made_texts(spec, sized(device, (1, 2, 9, 64, 255, 512), (1, 2, 9, 64))),
    )
    together, order = model.encode(join(texts)), np.random.default_rng(4).permutation(len(texts))
    apart = np.empty_like(together)
    for numbers in np.array_split(order, 3):
        apart[numbers] = model.encode(join([texts[number] for number in numbers]))
    assert failed([Difference("in another order", float(abs(together - apart).max()), _ORDER_ALLOWED)]) == []


def test_a_lost_mask_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pad = Model.pad_tokens

    def pad_without_mask(self: Model, *arguments: Any) -> Batch:  # noqa: ANN401 - as those of pad
        return pad(self, *arguments)._replace(mask=None)

    monkeypatch.setattr(Model, "pad_tokens", pad_without_mask)
    found = failed(differences(spec_of("bert", "cpu", tmp_path), "cpu", ("bfloat16",), ("flash",)))
    assert [difference.case.partition(",")[0] for difference in found] == ["masked"]


@pytest.mark.parametrize(
    ("message", "is_passed_over"),
    [("Invalid backend", True), ("No available kernel. Aborting", True), ("CUDA error: misaligned address", False)],
)
def test_attention_that_torch_does_not_have_is_no_failure(
    message: str, is_passed_over: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise RuntimeError(message)

    monkeypatch.setitem(globals(), "encode_masked", refuse)
    with contextlib.nullcontext() if is_passed_over else pytest.raises(RuntimeError, match="misaligned"):
        found = list(differences(spec_of("bert", "cpu", tmp_path), "cpu", ("float32",), ("flash",)))
        assert [difference.case for difference in found] == ["unmasked, float32, flash attention"]


def embed_into(file: VectorFile, spec: EncoderSpec, resources: Resources, *, is_killed: bool = False) -> None:
    """Embed the corpus ``made`` into a file of vectors, or kill this process when the first range is on disk."""

    def write(rows: range, vectors: Vectors) -> None:
        file.write(rows, vectors)
        if is_killed:
            os.kill(os.getpid(), signal.SIGKILL)

    embed(Job(spec, partial(open_store, "made"), write, resources), file, EmbedProgress())


@pytest.mark.slow  # a process that imports torch
def test_embedding_that_is_killed_resumes(device: str, tmp_path: Path) -> None:
    """On a GPU with two processes. The vectors are those of a run that was not interrupted, and of transformers alone."""
    n_passages, n_compared, range_rows, n_words = sized(device, (20_000, 500, 4_096, 128), (300, 50, 64, 20))
    spec = spec_of(sized(device, "minilm", "bert"), device, tmp_path)
    build_made_corpus(n_passages, n_words)
    resources = resolve_resources(EmbedOptions(device=device), spec)
    resources = resources._replace(n_tokenizing=min(2, resources.n_tokenizing))
    killed, whole = (VectorFile(tmp_path / name, n_passages, resources.precision.stored, range_rows) for name in ("killed", "whole"))
    for file in (killed, whole):
        file.folder.mkdir()
    process = multiprocessing.get_context("spawn").Process(target=embed_into, args=(killed, spec, resources), kwargs={"is_killed": True})
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert len(killed.unfinished_ranges()) <= len(killed.ranges()) - 1
    embed_into(killed, spec, resources._replace(devices=resources.devices * sized(device, 2, 1)))
    assert len(killed.unfinished_ranges()) == 0
    embed_into(whole, spec, resources)
    found, expected = (np.load(file.path).astype(np.float32) for file in (killed, whole))
    rows = np.linspace(0, n_passages - 1, n_compared).astype(np.int64)
    tokens = Tokenizer(spec, "passage").passages(open_store("made").get_many(rows.tolist()))
    singly = encode_singly(spec, np.split(tokens.ids, tokens.ends[:-1]))
    allowed = max(1e-6, ENCODER_ALLOWED[resources.precision.computed])
    compared = [
        Difference("resumed, against one run", float(abs(found - expected).max()), _ORDER_ALLOWED),
        Difference("against transformers", one_minus_cosine(expected[rows], singly), allowed),
    ]
    assert failed(compared) == []
