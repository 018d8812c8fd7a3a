"""Calls to language models, their results, and the contract of every backend.

A *call* is a prompt with an operation: ``Generate``, ``AskYesNo``, ``MeanNll``, ``Mix`` or ``Score``. A backend takes a batch of calls and
returns one *reply* per call, in the same order. Fixed fallbacks replace missing capabilities, and ``degraded`` of the result lists the
fallbacks used:

- Without structured output, the text is unconstrained.
- Without logprobs, ``Gen.logprobs`` is None. A yes/no question is answered by one generated word, with probability 1 or 0.
- Without prompt logprobs, the NLL of a given text is unknown (``Nll.mean`` is None).

Nothing replaces what ``Generate.control``, ``Mix`` and ``Score`` ask for: a backend that cannot answer them refuses them in one line.

If a prompt exceeds the context, its passages are cut (``fitting``), and ``degraded`` lists the cut. If neither answer to a yes/no question
is among the likeliest tokens, ``YesNo.missing`` is true and there is no score; ``degraded`` does not list this.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

from wikidx.runtimes.errors import LLMError

from .prompts import GREEDY, Decoding, End, Prompt, Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """Generate text after a prompt; the result is a tuple of ``n`` ``Gen``.

    Attributes:
        role: a role of the method, which determines the model; backends ignore the role.
        decoding: decoding parameters.
        n: number of texts; several texts need a temperature above 0.
        schema: constraint on the text; None: no constraint.
        logprobs: whether to return the log-probabilities of the tokens.
        control: tokens of the model's own vocabulary that stay in the text, even special ones; ``Gen.control`` has their log-probabilities.
        path: labels of the call in the method's trace; ignored in comparisons.
    """

    prompt: Prompt
    role: str = "answer"
    decoding: Decoding = GREEDY
    n: int = 1
    schema: Schema | None = None
    logprobs: bool = False
    control: tuple[str, ...] = field(default=(), repr=False)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Generate one text whose next token always comes from a mean of distributions; the result is a tuple of one ``Gen``.

    The probability of a token is the sum over all prompts of the prompt's weight times the token's probability after this prompt and the
    text so far. Backends that see only the likeliest tokens of each prompt take the others' probabilities for 0, and say so.

    Attributes:
        prompts: the prompts, one at least.
        weights: a weight for each prompt; they sum to 1.
        decoding: decoding parameters; greedy.
    """

    prompts: tuple[Prompt, ...]
    weights: tuple[float, ...]
    role: str = "answer"
    decoding: Decoding = GREEDY
    path: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        """Check the weights.

        Raises:
            ValueError: there is no prompt, a number of weights that is not theirs, weights that do not sum to 1, or a temperature.
        """
        is_mean = len(self.weights) == len(self.prompts) and abs(math.fsum(self.weights) - 1) < 1e-6 and min(self.weights) >= 0
        if not self.prompts or not is_mean or not self.decoding.is_greedy:
            raise ValueError(f"{len(self.prompts)} prompts have the weights {self.weights}: they must sum to 1, and decoding be greedy")

    @property
    def prompt(self) -> Prompt:
        """The first prompt."""
        return self.prompts[0]

    @property
    def n(self) -> int:
        """Number of texts."""
        return 1

    def after(self, number: int) -> Generate:
        """Return the call that generates after one of the prompts alone."""
        return Generate(prompt=self.prompts[number], role=self.role, decoding=self.decoding, logprobs=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Score texts for a query by an encoder, as the inner product of both vectors, or by a classifier, as its logit; see ``Scores``.

    Attributes:
        prompt: the query; a classifier reads it together with each text, or the texts alone if it is empty.
        texts: the texts.
    """

    prompt: str
    texts: tuple[str, ...]
    role: str = "answer"
    path: tuple[str, ...] = field(default=(), compare=False)


Call = Generate | AskYesNo | MeanNll | Mix | Score


class Control(NamedTuple):
    """The distribution of control tokens at a place of a text.

    Attributes:
        place: offset in the text where the token there begins.
        logprobs: natural log-probability of each token of ``Generate.control``; -10,000 for one that is not among the known likeliest.
    """

    place: int
    logprobs: tuple[float, ...]


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
        control: distributions of the call's control tokens, of the first token and of each that is one of them.
        reasoning: the model's thoughts before the text; None: there are none, or the endpoint hides them.
        degraded: fallbacks used for capabilities that the backend lacks.
    """

    text: str
    finish: Literal["stop", "length"] = "stop"
    logprobs: tuple[float, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    ends: tuple[int, ...] | None = field(default=None, compare=False, repr=False)
    control: tuple[Control, ...] = field(default=(), repr=False)
    reasoning: str | None = None
    degraded: tuple[str, ...] = ()

    def part(self, start: int, stop: int) -> Gen:
        """Return the text between two offsets, with the tokens that reach into it; without tokens if their places are unknown."""
        if start <= 0 and stop >= len(self.text):
            return self
        control = tuple(Control(place - start, logprobs) for place, logprobs in self.control if start <= place < stop)
        if self.ends is None:
            return replace(self, text=self.text[start:stop], logprobs=None, token_ids=None, control=control)
        first = bisect_right(self.ends, start) if start > 0 else 0
        last = bisect_left((0, *self.ends), stop, hi=len(self.ends)) if stop < len(self.text) else None
        logprobs, token_ids = self.logprobs and self.logprobs[first:last], self.token_ids and self.token_ids[first:last]
        ends = tuple(end - start for end in self.ends[first:last])
        return replace(self, text=self.text[start:stop], logprobs=logprobs, token_ids=token_ids, ends=ends, control=control)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Scores of texts, one for each; larger is better.

    Attributes:
        degraded: fallbacks used for capabilities that the backend lacks.
    """

    values: tuple[float, ...]
    degraded: tuple[str, ...] = ()


class Reply(NamedTuple):
    """The result of a call, and its cost.

    Attributes:
        result: the result.
        prompt_tokens: number of tokens read.
        completion_tokens: number of tokens generated, in all ``n`` texts.
        model: the model that answered, as the endpoint names it; empty: it does not say.
        seconds: time from the request to its answer; None: the backend answers batches.
    """

    result: tuple[Gen, ...] | YesNo | Nll | Scores
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
