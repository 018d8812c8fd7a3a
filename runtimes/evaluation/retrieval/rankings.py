"""Scores of rankings against gold passages: trec_eval's values per question, computed with ``ir_measures``.

Measures have the names of ``ir_measures``: Success@5 (1 if a gold passage is among the first 5), R@20 (share of the gold passages that are
among the first 20), P@5, RR and RR@10 (MRR), AP (MAP), nDCG@10, Rprec. trec_eval breaks ties of scores by passage id instead of rank
(``trec``). As in trec_eval with ``-c``, a question with qrels but without a ranking scores 0. The value of a question without qrels is
undefined. To all of these a relevance below 0 is as 0, which trec_eval is given: a question with nothing above -1 may crash or hang it.

RR@k is computed from trec_eval's RR: it is RR if RR is at least 1 / k, else 0. The RR@k of ``ir_measures`` breaks ties differently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from wikidx.base.errors import InputError, MissingExtraError
from wikidx.runtimes.evaluation.retrieval.has_answer import Hits
from wikidx.runtimes.evaluation.retrieval.trec import MAX_RELEVANCE, Qrels, Run, Value
from wikidx.runtimes.evaluation.uncertainty import FloatArray

if TYPE_CHECKING:
    from ir_measures.measures import Measure

_MEASURE = re.compile(r"(Success|R|P|RR|AP|nDCG)@[1-9][0-9]{0,5}|RR|AP|nDCG|Rprec")
_MEASURE_OF_ALIAS = {name.lower(): name for name in ("Success", "R", "P", "RR", "AP", "nDCG", "Rprec")} | {
    "map": "AP",
    "mrr": "RR",
    "recall": "R",
    "precision": "P",
    "hit": "Success",
}
_RR_PREFIX = "RR@"


def check_measures(names: Sequence[str]) -> None:
    """Raise ``InputError`` for an unsupported measure."""
    for name in names:
        if not _MEASURE.fullmatch(name):
            alias, at, cutoff = name.partition("@")
            suggestion = _MEASURE_OF_ALIAS.get(alias.lower(), "") + at + cutoff
            hint = f"did you mean {suggestion!r}? " if _MEASURE.fullmatch(suggestion) else ""
            raise InputError(f"there is no measure '{name:.40}': {hint}name it like Success@5, R@20, P@5, RR, RR@10, AP, nDCG@10 or Rprec")


def gold_values(run: Run, qrels: Qrels, questions: Sequence[str], measures: Sequence[str]) -> dict[str, FloatArray]:
    """Return measure -> values, shape ``(questions,)``; NaN for a question without qrels.

    Raises:
        InputError: a measure is not supported.
        MissingExtraError: ``ir_measures`` is not installed.
    """
    check_measures(measures)
    try:
        import ir_measures
    except ImportError as error:
        raise MissingExtraError("figures of trec_eval", "eval", "need") from error
    parsed = {name: _parse("RR" if name.startswith(_RR_PREFIX) else name, ir_measures) for name in measures}
    known = [question for question in questions if question in qrels]
    levels = {name: {passage: min(max(0, level), MAX_RELEVANCE) for passage, level in qrels[name].items()} for name in known}
    judged, rankings = _with_safe_ids(levels), _with_safe_ids({name: run.get(name, {}) for name in known})
    values: dict[Measure, dict[str, float]] = {measure: {} for measure in parsed.values()}
    for figure in ir_measures.pytrec_eval.iter_calc(list(values), judged, rankings) if judged else ():
        values[figure.measure][figure.query_id] = figure.value
    values_in_order = {
        measure: np.array([by_question.get(_safe_id(question), 0.0) if question in qrels else np.nan for question in questions])
        for measure, by_question in values.items()
    }
    return {name: _apply_cutoff(name, values_in_order[measure]) for name, measure in parsed.items()}


def _with_safe_ids(table: Mapping[str, Mapping[str, Value]]) -> dict[str, dict[str, Value]]:
    return {_safe_id(name): {_safe_id(passage): value for passage, value in values.items()} for name, values in table.items()}


def _safe_id(text: str) -> str:
    """Return an id for trec_eval, in the order of the texts: half a surrogate pair or a NUL in one would crash it."""
    return text.encode("utf-8", "surrogatepass").hex()


def hit_values(hits: Sequence[Hits], k: int) -> FloatArray:
    """Return DPR's R@k of each question: 1 if any of the first k passages is a hit, else 0. Shape ``(questions,)``."""
    return np.array([float(question_hits[:k].any()) for question_hits in hits])


def _parse(name: str, ir_measures: ModuleType) -> Measure:
    """Return a measure; the library's own parser needs parts of ``ast`` that Python 3.14 lacks."""
    base, at, cutoff = name.partition("@")
    measure: Measure = getattr(ir_measures, base)
    return measure @ int(cutoff) if at else measure


def _apply_cutoff(name: str, values: FloatArray) -> FloatArray:
    if not name.startswith(_RR_PREFIX):
        return values
    return np.where(values * int(name.removeprefix(_RR_PREFIX)) >= 1 - 1e-9, values, 0 * values)
