"""``idx train-data``: make a method's training data as in its paper.

Examples:
    idx train-data ra_isf
    idx train-data ra_isf --questions nq:train --against nq --corpus wiki2018 --llm openai:gpt-4.1 --out ra-isf
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wikidx.base.progress_display import show_steps

from . import completion
from .ask import format_cost, list_methods, option_lines, options_to_json
from .method_options import Cache, DryRun, InFlight, PlanOptions, RetryFailed, Seed, Steps, exit_on_interrupt, make_plan
from .option_groups import command
from .question_options import format_named
from .run import first_question
from .screen import Result, note

if TYPE_CHECKING:
    from wikidx.runtimes.execution.resumable import RunSummary
    from wikidx.runtimes.training.base import Builder
    from wikidx.runtimes.training.sets import QuestionSet

_Name = Annotated[
    str | None,
    typer.Argument(
        metavar="METHOD",
        help="ra_isf or self_reasoning. Without --questions, the method's options are explained; without a method, all are listed.",
        autocompletion=completion.trained_method,
    ),
]
_Questions = Annotated[
    list[str] | None,
    typer.Option(metavar="[NAME=]FILE", help='Training questions with answers, or "sample"; may be repeated for several sets.'),
]
_Against = Annotated[
    list[str] | None,
    typer.Option(metavar="[NAME=]FILE", help="Evaluation questions, which are searched for among the training questions; may be repeated."),
]
_Format = Annotated[
    list[str] | None,
    typer.Option("--format", metavar="[NAME=]FORMAT", help="Format of a set, such as asqa=asqa-train; default: detected from its content."),
]
_Out = Annotated[Path | None, typer.Option(help="A folder for replies, files and manifest; a run in an existing folder is resumed.")]
_Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="OPTION=VALUE", help="An option; may be repeated. A resumed run may change options of building only."),
]
_Leaks = Annotated[str, typer.Option(help="Handling of evaluation questions among the training questions: refuse, drop or keep.")]
_Near = Annotated[
    float, typer.Option(help="Minimum Jaccard similarity of words at which a training question counts as near to an evaluation question.")
]


@command(assignments=_Set)
def train_data(
    method: _Name = None,
    questions: _Questions = None,
    against: _Against = None,
    question_format: _Format = None,
    out: _Out = None,
    *,
    plan_options: PlanOptions,
    leaks: _Leaks = "refuse",
    near: _Near = 0.8,
    cache: Cache = None,
    seed: Seed = 0,
    in_flight: InFlight = None,
    with_steps: Steps = False,
    retry_failed: RetryFailed = False,
    dry_run: DryRun = False,
) -> Result:
    """Make a method's training data: ask models, label and filter their replies, write chat-format JSON Lines and a manifest.

    The same command resumes an interrupted run. Exit status 1 if questions have failed.
    """
    from wikidx.base.errors import InputError
    from wikidx.runtimes.execution.resumable import RunOptions
    from wikidx.runtimes.training import find_builder
    from wikidx.runtimes.training.leaks import check_leaks
    from wikidx.runtimes.training.pipeline import Task, draw, parse_options, run

    if method is None or not questions:
        return _explain(method)
    builder: Builder = find_builder(method)
    train, test = _read_sets(questions, against or (), question_format or ())
    builder_options = parse_options(builder, plan_options.assignments or ())
    leak_check = check_leaks(train, test, leaks, near)
    sets = draw(builder, leak_check.sets, builder_options, seed)
    if plan_options.prompts or plan_options.shots_from:
        raise InputError("training data is made with the method's own prompts: leave out --prompts and --shots-from")
    plan_options = dataclasses.replace(plan_options, assignments=builder_options.collect_assignments)
    plan = make_plan(builder.method(sets[0], seed), plan_options, dry_run=dry_run)
    options = RunOptions(seed=seed, in_flight=in_flight, with_steps=with_steps, retry_failed=retry_failed)
    task = Task(builder, sets, leak_check, plan, builder_options.build, options)
    if dry_run:
        return first_question(task.resumable_run(), {"leaks": leak_check.to_json()})
    if out is None:
        raise InputError("name the folder for the training data: --out FOLDER")
    with exit_on_interrupt(), show_steps() as step:
        manifest, summary = run(task, out, cache=cache, progress=step(builder.name, "questions"))
    return _report(manifest, summary, out)


def _read_sets(train: Sequence[str], test: Sequence[str], formats: Sequence[str]) -> tuple[list[QuestionSet], list[QuestionSet]]:
    """Read the training and the evaluation sets; ``formats`` are texts ``[NAME=]FORMAT``."""
    from wikidx.base.registry import unknown_name_error
    from wikidx.runtimes.training.sets import check_set_names

    files = [_name_and_file(text) for text in (*train, *test)]
    format_of = {name: text for name, _, text in (text.rpartition("=") for text in formats)}
    for name in format_of:
        if name and name not in dict(files):
            raise unknown_name_error("set of questions", name, dict(files))
    sets = [_read(name, file, format_of.get(name, format_of.get(""))) for name, file in files]
    both = sets[: len(train)], sets[len(train) :]
    for sets in both:
        check_set_names(sets)
    return both


def _read(name: str, file: str, question_format: str | None) -> QuestionSet:
    from wikidx.base.artifacts.durable import file_sha256
    from wikidx.runtimes.questions import SAMPLE, Selection, find_questions, question_file
    from wikidx.runtimes.training.sets import make_question_set

    named = format_named(question_format)
    is_file = file != SAMPLE or Path(file).exists()
    made = make_question_set(name, find_questions(file, named), file_sha256(question_file(file)) if is_file else "")
    return made._replace(format=Selection(format=named).to_json())


def _name_and_file(text: str) -> tuple[str, str]:
    """Split ``NAME=FILE``; without ``NAME=``, the name is the file's name up to the first dot."""
    name, equals, file = text.partition("=")
    return (name, file) if equals and not Path(text).exists() else (Path(text).name.partition(".")[0], text)


def _explain(method: str | None) -> Result:
    """Return the summary and options of a method's training data or, without a method, all methods that have training data."""
    from wikidx.runtimes.methods.base import list_options
    from wikidx.runtimes.training import BUILDERS, find_builder

    if method is None:
        return list_methods([find_builder(name) for name in BUILDERS])
    builder: Builder = find_builder(method)
    collect, build = list_options(builder.collect_options()), list_options(builder.build_options())
    described = {"collect": options_to_json(collect), "build": options_to_json(build)}
    lines = [
        f"{builder.name}: {builder.summary} ({builder.source})",
        "options of collecting the models' replies:",
        *option_lines(collect),
        "options of building files from the replies:",
        *option_lines(build),
    ]
    return Result({"method": builder.name, "summary": builder.summary, "source": builder.source, "options": described}, lines)


def _report(manifest: Mapping[str, Any], summary: RunSummary, out: Path) -> Result:
    """Return a summary of the training data, a failure if questions have failed."""
    from wikidx.runtimes.training.pipeline import LEAKS

    lines, leaks, counts = list[str](), manifest["leaks"], manifest["leaks"]["counts"]
    for file_kind, tally in manifest["counts"].items():
        dropped = "".join(f"; {n:,} {rule}" for rule, n in tally["dropped"].items() if n)
        lines.append(f"{file_kind}: {tally['kept']:,} of {tally['in']:,}{dropped}")
    for name, file in manifest["files"].items():
        lines.append(f"{out / 'data' / name}.jsonl: {file['examples']:,} examples; {file['description']}")
    if any(counts.values()):
        note(f"evaluation questions: {counts['equal']:,} equal and {counts['near']:,} near; {leaks['mode']}: see {out / LEAKS}")
    failure = f"{len(summary.errors):,} questions have failed: add --retry-failed to repeat them" if summary.errors else None
    values = {**manifest, "out": str(out), "cost": summary.cost._asdict()}
    return Result(values, lines, [f"this time: {format_cost(summary.cost, summary.seconds)}"], failure)
