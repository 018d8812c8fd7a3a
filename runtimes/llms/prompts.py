"""Prompts of language models, and how they are to be continued: decoding parameters, constraints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Span = tuple[int, int]


class Message(NamedTuple):
    """A turn of a conversation.

    Attributes:
        role: the speaker. If the speaker of the last turn is "assistant", the model continues this turn.
        content: the text.
        passages: spans ``(start, end)`` of the retrieved passages in ``content``, ascending; these may be cut to fit the context.
    """

    role: Literal["system", "user", "assistant"]
    content: str
    passages: tuple[Span, ...] = ()

    def to_json(self) -> dict[str, str]:
        """Return the turn as endpoints and trainers take it."""
        return {"role": self.role, "content": self.content}


class TokenIds(NamedTuple):
    """A prompt as token ids of the model, including special tokens."""

    ids: tuple[int, ...]


End = Literal["start", "end"]
"""The end of a text that is kept when the text is cut."""

Chat = tuple[Message, ...]
Prompt = str | Chat | TokenIds
"""A plain text to continue, a conversation, or token ids."""


def prompt_text(prompt: Prompt) -> str:
    """Return a prompt as one text. Blank lines separate the turns of a conversation; spaces separate token ids."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, TokenIds):
        return " ".join(map(str, prompt.ids))
    return "\n\n".join(message.content for message in prompt)


class Choice(NamedTuple):
    """Constraint: the text is one of ``texts``."""

    texts: tuple[str, ...]


class JsonSchema(NamedTuple):
    """Constraint: the text is JSON that matches a schema. ``text`` is the schema as JSON."""

    text: str

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> JsonSchema:
        """Create a constraint from a schema as Python data. The model generates fields in the order of ``properties``."""
        return cls(json.dumps(schema, ensure_ascii=False))

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> JsonSchema:
        """Create a constraint to an object with exactly these fields; ``fields`` is name -> schema."""
        return cls.of({"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False})


class Regex(NamedTuple):
    """Constraint: the whole text matches a regular expression."""

    pattern: str


Schema = Choice | JsonSchema | Regex

Thinking = Literal["off", "on"] | int
"""Thinking before an answer: "off", "on", or the maximum number of tokens for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Decoding parameters.

    Attributes:
        max_tokens: maximum number of generated tokens.
        temperature: 0 is greedy decoding.
        top_p: nucleus sampling: tokens are sampled from the smallest set whose total probability reaches this value.
        stop: texts that end the generation; the result excludes them.
        thinking: whether the model thinks first, in tokens beyond ``max_tokens``; None: as set for the run.
        seed: sampling seed; equal calls with equal seeds have equal results. None: the executor of a method derives a seed.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    thinking: Thinking | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ValueError: a value is out of range.
        """
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}: it must be at least 1")
        if not 0 <= self.temperature <= 100:
            raise ValueError(f"temperature is {self.temperature}: it must lie between 0 and 100")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}: it must be above 0 and at most 1")
        if isinstance(self.thinking, int) and self.thinking < 1:
            raise ValueError(f"thinking is {self.thinking}: a budget must be at least 1 token")
        if "" in self.stop:
            raise ValueError("an empty text cannot end a generation: take '' out of stop")

    @property
    def is_greedy(self) -> bool:
        """True if nothing is sampled."""
        return self.temperature == 0


GREEDY = Decoding()
