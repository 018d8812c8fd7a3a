"""Prompts cut to a model's context.

The last passage is cut from its end, at a word boundary. If fewer than 40 characters would remain, the passage is dropped and the preceding
passage is cut. Only passages are cut: a prompt that does not fit without its passages is refused.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import NamedTuple

from wikidx.runtimes.errors import PromptTooLong

from .prompts import Message, Prompt, TokenIds

_MIN_CHARACTERS = 40  # minimum length of a cut passage; a shorter remainder is dropped


class Fitted(NamedTuple):
    """A prompt that fits the context.

    Attributes:
        prompt: the prompt.
        cut: number of characters cut from its passages.
        characters: number of characters of the passages before the cut.
    """

    prompt: Prompt
    cut: int
    characters: int

    @property
    def degraded(self) -> tuple[str, ...]:
        """A description of the cut for ``degraded`` of the result; empty without a cut."""
        return (f"prompt cut: {self.cut} of the passages' {self.characters} characters left out",) if self.cut else ()


def fit(prompt: Prompt, budget: int | None, count: Callable[[Prompt], int]) -> Fitted:
    """Cut the passages of a prompt as little as possible, so that the prompt has at most ``budget`` tokens.

    Args:
        prompt: the prompt.
        budget: maximum number of tokens; None: unlimited.
        count: prompt -> number of tokens.

    Raises:
        PromptTooLong: the prompt has more than ``budget`` tokens even without its passages.
    """
    n_cuttable = _characters(prompt)
    if budget is None or (n_tokens := count(prompt)) <= budget:
        return Fitted(prompt, 0, n_cuttable)
    min_tokens = count(cut(prompt, n_cuttable)) if n_cuttable else n_tokens
    if min_tokens > budget:
        without_passages = " besides its passages" if n_cuttable else ""
        raise PromptTooLong(
            f"the prompt has {min_tokens} tokens{without_passages}, the model takes {max(budget, 0)} in addition to its output: "
            "shorten the question or the demonstrations, generate less, or use a model with a longer context"
        )
    n_cut = bisect.bisect_left(range(n_cuttable), True, key=lambda n: count(cut(prompt, n)) <= budget)
    fitted = cut(prompt, n_cut)
    return Fitted(fitted, n_cuttable - _characters(fitted), n_cuttable)


def cut(prompt: Prompt, characters: int) -> Prompt:
    """Cut at least ``characters`` characters from a prompt's passages, last passage first."""
    if isinstance(prompt, str | TokenIds):
        return prompt
    messages: list[Message] = []
    for message in reversed(prompt):
        shorter, characters = _cut_message(message, characters)
        messages.append(shorter)
    return tuple(reversed(messages))


def _cut_message(message: Message, characters: int) -> tuple[Message, int]:
    """Return the shortened message, and the number of characters that remain to be cut from earlier messages."""
    content, spans = message.content, list(message.passages)
    tail = ""
    while spans and characters > 0:
        start, end = spans.pop()
        tail = content[end:] + tail
        n_left = _length_after_cut(content[start:end], characters)
        characters -= end - start - n_left
        content = content[: start + n_left]
        if n_left:
            spans.append((start, start + n_left))
            break
    return Message(message.role, content + tail, tuple(spans)), max(characters, 0)


def _length_after_cut(passage: str, characters: int) -> int:
    """Return the length of a passage after a cut of at least ``characters`` characters; 0 if the passage is dropped."""
    end = len(passage) - characters
    while end > 0 and not passage[end].isspace() and not passage[end - 1].isspace():
        end -= 1
    n_left = len(passage[: max(end, 0)].rstrip())
    return n_left if n_left >= _MIN_CHARACTERS else 0


def _characters(prompt: Prompt) -> int:
    if isinstance(prompt, str | TokenIds):
        return 0
    return sum(end - start for message in prompt for start, end in message.passages)
