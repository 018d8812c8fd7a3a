"""Packed passes against padded ones: the same texts and scores, with each beginning computed once."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests.runtimes.llms.tiny import save_tiny_llama
from wikidx.runtimes.llms.base import Decoding, Generate, Reply, TokenIds
from wikidx.runtimes.llms.options import EngineOptions
from wikidx.runtimes.llms.packed_decoding import PackedModel, pack
from wikidx.runtimes.llms.transformers_decoding import Model, Row
from wikidx.runtimes.llms.transformers_engine import TransformersEngine

_SIZES = {"vocab_size": 400, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3}
_LLAMA = transformers.LlamaConfig(**_SIZES, intermediate_size=64, num_key_value_heads=2)
_QWEN2 = transformers.Qwen2Config(**_SIZES, intermediate_size=64, num_key_value_heads=1)
_GPT2 = transformers.GPT2Config(vocab_size=400, n_embd=32, n_layer=2, n_head=4, n_positions=512, initializer_range=0.3)
_GEMMA = transformers.GemmaConfig(**_SIZES, intermediate_size=64, num_key_value_heads=1, head_dim=16)
_SLIDING = transformers.MistralConfig(**_SIZES, intermediate_size=64, num_key_value_heads=2, sliding_window=16)
_ALIBI = transformers.BloomConfig(vocab_size=400, hidden_size=32, n_layer=2, n_head=4)
_DYNAMIC = transformers.LlamaConfig(
    **_SIZES, intermediate_size=64, num_key_value_heads=2, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
)
_END = frozenset({399})

COMMON = tuple(range(5, 105))
PROMPTS = [(*COMMON, *range(start, start + 40)) for start in (110, 130, 150, 170)] + [COMMON, (7, 8, 9), (7, 8, 9), (*COMMON, 110, 111)]


def _model(config: Any) -> Model:  # noqa: ANN401 - transformers has no types
    torch.manual_seed(0)
    forward = transformers.AutoModelForCausalLM.from_config(copy.deepcopy(config)).eval()
    accepts = frozenset({"input_ids", "attention_mask", "position_ids", "logits_to_keep"} if config is not _ALIBI else ())
    return Model(forward=forward, accepts=accepts, end=_END, padding=0, device="cpu", batch_tokens=8_192)


@pytest.fixture(scope="module", params=[_LLAMA, _QWEN2, _GPT2, _GEMMA], ids=lambda config: config.model_type)
def models(request: pytest.FixtureRequest) -> tuple[Model, PackedModel]:
    """The same weights, padded and packed."""
    packed = pack(_model(request.param))
    assert packed is not None
    return _model(request.param), packed


def _rows(prompts: Sequence[tuple[int, ...]] = PROMPTS, *, n: int = 1, temperature: float = 0.0) -> list[Row]:
    decoding = Decoding(max_tokens=40, temperature=temperature)
    return [Row(prompt=ids, decoding=dataclasses.replace(decoding, seed=number)) for number, ids in enumerate(prompts) for _ in range(n)]


def _generate(model: Model, rows: list[Row]) -> list[tuple[list[int], str | None]]:
    model.generate(rows)
    return [(row.generated, row.finish) for row in rows]


@pytest.fixture
def n_computed(models: tuple[Model, PackedModel]) -> Iterator[list[int]]:
    """The number of tokens of each pass of the packed model."""
    models[1].prefixes.clear()
    counts: list[int] = []

    def count(_module: Any, _positional: Any, named: dict[str, torch.Tensor]) -> None:  # noqa: ANN401
        counts.append(named["input_ids"].numel())

    handle = models[1].forward.register_forward_pre_hook(count, with_kwargs=True)
    yield counts
    handle.remove()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_texts_are_those_of_padded_batches(models: tuple[Model, PackedModel], temperature: float) -> None:
    padded, packed = models
    first, again = (_rows(temperature=temperature) for _ in range(2))
    expected = _rows(temperature=temperature)
    assert _generate(packed, first) == _generate(padded, expected) == _generate(packed, again)
    for one, other in zip(first, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_scores_are_those_of_padded_batches(models: tuple[Model, PackedModel]) -> None:
    padded, packed = models
    continuations = [(3, 4, 5), (6,), (), *[tuple(range(200, 240))] * (len(PROMPTS) - 3)]
    expected = padded.continuation_nlls(PROMPTS, continuations)
    assert packed.continuation_nlls(PROMPTS, continuations) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert packed.continuation_nlls(PROMPTS, continuations) == pytest.approx(expected, rel=1e-5, abs=1e-5)  # from kept blocks
    ours, theirs = (dict(model.next_token_probabilities(PROMPTS)) for model in (packed, padded))
    assert all(torch.allclose(ours[number], theirs[number], atol=1e-5) for number in range(len(PROMPTS)))


def test_a_common_beginning_is_computed_once_and_kept(models: tuple[Model, PackedModel], n_computed: list[int]) -> None:
    packed = models[1]
    list(packed.next_token_probabilities([(*COMMON, number) for number in range(200, 220)]))
    assert n_computed == [len(COMMON) + 1 + 19 * 5]  # 96 of the 100 tokens are three blocks
    list(packed.next_token_probabilities([(*COMMON, 300)]))
    assert n_computed[1:] == [5]


def test_samples_of_one_prompt_are_one_prompt(models: tuple[Model, PackedModel], n_computed: list[int]) -> None:
    rows = _rows([PROMPTS[0]], n=10, temperature=1.0)
    for number, row in enumerate(rows):
        row.decoding = dataclasses.replace(row.decoding, seed=number)
    models[1].generate(rows)
    assert n_computed[:2] == [len(PROMPTS[0]), 10]
    assert len({tuple(row.generated) for row in rows}) > 1


def test_rows_that_do_not_fit_wait_and_finished_rows_leave(models: tuple[Model, PackedModel], n_computed: list[int]) -> None:
    padded, packed = models
    limited = dataclasses.replace(packed, batch_tokens=150)
    assert _generate(limited, _rows(n=2)) == _generate(padded, _rows(n=2))
    assert max(n_computed) <= 150


def test_removed_rows_are_read_again(models: tuple[Model, PackedModel], monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for the prompts but not for the texts."""
    padded, packed = models
    monkeypatch.setattr("wikidx.runtimes.llms.packed_decoding._EXPECTED_TOKENS", -60)
    limited, reread = dataclasses.replace(packed, batch_tokens=140), list[int]()
    make_room = PackedModel._make_room

    def count(model: PackedModel, groups: Any) -> list[Row]:  # noqa: ANN401
        rows = make_room(model, groups)
        reread.append(len(rows))
        return rows

    monkeypatch.setattr(PackedModel, "_make_room", count)
    assert _generate(limited, _rows(temperature=1.0)) == _generate(padded, _rows(temperature=1.0))
    assert sum(reread) > 0


def test_little_memory_for_prefixes_changes_no_text(models: tuple[Model, PackedModel]) -> None:
    padded, packed = models
    packed.prefixes.clear()
    packed.prefixes._max_bytes, before = 1, packed.prefixes._max_bytes
    try:
        assert _generate(packed, _rows()) == _generate(padded, _rows())
        assert not packed.prefixes._blocks
    finally:
        packed.prefixes._max_bytes = before


def test_a_failed_pass_leaves_no_empty_blocks(models: tuple[Model, PackedModel], monkeypatch: pytest.MonkeyPatch) -> None:
    padded, packed = models
    packed.prefixes.clear()

    def fail(*_: Any) -> None:  # noqa: ANN401
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("wikidx.runtimes.llms.packed_attention.Reading.keep", fail)
        with pytest.raises(MemoryError):
            packed.generate(_rows())
    assert _generate(packed, _rows()) == _generate(padded, _rows())


@pytest.mark.parametrize("config", [_SLIDING, _ALIBI, _DYNAMIC], ids=["sliding", "alibi", "dynamic"])
def test_other_attention_is_padded(config: Any) -> None:  # noqa: ANN401 - transformers has no types
    model = _model(config)
    assert pack(model) is None
    rows, alone = _rows(), _rows()
    model.generate(rows)
    for row in alone:
        _model(config).generate([row])
    assert [row.generated for row in rows] == [row.generated for row in alone]


def test_bfloat16_scores_are_computed_in_float32(tmp_path: Path) -> None:
    folder = save_tiny_llama(tmp_path / "tiny")
    engine = TransformersEngine(str(folder), options=EngineOptions(device="cpu", dtype="bfloat16"))
    assert isinstance(engine._model, PackedModel)
    ((_, probabilities),) = engine._model.next_token_probabilities([(0, 30, 31, 32)])
    assert probabilities.dtype == torch.float32
    assert float(probabilities.sum()) == pytest.approx(1.0, abs=1e-6)  # bfloat16 has 3 digits
    (reply,) = engine.run([Generate(prompt=TokenIds((0, 30, 31, 32)), decoding=Decoding(max_tokens=5), logprobs=True)])
    assert isinstance(reply, Reply)
    assert all(torch.tensor(gen.logprobs).bfloat16().tolist() != list(gen.logprobs or ()) for gen in reply.result)  # type: ignore[union-attr]
