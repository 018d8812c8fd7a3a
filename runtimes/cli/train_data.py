"""``idx train-data``: a method's training data as its paper makes it, resumed where it stopped."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from . import completion
from .ask import cost_line, say_methods, say_switches, switches_json
from .method_options import AsJson, Cache, DryRun, InFlight, PlanOptions, RetryFailed, Seed, Steps, leaving_at_once, plan_of
from .option_groups import flatten
from .question_options import asked
from .run import REPLIES, show_first
from .screen import note, say, say_json, steps

if TYPE_CHECKING:
    from wikidx.runtimes.execution.opening import Plan
    from wikidx.runtimes.methods.base import Method
    from wikidx.runtimes.questions import Question
    from wikidx.runtimes.training.base import Builder
    from wikidx.runtimes.training.collecting import Asking
    from wikidx.runtimes.training.leaks import Checked
    from wikidx.runtimes.training.running import Outcome, Switches, Task
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
    """Make a method's training data: ask models, label and filter what they say, write chat-format JSON Lines and a manifest.

    Started again after an interruption, it goes on where it was. Exit status 1 if questions have failed.
    """
    from wikidx.runtimes.training import find_builder
    from wikidx.runtimes.training.collecting import Asking

    if method is None or not questions:
        _tell(method, as_json=as_json)
        return
    builder: Builder = find_builder(method)
    train, test = _read_sets(questions, against or (), question_format or ())
    draft = _drafted(builder, plan_options.switch or (), train, test, leaks, near, seed)
    plan = plan_of(draft.asker, dataclasses.replace(plan_options, switch=draft.switches.of_asking), dry_run=dry_run)
    asking = Asking(builder, plan.options, seed, in_flight, retry_failed, with_steps)
    _go(draft, plan, asking, out, cache, as_json=as_json)


class _Draft(NamedTuple):
    """What is to be made, but for the models.

    Attributes:
        switches: of asking and of making.
        sets: the questions that are drawn.
        files: set -> checksum of its file.
        leaks: what the check found.
        asker: the method that asks.
    """

    switches: Switches
    sets: list[QuestionSet]
    files: dict[str, str]
    leaks: Checked
    asker: Method


def _drafted(
    builder: Builder,
    assignments: Sequence[str],
    train: Sequence[_Read],
    test: Sequence[_Read],
    leaks: str,
    near: float,
    seed: int,
) -> _Draft:
    """Hold the questions against the evaluation questions, and draw."""
    from wikidx.runtimes.training.collecting import require_questions
    from wikidx.runtimes.training.leaks import checked
    from wikidx.runtimes.training.running import switches_of
    from wikidx.runtimes.training.sets import named_sets

    switches = switches_of(builder, assignments)
    found = checked(named_sets([one[:2] for one in train]), named_sets([one[:2] for one in test]), leaks, near)
    require_questions(found.sets)
    sets = builder.draw(found.sets, switches.asking, seed)
    require_questions(sets)
    builder.check(sets, switches.asking, switches.making)
    return _Draft(switches, sets, {one.name: one.sha256 for one in train}, found, builder.method(sets[0], seed))


class _Read(NamedTuple):
    """A set as it was read; the questions on the sample corpus have no checksum."""

    name: str
    questions: list[Question]
    sha256: str


def _read_sets(train: Sequence[str], test: Sequence[str], formats: Sequence[str]) -> tuple[list[_Read], list[_Read]]:
    """Read the sets to train on and those to evaluate on, in the formats that are named ``[NAME=]FORMAT``."""
    from wikidx.corpora.registry import near_names

    named = {name: text for name, _, text in (one.rpartition("=") for one in formats)}
    names = [_name(one) for one in (*train, *test)]
    for name in named:
        if name and name not in names:
            raise near_names("set of questions", name, names)
    read = [[_read(one, named.get(_name(one), named.get(""))) for one in some] for some in (train, test)]
    return read[0], read[1]


def _read(named: str, question_format: str | None) -> _Read:
    from wikidx.corpora.artifacts.durable import file_sha256
    from wikidx.runtimes.questions import Selection

    path = _path(named)
    return _Read(_name(named), asked(str(path), question_format, Selection()), file_sha256(path) if path.exists() else "")


def _name(named: str) -> str:
    name, equals, _ = named.partition("=")
    return name if equals and not Path(named).exists() else Path(named).name.partition(".")[0]


def _path(named: str) -> Path:
    _, equals, file = named.partition("=")
    return Path(file if equals and not Path(named).exists() else named)


def _tell(method: str | None, *, as_json: bool) -> None:
    """Explain a method's training data, or print the methods that have some."""
    from wikidx.runtimes.training import BUILDERS, find_builder

    if method is None:
        say_methods([find_builder(name) for name in BUILDERS], as_json=as_json)
    else:
        _explain(find_builder(method), as_json=as_json)


def _explain(builder: Builder, *, as_json: bool) -> None:
    """Print what a builder makes, and its switches."""
    from wikidx.runtimes.methods.base import list_options

    kinds = {"asking": list_options(builder.asking()), "making": list_options(builder.making())}
    if as_json:
        told = {kind: switches_json(some) for kind, some in kinds.items()}
        say_json({"method": builder.name, "summary": builder.summary, "source": builder.source, "switches": told})
        return
    say(f"{builder.name}: {builder.summary} ({builder.source})")
    for kind, about in (("asking", "what the models are asked:"), ("making", "what becomes of the replies:")):
        say(about)
        say_switches(kinds[kind])


def _go(draft: _Draft, plan: Plan, asking: Asking, out: Path | None, cache: Path | None, *, as_json: bool) -> None:
    from wikidx.corpora.errors import InputError
    from wikidx.runtimes.training.running import Task, settings

    task = Task(asking, draft.switches.making, plan, draft.sets, draft.files, draft.leaks)
    if plan.is_dry:
        first, n = task.sets[0].questions[0], sum(len(one.questions) for one in task.sets)
        about = {"settings": settings(task), "questions": n, "leaks": task.leaks.told()}
        show_first(plan, first, about, seed=asking.seed, as_json=as_json)
    elif out is None:
        raise InputError("say where the training data shall go: --out FOLDER")
    else:
        _run(task, out, cache or out / REPLIES, as_json=as_json)


def _run(task: Task, out: Path, cache: Path, *, as_json: bool) -> None:
    from wikidx.runtimes.execution.identity import session
    from wikidx.runtimes.training.running import run

    begun = {**session(), "in_flight": task.asking.in_flight}
    started = time.monotonic()
    with leaving_at_once(), steps() as step:
        outcome = run(task, out, begun, cache=cache, progress=step(task.plan.method.name, "questions"))
    _report(outcome, out, time.monotonic() - started, as_json=as_json)


def _report(outcome: Outcome, out: Path, seconds: float, *, as_json: bool) -> None:
    """Say what was made; leave with exit status 1 if questions have failed."""
    from wikidx.runtimes.training.running import LEAKS

    manifest, cost = outcome.manifest, outcome.cost
    if outcome.n_cut:
        note(f"an unfinished line of {outcome.n_cut:,} bytes was cut off: its question was asked again")
    if as_json:
        say_json({**manifest, "out": str(out), "cost": {name: getattr(cost, name) for name in cost.__dataclass_fields__}})
    else:
        for what, tally in manifest["counts"].items():
            dropped = "".join(f"; {n:,} {rule}" for rule, n in tally["dropped"].items() if n)
            say(f"{what}: {tally['kept']:,} of {tally['in']:,}{dropped}")
        for name, file in manifest["files"].items():
            say(f"{out / 'data' / name}.jsonl: {file['examples']:,} examples; {file['about']}")
        note(f"this time: {cost_line(cost, seconds)}")
    found = manifest["leaks"]["found"]
    if any(found.values()):
        note(f"evaluation questions: {found['equal']:,} equal and {found['near']:,} near; {manifest['leaks']['leaks']}: see {out / LEAKS}")
    if manifest["replies"]["failed"]:
        note(f"{manifest['replies']['failed']:,} questions have failed: the same command with --retry-failed asks them again")
        raise typer.Exit(1)
