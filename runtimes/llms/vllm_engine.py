"""vLLM in this process: one engine call per batch, with prefix caching and structured outputs.

This backend needs the extra ``vllm`` and a GPU. It is written from the sources of vLLM 0.22 to 0.33, and tested with a fake of vLLM.
Yes/no scores are exact: vLLM returns the log-probabilities of the tokens that begin an answer.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from wikidx.base.errors import InputError, MissingExtraError
from wikidx.base.machine.failures import DeviceLost, first_line
from wikidx.runtimes.errors import LLMError

from .base import AskYesNo, Call, Choice, Deliver, Gen, Generate, JsonSchema, MeanNll, Nll, Regex, Reply, Thinking, YesNo
from .checkpoint import CheckpointLLM, PreparedCall
from .text import MAX_BLANKS, NO_SINGLE_TOKEN
from .thinking import finish_text, split_thinking
from .turns import end_turn
from .vllm_start import start_engine

_REFUSALS = frozenset({"ValueError", "TypeError", "VLLMClientError"})  # raised before the engine works on any prompt
_IDS_PER_ANSWER = 64  # vLLM returns the log-probabilities of at most 128 given tokens


class VllmEngine(CheckpointLLM):
    """A checkpoint in vLLM's engine.

    Args:
        model: a directory, or a repository on the Hugging Face hub.
        thinking: way of thinking of calls that name none.
        options: further arguments of ``vllm.LLM``.
        later: options of the engines that this process will start after this one; they need memory too.

    Raises:
        InputError: vLLM cannot load the model.
        LLMError: vLLM cannot start, for instance because the GPU has too little free memory.
        MissingExtraError: vLLM is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        thinking: Thinking = "off",
        options: Mapping[str, Any] = MappingProxyType({}),
        later: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        try:
            vllm: Any = importlib.import_module("vllm")
        except ModuleNotFoundError as error:
            if error.name != "vllm":
                raise InputError(f"vLLM is installed, but lacks a part: {first_line(error)}") from error
            raise MissingExtraError(f"the model 'vllm:{model}'", "vllm") from error
        except (ImportError, OSError) as error:
            raise InputError(f"vLLM is installed, but cannot be loaded: {first_line(error)}") from error
        self._vllm = vllm
        self._engine: Any = start_engine(vllm, model, options, later)
        super().__init__(
            f"vllm:{model}",
            self._engine.get_tokenizer(),
            top_logprobs=None,
            structured=frozenset({"choice", "json", "regex"}),
            context=int(self._engine.model_config.max_model_len),
            thinking=thinking,
        )

    def _run(self, calls: Sequence[Call], deliver: Deliver) -> list[Reply | LLMError]:  # noqa: ARG002 - all at once
        """Answer a batch of calls in one engine call. If the engine fails, every call has an error.

        Raises:
            DeviceLost: the engine's process has ended, and answers no more calls.
        """
        prepared_calls = list(map(self._prepare, calls))
        fitting = [prepared for prepared in prepared_calls if isinstance(prepared, PreparedCall)]
        replies = iter(self._answer(fitting))
        return [next(replies) if isinstance(prepared, PreparedCall) else prepared for prepared in prepared_calls]

    def _answer(self, prepared_calls: Sequence[PreparedCall]) -> list[Reply | LLMError]:
        """Answer a batch. A parameter that vLLM refuses fails only its own call: the calls are then answered one by one."""
        if not prepared_calls:
            return []
        try:
            sampling = [self._sampling(prepared.call) for prepared in prepared_calls]
            prompts = [{"prompt_token_ids": [*prepared.ids, *prepared.continuation]} for prepared in prepared_calls]
            outputs = self._engine.generate(prompts, sampling, use_tqdm=False)
        except Exception as error:  # noqa: BLE001 - vLLM documents no exceptions, and raises those of its libraries
            if type(error).__name__ == "EngineDeadError":
                raise DeviceLost(f"vLLM's engine has ended, as after the loss of a GPU: {first_line(error)} Start again") from error
            is_refused = any(kind.__name__ in _REFUSALS for kind in type(error).__mro__)
            if is_refused and len(prepared_calls) > 1:
                return [reply for prepared in prepared_calls for reply in self._answer([prepared])]
            batch = "a prompt" if is_refused else f"a batch of {len(prepared_calls)} prompts"
            failure = LLMError(f"vLLM failed on {batch}: {type(error).__name__}: {first_line(error)}")
            return [failure] * len(prepared_calls)
        return list(map(self._reply, prepared_calls, outputs))

    def close(self) -> None:
        """Stop the engine's process, which frees the GPU's memory at once."""
        if not self._is_closed:
            self._engine.llm_engine.engine_core.shutdown()
            del self._engine
        self._is_closed = True

    def _sampling(self, call: Call) -> Any:  # noqa: ANN401 - vLLM's SamplingParams
        if isinstance(call, AskYesNo):
            ids = sorted({token for words in (call.positive, call.negative) for token in self._answer_ids(words)[:_IDS_PER_ANSWER]})
            return self._vllm.SamplingParams(temperature=0.0, max_tokens=1 + MAX_BLANKS, logprob_token_ids=ids)
        if isinstance(call, MeanNll):
            return self._vllm.SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
        decoding = call.decoding
        return self._vllm.SamplingParams(
            n=call.n,
            max_tokens=decoding.max_tokens,
            temperature=decoding.temperature,
            top_p=decoding.top_p,
            stop=list(decoding.stop),
            seed=decoding.seed,
            logprobs=0 if call.logprobs else None,
            structured_outputs=self._structure(call.schema),
        )

    def _structure(self, schema: Choice | JsonSchema | Regex | None) -> Any:  # noqa: ANN401 - vLLM's StructuredOutputsParams
        structured: Any = self._vllm.sampling_params.StructuredOutputsParams
        match schema:
            case Choice():
                return structured(choice=list(schema.texts))
            case JsonSchema():
                return structured(json=schema.text)
            case Regex():
                return structured(regex=schema.pattern)
            case None:
                return None

    def _reply(self, prepared: PreparedCall, output: Any) -> Reply:  # noqa: ANN401 - vLLM's RequestOutput
        call: Call = prepared.call
        n_read = len(prepared.ids) + len(prepared.continuation)
        match call:
            case Generate():
                gens = tuple(end_turn(self._limit_answer(self._gen(prepared, text), prepared), call.prompt) for text in output.outputs)
                return Reply(gens, n_read, sum(len(text.token_ids) for text in output.outputs))
            case AskYesNo():
                return Reply(self._yes_no(prepared, output.outputs[0]), n_read, len(output.outputs[0].token_ids))
            case MeanNll():
                scored = zip(prepared.continuation, output.prompt_logprobs[len(prepared.ids) :], strict=True)
                total = -math.fsum(entries[token].logprob for token, entries in scored)
                return Reply(Nll(total=total, n_tokens=len(prepared.continuation), degraded=prepared.degraded), n_read, 0)

    def _yes_no(self, prepared: PreparedCall, output: Any) -> YesNo:  # noqa: ANN401 - vLLM's CompletionOutput
        sums, p_reached = [0.0, 0.0], 1.0
        sides = [self._answer_ids(words)[:_IDS_PER_ANSWER] for words in (prepared.call.positive, prepared.call.negative)]
        for token, entries in zip(output.token_ids, output.logprobs, strict=True):
            for side, ids in enumerate(sides):
                sums[side] += p_reached * math.fsum(math.exp(entries[each].logprob) for each in ids if each in entries)
            if not self._is_blank(token):
                break
            p_reached *= math.exp(entries[token].logprob)
        degraded = prepared.degraded if all(sides) else (*prepared.degraded, NO_SINGLE_TOKEN)
        return YesNo(p_positive=sums[0], p_negative=sums[1], degraded=degraded)

    def _gen(self, prepared: PreparedCall, output: Any) -> Gen:  # noqa: ANN401 - vLLM's CompletionOutput
        ids, text = tuple(output.token_ids), self._decode(output.token_ids)
        given = None if output.logprobs is None else zip(ids, output.logprobs, strict=True)
        logprobs = None if given is None else tuple(entries[token].logprob for token, entries in given)
        gen = Gen(
            text=text,
            finish="length" if output.finish_reason == "length" else "stop",
            logprobs=logprobs,
            token_ids=ids,
            ends=None if logprobs is None else self._ends(ids),
            degraded=prepared.degraded,
        )
        if split_thinking(text).reasoning is None:  # special tokens may mark thoughts, which vLLM's text lacks
            gen = replace(gen.part(0, len(output.text)), text=str(output.text))
        return finish_text(gen, prepared.stop, is_open=prepared.is_open)
