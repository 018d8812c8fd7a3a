"""StrategyQA's accuracy (allenai/strategyqa-evaluator, evaluator/eval.py)."""

from __future__ import annotations

from wikidx.runtimes.evaluation import normalizing
from wikidx.runtimes.evaluation.answers.metric import official
from wikidx.runtimes.questions import Question

_WORDS = {"yes": True, "true": True, "no": False, "false": False}


def accuracy(answer: object, gold: bool) -> float:
    """Return 1.0 if ``answer == gold`` in Python, else 0.0: 0 equals False, but the string "True" does not equal True."""
    return float(gold == answer)


def boolean(text: str) -> bool | None:
    """Return True for "yes" and "true", False for "no" and "false", each after SQuAD's normalisation; None for other texts."""
    return _WORDS.get(normalizing.squad(text))


def is_yes_or_no(question: Question) -> bool:
    """Return whether the question has exactly one golden answer and this answer is yes, true, no or false."""
    return len(question.golden_answers) == 1 and boolean(question.golden_answers[0]) is not None


def _accuracy(answer: str, question: Question) -> float | None:
    gold = boolean(question.golden_answers[0]) if is_yes_or_no(question) else None
    return None if gold is None else accuracy(boolean(answer), gold)


METRICS = (official("strategyqa_accuracy", _accuracy),)
