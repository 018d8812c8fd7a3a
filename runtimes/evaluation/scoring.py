"""Scoring of predictions: a value for every question and metric, the costs of answers, and counts of data issues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from wikidx.corpora.errors import InputError
from wikidx.runtimes.evaluation.answers.metric import Metric
from wikidx.runtimes.evaluation.by_models.measured import RowMetric
from wikidx.runtimes.evaluation.predictions import READING_RULES, PredictionRow, Predictions
from wikidx.runtimes.evaluation.run_facts import RunFacts, run_facts
from wikidx.runtimes.evaluation.run_questions import RunQuestions, is_same_text
from wikidx.runtimes.evaluation.uncertainty import FloatArray
from wikidx.runtimes.questions import Question

from . import normalizing

UNKNOWN_ID = "ids of no question"
OTHER_QUESTION = "asked another question under this id"
UNANSWERED = "questions without a prediction"
NOT_YET = "questions not come to"
EMPTY = "empty answers"
NO_GOLD = "questions without gold answers"
EMPTY_GOLD = "golds that normalise to nothing"
NO_ALIASES = "questions without the table of aliases"
RULES = {
    **READING_RULES,
    UNKNOWN_ID: "no gold to compare with: left out",
    OTHER_QUESTION: "no answer to this question, which counts as without a prediction; texts are compared after SQuAD's normalisation",
    UNANSWERED: "count 0, as the official evaluators have it; SQuAD 2.0's metrics and ALCE's citations leave them out, so that a run which "
    "answers less may score higher",
    NOT_YET: "the run was to ask them and their file is not here: left out; name it with --questions",
    EMPTY: "compared like any other text, by each metric's own rule",
    NO_GOLD: "not defined there and left out of the mean, but by the evaluators that go on: popqa_accuracy, selfrag_match and flashrag_* "
    "count 0, squad2_* takes the empty answer for right",
    EMPTY_GOLD: "kept: an empty answer equals such a gold, and every answer contains it; what squad2_* and kilt_* drop their origins say",
    NO_ALIASES: "the answer alone is right, where 2WikiMultihopQA's evaluator takes aliases too: put id_aliases.json beside the questions",
}

COSTS = ("tokens", "calls", "prompt_tokens", "completion_tokens", "searches", "queries", "waves", "seconds")

_EXAMPLES = 5
_MOST = 2**53  # no cost is as large; keeps sums finite


class Odd(NamedTuple):
    """A kind of data issue: how often it occurs, and the ids of the first few occurrences."""

    n: int
    examples: tuple[str, ...] = ()


class ScoredRun(NamedTuple):
    """A run and the values of its answers.

    Attributes:
        name: of the run.
        dataset: name of its questions.
        facts: its settings.
        predictions: as read.
        asked: the n questions.
        rows: the prediction of each question; without an answer if there is none, or if the id belongs to another question.
        values: metric -> float64 (n,), from 0 to 1; NaN: undefined for that question.
        costs: one of ``COSTS`` -> float64 (n,); NaN: not recorded. Seconds are from a question's first request to its answer, during which
            other questions were served too.
        odd: data issues by kind, a key of ``RULES``.
        measured: settings and counts of row metrics, by the name of their class, with the names of their ``values``.
    """

    name: str
    dataset: str
    facts: RunFacts
    predictions: Predictions
    asked: RunQuestions
    rows: tuple[PredictionRow, ...]
    values: Mapping[str, FloatArray]
    costs: Mapping[str, FloatArray]
    odd: Mapping[str, Odd]
    measured: Mapping[str, Mapping[str, Any]]

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions of the run."""
        return self.asked.questions

    def values_of(self, metric: str) -> FloatArray:
        """Return the values of a metric or, by its name, of a cost; empty if the run has none."""
        return self.values.get(metric, self.costs.get(metric, np.empty(0)))

    def types(self) -> dict[str, FloatArray]:
        """Return for each type of question in the set a mask of its questions, bool (n,); empty if the set has no types."""
        kinds = [str(question.gold.get("type") or "") for question in self.questions]
        named = sorted(set(kinds) - {""})
        return {kind: np.array([one == kind for one in kinds]) for kind in named} if len(named) > 1 else {}


def score(
    name: str,
    predictions: Predictions,
    asked: RunQuestions,
    metrics: Iterable[Metric],
    row_metrics: Sequence[RowMetric] = (),
    dataset: str = "",
) -> ScoredRun:
    """Score a run.

    Args:
        name: of the run.
        predictions: joined with the questions by id, except those with another question's text.
        asked: the questions.
        metrics: of single answers.
        row_metrics: of predictions with their passages, or by a model.
        dataset: name of the questions; empty: from their file's name.

    Raises:
        InputError: no prediction matches a question.
        IdxError: a row metric cannot be computed.
    """
    questions = asked.questions
    joined = _joined(predictions, asked)
    rows = tuple(joined.get(question.id) or PredictionRow(question.id, None) for question in questions)
    values = {metric.name: _values(metric, rows, questions) for metric in metrics}
    measured = dict[str, dict[str, Any]]()
    for row_metric in row_metrics:
        found = row_metric.measure(rows, questions)
        values |= found.values
        measured[type(row_metric).__name__] = {"values": list(found.values), **row_metric.about(), "counts": found.counts}
    costs = {cost: np.array([_cost(row, cost) for row in rows], np.float64) for cost in COSTS}
    odd, facts = _odd(predictions, joined, asked), run_facts(predictions.about)
    return ScoredRun(name, dataset or asked.dataset, facts, predictions, asked, rows, values, costs, odd, measured)


def _joined(predictions: Predictions, asked: RunQuestions) -> dict[str, PredictionRow]:
    """Return the predictions that match a question, by its id; raises ``InputError`` if none does."""
    texts = {question.id: question.text for question in asked.questions}
    with_id = {name: row for name, row in predictions.rows.items() if name in texts}
    joined = {name: row for name, row in with_id.items() if row.question is None or is_same_text(row.question, texts[name])}
    if not joined:
        row = next(iter(with_id.values()), None) or next(iter(predictions.rows.values()))
        why = (
            f"'{row.id}' was asked {row.question!r:.60}, there it is {texts[row.id]!r:.60}"
            if row.id in texts
            else f"'{row.id}' is none's id"
        )
        raise InputError(
            f"none of the {len(predictions.rows):,} predictions in {predictions.path} is of the {len(texts):,} questions from "
            f"{asked.origin}: {why}: name the questions that were asked with --questions"
        )
    return joined


def _values(metric: Metric, rows: Sequence[PredictionRow], questions: Sequence[Question]) -> FloatArray:
    return np.array([_value(metric, row, question) for row, question in zip(rows, questions, strict=True)], np.float64)


def _value(metric: Metric, row: PredictionRow, question: Question) -> float:
    """Return the value of an answer; without one, the metric's value for that, unless it is undefined for the question anyway."""
    value = metric.score(row.answer or "", question)
    if row.answer is None and value is not None:
        value = metric.missing
    return np.nan if value is None else value


def _cost(row: PredictionRow, cost: str) -> float:
    if cost == "seconds":
        return _number(row.timing.get("seconds"))
    if cost == "tokens":
        return _number(row.cost.get("prompt_tokens")) + _number(row.cost.get("completion_tokens"))
    return _number(row.cost.get(cost))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST else np.nan


def _odd(predictions: Predictions, joined: Mapping[str, PredictionRow], asked: RunQuestions) -> dict[str, Odd]:
    questions = {question.id: question for question in asked.questions}
    has_aliases = any(question.gold.get("aliases") for question in asked.questions)
    befallen = {
        **predictions.odd,
        UNKNOWN_ID: [name for name in predictions.rows if name not in questions],
        OTHER_QUESTION: [name for name in predictions.rows if name in questions and name not in joined],
        UNANSWERED: [name for name in questions if name not in joined],
        EMPTY: [name for name, row in predictions.rows.items() if row.answer is not None and not row.answer.strip()],
        NO_GOLD: [name for name, question in questions.items() if not any(True for _ in _golds(question))],
        EMPTY_GOLD: [name for name, question in questions.items() if any(not normalizing.squad(gold) for gold in _golds(question))],
        NO_ALIASES: [name for name, question in questions.items() if question.gold.get("answer_id") and not has_aliases],
    }
    odd = {kind: Odd(len(names), tuple(names[:_EXAMPLES])) for kind, names in befallen.items() if names}
    return odd | ({NOT_YET: Odd(asked.n_missing)} if asked.n_missing else {})


def _golds(question: Question) -> Iterator[str]:
    yield from question.golden_answers
    for key in ("aliases", "long_answers"):
        yield from question.gold.get(key, ())
    for group in question.gold.get("answer_groups", ()):
        yield from group
    if question.gold.get("label"):
        yield question.gold["label"]
