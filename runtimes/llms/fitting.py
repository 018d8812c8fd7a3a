"""Prompts cut to a model's context.

The last passage is cut from its end, at a word boundary; if fewer than 40 characters would remain it is dropped, then the one before is
cut, and so on. Instructions, demonstrations and the question are never cut: a prompt that does not fit without its passages is refused.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import NamedTuple

from wikidx.runtimes.errors import PromptTooLong

from .base import Message, Prompt, TokenIds

_LEAST_CHARACTERS = 40  # of a passage; a shorter rest carries no information


class Fitted(NamedTuple):
    """A prompt that fits, the number of characters cut from its passages, and their number before."""

    prompt: Prompt
    cut: int
    characters: int

    @property
    def degraded(self) -> tuple[str, ...]:
        """Descriptions of the cut, for ``degraded`` of the result."""
        return (f"prompt cut: {self.cut} of the passages' {self.characters} characters left out",) if self.cut else ()


def fit(prompt: Prompt, budget: int | None, count: Callable[[Prompt], int]) -> Fitted:
    """Cut as little as possible from a prompt's passages for it to have at most ``budget`` tokens.

    Args:
        prompt: the prompt.
        budget: maximum number of tokens; None: unlimited.
        count: prompt -> tokens.

    Raises:
        PromptTooLong: it has more tokens even without its passages.
    """
    whole = _characters(prompt)
    if budget is None or (n_tokens := count(prompt)) <= budget:
        return Fitted(prompt, 0, whole)
    least = count(cut(prompt, whole)) if whole else n_tokens
    if least > budget:
        besides = " besides its passages" if whole else ""
        raise PromptTooLong(
            f"the prompt has {least} tokens{besides}, the model takes {max(budget, 0)} beside what it generates: "
            "shorten the question or the demonstrations, generate less, or use a model with a longer context"
        )
    n_cut = bisect.bisect_left(range(whole), True, key=lambda n: count(cut(prompt, n)) <= budget)
    fitted = cut(prompt, n_cut)
    return Fitted(fitted, whole - _characters(fitted), whole)


def cut(prompt: Prompt, characters: int) -> Prompt:
    """Cut at least this many characters from the end of a prompt's passages."""
    if isinstance(prompt, str | TokenIds):
        return prompt
    messages: list[Message] = []
    for message in reversed(prompt):
        shorter, characters = _cut_message(message, characters)
        messages.append(shorter)
    return tuple(reversed(messages))


def _cut_message(message: Message, characters: int) -> tuple[Message, int]:
    """Return the message, cut, and the number of characters still to be cut from earlier messages."""
    content, kept = message.content, list(message.passages)
    tail = ""
    while kept and characters > 0:
        start, end = kept.pop()
        tail = content[end:] + tail
        stays = _stays(content[start:end], characters)
        characters -= end - start - stays
        content = content[: start + stays]
        if stays:
            kept.append((start, start + stays))
            break
    return Message(message.role, content + tail, tuple(kept)), max(characters, 0)


def _stays(passage: str, characters: int) -> int:
    """Return the remaining length of a passage after cutting at least this many characters from its end."""
    end = len(passage) - characters
    while end > 0 and not passage[end].isspace() and not passage[end - 1].isspace():
        end -= 1
    stays = len(passage[: max(end, 0)].rstrip())
    return stays if stays >= _LEAST_CHARACTERS else 0


def _characters(prompt: Prompt) -> int:
    if isinstance(prompt, str | TokenIds):
        return 0
    return sum(end - start for message in prompt for start, end in message.passages)
