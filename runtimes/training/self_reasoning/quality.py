"""Algorithm 1 of the paper, data quality control, line by line.

Given are samples and a program P that tells whether an answer is correct. A correct sample is kept if it is short-form (into D_s); if it is
long-form, it is kept (into D_l) if its citation recall is at least delta_r and its citation precision at least delta_p. What is kept is the
union of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from wikidx.runtimes.evaluation.by_models.citations import PRECISION, RECALL
from wikidx.runtimes.evaluation.by_models.measured import RowMetric
from wikidx.runtimes.evaluation.predictions import PredictionRow

from .samples import Sample
from .tasks import Graded


class Thresholds(NamedTuple):
    """Least citation recall (delta_r) and precision (delta_p) of a long answer."""

    recall: float
    precision: float


class Verdict(NamedTuple):
    """What became of a sample.

    Attributes:
        dropped: the rule that it fails by; None: it is kept.
        score: the figure of P; NaN: there is none.
        recall, precision: of a correct long answer's citations; NaN: not measured, or without a value.
    """

    dropped: str | None
    score: float
    recall: float = float("nan")
    precision: float = float("nan")


def quality_control(
    samples: Sequence[Sample], program: Callable[[Sample], Graded], citations: RowMetric | None, least: Thresholds
) -> list[Verdict]:
    """Return a verdict on each sample.

    Args:
        samples: D_0.
        program: P.
        citations: T, asked once, for all correct long answers together.
        least: the thresholds.

    Raises:
        ValueError: there is a correct long answer, and nothing that scores citations.
    """
    verdicts = [_by_answer(program(sample)) for sample in samples]
    long = [place for place, sample in enumerate(samples) if sample.task == "long" and verdicts[place].dropped is None]
    if not long:
        return verdicts
    if citations is None:
        raise ValueError(f"{len(long)} long answers are correct, and nothing scores their citations")
    rows = [_row(samples[place]) for place in long]
    values = citations.measure(rows, [samples[place].collected.question for place in long]).values
    for place, recall, precision in zip(long, values[RECALL], values[PRECISION], strict=True):
        verdicts[place] = _by_citations(verdicts[place], float(recall), float(precision), least)
    return verdicts


def _by_answer(graded: Graded) -> Verdict:
    score = float("nan") if graded.score is None else graded.score
    if graded.is_correct is None:
        return Verdict("no gold answer", score)
    return Verdict(None if graded.is_correct else "wrong answer", score)


def _by_citations(verdict: Verdict, recall: float, precision: float, least: Thresholds) -> Verdict:
    found = verdict._replace(recall=recall, precision=precision)
    if not recall >= least.recall:  # so that NaN, an answer without a sentence, is not kept
        return found._replace(dropped="citation recall")
    return found if precision >= least.precision else found._replace(dropped="citation precision")


def _row(sample: Sample) -> PredictionRow:
    """Return a long answer and its documents as a prediction."""
    return PredictionRow(sample.collected.question.id, sample.graded_text, tuple(document._asdict() for document in sample.documents))
