"""Models' replies about the questions of several sets: asked through the executor, written down as they come, read again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wikidx.corpora.errors import InputError
from wikidx.corpora.progress import Progress, silent
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.results import Cost, prediction_json
from wikidx.runtimes.execution.runs import RunLog, read_predictions
from wikidx.runtimes.execution.wave import Services
from wikidx.runtimes.methods.base import Method
from wikidx.runtimes.questions import Question

from .base import Builder, Collected
from .sets import QuestionSet


class Asking(NamedTuple):
    """How questions are asked.

    Attributes:
        builder: whose method asks.
        options: its switches of asking.
        seed: of all draws.
        in_flight: questions that are open at once.
        retries_failed: whether questions that have failed are asked again.
        with_steps: whether every step is written down.
    """

    builder: Builder
    options: Any
    seed: int
    in_flight: int = 64
    retries_failed: bool = False
    with_steps: bool = False


class Replies(NamedTuple):
    """What there is of the sets' questions: replies, why questions have failed, and how many were not asked."""

    collected: list[Collected]
    errors: list[str]
    n_unasked: int


def record_id(one: QuestionSet, question: Question) -> str:
    """Return a question's id over all sets."""
    return f"{one.name}/{question.id}"


def ask(asking: Asking, sets: Sequence[QuestionSet], services: Services, log: RunLog, progress: Progress = silent) -> Cost:
    """Ask what has not been asked, set by set, and write down what comes; return what all of it cost."""
    retries = asking.retries_failed
    todo = [(one, [asked for asked in one.questions if log.is_open(record_id(one, asked), retries_failed=retries)]) for one in sets]
    total = sum(len(one.questions) for one in sets)
    n_done = total - sum(len(questions) for _, questions in todo)
    progress(n_done, total)
    costs: list[Cost] = []
    for one, questions in todo:
        method: Method = asking.builder.method(one, asking.seed)
        renamed = [question._replace(id=record_id(one, question)) for question in questions]
        predictions = execute(
            lambda text, method=method: method.run(text, asking.options),  # type: ignore[misc]
            renamed,
            services,
            in_flight=asking.in_flight,
            seed=asking.seed,
        )
        for prediction in predictions:
            log.append({**prediction_json(prediction, with_steps=asking.with_steps), "set": one.name})
            costs.append(prediction.cost)
            n_done += 1
            progress(n_done, total)
    return Cost.total(costs)


def replies(folder: Path, sets: Sequence[QuestionSet]) -> Replies:
    """Read what is written down about the sets' questions, in their order; raises as ``read_predictions`` does."""
    records = read_predictions(folder).records
    collected: list[Collected] = []
    errors: list[str] = []
    n_unasked = 0
    for one in sets:
        for question in one.questions:
            record = records.get(record_id(one, question))
            if record is None:
                n_unasked += 1
            elif record["error"] is not None:
                errors.append(record["error"])
            else:
                collected.append(Collected(one.name, question, record))
    return Replies(collected, errors, n_unasked)


def require_questions(sets: Sequence[QuestionSet]) -> None:
    """Refuse sets that have nothing to ask.

    Raises:
        InputError: a set is empty.
    """
    empty = next((one.name for one in sets if not one.questions), None)
    if empty is not None:
        raise InputError(
            f"no question of the set '{empty}' is left to train on: all were left out, or fewer were wanted than there are sets"
        )
