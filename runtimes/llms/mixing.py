"""Texts from the mean of next-token distributions of which only the likeliest tokens are known, as endpoints tell them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from .base import Gen, Mix
from .openai_logprobs import positions_of
from .prompts import Message, Prompt, TokenIds
from .text import cut_at_stop

LIKELIEST = "only the likeliest tokens of each prompt are known: the others' probabilities count as 0 in the mean"
_REPLACEMENT = "\ufffd"  # of a part of a character, of which more than one token may have the same text


class Mixture:
    """A text that is being generated from several prompts.

    Attributes:
        finish: as in ``Gen``; None: not finished.
        degraded: fallbacks used, as keys in order.
    """

    def __init__(self, call: Mix) -> None:
        self._call = call
        self._text, self._logprobs, self._ends = "", list[float](), set[str]()
        self.finish: Literal["stop", "length"] | None = None
        self.degraded: dict[str, None] = {LIKELIEST: None}

    def prompts(self) -> list[Prompt]:
        """Return the prompts, each with the text so far."""
        return [_continued(prompt, self._text) for prompt in self._call.prompts]

    def append(self, choices: Sequence[Mapping[str, Any]]) -> bool:
        """Append the likeliest token of the mean, by the answers after all prompts; return False if none has log-probabilities.

        A prompt without them, as llama.cpp gives none for a part of a character, is left out of the mean for this token.
        """
        mean, total = defaultdict[str, float](float), 0.0
        for weight, choice in zip(self._call.weights, choices, strict=True):
            positions = positions_of(choice.get("logprobs") or {})
            likeliest = dict(positions[0].likeliest) if positions else {}
            total += weight * bool(likeliest)
            if choice.get("finish_reason") == "stop" and len(positions) == 1 and positions[0].generated:
                self._ends.add(positions[0].generated[0])
            for token, logprob in likeliest.items():
                if _REPLACEMENT not in token:
                    mean[token] += weight * math.exp(logprob)
        if not mean:
            self.finish = "length"
            return bool(self._logprobs)
        token = max(mean, key=lambda token: mean[token])
        self._logprobs.append(math.log(min(mean[token] / total, 1.0)))
        self._text, is_stopped = cut_at_stop(self._text + token * (token not in self._ends), self._call.decoding.stop)
        if is_stopped or not token or token in self._ends:
            self.finish = "stop"
        elif len(self._logprobs) >= self._call.decoding.max_tokens:
            self.finish = "length"
        return True

    def gen(self) -> Gen:
        """Return the text."""
        return Gen(text=self._text, finish=self.finish or "stop", logprobs=tuple(self._logprobs), degraded=tuple(self.degraded))


def _continued(prompt: Prompt, text: str) -> Prompt:
    """Return a prompt with a text that the model has written after it."""
    if not text:
        return prompt
    if isinstance(prompt, str):
        return prompt + text
    if isinstance(prompt, TokenIds):
        raise TypeError("a prompt of token ids is not mixed at an endpoint")
    *before, last = prompt
    if last.role == "assistant":
        return (*before, last._replace(content=last.content + text))
    return (*prompt, Message("assistant", text))
