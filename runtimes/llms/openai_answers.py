"""Answers of OpenAI-compatible endpoints: the texts, and what a text, an answer to yes or no, or a score consists of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from .base import AskYesNo, Gen, Generate, MeanNll, YesNo
from .openai_logprobs import clip_logprob, control_of, positions_of, with_tokens
from .openai_refusals import MAX_TOKENS
from .openai_requests import BEGINS_ANEW
from .prompts import Prompt, TokenIds
from .text import is_blank, replace_surrogates, yes_no_from_tokens
from .thinking import finish_text, split_thinking

ESTIMATED = "the endpoint does not count tokens: their numbers are estimated"

# Servers' words for the end of a text; any other one is noted in ``degraded``.
_CUT = ("length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded")
_COMPLETE = ("", "stop", "complete", "eos", "eos_token", "end_turn", "stop_sequence")


class Answer(NamedTuple):
    """An endpoint's answer, and the fallbacks used for the request."""

    data: dict[str, Any]
    degraded: tuple[str, ...]

    @property
    def choices(self) -> list[dict[str, Any]]:
        """The texts, with their finish and logprobs."""
        choices: list[dict[str, Any]] = self.data["choices"]
        return choices

    @property
    def model(self) -> str:
        """The model that answered, as the endpoint names it; empty: it does not say."""
        name = self.data.get("model")
        return replace_surrogates(name) if isinstance(name, str) else ""

    @property
    def hidden_tokens(self) -> int:
        """Number of tokens of thoughts, as the endpoint counts them."""
        details = (self.data.get("usage") or {}).get("completion_tokens_details")
        return _count(details.get("reasoning_tokens")) if isinstance(details, dict) else 0

    @property
    def tokens(self) -> tuple[int, int]:
        """Numbers of tokens read and generated."""
        usage = self.data.get("usage") or {}
        return _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))

    def with_counts(self, prompt: Prompt, estimate: Callable[[Prompt], int]) -> Answer:
        """Return the answer to a prompt with estimates in place of the numbers of tokens that the endpoint does not give."""
        usage = self.data.get("usage") or {}
        texts = (text for choice in self.choices for text in (_choice_text(choice), _own_reasoning(choice)) if text)
        estimates = {"prompt_tokens": estimate(prompt), "completion_tokens": sum(map(estimate, texts))}
        missing = {name: n_tokens for name, n_tokens in estimates.items() if _count(usage.get(name)) != usage.get(name)}
        return Answer({**self.data, "usage": usage | missing}, (*self.degraded, ESTIMATED) if missing else self.degraded)


def _count(value: object) -> int:
    """Return a number of tokens; 0 if it is no possible one."""
    return value if isinstance(value, int) and 0 <= value <= MAX_TOKENS else 0


def parse_gen(choice: Mapping[str, Any], call: Generate, degraded: tuple[str, ...], *, is_open: bool = False) -> Gen:
    """Parse one generated text of an answer. ``is_open``: the chat template opens a thought."""
    text = _choice_text(choice)
    finish = (choice.get("finish_reason") or "").casefold()
    message = choice.get("message") or {}
    why = "" if finish in _COMPLETE + _CUT else finish
    if message.get("refusal"):
        degraded = (*degraded, "the model refuses to answer")
    if text is None or (why and not text) or finish not in (*_COMPLETE, *_CUT, "tool_calls", "tool_use", "function_call"):
        degraded = (*degraded, f"the endpoint {'ends the' if text else 'gives no'} text: {why or finish or 'without a reason'}")
    if left_out := message.get("left_out"):
        degraded = (*degraded, f"parts of the answer that are no text are left out: {', '.join(left_out)}")
    text, is_echo = strip_beginning(replace_surrogates(text or ""), call.prompt)
    gen = Gen(text=text, finish="length" if finish in _CUT else "stop", reasoning=_own_reasoning(choice))
    if call.control:
        gen = replace(gen, control=control_of(choice.get("logprobs") or {}, call.control))
    gen = with_tokens(gen, choice.get("logprobs") if call.logprobs else None, is_cut=bool(call.decoding.stop))
    if call.logprobs and gen.logprobs is None and "no logprobs" not in degraded:
        degraded = (*degraded, "no logprobs")
    if is_echo:
        degraded = tuple(note for note in degraded if note != BEGINS_ANEW)
    return finish_text(replace(gen, degraded=degraded), call.decoding.stop, is_open=is_open)


def _own_reasoning(choice: Mapping[str, Any]) -> str | None:
    """Return the thoughts that come in a field of their own."""
    message = choice.get("message") or {}
    thoughts = [message.get(name) for name in ("reasoning_content", "reasoning")]
    return next((replace_surrogates(thought) for thought in thoughts if isinstance(thought, str) and thought.strip()), None)


def begins_thought(choice: Mapping[str, Any]) -> bool:
    """Return True if a text begins with a thought in place of an answer."""
    return _own_reasoning(choice) is not None or split_thinking(_choice_text(choice) or "").reasoning is not None


def closes_thought(choice: Mapping[str, Any]) -> bool:
    """Return True if a text closes a thought that it does not open: the chat template does."""
    text = _choice_text(choice) or ""
    return split_thinking(text).reasoning is not None and not text.lstrip().startswith(("<", "[", "◁", "analysis"))


def strip_beginning(text: str, prompt: Prompt) -> tuple[str, bool]:
    """Return a text without the beginning that the prompt gave it, and whether it repeats this beginning, as llama.cpp's whole texts do."""
    if isinstance(prompt, str | TokenIds) or prompt[-1].role != "assistant":
        return text, False
    beginning = prompt[-1].content
    repeated = next((form for form in (beginning, beginning.rstrip(), beginning.strip()) if form.strip() and text.startswith(form)), None)
    return (text, False) if repeated is None else (text[len(repeated) :], True)


def has_text(choice: Mapping[str, Any]) -> bool:
    """Return True if a choice of an answer has a text that is not empty, and no refusal, which has no logprobs."""
    return bool(_choice_text(choice)) and not (choice.get("message") or {}).get("refusal")


def _choice_text(choice: Mapping[str, Any]) -> str | None:
    message: Mapping[str, str | None] | None = choice.get("message")
    return message.get("refusal") or message.get("content") if message else choice.get("text")


def parse_yes_no(choice: Mapping[str, Any], call: AskYesNo, degraded: tuple[str, ...] = ()) -> YesNo | None:
    """Parse the probabilities of the two answers; return None if the choice has no log-probabilities."""
    positions = positions_of(choice.get("logprobs") or {})
    return yes_no_from_tokens(positions, call.positive, call.negative, degraded) if positions and positions[0].likeliest else None


def begins_blank(choice: Mapping[str, Any]) -> bool:
    """Return True if a text begins with a token of white space."""
    positions = positions_of(choice.get("logprobs") or {})
    return bool(positions and positions[0].generated and is_blank(positions[0].generated[0]))


def parse_echo_nll(choice: Mapping[str, Any], call: MeanNll, prompt: str) -> tuple[float, int] | None:
    """Return the total NLL and the number of the continuation's tokens; None if the answer lacks their log-probabilities."""
    logprobs = choice.get("logprobs") or {}
    fields = [logprobs.get(name) or [] for name in ("tokens", "token_logprobs", "text_offset")]
    start, end = len(prompt), len(prompt) + len(call.continuation)
    own_logprobs = [
        clip_logprob(logprob)
        for token, logprob, offset in zip(*fields, strict=False)
        if logprob is not None and offset < end and offset + len(token) > start
    ]
    return (-math.fsum(own_logprobs), len(own_logprobs)) if own_logprobs else None


def parse_ids_nll(choice: Mapping[str, Any], continuation: Sequence[int]) -> tuple[float, int] | None:
    """Return the total NLL of the last ids of a prompt, and their number; None if the answer lacks their log-probabilities."""
    entries = (choice.get("prompt_logprobs") or [])[-len(continuation) :]
    try:
        logprobs = [clip_logprob(entry[str(token)]["logprob"]) for token, entry in zip(continuation, entries, strict=True)]
    except (LookupError, TypeError, ValueError):
        return None
    return -math.fsum(logprobs), len(logprobs)
