"""Calls to language models, their results, and the contract of every backend.

A *call* is a prompt with an operation: ``Generate``, ``AskYesNo`` or ``MeanNll``. A backend takes a batch of calls and returns one *reply*
per call, in the same order. Fixed fallbacks replace missing capabilities, and ``degraded`` of the result lists the fallbacks used:

- Without structured output, the text is unconstrained.
- Without logprobs, ``Gen.logprobs`` is None. A yes/no question is answered by one generated word, with probability 1 or 0.
- Without prompt logprobs, the NLL of a given text is unknown (``Nll.mean`` is None).

If a prompt exceeds the context, its passages are cut (``fitting``), and ``degraded`` lists the cut. If neither answer to a yes/no question
is among the likeliest tokens, ``YesNo.missing`` is true and there is no score; ``degraded`` does not list this.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

from wikidx.runtimes.errors import LLMError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """Generate text after a prompt; the result is a tuple of ``n`` ``Gen``.

    Attributes:
        role: a role of the method, which determines the model; backends ignore the role.
        decoding: decoding parameters.
        n: number of texts; several texts need a temperature above 0.
        schema: constraint on the text; None: no constraint.
        logprobs: whether to return the log-probabilities of the tokens.
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


def single(call: Generate, number: int) -> Generate:
    """Return a call for text number ``number`` of a call alone, with its own seed."""
    seed = call.decoding.seed
    return replace(call, n=1, decoding=replace(call.decoding, seed=None if seed is None else seed + number))


@dataclass(frozen=True, slots=True, kw_only=True)
class AskYesNo:
    """Score the answer to a yes/no prompt by next-token probabilities; the result is a ``YesNo``.

    The probability of an answer is the sum over all tokens that begin with one of its words, in any case, after any white space, and
    without a further letter or digit. If the model generates a token of white space first, the tokens after it count too.
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
        finish: "stop" if the model or a stop text ended the text, "length" if it was cut at ``max_tokens``.
        logprobs: natural log-probability of each generated token, before temperature; includes the end-of-text token if the backend
            returns it. None: not requested or not available.
        token_ids: the generated tokens; None: not available.
        ends: offset in ``text`` of the end of each token, to cut the tokens with the text; None: unknown.
        reasoning: the model's thoughts before the text; None: there are none, or the endpoint hides them.
        degraded: fallbacks used for capabilities that the backend lacks.
    """

    text: str
    finish: Literal["stop", "length"] = "stop"
    logprobs: tuple[float, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    ends: tuple[int, ...] | None = field(default=None, compare=False, repr=False)
    reasoning: str | None = None
    degraded: tuple[str, ...] = ()

    def part(self, start: int, stop: int) -> Gen:
        """Return the text between two offsets, with the tokens that reach into it; without tokens if their places are unknown."""
        if start <= 0 and stop >= len(self.text):
            return self
        if self.ends is None:
            return replace(self, text=self.text[start:stop], logprobs=None, token_ids=None)
        first = bisect_right(self.ends, start) if start > 0 else 0
        last = bisect_left((0, *self.ends), stop, hi=len(self.ends)) if stop < len(self.text) else None
        logprobs, token_ids = self.logprobs and self.logprobs[first:last], self.token_ids and self.token_ids[first:last]
        ends = tuple(end - start for end in self.ends[first:last])
        return replace(self, text=self.text[start:stop], logprobs=logprobs, token_ids=token_ids, ends=ends)

    @property
    def mean_nll(self) -> float | None:
        """Mean negative log-probability of the tokens (nats); None if there are no logprobs."""
        return -math.fsum(self.logprobs) / len(self.logprobs) if self.logprobs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class YesNo:
    """Probabilities that the next token is the positive or the negative answer to a yes/no question.

    Attributes:
        p_positive, p_negative: probabilities of the positive and the negative answer, as ``AskYesNo`` defines them.
        degraded: fallbacks used for capabilities that the backend lacks.
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
        """Probability of the positive answer divided by ``mass``; None if ``mass`` is 0."""
        return None if self.missing else self.p_positive / self.mass


@dataclass(frozen=True, slots=True, kw_only=True)
class Nll:
    """Negative log-likelihood of a given text (nats).

    Attributes:
        total: sum over the text's tokens; None: unknown.
        n_tokens: number of tokens.
        degraded: fallbacks used for capabilities that the backend lacks.
    """

    total: float | None
    n_tokens: int
    degraded: tuple[str, ...] = ()

    @property
    def mean(self) -> float | None:
        """Mean over the tokens; None: unknown, or no tokens."""
        return None if self.total is None or self.n_tokens == 0 else self.total / self.n_tokens


class Reply(NamedTuple):
    """The result of a call, and its cost.

    Attributes:
        result: the result.
        prompt_tokens: number of tokens read.
        completion_tokens: number of tokens generated, in all ``n`` texts.
        model: the model that answered, as the endpoint names it; empty: it does not say.
        seconds: time from the request to its answer; None: the backend answers batches.
    """

    result: tuple[Gen, ...] | YesNo | Nll
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Known capabilities of a model. Those of an endpoint are learned from its answers.

    Attributes:
        chat: the model has a chat template.
        logprobs: the backend returns log-probabilities of generated tokens.
        top_logprobs: maximum number of alternatives per token; None: the whole vocabulary, so that yes/no scores are exact.
        prompt_logprobs: the backend can score a given text.
        structured: enforced kinds of constraints: "choice", "json", "regex".
        n: the backend generates several texts in one call.
        seed: sampling with a seed is reproducible.
        token_ids: the backend accepts prompts as token ids.
        context: maximum number of tokens of prompt and generated text together; None: unknown.
        concurrency: number of calls that the backend answers at a time, one by one; None: it answers batches.
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
    concurrency: int | None = None


Deliver = Callable[[Mapping[int, Reply | LLMError]], None]
"""Function that receives replies of a batch, by the number of the call, before the batch is complete."""


class LLM(Protocol):
    """A language model. Only as many threads as its ``concurrency`` may call it at a time; None: one."""

    @property
    def name(self) -> str:
        """Backend, model and address, as named by the user."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Known capabilities of the model."""
        ...

    def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
        """Answer a batch of calls. A failed call has an error in place of a reply.

        Args:
            calls: the batch.
            deliver: called with replies that are final before the batch is complete; a backend may leave it out.

        Raises:
            IdxError: no call can be answered, for instance because the device runs out of memory.
        """
        ...

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text; an estimate if the backend has no tokenizer."""
        ...

    def truncate(self, text: str, max_tokens: int, *, keep: End = "start") -> str:
        """Return the first or last ``max_tokens`` tokens of a text."""
        ...

    def close(self) -> None:
        """Release connections, memory and files."""
        ...
