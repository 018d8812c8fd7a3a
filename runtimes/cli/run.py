"""``idx run``: a method over a file of questions, written down as it goes, resumed where it stopped."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from .ask import cost_line, predicted
from .method_options import AsJson, Cache, DryRun, InFlight, MethodName, PlanOptions, RetryFailed, Seed, Steps, leaving_at_once, plan_of
from .option_groups import flatten
from .question_options import QuestionOptions, Questions, asked
from .screen import note, say, say_json, steps

if TYPE_CHECKING:
    from wikidx.runtimes.execution.opening import Plan
    from wikidx.runtimes.execution.results import Cost
    from wikidx.runtimes.execution.runs import RunLog
    from wikidx.runtimes.execution.wave import Services
    from wikidx.runtimes.methods.base import Method
    from wikidx.runtimes.questions import Question, Selection

REPLIES = "replies.sqlite"

_SHOWN_REASONS = 5
_SHOWN_CHARACTERS = 200
_NOISE = "noise_questions"  # the switch of a method that reads other questions' passages among its own


class _Task(NamedTuple):
    """What is to be done: ``asked`` are the first of all ``questions``, which are ``selection`` of ``source``."""

    plan: Plan
    questions: list[Question]
    selection: Selection
    asked: list[Question]
    out: Path
    seed: int
    in_flight: int
    with_steps: bool
    retries_failed: bool
    source: dict[str, str | None]


@flatten()
def run(
    method: MethodName,
    questions: Questions,
    out: Annotated[Path, typer.Option(help="A folder for run.json and predictions.jsonl; a run that is there is resumed.")],
    *,
    plan_options: PlanOptions,
    cache: Cache = None,
    seed: Seed = 0,
    question_options: QuestionOptions,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N questions.")] = None,
    in_flight: InFlight = 64,
    with_steps: Steps = True,
    retry_failed: RetryFailed = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Answer the questions of a file by a method.

    Started again after an interruption, it goes on where it was. Exit status 1 if questions have failed.
    """
    from wikidx.runtimes.methods import find_method

    found: Method = find_method(method)
    selection = question_options.selection()
    every = asked(questions, question_options.question_format, selection)
    plan = plan_of(found, plan_options, dry_run=dry_run, base=_noise(found, plan_options.switch, every))
    source = {"file": questions, "format": question_options.question_format}
    task = _Task(plan, every, selection, every[:limit], out, seed, in_flight, with_steps, retry_failed, source)
    if dry_run:
        show_first(plan, task.asked[0], {"settings": _settings(task), "questions": len(task.asked)}, seed=seed, as_json=as_json)
        return
    _run(task, cache or out / REPLIES, as_json=as_json)


def _noise(method: Method, assignments: Sequence[str] | None, questions: Sequence[Question]) -> dict[str, tuple[str, ...]]:
    """Return where noise comes from if a method is to have it and nothing else is named: from all questions of the file."""
    is_wanted = _NOISE in method.options.__dataclass_fields__ and any(one.startswith("noise=") for one in assignments or ())
    return {_NOISE: tuple(one.text for one in questions)} if is_wanted else {}


def show_first(plan: Plan, first: Question, about: dict[str, Any], *, seed: int, as_json: bool) -> None:
    """Show what would be asked for the first question; ``about`` tells how many ``questions`` there are, and more for JSON."""
    from wikidx.runtimes.execution.results import prediction_json

    from .trace import draw

    prediction = predicted(plan, first, None, seed)
    if as_json:
        say_json({**about, "first": prediction_json(prediction)})
        return
    draw(prediction, with_prompts=True)
    note(f"a dry run: the first of {_counted(about['questions'])}; {cost_line(prediction.cost, prediction.timing.seconds)}")


def _settings(task: _Task) -> dict[str, Any]:
    """Return everything that decides what comes out."""
    from wikidx.runtimes.execution.identity import questions_digest
    from wikidx.runtimes.execution.opening import described

    answered = [(one.id, one.text, one.golden_answers) for one in task.questions]
    questions = {"sha256": questions_digest(answered), "n": len(answered), **task.selection.about()}
    return {
        **described(task.plan),
        "questions": questions,
        "seed": task.seed,
        "context": task.plan.connection.context,
        "steps": task.with_steps,
    }


def _run(task: _Task, cache: Path, *, as_json: bool) -> None:
    from wikidx.runtimes.execution.identity import session
    from wikidx.runtimes.execution.opening import opened
    from wikidx.runtimes.execution.runs import open_run, refuse_other_settings

    settings = _settings(task)
    refuse_other_settings(task.out, settings)  # before a model is opened, which may take long
    begun = {**session(), "in_flight": task.in_flight, "questions": len(task.asked), "source": task.source}
    with leaving_at_once(), opened(task.plan, cache=cache) as services, open_run(task.out, settings, begun) as log:
        if log.n_cut:
            note(f"an unfinished line of {log.n_cut:,} bytes was cut off: its question is asked again")
        todo = [one for one in task.asked if log.is_open(one.id, retries_failed=task.retries_failed)]
        if len(todo) < len(task.asked):
            note(f"asked before: {len(task.asked) - len(todo):,} of {_counted(len(task.asked))}")
        started = time.monotonic()
        came_of_it = _ask_all(task, todo, services, log)
        _report(task, log, came_of_it, time.monotonic() - started, as_json=as_json)


class _Session(NamedTuple):
    """What this start of a run cost, and the rules that replaced what models cannot do, each once a question."""

    cost: Cost
    degraded: list[str]


def _ask_all(task: _Task, todo: Sequence[Question], services: Services, log: RunLog) -> _Session:
    """Ask what is left, and write down what comes."""
    from wikidx.runtimes.execution.executor import execute
    from wikidx.runtimes.execution.results import Cost, prediction_json

    plan, golden = task.plan, {one.id: one.golden_answers for one in todo}
    n_before = len(task.asked) - len(todo)
    costs, degraded = list[Cost](), list[str]()
    with steps() as step:
        progress = step(plan.method.name, "questions")
        progress(n_before, len(task.asked))
        predictions = execute(lambda text: plan.method.run(text, plan.options), todo, services, in_flight=task.in_flight, seed=task.seed)
        for number, prediction in enumerate(predictions, n_before + 1):
            log.append({**prediction_json(prediction, with_steps=task.with_steps), "golden_answers": golden[prediction.id]})
            costs.append(prediction.cost)
            degraded += prediction.degraded
            progress(number, len(task.asked))
    return _Session(Cost.total(costs), degraded)


def _report(task: _Task, log: RunLog, session: _Session, seconds: float, *, as_json: bool) -> None:
    """Say what came of the questions; leave with exit status 1 if some have failed."""
    reasons = _reasons([error for one in task.asked if (error := log.done[one.id]) is not None])
    n_failed = sum(n for n, _ in reasons)
    cost, degraded = session.cost, _reasons(session.degraded)
    if as_json:
        say_json(
            {
                "method": task.plan.method.name,
                "out": str(task.out),
                "questions": len(task.asked),
                "answered": len(task.asked) - n_failed,
                "failed": [{"questions": n, "error": error} for n, error in reasons],
                "degraded": [{"questions": n, "rule": said} for n, said in degraded],
                "cost": {name: getattr(cost, name) for name in cost.__dataclass_fields__},
                "seconds": round(seconds, 3),
            }
        )
    else:
        say(f"{task.out}: {_counted(len(task.asked))}, {len(task.asked) - n_failed:,} answered, {n_failed:,} failed")
        for n, error in reasons[:_SHOWN_REASONS]:
            say(f"    {n:,} × {textwrap.shorten(error, _SHOWN_CHARACTERS, placeholder=' …')}")
        if len(reasons) > _SHOWN_REASONS:
            say(f"    and {len(reasons) - _SHOWN_REASONS:,} other reasons: see 'error' in {task.out / 'predictions.jsonl'}")
        for n, said in degraded:
            note(f"note: {_counted(n)}: {said}")
        note(f"this time: {cost_line(cost, seconds)}")
    if n_failed:
        note("failed questions are asked again by the same command with --retry-failed")
        raise typer.Exit(1)


def _reasons(errors: Sequence[str]) -> list[tuple[int, str]]:
    """Return how many texts there are of each reason, and one of them; reasons differ before the first quote, numbers aside."""
    alike: dict[str, list[str]] = {}
    for error in errors:
        alike.setdefault(re.sub(r"\d+", "#", re.split("[\"']", error, maxsplit=1)[0]), []).append(error)
    return sorted(((len(some), some[0]) for some in alike.values()), key=lambda reason: -reason[0])


def _counted(n: int) -> str:
    return f"{n:,} question{'' if n == 1 else 's'}"
