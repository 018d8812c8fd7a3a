"""``idx ask``: answer one question by a method, and print the answer, its passages and, with ``--trace``, every step."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .method_options import METHOD, AsJson, DryRun, PlanOptions, Seed, choose_model, exit_on_interrupt, make_plan, replace_prompts
from .option_groups import flatten
from .screen import is_unicode, note, pluralize, print_json, print_line, print_passage

if TYPE_CHECKING:
    from wikidx.runtimes.execution.opening import Plan
    from wikidx.runtimes.execution.results import Cost, Prediction
    from wikidx.runtimes.methods.base import Method, Option
    from wikidx.runtimes.questions import Question
    from wikidx.runtimes.training.base import Builder


@flatten()
def ask(
    method: Annotated[str | None, METHOD] = None,
    question: Annotated[str | None, typer.Argument(help="The question; without it, the method is explained.")] = None,
    *,
    plan_options: PlanOptions,
    cache: Annotated[Path | None, typer.Option(help="A file that caches the replies of models.")] = None,
    seed: Seed = 0,
    trace: Annotated[bool, typer.Option("--trace", help="Show every step.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Answer a question by a method.

    Without --llm, a very small embedded model answers, SmolLM2-135M-Instruct.
    """
    from wikidx.base.errors import InputError
    from wikidx.base.plugins import name_of
    from wikidx.runtimes.methods import find_method, method_names
    from wikidx.runtimes.questions import Question

    if method is None:
        print_methods([find_method(name) for name in method_names()], as_json=as_json)
        return
    chosen: Method = find_method(name_of("method", method))
    if question is None:
        _explain(replace_prompts(chosen, plan_options, None), as_json=as_json)
        return
    if not question.strip() or not is_unicode(question):
        raise InputError(f"the question is {question!r:.80}, not a text in UTF-8")
    plan = make_plan(chosen, choose_model(plan_options, dry_run=dry_run), dry_run=dry_run)
    _show(plan, predict(plan, Question("question", question), cache, seed), trace=trace, as_json=as_json)


def predict(plan: Plan, question: Question, cache: Path | None, seed: int) -> Prediction:
    """Answer one question by the method of a plan."""
    from wikidx.runtimes.execution.executor import execute
    from wikidx.runtimes.execution.opening import open_services

    with exit_on_interrupt(), open_services(plan, cache=cache) as services:
        (prediction,) = execute(lambda text: plan.method.run(text, plan.options), [question], services, seed=seed)
    return prediction


def _show(plan: Plan, prediction: Prediction, *, trace: bool, as_json: bool) -> None:
    """Print a prediction. For a failed question, print the requested steps and raise ``IdxError``."""
    from wikidx.base.errors import IdxError
    from wikidx.runtimes.execution.results import prediction_to_json

    from .trace import print_trace

    if as_json and prediction.error is None:
        record: dict[str, Any] = {"method": plan.method.name, **prediction_to_json(prediction, with_steps=trace or plan.is_dry)}
        print_json({name: value for name, value in record.items() if name not in ("id", "error")})
        return
    if (trace or plan.is_dry) and not as_json:
        print_trace(prediction, with_prompts=plan.is_dry)
    if prediction.error is not None:
        raise IdxError(prediction.error.partition(": ")[2])
    if not plan.is_dry:
        print_line(prediction.answer or "(the answer is empty)")
        for number, passage in enumerate(prediction.passages, 1):
            print_line()
            print_passage(f"{number:>3}  {passage.title}  [{passage.id}]", passage.text)
    for fallback in prediction.degraded:
        note(f"note: {fallback}")
    note(("a dry run: " if plan.is_dry else "") + format_cost(prediction.cost, prediction.seconds))


def format_cost(cost: Cost, seconds: float) -> str:
    """Return the cost and duration of answers as one line of text."""
    return (
        f"{pluralize(cost.calls, 'call')} of models ({cost.prompt_tokens:,}+{cost.completion_tokens:,} tokens), "
        f"{pluralize(cost.searches, 'search', 'searches')} with {pluralize(cost.queries, 'query', 'queries')}, {seconds:.1f} s"
    )


def print_methods(methods: Sequence[Method | Builder], *, as_json: bool) -> None:
    """Print methods, or builders of training data, one per line."""
    if as_json:
        print_json({"methods": [{"method": method.name, "summary": method.summary, "source": method.source} for method in methods]})
        return
    for method in methods:
        print_line(f"{method.name:<16}{method.summary} ({method.source})")


def _explain(method: Method, *, as_json: bool) -> None:
    """Print a method's summary, roles, presets, prompts and options."""
    from wikidx.runtimes.methods.base import list_options
    from wikidx.runtimes.methods.prompt_sets import list_prompts, prompt_sets

    options, prompts = list_options(method.options()), list(list_prompts(method))
    if as_json:
        presets = {
            name: {"corpus": preset.corpus, "retriever": preset.retriever, "search": preset.search}
            for name, preset in method.presets.items()
        }
        description = {"method": method.name, "summary": method.summary, "source": method.source, "roles": method.roles, "presets": presets}
        files = [prompt._asdict() for prompt in prompts]
        print_json({**description, "prompts": files, "prompt_sets": prompt_sets(method.name), "options": options_to_json(options)})
        return
    print_line(f"{method.name}: {method.summary} ({method.source})")
    print_line(f"roles: {', '.join(method.roles)}")
    for name, preset in method.presets.items():
        searched = "".join(f", {option} {value}" for option, value in preset.search.items())
        print_line(f"preset {name}: {preset.corpus}, {preset.retriever}{searched}")
    for name in prompt_sets(method.name):
        print_line(f"prompt set {name}: idx ask {method.name} --prompts {name}")
    by_origin: dict[str, list[str]] = {}
    for prompt in prompts:
        shown = prompt.name if prompt.demonstrations is None else f"{prompt.name} ({prompt.demonstrations})"
        by_origin.setdefault(prompt.origin or "origin not said", []).append(shown)
    for origin, names in by_origin.items():
        print_line(textwrap.fill(f"prompts [{origin}]: {', '.join(names)}", 120, subsequent_indent="    "))
    print_options(options)


def print_options(options: Sequence[Option]) -> None:
    """Print options with their defaults, in the syntax of ``--set``."""
    for option in options:
        choices = f". One of {', '.join(map(str, option.choices))}" if option.choices else ""
        line = f"{option.name}={format_value(option.default)}  [{option.origin}] {option.description}{choices}"
        print_line(textwrap.fill(line, 120, initial_indent="  ", subsequent_indent="      "))


def options_to_json(options: Sequence[Option]) -> list[dict[str, Any]]:
    """Return options as JSON objects, without the field ``value``."""
    return [{name: value for name, value in option._asdict().items() if name != "value"} for option in options]


def format_value(value: object) -> str:
    """Return an option's value in the syntax of ``--set``."""
    return str(value).lower() if isinstance(value, bool) or value is None else "[]" if value == () else str(value)
