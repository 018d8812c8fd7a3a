"""State of a question in RetroRAG, and yes/no scoring."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import YesNo
from wikidx.runtimes.llms.prompts import Decoding, Prompt
from wikidx.runtimes.methods.requests import ask_yes_no, gather
from wikidx.runtimes.methods.templates import Blocks, format_passages

from .options import RetroRAGOptions

T = TypeVar("T")

_BRIEF_TOKENS = 64  # of a monitoring answer, the entities or a query
_MISSING_SCORE = 0.5  # of a verdict without 'yes' and 'no' among the likeliest tokens; it does not exceed the default gate


@dataclass(slots=True, kw_only=True)
class State:
    """State of one question.

    Attributes:
        question: the question, q.
        options: the method's options.
        source: the kept passages, E_s; best first if ``update_evidence`` is on.
        inferred: the kept statements, E_i; best first if ``update_evidence`` is on.
        usefulness: statement -> usefulness for the question, from 0 to 1; those crowded out keep theirs, and may come back.
        entities: the key entities, k, as text; empty before the first inference.
        queries: the queries so far.
        verdicts: all yes/no results so far.
    """

    question: str
    options: RetroRAGOptions
    source: tuple[Passage, ...] = ()
    inferred: tuple[str, ...] = ()
    usefulness: dict[str, float] = field(default_factory=dict)
    entities: str = ""
    queries: list[str] = field(default_factory=list)
    verdicts: list[YesNo] = field(default_factory=list)

    @property
    def decoding(self) -> Decoding:
        """The decoding parameters of reasoned answers, assessments and inferences."""
        return Decoding(max_tokens=self.options.max_tokens, temperature=self.options.temperature)

    @property
    def brief(self) -> Decoding:
        """The decoding parameters of short outputs: an answer alone, entities, a query."""
        return Decoding(max_tokens=min(self.options.max_tokens, _BRIEF_TOKENS), temperature=self.options.temperature)

    def format_source(self) -> Blocks:
        """Return the kept passages as formatted in the prompts."""
        return format_passages(self.source)

    def format_inferred(self) -> str:
        """Return the kept statements as formatted in the prompts."""
        return "\n".join(f"- {statement}" for statement in self.inferred)


async def score_yes(state: State, prompts: Iterable[Prompt], role: str) -> list[float]:
    """Return P(yes) / (P(yes) + P(no)) of the next token for each prompt (eq. 1), or 0.5 if both probabilities are 0."""
    verdicts = await gather(*(ask_yes_no(prompt, role=role) for prompt in prompts))
    state.verdicts += verdicts
    return [_MISSING_SCORE if verdict.score is None else verdict.score for verdict in verdicts]


def keep_best(items: Sequence[T], scores: Sequence[float], n: int) -> list[tuple[T, float]]:
    """Return the ``n`` items with the highest scores, and these scores; the earlier item is first among equals."""
    return sorted(zip(items, scores, strict=True), key=lambda scored: -scored[1])[:n]


def summarize_verdicts(verdicts: Sequence[YesNo]) -> dict[str, Any]:
    """Return the numbers of all, missing and degraded yes/no results, and the mean of P(yes) + P(no)."""
    return {
        "calls": len(verdicts),
        "missing": sum(verdict.missing for verdict in verdicts),
        "degraded": sum(bool(verdict.degraded) for verdict in verdicts),
        "mean_mass": math.fsum(verdict.mass for verdict in verdicts) / len(verdicts) if verdicts else None,
    }
