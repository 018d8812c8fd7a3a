"""KILT's answer metrics (facebookresearch/KILT, kilt/eval_downstream.py); F1 and ROUGE-L are those of Wizard of Wikipedia.

White space around answers and golds does not count. An empty answer scores 0 whatever the golds; empty golds are dropped; with none left,
where KILT fails, there is no figure. KILT refuses a file that lacks a question or has not exactly one answer to each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wikidx.runtimes.evaluation import normalizing
from wikidx.runtimes.evaluation.answers.metric import Metric, references
from wikidx.runtimes.evaluation.answers.token_overlap import overlap
from wikidx.runtimes.questions import Question

from . import rouge


def accuracy(answer: str, golds: Sequence[str]) -> float | None:
    """Return 1.0 if the answer is a gold, to the letter, else 0.0."""
    return _best(lambda ours, gold: float(ours == gold), answer, golds)


def exact_match(answer: str, golds: Sequence[str]) -> float | None:
    """Return 1.0 if the answer equals a gold, both normalised as for SQuAD, else 0.0."""
    return _best(lambda ours, gold: float(normalizing.squad(ours) == normalizing.squad(gold)), answer, golds)


def f1(answer: str, golds: Sequence[str]) -> float | None:
    """Return the F1 of the answer's tokens with the best gold, both normalised as for SQuAD."""
    return _best(lambda ours, gold: overlap(normalizing.squad(ours).split(), normalizing.squad(gold).split()).f1, answer, golds)


def rouge_l(answer: str, golds: Sequence[str]) -> float | None:
    """Return ROUGE-L of the answer with the best gold, as the package ``rouge`` 1.0 defines it; nothing is normalised."""
    return _best(rouge.rouge_l_f, answer, golds)


def _best(score: Callable[[str, str], float], answer: str, golds: Sequence[str]) -> float | None:
    stripped = answer.strip()
    if not stripped:
        return 0.0
    return max((score(stripped, gold.strip()) for gold in golds if gold.strip()), default=None)


def _of_golds(score: Callable[[str, Sequence[str]], float | None]) -> Callable[[str, Question], float | None]:
    """Return a figure as a metric has it: not defined without golds, whatever the answer."""

    def scored(answer: str, question: Question) -> float | None:
        golds = [gold for gold in references(question) if gold.strip()]
        return score(answer, golds) if golds else None

    return scored


_RULE = (
    "An empty answer scores 0; empty golds are dropped, and without any it is not defined: KILT gives an empty answer 0 there and fails on "
    "any other; KILT refuses a file that lacks answers."
)

METRICS = (
    Metric(
        "kilt_accuracy",
        f"KILT's accuracy: the answer is a gold to the letter. {_RULE}",
        "golden_answers",
        _of_golds(accuracy),
    ),
    Metric(
        "kilt_em",
        f"KILT's em. {_RULE}",
        "golden_answers",
        _of_golds(exact_match),
    ),
    Metric(
        "kilt_f1",
        f"KILT's f1, Wizard of Wikipedia's too. {_RULE}",
        "golden_answers",
        _of_golds(f1),
    ),
    Metric(
        "kilt_rouge_l",
        f"KILT's rougel, Wizard of Wikipedia's too: ROUGE-L as the package rouge 1.0 defines it, nothing normalised. {_RULE}",
        "golden_answers",
        _of_golds(rouge_l),
    ),
)
