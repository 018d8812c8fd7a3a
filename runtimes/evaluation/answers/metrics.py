"""The table of answer metrics, those of plug-ins, and the default metrics of a set of questions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from wikidx.base.errors import InputError
from wikidx.base.plugins import PlugIn, find, plug_in_names, recorded, running
from wikidx.runtimes.evaluation.answers import (
    asqa,
    dpr,
    fever,
    flashrag,
    hotpotqa,
    kilt,
    popqa,
    selfrag,
    squad,
    strategyqa,
    triviaqa,
    twowiki,
)
from wikidx.runtimes.evaluation.answers.metric import Metric
from wikidx.runtimes.questions import Question

__all__ = ["METRICS", "Metric", "default_metrics", "describe_metrics", "find_metric", "metric_names"]

_ORIGINS = (squad, dpr, triviaqa, hotpotqa, twowiki, popqa, selfrag, flashrag, strategyqa, fever, asqa, kilt)

METRICS: dict[str, Metric] = {metric.name: metric for origin in _ORIGINS for metric in origin.METRICS}
"""Name -> metric, for all metrics of single answers."""

_SHORT_ANSWERS = ("squad_em", "squad_f1")
_KILT = tuple(metric.name for metric in kilt.METRICS)
_HOTPOTQA = tuple(metric.name for metric in hotpotqa.METRICS)
_TWOWIKI = tuple(metric.name for metric in twowiki.METRICS)


def find_metric(name: str) -> Metric:
    """Return the metric with a name, of idx or of a plug-in; the values of a plug-in are checked.

    Raises:
        UnknownNameError: no metric has this name.
        InputError: see ``wikidx.base.plugins.plug``; or a plug-in has the name of a metric of idx.
    """
    metric: Metric = find("metric", name, METRICS, _plugged_metric)
    return metric


def _plugged_metric(plugged: PlugIn) -> Metric:
    metric = plugged.instance_of(Metric, "a metric is a wikidx.runtimes.evaluation.answers.metric.Metric")
    return replace(metric, name=plugged.name, score=partial(_checked_score, plugged), origin=f"{metric.origin} {plugged}")


def _checked_score(plugged: PlugIn, answer: str, question: Question) -> float | None:
    with running(plugged, f"at the question {question.id!r:.40}"):
        value = plugged.value.score(answer, question)
    if value is None:
        return None
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError(f"{plugged}: the question {question.id!r:.40} has the value {value!r:.40}: return a number from 0 to 1, or None")
    return float(value)


def metric_names() -> list[str]:
    """Return the names of all metrics of single answers."""
    return [*METRICS, *plug_in_names("metric")]


def describe_metrics(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return what runs record of metrics: name -> the checksum of a plug-in, or nothing."""
    return {name: recorded("metric", name, METRICS) for name in names}


def default_metrics(questions: Sequence[Question]) -> list[str]:
    """Return the names of the metrics that suit the questions' gold data; empty if there are no gold data.

    Gold data other than golden answers identify the data set, whose metrics are returned. If there are only golden answers, the metrics are
    SQuAD's and ``flashrag_acc``, or StrategyQA's if each question has a yes or a no as its one golden answer. 2WikiMultihopQA is recognised
    by aliases, by answer ids, or by supporting facts together with several golden answers.
    """
    known = {key for question in questions for key, value in question.gold.items() if value}
    names = {name for key, applying in _BY_KEY.items() if key in known for name in applying}
    if "answer_id" in known or any(question.gold.get("supporting") and len(question.golden_answers) > 1 for question in questions):
        names.update(_BY_KEY["aliases"])
    if not names.isdisjoint(_TWOWIKI):
        names.difference_update(_HOTPOTQA)
    answerable = [question for question in questions if question.golden_answers]
    if answerable and not names and "wrong_answers" not in known:
        names.update(("strategyqa_accuracy",) if all(map(strategyqa.is_yes_or_no, answerable)) else (*_SHORT_ANSWERS, "flashrag_acc"))
    if "long_answers" in known and "answer_groups" not in known:
        names.update(("kilt_f1", "kilt_rouge_l"))
    return [name for name in METRICS if name in names]


_BY_KEY = {
    "label": ("fever_label_accuracy", "react_fever_em"),
    "answer_groups": ("alce_str_em", "alce_str_hit", "alce_rouge_lsum"),
    "aliases": (*_TWOWIKI, "flashrag_acc"),
    "supporting": (*_HOTPOTQA, "flashrag_acc"),
    "provenance": _KILT,
    "popularity": ("popqa_accuracy", "selfrag_match", "flashrag_acc"),
}
