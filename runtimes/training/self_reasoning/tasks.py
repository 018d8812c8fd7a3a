"""The three tasks: detection of a set's task, and the paper's metric for each task."""

from __future__ import annotations

from typing import Literal

from wikidx.base.errors import InputError
from wikidx.runtimes.evaluation.answers.metrics import METRICS
from wikidx.runtimes.methods.forms import parse_label
from wikidx.runtimes.questions import FEVER_LABELS, Question
from wikidx.runtimes.training.sets import QuestionSet

Task = Literal["short", "long", "fever"]

PROGRAM: dict[Task, str] = {"short": "popqa_accuracy", "long": "alce_str_em", "fever": "fever_label_accuracy"}
"""Task -> the paper's metric: accuracy by containment (Mallen et al.), ALCE's EM recall, FEVER's three-class label accuracy."""


def task_of(question: Question) -> Task:
    """Return a question's task, from its gold data."""
    if "answer_groups" in question.gold:
        return "long"
    return "fever" if question.gold.get("label") in FEVER_LABELS else "short"


def task_of_set(question_set: QuestionSet, task: Task | Literal["gold"]) -> Task:
    """Return the task of a set: ``task`` itself or, if ``task`` is "gold", the task that the gold data imply.

    Raises:
        InputError: the gold data imply several tasks.
    """
    if task != "gold":
        return task
    tasks = {task_of(question): question.id for question in question_set.questions}
    if len(tasks) > 1:
        (first, one_id), (second, other_id), *_ = tasks.items()
        raise InputError(
            f"the set '{question_set.name}' has questions of several tasks, '{one_id}' is {first} and '{other_id}' {second}: split it, or "
            "set form"
        )
    return next(iter(tasks), "short")


def score_of(task: Task, text: str, question: Question) -> float | None:
    """Return an answer's score by the task's metric; None without gold data. For a long answer, ``text`` is the analysis."""
    if not has_gold(task, question):
        return None
    return METRICS[PROGRAM[task]].score(parse_label(text)[0] if task == "fever" else text, question)


def has_gold(task: Task, question: Question) -> bool:
    """Return whether a question has the gold data that the task's metric needs."""
    golds = {"short": question.golden_answers, "long": question.gold.get("answer_groups"), "fever": question.gold.get("label")}
    return bool(golds[task])
