"""Memory of local checkpoints: logits and keys and values are bounded, by default by what a GPU has free."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, LlamaForCausalLM, MistralConfig

from wikidx.base.errors import IdxError
from wikidx.runtimes.llms import transformers_decoding, transformers_engine
from wikidx.runtimes.llms.options import EngineOptions
from wikidx.runtimes.llms.prompts import Decoding
from wikidx.runtimes.llms.transformers_decoding import Model, Row

GB = 10**9


@pytest.mark.parametrize(("device", "expected"), [("cuda:1,0", "cuda:1"), ("all", "cuda"), ("cuda:1", "cuda:1"), ("auto", "auto")])
def test_a_model_is_on_the_first_of_several_gpus_and_one_that_is_too_large_names_another_engine(
    device: str, expected: str, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()

    def resolve(name: str) -> str:
        asked.append(name)
        return "cpu"

    def fill_memory(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 140 GiB")

    monkeypatch.setattr(transformers_engine, "resolve_device", resolve)
    monkeypatch.setattr(LlamaForCausalLM, "to", fill_memory)
    with pytest.raises(
        IdxError, match="too little memory for the model .*over several GPUs --llm vllm:MODEL --llm-option tensor_parallel_size"
    ):
        transformers_engine._load(str(tiny_llama), EngineOptions(device=device))
    assert asked == [expected]


@pytest.mark.parametrize(
    ("kv_heads", "free_gb", "device", "expected"),
    [
        (32, 66, "cuda", 33 * GB // 524_288),  # Llama-2-7B: half a MiB of keys and values a token
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


def test_logits_of_a_pass_are_bounded_and_the_likelihoods_the_same(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = transformers_engine._load(str(tiny_llama), EngineOptions(device="cpu"))[1]
    prompts = [[5 + number, 6, 7] for number in range(12)]
    continuations = [[8 + number, 9] * 3 for number in range(12)]
    expected = model.continuation_nlls(prompts, continuations)
    sizes, compute = list[int](), Model._logits

    def watch(*arguments: Any) -> Any:  # noqa: ANN401
        result = compute(*arguments)
        sizes.append(result[0].numel())
        return result

    monkeypatch.setattr(Model, "_logits", watch)
    n_words = model.forward.config.vocab_size
    monkeypatch.setattr(transformers_decoding, "_MAX_LOGITS", 15 * n_words)
    assert model.continuation_nlls(prompts, continuations) == pytest.approx(expected, abs=1e-4)
    assert max(sizes) <= 15 * n_words
    assert sum(sizes) == 12 * 7 * n_words


_SIZES = {"vocab_size": 400, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3}
_LLAMA = LlamaConfig(**_SIZES, hidden_size=32, intermediate_size=64, num_key_value_heads=2)
_GPT2 = GPT2Config(vocab_size=400, n_embd=32, n_layer=2, n_head=4, n_positions=512, initializer_range=0.3)
_SLIDING = MistralConfig(**_SIZES, hidden_size=32, intermediate_size=64, num_key_value_heads=2, sliding_window=16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("config", [_LLAMA, _GPT2, _SLIDING], ids=lambda config: config.model_type)
def test_keys_and_values_stay_where_they_are_while_a_text_grows(
    config: Any,  # noqa: ANN401 - transformers has no types
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Texts and scores are bit for bit those of transformers' own cache, which is copied at each step. Windows are left to it."""
    torch.manual_seed(0)
    forward = AutoModelForCausalLM.from_config(config).eval().to(dtype)
    accepts = frozenset({"position_ids", "logits_to_keep"})
    never = frozenset({400})  # where a text would end depends on the processor's rounding
    model = Model(forward=forward, accepts=accepts, end=never, padding=0, device="cpu", batch_tokens=8_192)
    seen = list[torch.Tensor]()  # kept, so that no memory is used twice
    compute = Model._logits

    def watch(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        result = compute(*arguments, **named)
        seen.append(result[1].layers[0].keys)
        return result

    def generate() -> list[tuple[list[int], list[float]]]:
        """Generate texts of different lengths, so that rows leave the batch."""
        rows = [Row(prompt=range(5, 9 + 3 * number), decoding=Decoding(max_tokens=6 << number)) for number in range(4)]
        model.generate(rows)
        assert max(len(row.generated) for row in rows) > 30
        return [(row.generated, row.logprobs) for row in rows]

    monkeypatch.setattr(Model, "_logits", watch)
    ours = generate()
    n_places, n_steps = len({keys.data_ptr() for keys in seen[1:]}), len(seen) - 1  # without the pass over the prompts
    monkeypatch.setattr(transformers_decoding, "make_room", lambda *_: None)
    assert generate() == ours
    if config is not _SLIDING:
        assert n_places <= 3 < n_steps / 10  # moved only with rows that stay when others have left
