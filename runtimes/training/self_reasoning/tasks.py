"""The three kinds of tasks: which one a set is, and the paper's metric program for each."""

from __future__ import annotations

from typing import Literal, NamedTuple

from wikidx.corpora.errors import InputError
from wikidx.runtimes.evaluation.answers.metrics import METRICS
from wikidx.runtimes.methods.self_reasoning.checks import LABELS, label_of
from wikidx.runtimes.questions import Question
from wikidx.runtimes.training.sets import QuestionSet

Task = Literal["short", "long", "fever"]

PROGRAM: dict[Task, str] = {"short": "popqa_accuracy", "long": "alce_str_em", "fever": "fever_label_accuracy"}
"""The paper's metrics: accuracy by containment after Mallen et al., EM recall of ALCE, accuracy of the three labels of FEVER."""

UNDECIDED = LABELS[-1]


class Graded(NamedTuple):
    """What the metric program says: whether the answer is correct, and its figure; both None: there is nothing to compare with."""

    is_correct: bool | None
    score: float | None


def task_of(question: Question) -> Task:
    """Return a question's task, by its gold."""
    if "answer_groups" in question.gold:
        return "long"
    return "fever" if question.gold.get("label") in LABELS else "short"


def set_task(one: QuestionSet, said: str) -> Task:
    """Return the task of a set.

    Args:
        one: the set.
        said: the switch: a task, or "gold".

    Raises:
        InputError: its questions have several.
    """
    for task in PROGRAM:
        if said == task:
            return task
    tasks = {task_of(question): question.id for question in one.questions}
    if len(tasks) > 1:
        (first, one_id), (second, other_id), *_ = tasks.items()
        raise InputError(
            f"the set '{one.name}' has questions of several tasks, '{one_id}' is {first} and '{other_id}' {second}: part it, or set task"
        )
    return next(iter(tasks), "short")


def graded(task: Task, text: str, question: Question, *, undecided: bool, least_str_em: float) -> Graded:
    """Grade an answer by the task's program.

    Args:
        task: the question's.
        text: the answer: of a long one the analysis.
        question: with its gold.
        undecided: of claims: NOT ENOUGH INFO is correct, whatever the set's label.
        least_str_em: of long answers.
    """
    metric = METRICS[PROGRAM[task]]
    if task == "fever":
        text = label_of(text)[0]
        if undecided:
            return Graded(text == UNDECIDED, float(text == UNDECIDED))
    if not (question.golden_answers if metric.needs == "golden_answers" else question.gold.get(metric.needs)):
        return Graded(None, None)
    score = metric.score(text, question)
    if score is None:
        return Graded(None, None)
    return Graded(score >= (least_str_em if task == "long" else 1), score)
