"""Problems of predictions, and groups of questions: the reasons behind a run's scores."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from wikidx.runtimes.evaluation.missing_extras import leave_out_missing
from wikidx.runtimes.evaluation.predictions import PredictionRow
from wikidx.runtimes.evaluation.uncertainty import FloatArray
from wikidx.runtimes.llms.text import LOW_MASS
from wikidx.runtimes.questions import Question

from . import normalizing

Mask = NDArray[np.bool_]

PROBLEMS: Mapping[str, str] = {
    "failed": "the method ended with an error",
    "unanswered": "no prediction, or none with an answer",
    "empty": "an answer without text",
    "cut": "a reply reached its token limit",
    "unparsed": "the answer is empty, was not found in the expected form, or ends where its reply was cut",
    "degraded": "a fallback stood in for something that the model lacks, see Fallbacks",
    "unsure": f"yes and no together have a probability below {LOW_MASS:g}: the model mostly says neither",
}
"""Problem -> definition. A prediction may have several."""

HOLD, DO_NOT_HOLD = "hold an answer", "hold none"
_YES_OR_NO = {"yes", "no"}


def problems(row: PredictionRow) -> set[str]:
    """Return the problems of a prediction, as far as it records them."""
    if row.error is not None or row.answer is None:
        return {"unanswered" if row.error is None else "failed"}
    mass = row.yes_no.get("mass")
    found = {
        "empty": not row.answer.strip(),
        "cut": bool(row.replies.get("cut")),
        "unparsed": row.parse_ok is False,
        "degraded": bool(row.degraded),
        "unsure": isinstance(mass, int | float) and mass < LOW_MASS,
    }
    return {name for name, is_present in found.items() if is_present}


def problem_masks(rows: Sequence[PredictionRow]) -> dict[str, Mask]:
    """Return problem -> mask over the predictions, for the problems that the predictions record."""
    recorded = {
        "cut": any(row.replies for row in rows),
        "unparsed": any(row.parse_ok is not None for row in rows),
        "degraded": any(row.cost for row in rows),
        "unsure": any(row.yes_no for row in rows),
    }
    found = [problems(row) for row in rows]
    return {name: np.array([name in kinds for kinds in found], np.bool_) for name in PROBLEMS if recorded.get(name, True)}


def count_replies(rows: Sequence[PredictionRow]) -> dict[str, int]:
    """Return the numbers of generated texts ("texts"), of cut ("cut") and of empty ones ("empty"); an empty dict if not recorded."""
    recorded = [row.replies for row in rows if row.replies]
    names = ("texts", "cut", "empty")
    return {name: sum(n for replies in recorded if isinstance(n := replies.get(name), int)) for name in names} if recorded else {}


def find_answers(rows: Sequence[PredictionRow], questions: Sequence[Question]) -> FloatArray:
    """Return for each question whether title or text of one of the prediction's passages has a gold answer, by DPR's ``has_answer``.

    The value is NaN without an answer, without a gold answer other than yes and no, if no prediction has passages, and for all questions if
    the extra ``eval`` is not installed.
    """
    values = np.full(len(rows), np.nan)
    golds = [_findable(question) for question in questions]
    known = [at for at, (row, answers) in enumerate(zip(rows, golds, strict=True)) if row.answer is not None and answers]
    texts = [[f"{passage.get('title') or ''} . {passage.get('text') or ''}" for passage in rows[at].passages] for at in known]
    if not any(texts):
        return values
    with leave_out_missing():
        from wikidx.runtimes.evaluation.retrieval.has_answer import answer_hits

        numbers = {text: number for number, text in enumerate(dict.fromkeys(text for group in texts for text in group))}
        hits = answer_hits([[numbers[text] for text in group] for group in texts], list(numbers), [golds[at] for at in known])
        values[known] = [hit.any() for hit in hits]
    return values


def _findable(question: Question) -> list[str]:
    golds = [*question.golden_answers, *question.gold.get("aliases", ())]
    return [] if {*map(normalizing.squad, golds)} <= _YES_OR_NO else golds


def groups(rows: Sequence[PredictionRow], questions: Sequence[Question], holds_answer: FloatArray) -> dict[str, dict[str, Mask]]:
    """Return breakdown -> group -> mask over the questions; a breakdown by gold data needs two groups.

    Questions that the run has not reached are in no group.
    """
    masses = [row.yes_no.get("mass") for row in rows]
    is_reached = np.array([row.answer is not None or row.error is not None for row in rows])
    labels = {
        "type": [str(question.gold.get("type") or "") for question in questions],
        "hops": [str(question.gold.get("hops") or "") for question in questions],
        "passages": [{1.0: HOLD, 0.0: DO_NOT_HOLD}.get(value, "") for value in holds_answer.tolist()],
        "yes and no": [
            "" if not isinstance(mass, int | float) else f"below {LOW_MASS:g}" if mass < LOW_MASS else f"from {LOW_MASS:g}"
            for mass in masses
        ],
        **{name: [row.groups.get(name, "") for row in rows] for name in ("answered from", "inferences")},
    }
    named = {name: sorted({*itertools.compress(of_each, is_reached)} - {""}) for name, of_each in labels.items()}
    return {
        breakdown: {group: is_reached & np.array([label == group for label in labels[breakdown]], np.bool_) for group in kinds}
        for breakdown, kinds in named.items()
        if len(kinds) > (breakdown in ("type", "hops"))
    }
