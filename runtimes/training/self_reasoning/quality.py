"""Algorithm 1 of the paper: data quality control.

The input is a set of samples D_0 and a program P (``tasks``) that decides whether an answer is correct. Correct short answers and claims
form D_s. Correct long answers form D_l if citation recall is at least delta_r and citation precision is at least delta_p. The result is the
union of D_s and D_l.
"""

from __future__ import annotations

from collections.abc import Sequence

from wikidx.runtimes.evaluation.by_models.citations import PRECISION, RECALL
from wikidx.runtimes.evaluation.by_models.row_metrics import RowMetric
from wikidx.runtimes.evaluation.predictions import PredictionRow

from .options import BuildOptions
from .samples import Sample
from .tasks import score_of


def quality_control(samples: Sequence[Sample], citation_scorer: RowMetric | None, build_options: BuildOptions) -> list[str | None]:
    """Return, for each sample, the rule that drops the sample; None: the sample is kept.

    Args:
        samples: the samples, D_0.
        citation_scorer: the citation scorer T, called once with all correct long answers.
        build_options: the minimum STR-EM, citation recall and citation precision of a long answer.

    Raises:
        ValueError: a long answer is correct, but there is no citation scorer.
    """
    rules = [_rule_of_answer(sample, build_options.least_str_em) for sample in samples]
    long = [position for position, sample in enumerate(samples) if sample.task == "long" and rules[position] is None]
    if not long:
        return rules
    if citation_scorer is None:
        raise ValueError(f"{len(long)} long answers are correct, and nothing scores their citations")
    values = citation_scorer.measure(
        [row_of(samples[position]) for position in long], [samples[position].response.question for position in long]
    ).values
    for position, recall, precision in zip(long, values[RECALL], values[PRECISION], strict=True):
        if not recall >= build_options.citation_recall:  # negated so that NaN (an answer without sentences) is dropped
            rules[position] = "citation recall"
        elif not precision >= build_options.citation_precision:
            rules[position] = "citation precision"
    return rules


def _rule_of_answer(sample: Sample, least_str_em: float) -> str | None:
    score = score_of(sample.task, sample.graded_text, sample.response.question)
    if score is None:
        return "no gold answer"
    return None if score >= (least_str_em if sample.task == "long" else 1) else "wrong answer"


def row_of(sample: Sample) -> PredictionRow:
    """Return a long answer and its documents as a prediction."""
    return PredictionRow(sample.response.question.id, sample.graded_text, tuple(document._asdict() for document in sample.documents))
