"""vLLM's engine without vLLM: a fake of its module, around the tokenizer of a tiny checkpoint."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer

from wikidx.runtimes.errors import LLMError, PromptTooLong
from wikidx.runtimes.llms.base import Generate
from wikidx.runtimes.llms.naming import assign_models, open_llms
from wikidx.runtimes.llms.vllm_engine import VllmEngine


@pytest.fixture
def failing(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> VllmEngine:
    """An engine that fails on every batch."""

    def generate(prompts: list[Any], *arguments: object, **options: object) -> list[Any]:
        raise RuntimeError("EngineCore encountered an issue\nsee the stack trace")

    fake_engine = SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=512),
        get_tokenizer=lambda: AutoTokenizer.from_pretrained(tiny_llama),
        generate=generate,
    )
    fake_vllm = SimpleNamespace(LLM=lambda **options: fake_engine, SamplingParams=dict)
    monkeypatch.setitem(sys.modules, "vllm", fake_vllm)
    monkeypatch.setattr(VllmEngine, "_structure", lambda self, schema: None)
    return VllmEngine("tiny")


def test_options_are_arguments_of_the_engine(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: dict[str, object] = {}

    def start(**options: object) -> SimpleNamespace:
        started.update(options)
        tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
        return SimpleNamespace(model_config=SimpleNamespace(max_model_len=512), get_tokenizer=lambda: tokenizer)

    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=start))
    options = ["tensor_parallel_size=2", "quantization=fp8", "enable_prefix_caching=false"]
    open_llms(assign_models(["vllm:org/m"], ["answer"], options=options))
    assert started | {"generation_config": None} == {
        "model": "org/m",
        "generation_config": None,
        "enable_prefix_caching": False,
        "tensor_parallel_size": 2,
        "quantization": "fp8",
    }


def test_a_batch_that_the_engine_fails_is_an_error_for_each_of_its_calls(failing: VllmEngine) -> None:
    too_long, *others = failing.run([Generate(prompt="no " * 900), Generate(prompt="yes"), Generate(prompt="no")])
    assert isinstance(too_long, PromptTooLong)
    for failure in others:
        assert isinstance(failure, LLMError)
        assert str(failure) == "vLLM failed on a batch of 2 prompts: RuntimeError: EngineCore encountered an issue"


def test_an_engine_that_does_not_start_is_an_error_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the fake it fails in its own process, as for too little memory."""

    def fail(**options: object) -> None:
        raise RuntimeError("Engine core initialization failed. See root cause above.\ntraceback")

    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=fail))
    with pytest.raises(LLMError, match=r"vLLM cannot start with 'tiny': Engine core initialization failed.*too little memory$"):
        VllmEngine("tiny")
