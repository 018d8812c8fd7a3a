"""HotpotQA's exact match, F1, precision and recall of answers (hotpotqa/hotpot, hotpot_evaluate_v1.py).

"yes", "no" and "noanswer" get no partial credit: if answer and gold differ and one of them is such a word, F1, precision and recall are 0.
HotpotQA has one gold per question; if a question has several, only the first counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from wikidx.runtimes.evaluation import normalizing
from wikidx.runtimes.evaluation.answers import squad
from wikidx.runtimes.evaluation.answers.metric import official
from wikidx.runtimes.evaluation.answers.token_overlap import NO_OVERLAP, Overlap, overlap, overlap_metrics

_ALL_OR_NOTHING = frozenset({"yes", "no", "noanswer"})


def answer_overlap(answer: str, gold: str) -> Overlap:
    """Return F1, precision and recall of the answer's tokens against the gold's."""
    ours, theirs = normalizing.squad(answer), normalizing.squad(gold)
    if ours != theirs and not _ALL_OR_NOTHING.isdisjoint((ours, theirs)):
        return NO_OVERLAP
    return overlap(ours.split(), theirs.split())


def best_overlap(answer: str, golds: Sequence[str]) -> Overlap:
    """Return F1, precision and recall, each maximised separately over the golds; all are 0 if there are no golds."""
    pairs = [NO_OVERLAP, *(answer_overlap(answer, gold) for gold in golds)]
    return Overlap(*map(max, zip(*pairs, strict=True)))


METRICS = (
    official("hotpotqa_em", lambda answer, question: squad.exact_match(answer, question.golden_answers[:1])),
    *overlap_metrics(
        "hotpotqa", lambda answer, question: answer_overlap(answer, question.golden_answers[0]) if question.golden_answers else None
    ),
)
