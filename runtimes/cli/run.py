"""``idx run``: answer a file of questions by a method, and write each prediction to disk as soon as it is available.

Examples:
    idx run rag --questions sample --corpus sample --llm openai:qwen@http://127.0.0.1:8001/v1 --out runs/rag
    idx run refeed --questions nq --protocol refeed-nq --corpus wiki2018 --llm openai:gpt-4.1 --out runs/refeed
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wikidx.base.progress_display import show_steps

from .ask import format_cost, predict
from .eval_options import METRICS_HELP, select_metrics
from .method_options import (
    Cache,
    DryRun,
    InFlight,
    MethodName,
    PlanOptions,
    RetryFailed,
    Seed,
    Steps,
    choose_model,
    exit_on_interrupt,
    make_plan,
)
from .option_groups import command
from .question_options import QuestionOptions, Questions
from .screen import Result, note, pluralize

if TYPE_CHECKING:
    from wikidx.runtimes.execution.resumable import ResumableRun, RunSummary
    from wikidx.runtimes.methods.base import Method
    from wikidx.runtimes.questions import Question

_SHOWN_REASONS = 5
_SHOWN_CHARACTERS = 200


@command()
def run(
    method: MethodName,
    questions: Questions,
    out: Annotated[Path, typer.Option(help="A folder for run.json and predictions.jsonl; an existing run is resumed.")],
    *,
    plan_options: PlanOptions,
    cache: Cache = None,
    seed: Seed = 0,
    question_options: QuestionOptions,
    metrics: Annotated[str | None, typer.Option(help=METRICS_HELP + " They are recorded, and idx eval computes them.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N questions.")] = None,
    in_flight: InFlight = None,
    with_steps: Steps = True,
    retry_failed: RetryFailed = False,
    dry_run: DryRun = False,
) -> Result:
    """Answer the questions of a file by a method.

    Without --llm, a very small embedded model answers. Repeat the command after an interruption to resume the run.

    Exit status 1 if questions have failed.
    """
    from wikidx.base.plugins import name_of
    from wikidx.runtimes.evaluation.answers.metrics import describe_metrics
    from wikidx.runtimes.execution.given import GIVEN
    from wikidx.runtimes.execution.resumable import RunOptions, answering_run
    from wikidx.runtimes.methods import find_method

    chosen: Method = find_method(name_of("method", method))
    all_questions = question_options.read(questions, with_passages=plan_options.retriever == GIVEN)
    assigned = {assignment.partition("=")[0] for assignment in plan_options.assignments or ()}
    base = options_of_questions(chosen, all_questions, assigned)
    plan = make_plan(chosen, choose_model(plan_options, chosen.roles, dry_run=dry_run), dry_run=dry_run, base=base, questions=all_questions)
    options = RunOptions(seed=seed, in_flight=in_flight, with_steps=with_steps, retry_failed=retry_failed)
    job = answering_run(plan, all_questions, question_options.selection(), options, limit=limit)
    if metrics is not None:
        scored_by = describe_metrics(metric.name for metric in select_metrics(metrics, all_questions))
        job = job._replace(extra_settings={**job.extra_settings, "metrics": scored_by})
    if dry_run:
        return first_question(job, {})
    source = {"file": questions, "format": question_options.question_format}
    with exit_on_interrupt(), show_steps() as step:
        summary = job.run(out, cache=cache, source=source, progress=step(chosen.name, "questions"))
    return _report(job, summary, out)


def options_of_questions(method: Method, questions: Sequence[Question], assigned: Collection[str]) -> dict[str, Any]:
    """Return the values of options that follow from a file's questions, unless they are assigned; a line names a form that is not short."""
    from wikidx.runtimes.methods.base import list_options
    from wikidx.runtimes.methods.forms import FORMS, SHORT, form_of

    texts = method.question_texts(assigned, [question.text for question in questions])
    form = form_of(questions)
    if form == SHORT or "form" in assigned or "form" not in {option.name for option in list_options(method.options())}:
        return texts
    note(f"the questions take the form {form}: {FORMS[form].description}")
    return {**texts, "form": form}


def first_question(job: ResumableRun, extra_settings: Mapping[str, Any]) -> Result:
    """Return the requests of a dry run's first question; ``extra_settings`` are added to JSON output."""
    from wikidx.runtimes.execution.results import prediction_to_json

    from .trace import print_trace

    prediction = predict(job.plan, job.questions[0], None, job.options.seed)
    values = {"settings": job.settings(), "questions": len(job.questions), **extra_settings, "first": prediction_to_json(prediction)}
    first = f"the first of {pluralize(len(job.questions), 'question')}"
    cost = f"a dry run: {first}; {format_cost(prediction.cost, prediction.seconds)}"
    return Result(values, [partial(print_trace, prediction, with_prompts=True)], [cost])


def _report(job: ResumableRun, summary: RunSummary, out: Path) -> Result:
    """Return a summary of the run, a failure if questions have failed."""
    from wikidx.runtimes.execution.results import count_kinds

    n_questions, n_failed, reasons = len(job.questions), len(summary.errors), count_kinds(summary.errors)
    values: dict[str, Any] = {
        "method": job.plan.method.name,
        "out": str(out),
        "questions": n_questions,
        "answered": n_questions - n_failed,
        "failed": [{"questions": n, "error": error} for n, error in reasons],
        "degraded": [{"questions": n, "rule": fallback} for n, fallback in count_kinds(summary.degraded)],
        "models": summary.models,
        "yes_no": _describe_masses(summary.yes_no_masses),
        "cost": summary.cost._asdict(),
        "seconds": round(summary.seconds, 3),
    }
    lines = [f"{out}: {pluralize(n_questions, 'question')}, {n_questions - n_failed:,} answered, {n_failed:,} failed"]
    lines += [f"    {n:,} × {textwrap.shorten(error, _SHOWN_CHARACTERS, placeholder=' …')}" for n, error in reasons[:_SHOWN_REASONS]]
    if len(reasons) > _SHOWN_REASONS:
        lines.append(f"    and {len(reasons) - _SHOWN_REASONS:,} other reasons: see 'error' in {out / 'predictions.jsonl'}")
    failure = "add --retry-failed to repeat failed questions" if n_failed else None
    return Result(values, lines, _notes(job, summary, values["yes_no"]), failure)


def _notes(job: ResumableRun, summary: RunSummary, yes_no: Mapping[str, float]) -> Iterator[str]:
    """Yield what else is worth knowing of a run."""
    from wikidx.runtimes.execution.results import count_kinds
    from wikidx.runtimes.llms.text import LOW_MASS

    for n, fallback in count_kinds(summary.degraded):
        yield f"note: {pluralize(n, 'question')}: {fallback}"
    named = sorted({spec.model for spec in job.plan.specs().values()})
    if others := [model for model in summary.models if not any(name in model or model in name for name in named)]:
        yield f"note: the endpoint calls the model that answered {' and '.join(map(repr, others))}, not {' or '.join(map(repr, named))}"
    if yes_no and yes_no["mass"] < LOW_MASS:
        asked = pluralize(len(summary.yes_no_masses), "yes/no question")
        yield f"note: {asked}: yes and no together have a probability of {yes_no['mass']:.2f} on average; their scores mean little"
    yield f"this time: {format_cost(summary.cost, summary.seconds)}"


def _describe_masses(masses: Sequence[float]) -> dict[str, float]:
    """Return number and mean of the yes/no questions' masses, for JSON."""
    return {"asked": len(masses), "mass": math.fsum(masses) / len(masses)} if masses else {}
