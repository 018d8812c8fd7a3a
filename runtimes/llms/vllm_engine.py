"""vLLM in this process: one engine call for a whole batch, token ids in, prefix caching and structured outputs on.

Needs the extra ``vllm`` and a GPU. Written after vLLM's documentation; not run by this project's tests. Chat templates are applied here, so
that no second beginning-of-text token comes in. Yes/no is read from the 20 likeliest tokens.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from wikidx.corpora.errors import InputError, MissingExtraError
from wikidx.indexer.machine.failures import first_line
from wikidx.runtimes.errors import LLMError, PromptTooLong

from .base import (
    AskYesNo,
    Call,
    Capabilities,
    Choice,
    Gen,
    Generate,
    JsonSchema,
    MeanNll,
    Nll,
    Prompt,
    Regex,
    Reply,
    TokenIds,
    YesNo,
    text_of,
)
from .fitting import fit
from .text import variants

_TOP = 20  # as many as an engine gives unless it is told otherwise


class _Prepared(NamedTuple):
    """A call's prompt as token ids that fit, with what follows it for an NLL."""

    ids: tuple[int, ...]
    continuation: tuple[int, ...]
    degraded: tuple[str, ...]


class VllmEngine:
    """A checkpoint in vLLM's engine.

    Args:
        model: a directory, or a repository of Hugging Face's hub.

    Raises:
        InputError: vLLM cannot load it.
        MissingExtraError: vLLM is not installed.
    """

    def __init__(self, model: str) -> None:
        try:
            vllm: Any = importlib.import_module("vllm")
        except ImportError as error:
            raise MissingExtraError(f"the model 'vllm:{model}'", "vllm") from error
        self.name = f"vllm:{model}"
        self._vllm = vllm
        try:
            self._engine: Any = vllm.LLM(model=model, enable_prefix_caching=True, generation_config="vllm")
        except (OSError, ValueError) as error:
            raise InputError(f"vLLM cannot load '{model}': {first_line(error)}") from error
        self._tokenizer: Any = self._engine.get_tokenizer()
        self.capabilities = Capabilities(
            chat=bool(self._tokenizer.chat_template),
            logprobs=True,
            top_logprobs=_TOP,
            prompt_logprobs=True,
            structured=frozenset({"choice", "json", "regex"}),
            n=True,
            seed=True,
            token_ids=True,
            context=int((getattr(self._engine, "model_config", None) or self._engine.llm_engine.model_config).max_model_len),
        )

    def run(self, calls: Sequence[Call]) -> list[Reply | LLMError]:
        """Answer a batch of calls in one call of the engine; one whose prompt does not fit has its error in place of a reply."""
        prepared: list[_Prepared | PromptTooLong] = []
        for call in calls:
            try:
                prepared.append(self._prepared(call))
            except PromptTooLong as error:
                prepared.append(error)
        asked = [(call, one) for call, one in zip(calls, prepared, strict=True) if isinstance(one, _Prepared)]
        prompts = [{"prompt_token_ids": [*one.ids, *one.continuation]} for _, one in asked]
        outputs = iter(self._engine.generate(prompts, [self._sampling(call) for call, _ in asked], use_tqdm=False) if asked else [])
        return [
            self._reply(call, one, next(outputs)) if isinstance(one, _Prepared) else one for call, one in zip(calls, prepared, strict=True)
        ]

    def count_tokens(self, text: str) -> int:
        """Return how many tokens a text has, special tokens not counted."""
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    def truncate(self, text: str, max_tokens: int, *, keep: Literal["start", "end"] = "start") -> str:
        """Return the first or last tokens of a text."""
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        return str(self._tokenizer.decode(ids[:max_tokens] if keep == "start" else ids[-max_tokens:])).strip()

    def close(self) -> None:
        """Let go of the engine."""
        del self._engine

    def _prepared(self, call: Call) -> _Prepared:
        continuation = tuple(self._tokenizer.encode(call.continuation, add_special_tokens=False)) if isinstance(call, MeanNll) else ()
        n_after = call.decoding.max_tokens if isinstance(call, Generate) else len(continuation) + 1
        fitted = fit(call.prompt, (self.capabilities.context or 0) - n_after, lambda prompt: len(self._ids(prompt)))
        return _Prepared(self._ids(fitted.prompt), continuation, fitted.degraded)

    def _ids(self, prompt: Prompt) -> tuple[int, ...]:
        if isinstance(prompt, TokenIds):
            return prompt.ids
        if isinstance(prompt, str) or not self.capabilities.chat:
            return tuple(self._tokenizer.encode(text_of(prompt)))
        turns = [{"role": turn.role, "content": turn.content} for turn in prompt]
        goes_on = prompt[-1].role == "assistant"
        ids = self._tokenizer.apply_chat_template(
            turns, add_generation_prompt=not goes_on, continue_final_message=goes_on, return_dict=False, enable_thinking=False
        )
        return tuple(ids)

    def _sampling(self, call: Call) -> Any:  # noqa: ANN401 - vLLM's SamplingParams
        if isinstance(call, AskYesNo):
            return self._vllm.SamplingParams(temperature=0.0, max_tokens=1, logprobs=_TOP)
        if isinstance(call, MeanNll):
            return self._vllm.SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
        how = call.decoding
        return self._vllm.SamplingParams(
            n=call.n,
            max_tokens=how.max_tokens,
            temperature=how.temperature,
            top_p=how.top_p,
            stop=list(how.stop),
            seed=how.seed,
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

    def _reply(self, call: Call, one: _Prepared, output: Any) -> Reply:  # noqa: ANN401 - vLLM's RequestOutput
        n_read = len(one.ids) + len(one.continuation)
        match call:
            case Generate():
                gens = tuple(_gen(text, one.degraded) for text in output.outputs)
                return Reply(gens, n_read, sum(len(gen.token_ids or ()) for gen in gens))
            case AskYesNo():
                likeliest = {entry.decoded_token: math.exp(entry.logprob) for entry in output.outputs[0].logprobs[0].values()}
                positive, negative = (_mass(likeliest, words) for words in (call.positive, call.negative))
                return Reply(YesNo(p_positive=positive, p_negative=negative, degraded=one.degraded), n_read, 1)
            case MeanNll():
                scored = zip(one.continuation, output.prompt_logprobs[len(one.ids) :], strict=True)
                total = -math.fsum(entries[token].logprob for token, entries in scored)
                return Reply(Nll(total=total, n_tokens=len(one.continuation), degraded=one.degraded), n_read, 0)


def _gen(output: Any, degraded: tuple[str, ...]) -> Gen:  # noqa: ANN401 - vLLM's CompletionOutput
    ids = tuple(output.token_ids)
    logprobs = None
    if output.logprobs is not None:
        logprobs = tuple(entries[token].logprob for token, entries in zip(ids, output.logprobs, strict=True))
    return Gen(
        text=output.text,
        finish="length" if output.finish_reason == "length" else "stop",
        logprobs=logprobs,
        token_ids=ids,
        degraded=degraded,
    )


def _mass(likeliest: Mapping[str, float], words: Sequence[str]) -> float:
    return math.fsum(probability for token, probability in likeliest.items() if token in variants(words))
