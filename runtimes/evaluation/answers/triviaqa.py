"""TriviaQA's own exact match and F1 (mandarjoshi90/triviaqa, evaluation/triviaqa_evaluation.py).

They differ from SQuAD's in the normalisation: punctuation becomes a space. The evaluator compares with the data's ``NormalizedAliases``,
which are the aliases so normalised; normalising them again changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from wikidx.runtimes.evaluation import normalizing
from wikidx.runtimes.evaluation.answers.metric import Metric
from wikidx.runtimes.evaluation.answers.token_overlap import overlap


def exact_match(answer: str, aliases: Sequence[str]) -> float | None:
    """Return 1.0 if the answer equals an alias, both normalised, else 0.0; None without aliases."""
    return max((float(normalizing.triviaqa(answer) == normalizing.triviaqa(alias)) for alias in aliases), default=None)


def f1(answer: str, aliases: Sequence[str]) -> float | None:
    """Return the F1 of the answer's tokens with the best alias; None without aliases."""
    tokens = normalizing.triviaqa(answer).split()
    return max((overlap(tokens, normalizing.triviaqa(alias).split()).f1 for alias in aliases), default=None)


METRICS = (
    Metric(
        "triviaqa_em",
        "TriviaQA's exact_match. An empty answer matches an alias that normalises to nothing; without golds not defined; a question "
        "without an answer counts 0.",
        "golden_answers",
        lambda answer, question: exact_match(answer, question.golden_answers),
    ),
    Metric(
        "triviaqa_f1",
        "TriviaQA's f1. 0 where answer and alias both normalise to nothing; without golds not defined; a question without an answer "
        "counts 0.",
        "golden_answers",
        lambda answer, question: f1(answer, question.golden_answers),
    ),
)
