"""Rankings against gold passages: trec_eval's values per question, computed through ``ir_measures``.

Measures are named as ``ir_measures`` names them: Success@5 (a gold passage among the first 5), R@20 (the share of them), P@5, RR and RR@10
(MRR), AP (MAP), nDCG@10, Rprec. Rankings are in trec_eval's order, see ``trec``: ties are broken by the passages' ids, not
by ranks. Like trec_eval with ``-c``, a question with qrels but no ranking counts 0; one without qrels is undefined.

``ir_measures`` computes RR@k by another program with different tie-breaking; here it is RR if that is at least 1 / k, else 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from wikidx.corpora.errors import InputError, MissingExtraError
from wikidx.runtimes.evaluation.retrieval.has_answer import Hits
from wikidx.runtimes.evaluation.retrieval.trec import Qrels, Run
from wikidx.runtimes.evaluation.uncertainty import FloatArray

if TYPE_CHECKING:
    from ir_measures.measures import Measure

_MEASURE = re.compile(r"(Success|R|P|RR|AP|nDCG)@[1-9][0-9]{0,5}|RR|AP|nDCG|Rprec")
_BY_OTHER_NAMES = {name.lower(): name for name in ("Success", "R", "P", "RR", "AP", "nDCG", "Rprec")} | {
    "map": "AP",
    "mrr": "RR",
    "recall": "R",
    "precision": "P",
    "hit": "Success",
}
_RR_CUT = "RR@"


def check_measures(names: Sequence[str]) -> None:
    """Raise ``InputError`` for a measure unknown to trec_eval."""
    for name in names:
        if not _MEASURE.fullmatch(name):
            other, at, cut = name.partition("@")
            meant = _BY_OTHER_NAMES.get(other.lower(), "") + at + cut
            hint = f"did you mean {meant!r}? " if _MEASURE.fullmatch(meant) else ""
            raise InputError(f"there is no measure '{name:.40}': {hint}name it like Success@5, R@20, P@5, RR, RR@10, AP, nDCG@10 or Rprec")


def gold_values(run: Run, qrels: Qrels, questions: Sequence[str], measures: Sequence[str]) -> dict[str, FloatArray]:
    """Return each measure's values, shape ``(questions,)``; NaN for a question without qrels.

    Raises:
        InputError: as ``check_measures``.
        MissingExtraError: ``ir_measures`` is not installed.
    """
    check_measures(measures)
    try:
        import ir_measures
    except ImportError as error:
        raise MissingExtraError("figures of trec_eval", "eval") from error
    parsed = {name: ir_measures.parse_measure("RR" if name.startswith(_RR_CUT) else name) for name in measures}
    judged = {question: dict(qrels[question]) for question in questions if question in qrels}
    rankings = {question: dict(run.get(question, {})) for question in judged}
    values: dict[Measure, dict[str, float]] = {measure: {} for measure in parsed.values()}
    for figure in ir_measures.pytrec_eval.iter_calc(list(values), judged, rankings) if judged else ():
        values[figure.measure][figure.query_id] = figure.value
    in_order = {
        measure: np.array([found.get(question, 0.0) if question in judged else np.nan for question in questions])
        for measure, found in values.items()
    }
    return {name: _cut(name, in_order[measure]) for name, measure in parsed.items()}


def hit_values(hits: Sequence[Hits], k: int) -> FloatArray:
    """Return for each question 1 if one of the first k passages is a hit, 0 otherwise, shape ``(questions,)``: DPR's R@k."""
    return np.array([float(of_question[:k].any()) for of_question in hits])


def _cut(name: str, values: FloatArray) -> FloatArray:
    if not name.startswith(_RR_CUT):
        return values
    return np.where(values * int(name.removeprefix(_RR_CUT)) >= 1 - 1e-9, values, 0 * values)
