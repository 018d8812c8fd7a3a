"""``idx train-data``: a method's training data as its paper makes it, resumed where it stopped."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import completion
from .ask import cost_line, say_methods, say_switches, switches_json
from .method_options import AsJson, Cache, DryRun, InFlight, PlanOptions, RetryFailed, Seed, Steps, leaving_at_once, plan_of
from .option_groups import flatten
from .run import show_first
from .screen import note, say, say_json, steps

if TYPE_CHECKING:
    from wikidx.runtimes.execution.asking import Asked
    from wikidx.runtimes.training.base import Builder
    from wikidx.runtimes.training.sets import QuestionSet

_Name = Annotated[
    str | None,
    typer.Argument(
        metavar="METHOD",
        help="ra_isf or self_reasoning; without --questions it is explained, without a method all are listed.",
        autocompletion=completion.trained_method,
    ),
]
_Questions = Annotated[
    list[str] | None,
    typer.Option(metavar="[NAME=]FILE", help='Questions to train on, with their answers, or "sample"; may be repeated for several sets.'),
]
_Against = Annotated[
    list[str] | None, typer.Option(metavar="[NAME=]FILE", help="Evaluation questions, none of which may be trained on; may be repeated.")
]
_Format = Annotated[
    list[str] | None,
    typer.Option("--format", metavar="[NAME=]FORMAT", help="A set's format, such as asqa=asqa-train; known by its content unless named."),
]
_Out = Annotated[Path | None, typer.Option(help="A folder for replies, files and manifest; what is there is resumed.")]
_Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SWITCH=VALUE", help="A switch; those of making may change when a folder is resumed. May be repeated."),
]
_Leaks = Annotated[str, typer.Option(help="What is done about evaluation questions among those to train on: refuse, drop or keep.")]
_Near = Annotated[
    float, typer.Option(help="A question leaks that shares so much of its words with an evaluation question: both over either.")
]


@flatten(switch=_Set)
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
    in_flight: InFlight = 64,
    with_steps: Steps = False,
    retry_failed: RetryFailed = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make a method's training data: ask models, label and filter their replies, write chat-format JSON Lines and a manifest.

    Run again after an interruption, it resumes where it stopped. Exit status 1 if questions have failed.
    """
    from wikidx.corpora.errors import InputError
    from wikidx.runtimes.execution.asking import AskOptions
    from wikidx.runtimes.training import find_builder
    from wikidx.runtimes.training.leaks import checked
    from wikidx.runtimes.training.running import Task, draw, run, switches_of

    if method is None or not questions:
        _explain(method, as_json=as_json)
        return
    builder: Builder = find_builder(method)
    train, test = _read_sets(questions, against or (), question_format or ())
    switches = switches_of(builder, plan_options.switch or ())
    found = checked(train, test, leaks, near)
    sets = draw(builder, found.sets, switches, seed)
    plan_options = dataclasses.replace(plan_options, switch=switches.of_asking)
    plan = plan_of(builder.method(sets[0], seed), plan_options, dry_run=dry_run)
    options = AskOptions(seed=seed, in_flight=in_flight, with_steps=with_steps, retries_failed=retry_failed)
    task = Task(builder, sets, found, plan, switches.making, options)
    if dry_run:
        show_first(task.asking(), {"leaks": found.to_json()}, as_json=as_json)
        return
    if out is None:
        raise InputError("say where the training data shall go: --out FOLDER")
    with leaving_at_once(), steps() as step:
        manifest, asked = run(task, out, cache=cache, progress=step(builder.name, "questions"))
    _report(manifest, asked, out, as_json=as_json)


def _read_sets(train: Sequence[str], test: Sequence[str], formats: Sequence[str]) -> tuple[list[QuestionSet], list[QuestionSet]]:
    """Read the sets to train on and those to evaluate on, in the formats that are named ``[NAME=]FORMAT``."""
    from wikidx.corpora.registry import near_names
    from wikidx.runtimes.training.sets import check_names

    files = [_name_and_file(one) for one in (*train, *test)]
    format_of = {name: text for name, _, text in (one.rpartition("=") for one in formats)}
    for name in format_of:
        if name and name not in dict(files):
            raise near_names("set of questions", name, dict(files))
    sets = [_read(name, file, format_of.get(name, format_of.get(""))) for name, file in files]
    read = sets[: len(train)], sets[len(train) :]
    for some in read:
        check_names(some)
    return read


def _read(name: str, file: str, question_format: str | None) -> QuestionSet:
    from wikidx.corpora.artifacts.durable import file_sha256
    from wikidx.runtimes.questions import find_questions
    from wikidx.runtimes.training.sets import question_set

    return question_set(name, find_questions(file, question_format), file_sha256(Path(file)) if Path(file).exists() else "")


def _name_and_file(named: str) -> tuple[str, str]:
    """Split ``NAME=FILE``; a file without a name is named by itself."""
    name, equals, file = named.partition("=")
    return (name, file) if equals and not Path(named).exists() else (Path(named).name.partition(".")[0], named)


def _explain(method: str | None, *, as_json: bool) -> None:
    """Print the training files of a method and its options, or all methods with training data."""
    from wikidx.runtimes.methods.base import list_options
    from wikidx.runtimes.training import BUILDERS, find_builder

    if method is None:
        say_methods([find_builder(name) for name in BUILDERS], as_json=as_json)
        return
    builder: Builder = find_builder(method)
    kinds = {"asking": list_options(builder.asking()), "making": list_options(builder.making())}
    if as_json:
        told = {kind: switches_json(some) for kind, some in kinds.items()}
        say_json({"method": builder.name, "summary": builder.summary, "source": builder.source, "switches": told})
        return
    say(f"{builder.name}: {builder.summary} ({builder.source})")
    for kind, about in (("asking", "what the models are asked:"), ("making", "what becomes of the replies:")):
        say(about)
        say_switches(kinds[kind])


def _report(manifest: Mapping[str, Any], asked: Asked, out: Path, *, as_json: bool) -> None:
    """Print a summary of the files; exit with status 1 if questions have failed."""
    from wikidx.runtimes.training.running import LEAKS

    if as_json:
        say_json({**manifest, "out": str(out), "cost": dataclasses.asdict(asked.cost)})
    else:
        for what, tally in manifest["counts"].items():
            dropped = "".join(f"; {n:,} {rule}" for rule, n in tally["dropped"].items() if n)
            say(f"{what}: {tally['kept']:,} of {tally['in']:,}{dropped}")
        for name, file in manifest["files"].items():
            say(f"{out / 'data' / name}.jsonl: {file['examples']:,} examples; {file['about']}")
        note(f"this time: {cost_line(asked.cost, asked.seconds)}")
    found = manifest["leaks"]["found"]
    if any(found.values()):
        note(f"evaluation questions: {found['equal']:,} equal and {found['near']:,} near; {manifest['leaks']['leaks']}: see {out / LEAKS}")
    if asked.errors:
        note(f"{len(asked.errors):,} questions have failed: the same command with --retry-failed asks them again")
        raise typer.Exit(1)
