"""KILT's answer metrics (facebookresearch/KILT, kilt/eval_downstream.py); Wizard of Wikipedia uses F1 and ROUGE-L.

White space around answers and golds is stripped. An empty answer scores 0. Empty golds are dropped. If no golds remain, the value is
undefined; KILT itself then gives an empty answer 0, and fails on any other answer. KILT refuses a file unless it has exactly one answer to
every question.
"""

from __future__ import annotations

from collections.abc import Callable

from wikidx.runtimes.evaluation import normalizing
from wikidx.runtimes.evaluation.answers.metric import official, references
from wikidx.runtimes.evaluation.answers.rouge import rouge_l
from wikidx.runtimes.evaluation.answers.token_overlap import overlap
from wikidx.runtimes.questions import Question


def _best(score: Callable[[str, str], float]) -> Callable[[str, Question], float | None]:
    """Return a metric's scorer: the best ``score`` of the answer over the non-empty golds, or None without such golds."""

    def best_score(answer: str, question: Question) -> float | None:
        ours, golds = answer.strip(), [gold.strip() for gold in references(question) if gold.strip()]
        return max((score(ours, gold) if ours else 0.0 for gold in golds), default=None)

    return best_score


METRICS = (
    official("kilt_accuracy", _best(lambda answer, gold: float(answer == gold))),
    official("kilt_em", _best(lambda answer, gold: float(normalizing.squad(answer) == normalizing.squad(gold)))),
    official("kilt_f1", _best(lambda answer, gold: overlap(normalizing.squad(answer).split(), normalizing.squad(gold).split()).f1)),
    official("kilt_rouge_l", _best(lambda answer, gold: rouge_l(answer, gold).f)),
)
