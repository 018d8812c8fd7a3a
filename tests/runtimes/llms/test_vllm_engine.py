"""vLLM's engine without vLLM: a fake of its module, around the tokenizer of a tiny checkpoint."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest
from transformers import AutoTokenizer

from tests.runtimes.llms.calling import gens
from wikidx.base.errors import InputError, UnknownNameError
from wikidx.base.machine.failures import DeviceLost
from wikidx.runtimes.errors import LLMError, PromptTooLong
from wikidx.runtimes.llms import vllm_start
from wikidx.runtimes.llms.base import Decoding, Generate, Reply
from wikidx.runtimes.llms.naming import assign_models, open_llms
from wikidx.runtimes.llms.transformers_engine import TransformersEngine
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


class Started(list[dict[str, Any]]):
    """Arguments with which the fake of vLLM was started; its engines have a tokenizer and the given ``generate``."""

    def __init__(self, folder: Path, generate: Callable[..., list[Any]] | None = None) -> None:
        super().__init__()
        self.n_stopped = 0
        self._engine = SimpleNamespace(
            llm_engine=SimpleNamespace(engine_core=SimpleNamespace(shutdown=self.stop)),
            model_config=SimpleNamespace(max_model_len=512),
            get_tokenizer=lambda: AutoTokenizer.from_pretrained(folder),
            generate=generate,
        )

    def start(self, model: str, *, enable_prefix_caching: bool, generation_config: str, dtype: str = "auto", **others: object) -> Any:  # noqa: ANN401
        known = {"enable_prefix_caching": enable_prefix_caching, "generation_config": generation_config, "dtype": dtype}
        self.append({"model": model, **known, **others})
        return self._engine

    def stop(self) -> None:
        self.n_stopped += 1


@dataclass
class EngineArgs:
    gpu_memory_utilization: float = 0.92
    kv_cache_memory_bytes: int | None = None
    quantization: str | None = None
    revision: str | None = None
    tensor_parallel_size: int = 1


@pytest.fixture
def started(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> Started:
    started = Started(tiny_llama)
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=started.start, EngineArgs=EngineArgs))
    return started


def open_models(*specs: str, options: Sequence[str] = ()) -> None:
    open_llms(assign_models(specs, ["answer", "know", "relevance"], options=options))


def test_options_are_arguments_of_the_engine(started: Started) -> None:
    open_models("vllm:org/m", options=["tensor_parallel_size=2", "quantization=fp8", "enable_prefix_caching=false", "revision=v2"])
    assert started == [
        {
            "model": "org/m",
            "generation_config": "vllm",
            "enable_prefix_caching": False,
            "dtype": "auto",
            "tensor_parallel_size": 2,
            "quantization": "fp8",
            "revision": "v2",
            "tokenizer_revision": "v2",
        }
    ]


def test_an_option_that_vllm_has_not_has_near_names(started: Started) -> None:
    with pytest.raises(UnknownNameError, match="unknown option of vllm 'quantisation': did you mean 'quantization'"):
        open_models("vllm:org/m", options=["quantisation=fp8"])
    assert not started


def have_gpus(monkeypatch: pytest.MonkeyPatch, *free_gb: float, total_gb: float = 80) -> None:
    monkeypatch.setattr(vllm_start, "count_gpus", lambda: len(free_gb))
    monkeypatch.setattr(vllm_start, "free_memory", lambda number, *, is_named: free_gb[number] * 1e9)
    monkeypatch.setattr(vllm_start, "_total_memory", lambda number: total_gb * 1e9)


@pytest.mark.parametrize(
    ("free_gb", "options", "share"),
    [
        ((79.5,), [], 0.92),  # vLLM's default
        ((47.5,), [], 0.55),  # (47.5 - 3.2) / 80
        ((47.5,), ["answer.gpu_memory_utilization=0.7"], 0.7),
        ((47.5,), ["answer.kv_cache_memory_bytes=9000000000"], None),
        ((79.5, 47.5), [], 0.92),
        ((79.5, 47.5), ["tensor_parallel_size=2"], 0.55),  # the fullest GPU decides
    ],
)
def test_the_free_memory_is_shared_out(
    started: Started, monkeypatch: pytest.MonkeyPatch, free_gb: tuple[float, ...], options: list[str], share: float | None
) -> None:
    have_gpus(monkeypatch, *free_gb)
    open_models("vllm:org/m", options=[text.replace("answer.", "") for text in options])
    assert started[0].get("gpu_memory_utilization") == share


def test_shares_of_several_models_add_up(started: Started, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    have_gpus(monkeypatch, 70.0)
    caplog.set_level(logging.INFO, "wikidx")
    models = ["vllm:a", "know=vllm:b", "relevance=vllm:c"]
    open_models(*models, options=["relevance.gpu_memory_utilization=0.25"])
    assert [(each["model"], each["gpu_memory_utilization"]) for each in started[:1]] == [("a", 0.29)]  # (70 - 3.2 - 0.25 * 80) / 80 / 2
    assert started[2] == started[2] | {"model": "c", "gpu_memory_utilization": 0.25}
    assert (
        "vllm:a takes 29 % of the GPU's memory: cuda:0 has 80.0 GB, of which 70.0 GB are free; 3.2 GB are for searches, "
        "20.0 GB for models with a share of their own, and 2 models share the rest (--llm-option gpu_memory_utilization)"
    ) in caplog.messages


def test_vllm_is_opened_when_other_models_have_their_memory(started: Started, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[str]()
    start = TransformersEngine.__init__

    def start_hf(engine: TransformersEngine, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        opened.append("hf")
        start(engine, *arguments, **options)

    monkeypatch.setattr(TransformersEngine, "__init__", start_hf)
    monkeypatch.setattr(vllm_start, "count_gpus", lambda: opened.append("vllm"))
    open_models("vllm:a", f"know=hf:{tiny_llama}")
    assert opened == ["hf", "vllm"]


def test_engines_are_stopped_if_a_later_one_does_not_start(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    have_gpus(monkeypatch, 80.0)
    with pytest.raises(UnknownNameError, match="option of vllm 'quantisation'"):
        open_models("vllm:a", "know=vllm:b", options=["know.quantisation=fp8"])
    assert (len(started), started.n_stopped) == (1, 1)


def test_a_gpu_without_room_and_gpus_that_are_missing_are_refused(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    have_gpus(monkeypatch, 3.5)
    with pytest.raises(LLMError, match=r"no memory is left for vllm:org/m: cuda:0 has 80.0 GB, of which 3.5 GB are free; .*--device cpu"):
        open_models("vllm:org/m")
    with pytest.raises(InputError, match="vllm:org/m is to run on 4 GPUs, but there are 1: set a smaller tensor_parallel_size"):
        open_models("vllm:org/m", options=["tensor_parallel_size=4"])
    assert not started


class ModelConfig(pydantic.BaseModel):
    model: str
    max_model_len: int = 0

    @pydantic.model_validator(mode="after")
    def refuse(self) -> ModelConfig:
        raise ValueError(f"Model architectures ['X'] are not supported for now. Supported architectures: {'Llama, ' * 200}")


def refuse_length() -> None:
    ModelConfig(model="x", max_model_len="long")  # type: ignore[arg-type]


def raise_(error: Exception) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


@pytest.mark.parametrize(
    ("fail", "kind", "message"),
    [
        (lambda: ModelConfig(model="x"), InputError, r"vLLM cannot load 'tiny': Model architectures \['X'\] are not supported for now\. "),
        (refuse_length, InputError, "vLLM cannot load 'tiny': max_model_len is 'long': it should be a valid integer"),
        (raise_(OSError("tiny is not a local folder\nor a repository")), InputError, "cannot load 'tiny': tiny is not a local folder$"),
        (raise_(RuntimeError("Failed to infer device type, please set")), LLMError, "vLLM finds no GPU for 'tiny': use hf:tiny, or"),
        (raise_(ValueError("Free memory on device cuda:0 (3/80 GiB)")), LLMError, "too little memory for 'vllm:tiny': .* gpu_memory_uti"),
        (raise_(RuntimeError("CUDA out of memory. Tried")), LLMError, "the GPU has too little memory for 'vllm:tiny'"),
    ],
)
def test_reasons_for_which_vllm_does_not_start_are_one_line(
    monkeypatch: pytest.MonkeyPatch, fail: Callable[[], Any], kind: type[Exception], message: str
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=lambda **options: fail()))
    with pytest.raises(kind, match=message) as failure:
        VllmEngine("tiny")
    assert "\n" not in str(failure.value)
    assert len(str(failure.value)) < 450


def test_an_installation_of_vllm_that_cannot_be_loaded_is_told_from_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    for line, message in (
        ("import no_such_part", "lacks a part: No module named"),
        ("raise ImportError('libx.so.1')", "loaded: libx.so.1"),
    ):
        (tmp_path / "vllm.py").write_text(line)
        importlib.invalidate_caches()
        with pytest.raises(InputError, match=message):
            VllmEngine("tiny")


def test_a_parameter_that_vllm_refuses_fails_its_own_call_only(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class VLLMClientError(Exception):
        pass

    class VLLMValidationError(VLLMClientError):
        pass

    def sample(**parameters: Any) -> dict[str, Any]:  # noqa: ANN401
        if parameters["temperature"] > 2:
            raise VLLMValidationError("temperature must be in [0, 2], got 3.0.")
        return parameters

    def generate(prompts: list[Any], *arguments: object, **options: object) -> list[Any]:
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=[5], text="ok", logprobs=None, finish_reason="stop")]) for _ in prompts]

    started = Started(tiny_llama, generate)
    parameters = SimpleNamespace(StructuredOutputsParams=dict)
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=started.start, SamplingParams=sample, sampling_params=parameters))
    hot, calm = (Generate(prompt="no", decoding=Decoding(temperature=temperature)) for temperature in (3.0, 2.0))
    first, refused, last = VllmEngine("tiny").run([calm, hot, calm])
    assert isinstance(first, Reply)
    assert isinstance(last, Reply)
    assert str(refused) == "vLLM failed on a prompt: VLLMValidationError: temperature must be in [0, 2], got 3.0."


def test_the_tokens_of_a_stop_text_are_cut_with_it(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM cuts the text alone."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    ids = tokenizer.encode("no way. Yes", add_special_tokens=False)
    logprobs = [{token: SimpleNamespace(logprob=-float(n))} for n, token in enumerate(ids)]
    output = SimpleNamespace(token_ids=ids, text="no way", logprobs=logprobs, finish_reason="stop")
    started = Started(tiny_llama, lambda *arguments, **options: [SimpleNamespace(outputs=[output])])
    parameters = SimpleNamespace(StructuredOutputsParams=dict)
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=started.start, SamplingParams=dict, sampling_params=parameters))
    (reply,) = VllmEngine("tiny").run([Generate(prompt="no", decoding=Decoding(stop=(". ",)), logprobs=True)])
    (gen,) = gens(reply)
    kept = next(n for n in range(len(ids)) if tokenizer.decode(ids[:n]).startswith("no way"))
    assert (gen.text, gen.token_ids, gen.logprobs) == ("no way", tuple(ids[:kept]), tuple(-float(n) for n in range(kept)))


def test_an_engine_that_has_ended_ends_the_run_or_the_server(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class EngineDeadError(Exception):
        """As in vllm/v1/engine/exceptions.py."""

    def generate(*_: object, **__: object) -> list[Any]:
        raise EngineDeadError("EngineCore encountered an issue. See stack trace (above) for the root cause.")

    started = Started(tiny_llama, generate)
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=started.start, SamplingParams=dict))
    monkeypatch.setattr(VllmEngine, "_structure", lambda self, schema: None)
    with pytest.raises(DeviceLost, match=r"^vLLM's engine has ended, as after the loss of a GPU: EngineCore encountered .* Start again$"):
        VllmEngine("tiny").run([Generate(prompt="yes")])


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
