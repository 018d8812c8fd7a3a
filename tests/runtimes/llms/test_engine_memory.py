"""Memory of local checkpoints: logits and keys and values are bounded, by default by what a GPU has free."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig

from wikidx.runtimes.llms import packed_decoding, transformers_decoding, transformers_engine
from wikidx.runtimes.llms.options import EngineOptions
from wikidx.runtimes.llms.transformers_decoding import Model

GB = 10**9


@pytest.mark.parametrize(
    ("kv_heads", "free_gb", "device", "expected"),
    [
        (32, 66, "cuda", 33 * GB // (2 * 524_288)),  # Llama-2-7B: half a MiB of keys and values a token
        (8, 66, "cuda:1", 65_536),
        (32, 1, "cuda", 2_048),
        (32, 1, "mps", 65_536),
        (32, 1, "cpu", 32_768),
    ],
)
def test_a_gpu_holds_as_many_tokens_as_their_keys_and_values_have_room(
    kv_heads: int, free_gb: int, device: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()

    def free_memory(number: int, *, is_named: bool) -> int:
        asked.append(number)
        return free_gb * GB

    monkeypatch.setattr(transformers_engine, "free_memory", free_memory)
    config = LlamaConfig(hidden_size=4_096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=kv_heads)
    forward = SimpleNamespace(config=config, dtype=torch.float16)
    assert transformers_engine.default_batch_tokens(forward, device) == expected
    assert asked == {"cuda": [0], "cuda:1": [1]}.get(device, [])


@pytest.mark.parametrize("is_packed", [False, True])
def test_logits_of_a_pass_are_bounded_and_the_likelihoods_the_same(
    tiny_llama: Path, is_packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_packed:
        monkeypatch.setattr(packed_decoding, "pack", lambda model: None)
    model = transformers_engine._load(str(tiny_llama), EngineOptions(device="cpu"))[1]
    prompts = [[5 + number, 6, 7] for number in range(12)]
    continuations = [[8 + number, 9] * 3 for number in range(12)]
    expected = model.continuation_nlls(prompts, continuations)
    sizes, kind = list[int](), type(model)
    name = "_scores" if is_packed else "_logits"
    compute = getattr(kind, name)

    def watch(*arguments: object) -> object:
        result = compute(*arguments)
        sizes.append((result if is_packed else result[0]).numel())
        return result

    monkeypatch.setattr(kind, name, watch)
    n_words = model.forward.config.vocab_size
    for module in (transformers_decoding, packed_decoding):
        monkeypatch.setattr(module, "MAX_LOGITS", 15 * n_words)
    if is_packed:
        model.prefixes.clear()  # type: ignore[attr-defined]
    assert model.continuation_nlls(prompts, continuations) == pytest.approx(expected, abs=1e-4)
    assert max(sizes) <= 15 * n_words
    assert sum(sizes) == 12 * 7 * n_words
    assert isinstance(model, Model)
