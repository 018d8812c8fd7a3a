"""``idx run``: a method over a file of questions; predictions are written as they come, and an interrupted run is resumed."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .ask import cost_line, predicted
from .method_options import AsJson, Cache, DryRun, InFlight, MethodName, PlanOptions, RetryFailed, Seed, Steps, leaving_at_once, plan_of
from .option_groups import flatten
from .question_options import QuestionOptions, Questions
from .screen import counted, note, say, say_json, steps

if TYPE_CHECKING:
    from wikidx.runtimes.execution.asking import Asked, Asking
    from wikidx.runtimes.methods.base import Method

_SHOWN_REASONS = 5
_SHOWN_CHARACTERS = 200


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

    Run again after an interruption, it resumes where it stopped. Exit status 1 if questions have failed.
    """
    from wikidx.runtimes.execution.asking import Asking, AskOptions
    from wikidx.runtimes.execution.identity import questions_digest
    from wikidx.runtimes.methods import find_method

    found: Method = find_method(method)
    every = question_options.read(questions)
    assigned = {one.partition("=")[0] for one in plan_options.switch or ()}
    texts = {option: tuple(one.text for one in every) for option, wanted_by in found.takes_questions.items() if wanted_by in assigned}
    plan = plan_of(found, plan_options, dry_run=dry_run, base=texts)
    digest = questions_digest([(one.id, one.text, one.golden_answers) for one in every])
    about = {"questions": {"sha256": digest, "n": len(every), **question_options.selection().about()}}
    options = AskOptions(seed=seed, in_flight=in_flight, with_steps=with_steps, retries_failed=retry_failed)
    asking = Asking(plan, [(found, every[:limit])], about, options)
    if dry_run:
        show_first(asking, {}, as_json=as_json)
        return
    source = {"file": questions, "format": question_options.question_format}
    with leaving_at_once(), steps() as step:
        asked = asking.run(out, cache=cache, source=source, progress=step(found.name, "questions"))
    _report(asking, asked, out, as_json=as_json)


def show_first(asking: Asking, about: Mapping[str, Any], *, as_json: bool) -> None:
    """Show the requests of the first question without a model; ``about`` holds further values for JSON."""
    from wikidx.runtimes.execution.results import prediction_json

    from .trace import draw

    questions = asking.questions
    prediction = predicted(asking.plan, questions[0], None, asking.options.seed)
    if as_json:
        say_json({"settings": asking.settings(), "questions": len(questions), **about, "first": prediction_json(prediction)})
        return
    draw(prediction, with_prompts=True)
    first = f"the first of {counted(len(questions), 'question')}"
    note(f"a dry run: {first}; {cost_line(prediction.cost, prediction.timing.seconds)}")


def _report(asking: Asking, asked: Asked, out: Path, *, as_json: bool) -> None:
    """Print a summary of the outcomes; exit with status 1 if questions have failed."""
    n, n_failed = len(asking.questions), len(asked.errors)
    reasons, degraded = _reasons(asked.errors), _reasons(asked.degraded)
    if as_json:
        say_json(
            {
                "method": asking.plan.method.name,
                "out": str(out),
                "questions": n,
                "answered": n - n_failed,
                "failed": [{"questions": alike, "error": error} for alike, error in reasons],
                "degraded": [{"questions": alike, "rule": said} for alike, said in degraded],
                "cost": dataclasses.asdict(asked.cost),
                "seconds": round(asked.seconds, 3),
            }
        )
    else:
        say(f"{out}: {counted(n, 'question')}, {n - n_failed:,} answered, {n_failed:,} failed")
        for alike, error in reasons[:_SHOWN_REASONS]:
            say(f"    {alike:,} × {textwrap.shorten(error, _SHOWN_CHARACTERS, placeholder=' …')}")
        if len(reasons) > _SHOWN_REASONS:
            say(f"    and {len(reasons) - _SHOWN_REASONS:,} other reasons: see 'error' in {out / 'predictions.jsonl'}")
        for alike, said in degraded:
            note(f"note: {counted(alike, 'question')}: {said}")
        note(f"this time: {cost_line(asked.cost, asked.seconds)}")
    if n_failed:
        note("failed questions are asked again by the same command with --retry-failed")
        raise typer.Exit(1)


def _reasons(errors: Sequence[str]) -> list[tuple[int, str]]:
    """Return the count and one example of each kind of error; a kind is the text before the first quote, numbers aside."""
    alike: dict[str, list[str]] = {}
    for error in errors:
        alike.setdefault(re.sub(r"\d+", "#", re.split("[\"']", error, maxsplit=1)[0]), []).append(error)
    return sorted(((len(some), some[0]) for some in alike.values()), key=lambda reason: -reason[0])
