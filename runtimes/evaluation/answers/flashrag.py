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

from . import hotpotqa, squad


def _patterns(golds: Sequence[str]) -> Iterator[re.Pattern[str]]:
    """Yield golds that are regular expressions; raises ``InputError`` where one is none."""
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
        lambda answer, question: squad.exact_match(answer, question.golden_answers) or 0.0,
    ),
    Metric(
        "flashrag_acc",
        "FlashRAG's acc (sub_em), the normalised containment. A gold that normalises to nothing is always contained; without golds 0.",
        lambda answer, question: float(any(normalizing.squad(gold) in normalizing.squad(answer) for gold in question.golden_answers)),
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
        lambda answer, question: float(any(pattern.fullmatch(normalizing.squad(answer)) for pattern in _patterns(question.golden_answers))),
    ),
    Metric(
        "flashrag_pattern_acc",
        "FlashRAG's acc on CuratedTREC: golds are regular expressions that match a part of the normalised answer, case ignored.",
        lambda answer, question: float(any(pattern.search(normalizing.squad(answer)) for pattern in _patterns(question.golden_answers))),
    ),
)
