"""SQuAD's exact match and F1, maximised over golds (evaluate-v1.1.py and evaluate-v2.0.py of rajpurkar/SQuAD-explorer).

The versions differ for golds that normalise to the empty string ("The", "..."). In 1.1, an empty answer has exact match 1 and F1 0 with
such a gold. Version 2.0 drops such golds if there are others, and gives two empty texts exact match 1 and F1 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from wikidx.runtimes.evaluation import normalizing
from wikidx.runtimes.evaluation.answers.metric import official
from wikidx.runtimes.evaluation.answers.token_overlap import best_exact_match, best_f1, overlap

exact_match, f1 = best_exact_match(normalizing.squad), best_f1(normalizing.squad)


def exact_match_v2(answer: str, golds: Sequence[str]) -> float:
    """Return SQuAD 2.0's exact match; if there are no golds, the empty answer is right."""
    return float(any(normalizing.squad(answer) == gold for gold in _golds_v2(golds)))


def f1_v2(answer: str, golds: Sequence[str]) -> float:
    """Return SQuAD 2.0's F1; it is 1.0 if answer and gold are both empty."""
    tokens = normalizing.squad(answer).split()
    pairs = [(tokens, gold.split()) for gold in _golds_v2(golds)]
    return max(overlap(ours, gold).f1 if ours and gold else float(ours == gold) for ours, gold in pairs)


def _golds_v2(golds: Sequence[str]) -> list[str]:
    """Return the non-empty normalised golds; if there are none, one empty gold."""
    return [gold for gold in map(normalizing.squad, golds) if gold] or [""]


METRICS = (
    official("squad_em", lambda answer, question: exact_match(answer, question.golden_answers)),
    official("squad_f1", lambda answer, question: f1(answer, question.golden_answers)),
    official("squad2_em", lambda answer, question: exact_match_v2(answer, question.golden_answers), missing=None),
    official("squad2_f1", lambda answer, question: f1_v2(answer, question.golden_answers), missing=None),
)
