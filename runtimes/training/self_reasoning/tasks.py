"""The three kinds of tasks: detection from a set, and the paper's metric of each."""

from __future__ import annotations

from typing import Literal

from wikidx.corpora.errors import InputError
from wikidx.runtimes.evaluation.answers.metrics import METRICS
from wikidx.runtimes.methods.self_reasoning.checks import LABELS, label_of
from wikidx.runtimes.questions import Question
from wikidx.runtimes.training.sets import QuestionSet

Task = Literal["short", "long", "fever"]

PROGRAM: dict[Task, str] = {"short": "popqa_accuracy", "long": "alce_str_em", "fever": "fever_label_accuracy"}
"""The paper's metrics: accuracy by containment after Mallen et al., EM recall of ALCE, accuracy of the three labels of FEVER."""


def task_of(question: Question) -> Task:
    """Return a question's task, from its gold data."""
    if "answer_groups" in question.gold:
        return "long"
    return "fever" if question.gold.get("label") in LABELS else "short"


def set_task(one: QuestionSet, said: Task | Literal["gold"]) -> Task:
    """Return the task of a set.

    Args:
        one: the set.
        said: the option's value: a task, or "gold".

    Raises:
        InputError: its questions have several tasks.
    """
    if said != "gold":
        return said
    tasks = {task_of(question): question.id for question in one.questions}
    if len(tasks) > 1:
        (first, one_id), (second, other_id), *_ = tasks.items()
        raise InputError(
            f"the set '{one.name}' has questions of several tasks, '{one_id}' is {first} and '{other_id}' {second}: part it, or set task"
        )
    return next(iter(tasks), "short")


def score_of(task: Task, text: str, question: Question) -> float | None:
    """Return an answer's score by the task's metric, for long answers that of the analysis; None: there is no gold data."""
    if not has_gold(task, question):
        return None
    return METRICS[PROGRAM[task]].score(label_of(text)[0] if task == "fever" else text, question)


def has_gold(task: Task, question: Question) -> bool:
    """Return whether a question has the gold data that the task's metric needs."""
    golds = {"short": question.golden_answers, "long": question.gold.get("answer_groups"), "fever": question.gold.get("label")}
    return bool(golds[task])
