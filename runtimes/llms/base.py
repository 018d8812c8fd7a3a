"""Calls to language models, their results, and the contract of every backend.

A *call* is plain data: a prompt and an operation, ``Generate``, ``AskYesNo`` or ``MeanNll``. A backend takes a batch of calls of any kinds
and returns one *reply* per call, in the same order. Fixed fallbacks replace missing capabilities; all but ``YesNo.missing`` are
listed in the result's ``degraded``:

- without structured output, the text is unconstrained, and the method parses it leniently
- without logprobs, ``Gen.logprobs`` is None, and a yes/no question is answered by one generated word, scored 1.0 or 0.0
- with neither word among the likeliest tokens, ``YesNo.missing`` is true and there is no score
- without prompt logprobs, the NLL of a given text is unknown (``Nll.mean`` is None)
- in a prompt that exceeds the context, passages are cut from the end of the last one (``fitting``)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from wikidx.runtimes.errors import LLMError

Span = tuple[int, int]


class Message(NamedTuple):
    """A turn of a conversation.

    Attributes:
        role: the speaker. The model continues the last turn if it is the "assistant"'s.
        content: the text.
        passages: ascending spans ``(start, end)`` of ``content`` that may be cut to fit the context: the retrieved passages.
    """

    role: Literal["system", "user", "assistant"]
    content: str
    passages: tuple[Span, ...] = ()


class TokenIds(NamedTuple):
    """A prompt as the model's own token ids, special tokens included."""

    ids: tuple[int, ...]


Chat = tuple[Message, ...]
Prompt = str | Chat | TokenIds
"""A plain text to continue, a conversation, or token ids."""


def prompt_text(prompt: Prompt) -> str:
    """Return a prompt as one text, with the turns of a conversation separated by blank lines."""
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, TokenIds):
        return " ".join(map(str, prompt.ids))
    return "\n\n".join(message.content for message in prompt)


class Choice(NamedTuple):
    """Constrain the text to one of these."""

    texts: tuple[str, ...]


class JsonSchema(NamedTuple):
    """Constrain the text to JSON that matches this schema, itself given as JSON."""

    text: str

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> JsonSchema:
        """Create an instance from a schema as Python data; the model generates fields in the order of ``properties``."""
        return cls(json.dumps(schema, ensure_ascii=False))

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> JsonSchema:
        """Create the schema of an object with exactly these fields, name -> schema."""
        return cls.of({"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False})


class Regex(NamedTuple):
    """Constrain the whole text to this regular expression."""

    pattern: str


Schema = Choice | JsonSchema | Regex


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """Decoding parameters.

    Attributes:
        max_tokens: maximum number of generated tokens.
        temperature: 0 is greedy decoding.
        top_p: nucleus sampling, with a temperature, from the fewest tokens whose total probability reaches this value.
        stop: texts that end the generation; the result excludes them.
        seed: sampling seed; equal calls with equal seeds have equal results. None: the executor derives a seed from the run's seed, the
            question and the number of its sampling call.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
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
        if "" in self.stop:
            raise ValueError("an empty text cannot end a generation: take '' out of stop")

    @property
    def is_greedy(self) -> bool:
        """True if nothing is sampled."""
        return self.temperature == 0


GREEDY = Decoding()


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """Generate text after a prompt; the result is a tuple of ``n`` ``Gen``.

    Attributes:
        prompt: the prompt.
        role: the method's role whose model is called; backends ignore it.
        decoding: decoding parameters.
        n: number of texts; more than one needs a temperature.
        schema: constraint on the text.
        logprobs: whether to return the tokens' log-probabilities.
        path: labels of the call in the method's trace; ignored in comparisons.
    """

    prompt: Prompt
    role: str = "answer"
    decoding: Decoding = GREEDY
    n: int = 1
    schema: Schema | None = None
    logprobs: bool = False
    path: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        """Check ``n``.

        Raises:
            ValueError: ``n`` is less than 1, or greater than 1 with greedy decoding.
        """
        if self.n < 1 or (self.n > 1 and self.decoding.is_greedy):
            raise ValueError(
                f"n is {self.n} with temperature {self.decoding.temperature:g}: it must be at least 1, and 1 without temperature"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AskYesNo:
    """Score the answer to a yes/no prompt by next-token probabilities; the result is a ``YesNo``.

    A side's probability is the sum over the single-token variants of its words: as given, capitalised and in capitals, with and without
    a leading space.
    """

    prompt: Prompt
    role: str = "answer"
    positive: tuple[str, ...] = ("yes",)
    negative: tuple[str, ...] = ("no",)
    path: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanNll:
    """Score a given text after a prompt; the result is an ``Nll``."""

    prompt: Prompt
    continuation: str
    role: str = "answer"
    path: tuple[str, ...] = field(default=(), compare=False)


Call = Generate | AskYesNo | MeanNll


@dataclass(frozen=True, slots=True, kw_only=True)
class Gen:
    """A generated text.

    Attributes:
        text: the text before any stop text, without thinking.
        finish: "stop" if the model or a stop text ended it, "length" if it was cut at ``max_tokens``.
        logprobs: natural log-probability, before temperature, of each generated token, and of the end-of-text token if the backend returns
            it; None: not requested or not available.
        token_ids: the generated tokens; None: not available.
        degraded: fallbacks used for missing capabilities of the backend.
    """

    text: str
    finish: Literal["stop", "length"] = "stop"
    logprobs: tuple[float, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    degraded: tuple[str, ...] = ()

    @property
    def mean_nll(self) -> float | None:
        """Mean negative log-probability of the tokens (nats); None if there are no logprobs."""
        return -math.fsum(self.logprobs) / len(self.logprobs) if self.logprobs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class YesNo:
    """Probabilities of the two answers to a yes/no question as the next token.

    Attributes:
        p_positive, p_negative: sums over the variants of each answer's words.
        degraded: fallbacks used for missing capabilities of the backend.
    """

    p_positive: float
    p_negative: float
    degraded: tuple[str, ...] = ()

    @property
    def mass(self) -> float:
        """Total probability of the two answers."""
        return self.p_positive + self.p_negative

    @property
    def missing(self) -> bool:
        """True if neither answer has a known probability."""
        return self.mass == 0

    @property
    def score(self) -> float | None:
        """The positive answer's fraction of the mass; None if the mass is 0."""
        return None if self.missing else self.p_positive / self.mass


@dataclass(frozen=True, slots=True, kw_only=True)
class Nll:
    """Negative log-likelihood of a given text (nats).

    Attributes:
        total: sum over the text's tokens; None: unknown.
        n_tokens: number of tokens.
        degraded: fallbacks used for missing capabilities of the backend.
    """

    total: float | None
    n_tokens: int
    degraded: tuple[str, ...] = ()

    @property
    def mean(self) -> float | None:
        """The mean over the tokens; None if unknown."""
        return None if self.total is None or self.n_tokens == 0 else self.total / self.n_tokens


class Reply(NamedTuple):
    """The result of a call and its cost: prompt tokens, and tokens generated in all ``n`` texts."""

    result: tuple[Gen, ...] | YesNo | Nll
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Known capabilities of a backend; those of an endpoint are learned from its answers.

    Attributes:
        chat: has a chat template.
        logprobs: returns log-probabilities of generated tokens.
        top_logprobs: maximum number of alternatives per token; None: the whole vocabulary, so that yes/no is exact.
        prompt_logprobs: can score a given text.
        structured: kinds of schemas that it enforces: "choice", "json", "regex".
        n: generates several texts in one call.
        seed: samples reproducibly with a seed.
        token_ids: accepts and returns token ids.
        context: maximum number of tokens of prompt and generated text together; None: unknown.
    """

    chat: bool = False
    logprobs: bool = False
    top_logprobs: int | None = 0
    prompt_logprobs: bool = False
    structured: frozenset[str] = frozenset()
    n: bool = False
    seed: bool = False
    token_ids: bool = False
    context: int | None = None


class LLM(Protocol):
    """A language model. Only one thread may call it at a time."""

    @property
    def name(self) -> str:
        """Backend, model and address, as named by the user."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Known capabilities of the model."""
        ...

    def run(self, calls: Sequence[Call]) -> list[Reply | LLMError]:
        """Answer a batch of calls; a failed call has its error in place of a reply.

        Raises:
            IdxError: no call can be answered, for instance because the device runs out of memory.
        """
        ...

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text; an estimate if the backend has no tokenizer."""
        ...

    def truncate(self, text: str, max_tokens: int, *, keep: Literal["start", "end"] = "start") -> str:
        """Return the first or last ``max_tokens`` tokens of a text."""
        ...

    def close(self) -> None:
        """Release connections, memory and files."""
        ...
