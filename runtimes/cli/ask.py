"""``idx ask``: one question by a method, with the passages that the answer is based on, and every step."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .method_options import METHOD, AsJson, DryRun, PlanOptions, Seed, leaving_at_once, plan_of
from .option_groups import flatten
from .screen import counted, is_unicode, note, say, say_json, say_passage

if TYPE_CHECKING:
    from wikidx.runtimes.execution.opening import Plan
    from wikidx.runtimes.execution.results import Cost, Prediction
    from wikidx.runtimes.methods.base import Method, Option
    from wikidx.runtimes.questions import Question
    from wikidx.runtimes.training.base import Builder


@flatten()
def ask(
    method: Annotated[str | None, METHOD] = None,
    question: Annotated[str | None, typer.Argument(help="The question; without one the method is explained.")] = None,
    *,
    plan_options: PlanOptions,
    cache: Annotated[Path | None, typer.Option(help="A file in which replies of endpoints are kept.")] = None,
    seed: Seed = 0,
    trace: Annotated[bool, typer.Option("--trace", help="Show every step.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Answer a question by a method."""
    from wikidx.corpora.errors import InputError
    from wikidx.runtimes.methods import METHODS, find_method
    from wikidx.runtimes.questions import Question

    if method is None:
        say_methods([find_method(name) for name in METHODS], as_json=as_json)
        return
    found: Method = find_method(method)
    if question is None:
        _explain(found, as_json=as_json)
        return
    if not question.strip() or not is_unicode(question):
        raise InputError(f"the question is {question!r:.80}, not a text in UTF-8")
    plan = plan_of(found, plan_options, dry_run=dry_run)
    _show(plan, predicted(plan, Question("question", question), cache, seed), trace=trace, as_json=as_json)


def predicted(plan: Plan, question: Question, cache: Path | None, seed: int) -> Prediction:
    """Ask one question."""
    from wikidx.runtimes.execution.executor import execute
    from wikidx.runtimes.execution.opening import opened

    with leaving_at_once(), opened(plan, cache=cache) as services:
        (prediction,) = execute(lambda text: plan.method.run(text, plan.options), [question], services, seed=seed)
    return prediction


def _show(plan: Plan, prediction: Prediction, *, trace: bool, as_json: bool) -> None:
    """Print the outcome of the question; a failure is shown as an error, after the steps that led to it."""
    from wikidx.corpora.errors import IdxError
    from wikidx.runtimes.execution.results import prediction_json

    from .trace import draw

    if as_json and prediction.error is None:
        said: dict[str, Any] = {"method": plan.method.name, **prediction_json(prediction, with_steps=trace or plan.is_dry)}
        say_json({name: value for name, value in said.items() if name not in ("id", "error")})
        return
    if (trace or plan.is_dry) and not as_json:
        draw(prediction, with_prompts=plan.is_dry)
    if prediction.error is not None:
        raise IdxError(prediction.error.partition(": ")[2])
    if not plan.is_dry:
        say(prediction.answer or "(the answer is empty)")
        for number, passage in enumerate(prediction.passages, 1):
            say()
            say_passage(f"{number:>3}  {passage.title}  [{passage.id}]", passage.text)
    for said_so in prediction.degraded:
        note(f"note: {said_so}")
    note(("a dry run: " if plan.is_dry else "") + cost_line(prediction.cost, prediction.timing.seconds))


def cost_line(cost: Cost, seconds: float) -> str:
    """Return the cost of answers as one line."""
    return (
        f"{counted(cost.calls, 'call')} of models ({cost.prompt_tokens:,}+{cost.completion_tokens:,} tokens), "
        f"{counted(cost.searches, 'search', 'searches')} with {counted(cost.queries, 'query', 'queries')}, "
        f"{counted(cost.waves, 'wave')}, {seconds:.1f} s"
    )


def say_methods(methods: Sequence[Method | Builder], *, as_json: bool) -> None:
    """Print all methods, or those that have training data."""
    if as_json:
        say_json({"methods": [{"method": one.name, "summary": one.summary, "source": one.source} for one in methods]})
        return
    for one in methods:
        say(f"{one.name:<16}{one.summary} ({one.source})")


def _explain(method: Method, *, as_json: bool) -> None:
    """Print a method's summary, roles, presets and options."""
    from wikidx.runtimes.methods.base import list_options

    options = list_options(method.options())
    if as_json:
        presets = {name: {"corpus": one.corpus, "retriever": one.retriever, "search": one.search} for name, one in method.presets.items()}
        about = {"method": method.name, "summary": method.summary, "source": method.source, "roles": method.roles, "presets": presets}
        say_json({**about, "switches": switches_json(options)})
        return
    say(f"{method.name}: {method.summary} ({method.source})")
    say(f"roles: {', '.join(method.roles)}")
    for name, preset in method.presets.items():
        searched = "".join(f", {option} {value}" for option, value in preset.search.items())
        say(f"preset {name}: {preset.corpus}, {preset.retriever}{searched}")
    say_switches(options)


def say_switches(switches: Sequence[Option]) -> None:
    """Print options of a method, with their defaults as ``--set`` takes them."""
    for one in switches:
        choices = f"; one of {', '.join(map(str, one.choices))}" if one.choices else ""
        line = f"{one.name}={written(one.default)}  [{one.origin}] {one.about}{choices}"
        say(textwrap.fill(line, 120, initial_indent="  ", subsequent_indent="      "))


def switches_json(switches: Sequence[Option]) -> list[dict[str, Any]]:
    """Return descriptions of options as JSON values, without their current values."""
    return [{name: value for name, value in one._asdict().items() if name != "value"} for one in switches]


def written(value: object) -> str:
    """Return an option's value as ``--set`` takes it."""
    return str(value).lower() if isinstance(value, bool) or value is None else "[]" if value == () else str(value)
