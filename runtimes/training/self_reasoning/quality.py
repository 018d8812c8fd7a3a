"""Algorithm 1 of the paper, data quality control, line by line.

The input is a set of samples and a program P (``tasks``) that decides whether an answer is correct. A correct short-form sample is kept (in
D_s); a correct long-form sample is kept (in D_l) if its citation recall is at least delta_r and its citation precision at least delta_p.
The result is the union of both.
"""

from __future__ import annotations

from collections.abc import Sequence

from wikidx.runtimes.evaluation.by_models.citations import PRECISION, RECALL
from wikidx.runtimes.evaluation.by_models.measured import RowMetric
from wikidx.runtimes.evaluation.predictions import PredictionRow

from .options import SelfReasoningMaking
from .samples import Sample
from .tasks import score_of


def quality_control(samples: Sequence[Sample], citations: RowMetric | None, making: SelfReasoningMaking) -> list[str | None]:
    """Return for each sample the rule that drops it; None: it is kept.

    Args:
        samples: D_0.
        citations: T, called once for all correct long answers together.
        making: the minimum STR-EM, citation recall and citation precision of a long answer.

    Raises:
        ValueError: there is a correct long answer, but no citation scorer.
    """
    rules = [_rule_of_answer(sample, making.least_str_em) for sample in samples]
    long = [place for place, sample in enumerate(samples) if sample.task == "long" and rules[place] is None]
    if not long:
        return rules
    if citations is None:
        raise ValueError(f"{len(long)} long answers are correct, and nothing scores their citations")
    values = citations.measure([row_of(samples[place]) for place in long], [samples[place].collected.question for place in long]).values
    for place, recall, precision in zip(long, values[RECALL], values[PRECISION], strict=True):
        if not recall >= making.citation_recall:  # negated, so that NaN (an answer without a sentence) is dropped
            rules[place] = "citation recall"
        elif not precision >= making.citation_precision:
            rules[place] = "citation precision"
    return rules


def _rule_of_answer(sample: Sample, least_str_em: float) -> str | None:
    score = score_of(sample.task, sample.graded_text, sample.collected.question)
    if score is None:
        return "no gold answer"
    return None if score >= (least_str_em if sample.task == "long" else 1) else "wrong answer"


def row_of(sample: Sample) -> PredictionRow:
    """Return a long answer and its documents as a prediction."""
    return PredictionRow(sample.collected.question.id, sample.graded_text, tuple(document._asdict() for document in sample.documents))
