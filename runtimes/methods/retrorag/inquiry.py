"""The state of a question in RetroRAG, and its yes/no scoring."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from wikidx.corpora.passage import Passage
from wikidx.runtimes.llms.base import Decoding, Prompt, YesNo
from wikidx.runtimes.methods.requests import Run, together, yes_no
from wikidx.runtimes.methods.templates import Blocks, numbered

from .options import RetroRAGOptions

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Inquiry:
    """The state of one question.

    Attributes:
        question: q.
        options: of the method.
        source: E_s, the passages kept, best first.
        inferred: E_i, the statements kept, best first.
        worth: scores of statements for q, which do not change between rounds.
        entities: k, as text; empty until it is needed.
        searched: the queries so far.
        verdicts: all yes/no results so far.
    """

    question: str
    options: RetroRAGOptions
    source: tuple[Passage, ...] = ()
    inferred: tuple[str, ...] = ()
    worth: dict[str, float] = field(default_factory=dict)
    entities: str = ""
    searched: list[str] = field(default_factory=list)
    verdicts: list[YesNo] = field(default_factory=list)

    def decoding(self, max_tokens: int) -> Decoding:
        """Decoding parameters of everything but the monitoring answer."""
        return Decoding(max_tokens=max_tokens, temperature=self.options.temperature)

    def shown_source(self) -> Blocks:
        """The passages in the form of the prompts."""
        return numbered(self.source)

    def shown_inferred(self) -> str:
        """The statements in the form of the prompts."""
        return "\n".join(f"- {statement}" for statement in self.inferred) or "(none)"


def scores(inquiry: Inquiry, prompts: Iterable[Prompt], role: str) -> Run[list[float]]:
    """Score prompts by the next token: P(yes) / (P(yes) + P(no)), before any temperature (eq. 1)."""
    verdicts = yield from together(yes_no(prompt, role=role) for prompt in prompts)
    inquiry.verdicts += verdicts
    return [inquiry.options.missing_score if verdict.score is None else verdict.score for verdict in verdicts]


def best(items: Sequence[T], scores_: Sequence[float], n: int) -> list[tuple[T, float]]:
    """Return the ``n`` best items with their scores, the earlier first among equals."""
    return sorted(zip(items, scores_, strict=True), key=lambda scored: -scored[1])[:n]


def summary_of(verdicts: Sequence[YesNo]) -> dict[str, Any]:
    """Return the number of yes/no results, of those without either word, and the mean total probability of the two words."""
    return {
        "asked": len(verdicts),
        "missing": sum(verdict.missing for verdict in verdicts),
        "degraded": sum(bool(verdict.degraded) for verdict in verdicts),
        "mean_mass": math.fsum(verdict.mass for verdict in verdicts) / len(verdicts) if verdicts else None,
    }
