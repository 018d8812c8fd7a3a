"""FlashRAG's answer metrics (RUC-NLPIR/FlashRAG, flashrag/evaluator/metrics.py).

"acc" is containment: a normalised gold is part of the normalised answer, also inside a word; a gold that normalises to nothing is in every
answer. Longer answers contain more golds, so give it beside exact match. F1, precision and recall are HotpotQA's, each maximised on its
own over the golds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from wikidx.corpora.errors import InputError
from wikidx.runtimes.evaluation import normalizing
from wikidx.runtimes.evaluation.answers.metric import Metric
from wikidx.runtimes.evaluation.answers.token_overlap import overlap_metrics

from . import hotpotqa


def exact_match(answer: str, golds: Sequence[str]) -> float:
    """Return 1.0 if the answer equals a gold, both normalised, else 0.0."""
    return float(any(normalizing.squad(gold) == normalizing.squad(answer) for gold in golds))


def contains(answer: str, golds: Sequence[str]) -> float:
    """Return 1.0 if a gold is part of the answer, both normalised, else 0.0."""
    return float(any(normalizing.squad(gold) in normalizing.squad(answer) for gold in golds))


def exact_match_of_patterns(answer: str, golds: Sequence[str]) -> float:
    """Return 1.0 if a gold, a regular expression, matches the whole of the normalised answer, else 0.0.

    Raises:
        InputError: a gold is no regular expression.
    """
    return float(any(pattern.fullmatch(normalizing.squad(answer)) for pattern in _patterns(golds)))


def contains_pattern(answer: str, golds: Sequence[str]) -> float:
    """Return 1.0 if a gold, a regular expression, matches a part of the normalised answer, else 0.0.

    Raises:
        InputError: a gold is no regular expression.
    """
    return float(any(pattern.search(normalizing.squad(answer)) for pattern in _patterns(golds)))


def _patterns(golds: Sequence[str]) -> Iterator[re.Pattern[str]]:
    for gold in golds:
        try:
            yield re.compile(gold, re.IGNORECASE)
        except re.error as error:
            raise InputError(
                f"the gold answer {gold!r:.80} is no regular expression ({error}): use flashrag_em and flashrag_acc"
            ) from error


METRICS = (
    Metric(
        "flashrag_em",
        "FlashRAG's em. An empty answer matches a gold that normalises to nothing; without golds 0.",
        "golden_answers",
        lambda answer, question: exact_match(answer, question.golden_answers),
    ),
    Metric(
        "flashrag_acc",
        "FlashRAG's acc (sub_em), the normalised containment. A gold that normalises to nothing is always contained; without golds 0.",
        "golden_answers",
        lambda answer, question: contains(answer, question.golden_answers),
    ),
    *overlap_metrics(
        "flashrag",
        "FlashRAG's {figure}: HotpotQA's, the largest over the golds, whatever the other figures' gold. 0 where answer and gold both "
        "normalise to nothing; without golds 0.",
        lambda answer, question: hotpotqa.best_overlap(answer, question.golden_answers),
    ),
    Metric(
        "flashrag_pattern_em",
        "FlashRAG's em on CuratedTREC: golds are regular expressions that match the whole of the normalised answer, case ignored.",
        "golden_answers",
        lambda answer, question: exact_match_of_patterns(answer, question.golden_answers),
    ),
    Metric(
        "flashrag_pattern_acc",
        "FlashRAG's acc on CuratedTREC: golds are regular expressions that match a part of the normalised answer, case ignored.",
        "golden_answers",
        lambda answer, question: contains_pattern(answer, question.golden_answers),
    ),
)
