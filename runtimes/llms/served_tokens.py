"""Token counts and context of a model at an endpoint.

Tokens are counted by the server's tokenizer if it has one, else estimated. Estimates are corrected by the tokenizer and by the numbers in
refusals of prompts that are too long.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from .dialects import Fields, Pages, Tokenizer
from .openai_refusals import Refusal
from .prompts import End, Prompt, TokenIds, prompt_text

_LEFT_BY_A_CUT = 0.75
_SURELY_SHORT = 0.6  # share of the context up to which an estimate is not compared with the tokenizer


class ServedTokens:
    """Token counts of a model at a server.

    Args:
        pages: the server's pages.
        model: the model's name at the server.
        context: maximum number of tokens of prompt and answer together; None: unknown.

    Attributes:
        context: as known so far.
        tokenizer: the server's tokenizer; None: unknown, or it has failed.
    """

    def __init__(self, pages: Pages, model: str, context: int | None) -> None:
        self._pages, self._model = pages, model
        self.context = context
        self.tokenizer: Tokenizer | None = None
        self._per_estimate = 1.0

    def count_prompt(self, prompt: Prompt) -> int:
        """Return an estimate of a prompt's tokens, corrected by what the server has counted so far."""
        return len(prompt.ids) if isinstance(prompt, TokenIds) else round(self._per_estimate * estimate(prompt_text(prompt)))

    def compare(self, prompt: Prompt) -> None:
        """Correct the estimates by the tokenizer's count of a prompt, if the prompt may be too long."""
        if isinstance(prompt, TokenIds) or self.context is None or self.count_prompt(prompt) <= _SURELY_SHORT * self.context:
            return
        text = prompt_text(prompt)
        self._per_estimate = max(self._per_estimate, self.count(text) / max(estimate(text), 1))

    def shorter_budget(self, refusal: Refusal, prompt: Prompt, *, n_generated: int, budget: int | None) -> int:
        """Learn from the refusal of a prompt that is too long, and return the token budget of the next attempt."""
        n_tokens = self.count_prompt(prompt)
        if refusal.context:
            self.context = min(self.context or refusal.context, refusal.context)
        if refusal.context and not isinstance(prompt, TokenIds):
            self._per_estimate *= max(1.0, (refusal.prompt_tokens or 0) / max(n_tokens, 1))
            if self.count_prompt(prompt) > refusal.context - n_generated:
                return refusal.context - n_generated
        return int(_LEFT_BY_A_CUT * (n_tokens if budget is None else min(budget, n_tokens)))

    def count(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        ids = self.split(text)
        return estimate(text) if ids is None else len(ids)

    def truncate(self, text: str, max_tokens: int, *, keep: End) -> str:
        """Return the first or last ``max_tokens`` tokens of a text; by estimate, whole words."""
        if len(text.encode()) <= max_tokens:
            return text  # no token is shorter than a byte
        ids = self.split(text)
        if ids is None:
            return truncate_words(text, max_tokens, keep=keep)
        if len(ids) <= max_tokens:
            return text
        joined = self._join(ids[:max_tokens] if keep == "start" else ids[-max_tokens:])
        return truncate_words(text, max_tokens, keep=keep) if joined is None else joined.strip()

    def split(self, text: str) -> list[int] | None:
        """Return the ids of a text, without special tokens; None: the server has no tokenizer."""
        if self.tokenizer is None:
            return None
        ids = self._ids({self.tokenizer.text: text, **self.tokenizer.options})
        if ids is None:
            self.tokenizer = None
        return ids

    def split_prompt(self, prompt: Prompt, template: Fields) -> list[int] | None:
        """Return the ids of a prompt, as vLLM gives them: with special tokens, a chat by its template; None: the server does not.

        ``template`` has the fields for a chat's template.
        """
        if isinstance(prompt, TokenIds):
            return list(prompt.ids)
        if isinstance(prompt, str):
            return self._ids({"prompt": prompt})
        continues = prompt[-1].role == "assistant"
        turns = [turn.to_json() for turn in prompt]
        return self._ids({"messages": turns, "add_generation_prompt": not continues, "continue_final_message": continues, **template})

    def _ids(self, body: dict[str, Any]) -> list[int] | None:
        ids = (self._pages.page("/tokenize", {"model": self._model, **body}) or {}).get("tokens")
        return ids if isinstance(ids, list) and all(isinstance(token, int) for token in ids) else None

    def _join(self, ids: list[int]) -> str | None:
        if self.tokenizer is None:
            return None
        text = (self._pages.page("/detokenize", {"model": self._model, "tokens": ids}) or {}).get(self.tokenizer.joined)
        return text if isinstance(text, str) else None


def estimate(text: str) -> int:
    """Return an estimate of the number of tokens: one per four ASCII characters, and one token per other character."""
    n_ascii = sum(map(str.isascii, text))
    return -(-n_ascii // 4) + len(text) - n_ascii


def truncate_words(text: str, max_tokens: int, *, keep: End, count: Callable[[str], int] = estimate) -> str:
    """Return the first or last words of a text, of at most ``max_tokens`` tokens by ``count``, which is asked a few times only."""
    if count(text) <= max_tokens:
        return text
    words = text.split()

    def joined(n: int) -> str:
        return " ".join(words[:n] if keep == "start" else words[len(words) - n :])

    n_kept = bisect_right(range(1, len(words) + 1), max_tokens, key=lambda n: count(joined(n)))
    return joined(n_kept)
