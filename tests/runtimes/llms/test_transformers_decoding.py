"""Padded batches: texts and scores are those of each row alone, whatever the model's attention."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests.runtimes.llms.tiny import save_tiny_llama
from wikidx.runtimes.llms.base import Generate, Reply
from wikidx.runtimes.llms.options import EngineOptions
from wikidx.runtimes.llms.prompts import Decoding, TokenIds
from wikidx.runtimes.llms.transformers_decoding import Model, Row
from wikidx.runtimes.llms.transformers_engine import TransformersEngine

_SIZES = {"vocab_size": 400, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3}
_GEMMA = transformers.GemmaConfig(**_SIZES, intermediate_size=64, num_key_value_heads=1, head_dim=16)
_SLIDING = transformers.MistralConfig(**_SIZES, intermediate_size=64, num_key_value_heads=2, sliding_window=16)
_ALIBI = transformers.BloomConfig(vocab_size=400, hidden_size=32, n_layer=2, n_head=4)
_DYNAMIC = transformers.LlamaConfig(
    **_SIZES, intermediate_size=64, num_key_value_heads=2, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
)
PROMPTS = [tuple(range(5, 105)), (*range(5, 105), 110, 111), (7, 8, 9), (7, 8, 9), (30, *range(200, 240))]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("config", [_GEMMA, _SLIDING, _ALIBI, _DYNAMIC], ids=["gemma", "sliding", "alibi", "dynamic"])
def test_a_row_has_the_same_text_and_scores_alone(config: Any, temperature: float) -> None:  # noqa: ANN401 - transformers has no types
    torch.manual_seed(0)
    forward = transformers.AutoModelForCausalLM.from_config(copy.deepcopy(config)).eval()
    accepts = frozenset({"position_ids", "logits_to_keep"} if config is not _ALIBI else ())
    model = Model(forward=forward, accepts=accepts, end=frozenset({399}), padding=0, device="cpu", batch_tokens=8_192)
    together, alone = (
        [Row(prompt=ids, decoding=Decoding(max_tokens=24, temperature=temperature, seed=n)) for n, ids in enumerate(PROMPTS)]
        for _ in range(2)
    )
    model.generate(together)
    for row in alone:
        model.generate([row])
    assert [(row.generated, row.finish) for row in together] == [(row.generated, row.finish) for row in alone]
    for one, other in zip(together, alone, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    texts = [row.generated for row in alone]
    nlls = [model.continuation_nlls([ids], [text])[0] for ids, text in zip(PROMPTS, texts, strict=True)]
    assert model.continuation_nlls(PROMPTS, texts) == pytest.approx(nlls, rel=1e-5)
    assert nlls == pytest.approx([-sum(row.logprobs) for row in alone], rel=1e-4)


def test_bfloat16_scores_are_computed_in_float32(tmp_path: Path) -> None:
    folder = save_tiny_llama(tmp_path / "tiny")
    engine = TransformersEngine(str(folder), options=EngineOptions(device="cpu", dtype="bfloat16"))
    ((_, probabilities),) = engine._model.next_token_probabilities([(0, 30, 31, 32)])
    assert probabilities.dtype == torch.float32
    assert float(probabilities.sum()) == pytest.approx(1.0, abs=1e-6)  # bfloat16 has 3 digits
    (reply,) = engine.run([Generate(prompt=TokenIds((0, 30, 31, 32)), decoding=Decoding(max_tokens=5), logprobs=True)])
    assert isinstance(reply, Reply)
    assert all(torch.tensor(gen.logprobs).bfloat16().tolist() != list(gen.logprobs or ()) for gen in reply.result)  # type: ignore[union-attr]
