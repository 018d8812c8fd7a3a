"""Comparisons of an answer with FEVER's label (SUPPORTS, REFUTES, NOT ENOUGH INFO): FEVER's, ReAct's and GenRead's.

Sources: fever-scorer; ysymyth/ReAct, wrappers.py; wyu97/GenRead, evaluation.py, eval_fact_checking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wikidx.runtimes.evaluation import normalizing
from wikidx.runtimes.evaluation.answers.metric import official
from wikidx.runtimes.questions import Question

_GENREAD_WORDS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("refutes",): ("refutes", "no", "false"),
    ("supports",): ("supports", "yes", "true"),
}


def genread_correct(answer: str, golds: Sequence[str]) -> float:
    """Return 1.0 if the answer contains a gold by DPR's ``has_answer``, else 0.0.

    If the only gold is "supports", "yes" and "true" also match. If the only gold is "refutes", "no" and "false" also match. Golds must be
    lower-case. The context of a match is ignored: "It is not true" matches "supports".
    """
    from wikidx.runtimes.evaluation.retrieval.has_answer import has_answer  # needs the extra "eval"

    return float(has_answer(answer, _GENREAD_WORDS.get(tuple(golds), golds)))


def _of_label(score: Callable[[str, str], float]) -> Callable[[str, Question], float | None]:
    def label_score(answer: str, question: Question) -> float | None:
        label = question.gold.get("label")
        return None if label is None else score(answer, label)

    return label_score


METRICS = (
    official("fever_label_accuracy", _of_label(lambda answer, label: float(answer.upper() == label.upper()))),
    official("react_fever_em", _of_label(lambda answer, label: float(normalizing.squad(answer) == normalizing.squad(label)))),
    official("genread_fever_hit", _of_label(lambda answer, label: genread_correct(answer, [label.lower()]))),
)
