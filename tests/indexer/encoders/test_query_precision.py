"""Precision and batches of queries; a GPU's are tested on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

from tests.conftest import read_rows
from tests.indexer.encoders import tiny
from tests.indexer.encoders.folders import with_checkpoint
from wikidx.indexer.base import Vectors
from wikidx.indexer.encoders import transformer
from wikidx.indexer.encoders.families import ENCODERS
from wikidx.indexer.encoders.model import Model, default_dtype
from wikidx.indexer.encoders.spec import Tokens
from wikidx.indexer.encoders.transformer import TransformerEncoder

QUERIES = ["the river " * (1 + number % 7) + "of the nile" * (number % 3) for number in range(100)]


@pytest.mark.parametrize(("sizes", "stored", "on_gpu", "expected"), read_rows("indexer/encoders/query_precision.jsonl"))
def test_large_encoders_take_16_bits_on_a_gpu(
    sizes: dict[str, int], stored: str | None, on_gpu: bool, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"torch_dtype": stored} if stored else {}))
    for name, n_bytes in sizes.items():
        with (tmp_path / name).open("wb") as file:
            file.truncate(n_bytes)  # takes no disk
    if "model.safetensors" not in sizes:
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {name: name for name in sizes}}))
    assert default_dtype(tmp_path, "made", on_gpu=on_gpu) == expected


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_queries_at_half_precision_are_the_networks(dtype: str, tmp_path: Path) -> None:
    folder = tiny.save_bert(tmp_path)
    spec = with_checkpoint(ENCODERS["contriever"], folder)
    encoder = TransformerEncoder(spec, dtype=dtype)  # type: ignore[arg-type]
    assert encoder.dtype == dtype
    network = transformers.AutoModel.from_pretrained(folder, dtype=dtype).eval()
    read = transformers.AutoTokenizer.from_pretrained(folder)
    for query in QUERIES[:7]:
        with torch.inference_mode():
            hidden = network(**read(query, return_tensors="pt")).last_hidden_state
        assert hidden.dtype == getattr(torch, dtype)
        np.testing.assert_allclose(encoder.encode_queries([query])[0], hidden[0].float().mean(dim=0).numpy(), rtol=0, atol=1e-6)
    assert TransformerEncoder(spec).dtype == "float32"


@pytest.mark.parametrize(("budget", "n_batches"), [(16_384, 1), (64, None)])
def test_a_gpu_encodes_queries_in_one_batch_by_tokens(
    budget: int, n_batches: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = with_checkpoint(ENCODERS["contriever"], tiny.save_bert(tmp_path))
    expected, encoder = TransformerEncoder(spec).encode_queries(QUERIES), TransformerEncoder(spec)
    model, encode, padded = encoder._model("query"), Model.encode, list[int]()

    def encode_here(self: Model, tokens: Tokens, numbers: NDArray[np.int64]) -> Vectors:
        padded.append(len(numbers) * int(tokens.lengths()[numbers].max()))
        self.device = torch.device("cpu")
        vectors = encode(self, tokens, numbers)
        self.device = torch.device("cuda")
        return vectors

    monkeypatch.setattr(Model, "encode", encode_here)
    monkeypatch.setattr(transformer, "_GPU_BATCH_TOKENS", budget)
    model.device = torch.device("cuda")
    np.testing.assert_allclose(encoder.encode_queries(QUERIES), expected, rtol=0, atol=2e-6)
    assert max(padded) <= budget
    if n_batches is not None:
        assert len(padded) == n_batches
