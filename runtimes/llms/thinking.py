"""Thinking of models: its spellings in texts, and the tokens that it needs.

A model that thinks writes its thoughts before the answer, between tags that differ between models. The chat template may open the thought
itself, so that the text has the closing tag alone. Thoughts are taken out of the text and returned as ``Gen.reasoning``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from .base import Gen, Generate, Reply
from .prompts import Thinking
from .text import cut_at_stop

ROOM = 4096
"""Number of tokens for thinking, in addition to the tokens of the answer, if the model's thinking has no limit of its own."""

NO_THINKING = "the model's thinking is removed from the text; its tokens count in costs"
NO_ROOM = "the token limit was reached before an answer"

_TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|channel>thought", "<channel|>"),
    ("◁think▷", "◁/think▷"),
)
_CHANNEL = re.compile(r"<\|channel\|>(\w+)[^<]*<\|message\|>(.*?)(?=<\|(?:end|start|channel|return|call)\|>|\Z)", re.DOTALL)
_CHANNEL_MARKS = frozenset({"<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|return|>", "<|call|>"})
_BARE_CHANNELS = re.compile(r"analysis(?P<thought>[A-Z].*?)(?:assistant(?:commentary.*?assistant)?final(?P<answer>.*))?", re.DOTALL)


class Thought(NamedTuple):
    """A text divided into thoughts and answer.

    Attributes:
        reasoning: the thoughts; None: there are none.
        answer: the text after the thoughts.
    """

    reasoning: str | None
    answer: str


def split_thinking(text: str, *, is_open: bool = False) -> Thought:
    """Divide a text into thoughts and answer. ``is_open``: a text without any tag is an unfinished thought."""
    if "<|channel|>" in text:
        return _split_channels(text)
    if bare := _BARE_CHANNELS.fullmatch(text):  # without the special tokens of the channels
        return Thought(bare["thought"].strip(), (bare["answer"] or "").strip())
    for opening, closing in _TAGS:
        before, is_closed, after = text.partition(closing)
        if before.lstrip().startswith(opening) or (is_closed and opening not in before):
            thought = before.lstrip().removeprefix(opening).strip()
            again = split_thinking(after) if is_closed else Thought(None, "")
            return Thought("\n\n".join(filter(None, (thought, again.reasoning))), again.answer.lstrip())
    return Thought(text.strip(), "") if is_open else Thought(None, text)


def _split_channels(text: str) -> Thought:
    parts = [(part[1], part[2].strip()) for part in _CHANNEL.finditer(text)]
    thoughts = [content for channel, content in parts if channel != "final"]
    answers = [content for channel, content in parts if channel == "final"]
    return Thought("\n\n".join(thoughts) if thoughts else None, answers[-1] if answers else "")


def opens_thought(text: str) -> bool:
    """Return whether a text ends with the opening of a thought, as the prompts of some chat templates do."""
    return text.rstrip().endswith(tuple(opening for opening, _ in _TAGS))


def is_thought_mark(token: str) -> bool:
    """Return whether a special token marks thoughts."""
    return token in _CHANNEL_MARKS or any(token in pair for pair in _TAGS)


def finish_text(gen: Gen, stop: Iterable[str], *, is_open: bool = False) -> Gen:
    """Return a generated text without thoughts, cut at a stop text of the answer.

    Args:
        gen: the text as generated; ``reasoning`` has thoughts that came apart from it, ``finish`` is "length" if the token limit ended it.
        stop: texts that end the answer.
        is_open: whether the chat template opened a thought.
    """
    is_cut = gen.finish == "length"
    thought = split_thinking(gen.text, is_open=is_open and is_cut and not gen.reasoning)
    is_thought = bool(gen.reasoning) or thought.reasoning is not None
    thoughts = "\n\n".join(filter(None, (gen.reasoning, thought.reasoning))) if is_thought else None
    answer, is_stopped = cut_at_stop(thought.answer, stop)
    start = gen.text.rfind(thought.answer)
    is_cut = is_cut and not is_stopped
    notes = (NO_THINKING,) * is_thought + (NO_ROOM,) * (is_cut and not answer.strip())
    degraded = tuple(dict.fromkeys((*gen.degraded, *notes)))
    part = gen.part(start, start + len(answer))
    return dataclasses.replace(part, finish="length" if is_cut else "stop", reasoning=thoughts, degraded=degraded)


def make_room(call: Generate, default: Thinking, *, thinks: bool, context: int | None) -> Generate:
    """Return a call with its way of thinking settled and with tokens for the thoughts, of which a model without limits gets ``ROOM``.

    Stop texts are left out where a thought is expected, because they would end it; ``finish_text`` applies them to the answer.

    Args:
        call: the call.
        default: the way of thinking of calls that name none.
        thinks: whether the model is known to think although this is switched off.
        context: the model's context, of which thoughts get at most a quarter; None: unknown.
    """
    decoding = call.decoding
    mode = default if decoding.thinking is None else decoding.thinking
    if mode == "off" and not thinks:
        return dataclasses.replace(call, decoding=dataclasses.replace(decoding, thinking=mode))
    room = ROOM if isinstance(mode, str) else mode
    room = room if context is None else min(room, context // 4)
    settled = dataclasses.replace(decoding, thinking=mode, max_tokens=decoding.max_tokens + room, stop=())
    return dataclasses.replace(call, decoding=settled)


def limit_answer(gen: Gen, max_tokens: int, truncate: Callable[[str, int], str]) -> Gen:
    """Return a text of at most ``max_tokens`` tokens, for a call with room for thoughts: the answer must not use this room."""
    text = truncate(gen.text, max_tokens)
    start = max(gen.text.find(text), 0)  # without white space
    return gen if text == gen.text else dataclasses.replace(gen.part(start, start + len(text)), finish="length")


def lacks_room(reply: Reply) -> bool:
    """Return whether a text of a reply ends within the model's thoughts."""
    gens = reply.result if isinstance(reply.result, tuple) else ()
    return any(gen.reasoning is not None and NO_ROOM in gen.degraded for gen in gens)
