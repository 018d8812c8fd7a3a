from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import ROOT
from wikidx.base.errors import ArtifactMismatch, IdxError, InputError
from wikidx.corpora.passage import Passage
from wikidx.indexer.base import Vectors
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.naming import encoder_spec


@pytest.fixture(scope="module")
def encoder() -> TransformerEncoder:
    return TransformerEncoder(encoder_spec("minilm"))


def assert_close(got: Vectors, expected: Vectors) -> None:
    assert got.dtype == np.float32
    assert np.abs(got - expected).max() <= 5e-5
    cosine = (got * expected).sum(axis=1) / (np.linalg.norm(got, axis=1) * np.linalg.norm(expected, axis=1))
    assert (1 - cosine).max() <= 2e-6


@pytest.mark.slow  # ten seconds
def test_vectors_are_those_of_sentence_transformers(encoder: TransformerEncoder, shared_data: Path) -> None:
    folder = shared_data / "golden_encoders" / "minilm" / "work"
    golden = np.load(folder / "golden.npz")
    inputs = [json.loads(line) for line in (folder / "inputs.jsonl").read_text(encoding="utf-8").splitlines()]
    passages = [Passage("", item["title"], item["text"]) for item in inputs if item["kind"] == "passage"]
    questions = [item["question"] for item in inputs if item["kind"] != "passage"]
    assert (len(passages), len(questions)) == (24, 24)
    assert_close(encoder.encode_passages(passages), golden["passage_vectors"])
    assert_close(encoder.encode_queries(questions), golden["query_vectors"])


def test_a_text_has_the_same_vector_in_any_batch(encoder: TransformerEncoder) -> None:
    texts = [" ".join(["word"] * n) for n in (1, 300, 5, 60, 2, 120, 1)]
    alone = np.concatenate([encoder.encode_queries([text]) for text in texts])
    np.testing.assert_allclose(encoder.encode_queries(texts), alone, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(alone, axis=1), 1, atol=1e-6)


def test_no_texts_give_no_vectors(encoder: TransformerEncoder) -> None:
    assert encoder.encode_queries([]).shape == (0, 384)


def test_too_little_memory_for_queries_is_one_line_with_the_chosen_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")

    monkeypatch.setattr(Model, "forward", fail)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    encoder = TransformerEncoder(encoder_spec("minilm"), "auto")
    with pytest.raises(
        IdxError, match="^cpu has too little memory for 2 texts for the encoder 'minilm': end what else uses it, or name another one"
    ):
        encoder.encode_queries(["a", "b"])


def test_other_weights_are_refused() -> None:
    spec = dataclasses.replace(encoder_spec("minilm"), weights_sha256="0" * 64)
    with pytest.raises(ArtifactMismatch, match=r"model\.safetensors is not the checkpoint of 'minilm'"):
        TransformerEncoder(spec)


@pytest.mark.parametrize(("device", "reason"), [("gpu", "is none of auto, cpu, cuda"), ("cuda:99", "cannot be used")])
def test_a_device_that_is_not_there_is_refused(device: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"the device '{device}' {reason}"):
        TransformerEncoder(encoder_spec("minilm"), device)


_SHAPES = """
import random
from pathlib import Path
from wikidx.indexer.naming import encoder_spec
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.transformer import TransformerEncoder
from tests.conftest import ROOT

encoder, rng = TransformerEncoder(encoder_spec("minilm")), random.Random(0)
for n in range(301):
    encoder.encode_queries(["word " * rng.randint(4, 40) for _ in range(rng.randint(1, 24))])
    if n in (100, 300):
        print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")))
"""


@pytest.mark.exhaustive
@pytest.mark.slow  # a minute
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc, which Linux has")
def test_memory_does_not_grow_with_the_shapes_of_batches() -> None:
    """It grew by 50 MB in these 200 batches, when all that was made was kept."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONEDNN")} | {"OMP_NUM_THREADS": "1"}
    ran = subprocess.run([sys.executable, "-c", _SHAPES], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    first, last = map(int, ran.stdout.split())
    assert last - first < 15_000, f"{last - first:,} KB"


_FORK = """
import os, signal
from wikidx.indexer.encoders.model import Model
from wikidx.indexer.encoders.transformer import TransformerEncoder
from wikidx.indexer.naming import encoder_spec
encoder = TransformerEncoder(encoder_spec("minilm"))
expected = encoder.encode_queries(["who found phosphorus"] * 8)
child = os.fork()
if not child:
    signal.alarm(30)  # what hangs is killed
    os._exit(int(abs(encoder.encode_queries(["who found phosphorus"] * 8) - expected).max() > 1e-6))
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
@pytest.mark.slow  # eight seconds
def test_a_forked_process_encodes() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    ran = subprocess.run([sys.executable, "-c", _FORK], capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    assert ran.stdout == "0\n", ran.stderr
