"""Cross-encoder and text model with random weights against transformers alone, text by text on the CPU in float32."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from benchmarks.gpu.made import cross_encoder_in, made_pairs, save_bert
from tests.gpu.comparing import MINILM, SMALL, failed, sized
from wikidx.corpora.passage import Passage, title_and_text
from wikidx.indexer.base import Scores
from wikidx.indexer.networks.network_size import Dtype
from wikidx.runtimes.cli.check_gpu import PRECISIONS, Difference, compare_texts, save_llama
from wikidx.runtimes.llms.base import Call, Reply
from wikidx.runtimes.llms.transformers_engine import TransformersEngine


def score_singly(folder: Path, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
    """Return the logit of each pair by itself, without padding, float32 on the CPU."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder, dtype="float32").eval()
    pairs = [(query, title_and_text(passage)) for query, passage in zip(queries, passages, strict=True)]
    with torch.inference_mode():
        encoded = (tokenizer(*pair, truncation=True, max_length=512, return_tensors="pt") for pair in pairs)
        return np.array([float(network(**tokens).logits[0, 0]) for tokens in encoded], dtype=np.float32)


def test_cross_encoder(device: str, tmp_path: Path) -> None:
    """Pairs of different lengths, in batches with padding, and in another order."""
    folder = save_bert(tmp_path / "reranker", n_labels=1, **sized(device, MINILM, SMALL))
    queries, passages = made_pairs(*sized(device, (4, 100, 128), (2, 12, 30)))
    expected, reranker = score_singly(folder, queries, passages), cross_encoder_in(folder, device)
    scores, order = reranker.score(queries, passages), np.random.default_rng(5).permutation(len(queries))
    shuffled = reranker.score([queries[n] for n in order], [passages[n] for n in order])
    spread = float(expected.max() - expected.min())
    allowed = sized(device, 5e-2, 1e-4)  # on a GPU the network is in float16: 0.8e-2 on a CPU
    compared = [
        Difference("pairs", float(abs(scores - expected).max()) / spread, allowed),
        Difference("in another order", float(abs(shuffled - scores[order]).max()) / spread, allowed),
    ]
    assert failed(compared) == []


def llama_in(folder: Path, device: str) -> Path:
    save_llama(
        folder,
        **sized(device, {"hidden": 256, "layers": 4, "heads": 8, "kv_heads": 2}, {"hidden": 32, "layers": 2, "heads": 4, "kv_heads": 2}),
    )
    return folder


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_text_model(dtype: Dtype, device: str, tmp_path: Path) -> None:
    n_prompts, max_tokens = sized(device, (32, 64), (6, 16))
    assert failed(compare_texts(llama_in(tmp_path / "llama", device), device, dtype, n_prompts=n_prompts, max_tokens=max_tokens)) == []
    assert not torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call] # whose attention has garbled such batches (pytorch#193893)


def test_another_token_than_the_likeliest_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = TransformersEngine.run

    def run_and_garble(self: TransformersEngine, calls: list[Call]) -> list[Any]:
        first, *others = run(self, calls)
        assert isinstance(first, Reply)
        assert isinstance(first.result, tuple)
        (gen,) = first.result
        assert gen.token_ids
        return [Reply((dataclasses.replace(gen, token_ids=(*gen.token_ids[:-1], gen.token_ids[-1] + 1)),)), *others]

    monkeypatch.setattr(TransformersEngine, "run", run_and_garble)
    found = list(compare_texts(llama_in(tmp_path / "llama", "cpu"), "cpu", "float32", n_prompts=6, max_tokens=16))
    assert failed(found) == found
