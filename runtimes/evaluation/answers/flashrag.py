"""FlashRAG's answer metrics (RUC-NLPIR/FlashRAG, flashrag/evaluator/metrics.py).

"acc" is containment: the normalised answer contains a normalised gold, even inside a word. Every answer contains a gold that normalises to
the empty string. Containment favours long answers: report it together with exact match. F1, precision and recall are HotpotQA's; each is
maximised separately over the golds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from wikidx.runtimes.evaluation import normalizing
from wikidx.runtimes.evaluation.answers.metric import official
from wikidx.runtimes.evaluation.answers.token_overlap import overlap_metrics

from . import hotpotqa, squad


def _any_matches(match: Callable[[re.Pattern[str], str], object], answer: str, golds: Sequence[str]) -> float | None:
    """Return 1.0 if a gold, as a regular expression, matches the normalised answer, else 0.0; None if a gold is not a valid expression."""
    try:
        patterns = [re.compile(gold, re.IGNORECASE) for gold in golds]
    except (re.error, OverflowError, RecursionError):
        return None
    return float(any(match(pattern, normalizing.squad(answer)) for pattern in patterns))


METRICS = (
    official("flashrag_em", lambda answer, question: squad.exact_match(answer, question.golden_answers) or 0.0),
    official(
        "flashrag_acc",
        lambda answer, question: float(any(normalizing.squad(gold) in normalizing.squad(answer) for gold in question.golden_answers)),
    ),
    *overlap_metrics("flashrag", lambda answer, question: hotpotqa.best_overlap(answer, question.golden_answers)),
    official("flashrag_pattern_em", lambda answer, question: _any_matches(re.Pattern.fullmatch, answer, question.golden_answers)),
    official("flashrag_pattern_acc", lambda answer, question: _any_matches(re.Pattern.search, answer, question.golden_answers)),
)
