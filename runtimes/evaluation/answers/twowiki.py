"""2WikiMultihopQA's exact match, F1, precision and recall of answers (Alab-NII/2wikimultihop, 2wikimultihop_evaluate_v1.1.py).

The metrics are HotpotQA's. Each is maximised separately over the golden answer, its aliases and its demonyms: precision and recall may come
from different names.
"""

from __future__ import annotations

from collections.abc import Sequence

from wikidx.runtimes.evaluation.answers import hotpotqa, squad
from wikidx.runtimes.evaluation.answers.metric import official
from wikidx.runtimes.evaluation.answers.token_overlap import overlap_metrics
from wikidx.runtimes.questions import Question


def _names(question: Question) -> Sequence[str]:
    return (*question.golden_answers, *question.gold.get("aliases", ()))


METRICS = (
    official("twowiki_em", lambda answer, question: squad.exact_match(answer, _names(question)) if question.golden_answers else None),
    *overlap_metrics(
        "twowiki", lambda answer, question: hotpotqa.best_overlap(answer, _names(question)) if question.golden_answers else None
    ),
)
