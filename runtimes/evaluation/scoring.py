"""Scoring of predictions: a value per question and metric, the costs of answers, and counts of data issues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from wikidx.base.errors import InputError
from wikidx.runtimes.evaluation.answers.metric import Metric
from wikidx.runtimes.evaluation.by_models.row_metrics import RowMetric
from wikidx.runtimes.evaluation.data_issues import DataIssue, find_issues
from wikidx.runtimes.evaluation.missing_extras import leave_out_missing
from wikidx.runtimes.evaluation.outcomes import Mask, find_answers, groups
from wikidx.runtimes.evaluation.predictions import MODULES, PredictionRow, Predictions
from wikidx.runtimes.evaluation.retrieval.search_steps import RECALL_METRICS
from wikidx.runtimes.evaluation.run_facts import RunFacts, run_facts, wall_seconds
from wikidx.runtimes.evaluation.run_questions import RunQuestions, is_same_text
from wikidx.runtimes.evaluation.step_recall import LAST, StepRecall
from wikidx.runtimes.evaluation.uncertainty import FloatArray
from wikidx.runtimes.execution.results import count_kinds
from wikidx.runtimes.questions import Question

from . import normalizing

COSTS = ("tokens", "calls", "prompt_tokens", "completion_tokens", "searches", "queries", "sub_questions", "depth", "service", "seconds")

_MAX_COST = 2**53  # larger values count as not recorded, so that sums stay finite


class ScoredRun(NamedTuple):
    """A run and the values of its answers.

    Attributes:
        name: the run's name.
        dataset: the name of the data set.
        facts: the run's settings.
        predictions: the predictions as read.
        source: the questions, n in number, and their origin.
        rows: one prediction per question; its answer is None if no prediction matches the question or the prediction has no answer.
        values: metric -> float64 (n,), from 0 to 1; NaN: undefined for the question.
        costs: one of ``COSTS`` -> float64 (n,); NaN: not recorded. "sub_questions" are those of RA-ISF, at all depths. "depth" is the
            number of requests in the longest chain of those that had to be served one after another; "service" the time, in seconds, that
            the question's own requests took; "seconds" the time from its first request to its answer, which includes waiting for other
            questions.
        data_issues: the data issues of predictions and questions.
        row_metrics: class name of a row metric -> its settings, counts, and the names of its ``values``.
        holds_answer: whether the passages have a gold answer, float64 (n,) as ``find_answers`` returns it; empty: not tested.
        recall: recall of the searches that the predictions record; empty: not computed.
    """

    name: str
    dataset: str
    facts: RunFacts
    predictions: Predictions
    source: RunQuestions
    rows: tuple[PredictionRow, ...]
    values: Mapping[str, FloatArray]
    costs: Mapping[str, FloatArray]
    data_issues: Sequence[DataIssue]
    row_metrics: Mapping[str, Mapping[str, Any]]
    holds_answer: FloatArray = np.empty(0)
    recall: StepRecall = StepRecall()

    @property
    def n_answered(self) -> int:
        """The number of questions with an answer."""
        return sum(row.answer is not None for row in self.rows)

    @property
    def wall_seconds(self) -> float:
        """The run's own duration over all its starts; NaN: not recorded."""
        return wall_seconds(self.predictions.run_json)

    @property
    def fallbacks(self) -> list[tuple[int, str]]:
        """Fallbacks for capabilities that the models lack: (number of questions, example) of each kind, the most frequent first."""
        return count_kinds(fallback for row in self.rows for fallback in row.degraded)

    @property
    def yes_no(self) -> tuple[int, float] | None:
        """Number of yes/no questions to models, and mean probability of their two answers together; None: no such question recorded."""
        recorded = [(_number(row.yes_no.get("asked")), _number(row.yes_no.get("mass"))) for row in self.rows if row.yes_no]
        known = [(n, mass) for n, mass in recorded if n >= 1 and mass >= 0]
        n_asked = int(sum(n for n, _ in known))
        return (n_asked, sum(n * mass for n, mass in known) / n_asked) if n_asked else None

    @property
    def modules(self) -> dict[str, int]:
        """RA-ISF's modules -> number of questions and sub-questions that they answered; empty if not of RA-ISF."""
        total = sum((Counter(row.modules) for row in self.rows), Counter())
        return {module: total[module] for module in MODULES} if total else {}

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions of the run."""
        return self.source.questions

    def values_of(self, metric: str) -> FloatArray:
        """Return the values of a metric or cost by name, "answer@k" being R@k of each question's last search; empty if the run has none."""
        found = {**self.costs, **self.recall.steps.get(LAST, {}), **self.values}
        return found.get(metric, np.empty(0))

    def groups(self) -> dict[str, dict[str, Mask]]:
        """Return breakdown (as in ``outcomes.groups``) -> group -> mask over the questions."""
        return groups(self.rows, self.questions, self.holds_answer if len(self.holds_answer) else np.full(len(self.rows), np.nan))


def score_run(
    name: str,
    predictions: Predictions,
    source: RunQuestions,
    metrics: Sequence[Metric],
    row_metrics: Sequence[RowMetric] = (),
    dataset: str = "",
) -> ScoredRun:
    """Score a run.

    Args:
        name: the run's name.
        predictions: the predictions. A prediction matches the question with the same id, unless it records a different question text.
        source: the questions.
        metrics: metrics of single answers; one whose extra is not installed is left out, unless it is the only one.
        row_metrics: metrics computed over all predictions together.
        dataset: the name of the data set; empty: derived from the question file's name.

    Raises:
        InputError: no prediction matches a question.
        MissingExtraError: the extra of the only metric is not installed.
        IdxError: a row metric cannot be computed.
    """
    questions = source.questions
    matched = _join(predictions, source)
    rows = tuple(matched.get(question.id) or PredictionRow(question.id, None) for question in questions)
    values = dict[str, FloatArray]()
    for metric in metrics:
        if metric.name in (*COSTS, *RECALL_METRICS):
            raise InputError(f"the metric '{metric.name}' is called as a cost or a recall of idx is: give it another name")
        with leave_out_missing(is_alone=len(metrics) == 1):
            values[metric.name] = _values(metric, rows, questions)
    measurements = dict[str, dict[str, Any]]()
    for row_metric in row_metrics:
        result = row_metric.measure(rows, questions)
        values |= result.values
        measurements[type(row_metric).__name__] = {"values": list(result.values), **row_metric.metadata(), "counts": result.counts}
    costs = {cost: np.array([_cost(row, cost) for row in rows], np.float64) for cost in COSTS}
    data_issues, facts = _find_issues(predictions, matched, source), run_facts(predictions.run_json)
    holds = find_answers(rows, questions)
    return ScoredRun(name, dataset or source.dataset, facts, predictions, source, rows, values, costs, data_issues, measurements, holds)


def _join(predictions: Predictions, source: RunQuestions) -> dict[str, PredictionRow]:
    """Return question id -> prediction, for the predictions that match a question; raise ``InputError`` if no prediction matches."""
    texts = {question.id: question.text for question in source.questions}
    with_id = {name: row for name, row in predictions.rows.items() if name in texts}
    matched = {name: row for name, row in with_id.items() if row.question is None or is_same_text(row.question, texts[name])}
    if not matched:
        row = next(iter(with_id.values()), None) or next(iter(predictions.rows.values()))
        why = (
            f"'{row.id}' was asked {row.question!r:.60}, there it is {texts[row.id]!r:.60}"
            if row.id in texts
            else f"'{row.id}' is none's id"
        )
        raise InputError(
            f"none of the {len(predictions.rows):,} predictions in {predictions.path} is of the {len(texts):,} questions from "
            f"{source.origin}: {why}: name the questions that were asked with --questions"
        )
    return matched


def _values(metric: Metric, rows: Sequence[PredictionRow], questions: Sequence[Question]) -> FloatArray:
    return np.array([_value(metric, row, question) for row, question in zip(rows, questions, strict=True)], np.float64)


def _value(metric: Metric, row: PredictionRow, question: Question) -> float:
    """Return the value of an answer: ``metric.missing`` without an answer, NaN if the metric is undefined for the question."""
    value = metric.score(row.answer or "", question)
    if row.answer is None and value is not None:
        value = metric.missing
    return np.nan if value is None else value


def _cost(row: PredictionRow, cost: str) -> float:
    if cost in ("seconds", "service"):
        return _number(row.timing.get(cost))
    if cost == "sub_questions":
        return sum(row.modules.values()) - 1 if row.modules else np.nan
    if cost == "tokens":
        return _number(row.cost.get("prompt_tokens")) + _number(row.cost.get("completion_tokens"))
    if cost == "depth":
        return _number(row.cost.get("depth", row.cost.get("waves")))  # its name in older runs
    return _number(row.cost.get(cost))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_COST else np.nan


def _find_issues(predictions: Predictions, matched: Mapping[str, PredictionRow], source: RunQuestions) -> list[DataIssue]:
    questions = {question.id: question for question in source.questions}
    has_aliases = any(question.gold.get("aliases") for question in source.questions)
    ids_by_issue: dict[str, list[str]] = {
        **predictions.data_issues,
        "ids without a question": [name for name in predictions.rows if name not in questions],
        "another question under this id": [name for name in predictions.rows if name in questions and name not in matched],
        "questions without a prediction": [name for name in questions if name not in matched],
        "empty answers": [name for name, row in predictions.rows.items() if row.answer is not None and not row.answer.strip()],
        "questions without gold answers": [name for name, question in questions.items() if not any(True for _ in _golds(question))],
        "golds that normalise to nothing": [
            name for name, question in questions.items() if any(not normalizing.squad(gold) for gold in _golds(question))
        ],
        "questions without the table of aliases": [
            name for name, question in questions.items() if question.gold.get("answer_id") and not has_aliases
        ],
    }
    issues = find_issues("", ids_by_issue)
    return [*issues, DataIssue("", "questions not reached", source.n_missing)] if source.n_missing else issues


def _golds(question: Question) -> Iterator[str]:
    yield from question.golden_answers
    for key in ("aliases", "long_answers"):
        yield from question.gold.get(key, ())
    for group in question.gold.get("answer_groups", ()):
        yield from group
    if question.gold.get("label"):
        yield question.gold["label"]
