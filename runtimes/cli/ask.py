"""``idx ask``: answer one question by a method, and print the answer, its passages and, with ``--trace``, every step.

Examples:
    idx ask
    idx ask ra_isf
    idx ask rag "Which metal is liquid at room temperature?" --corpus sample --set k=1
    idx ask rag "Which element was found by a Hamburg alchemist?" --corpus sample --dry-run
    idx ask rag "Which element was found by a Hamburg alchemist?" --corpus sample --llm openai:qwen@http://127.0.0.1:8001/v1
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wikidx.base.errors import IdxError, InputError

from .method_options import METHOD, DryRun, PlanOptions, Seed, choose_model, exit_on_interrupt, make_plan, replace_prompts
from .option_groups import command
from .screen import Result, is_unicode, pluralize, print_passage

if TYPE_CHECKING:
    from wikidx.runtimes.execution.opening import Plan
    from wikidx.runtimes.execution.results import Cost, Prediction
    from wikidx.runtimes.methods.base import Method, Option
    from wikidx.runtimes.methods.prompt_sets import PromptFile
    from wikidx.runtimes.questions import Question
    from wikidx.runtimes.training.base import Builder


@command()
def ask(
    method: Annotated[str | None, METHOD] = None,
    question: Annotated[str | None, typer.Argument(help="The question; without it, the method is explained.")] = None,
    *,
    plan_options: PlanOptions,
    cache: Annotated[Path | None, typer.Option(help="A file that caches the replies of models.")] = None,
    seed: Seed = 0,
    trace: Annotated[bool, typer.Option("--trace", help="Show every step.")] = False,
    dry_run: DryRun = False,
) -> Result:
    """Answer a question by a method.

    Without --llm, a very small embedded model answers, SmolLM2-135M-Instruct.
    """
    from wikidx.base.plugins import name_of
    from wikidx.runtimes.methods import find_method, method_names
    from wikidx.runtimes.questions import Question

    if method is None:
        return list_methods([find_method(name) for name in method_names()])
    chosen: Method = find_method(name_of("method", method))
    if question is None:
        return _explain(replace_prompts(chosen, plan_options, None))
    if not question.strip() or not is_unicode(question):
        raise InputError(f"the question is {question!r:.80}, not a text in UTF-8")
    plan = make_plan(chosen, choose_model(plan_options, chosen.roles, dry_run=dry_run), dry_run=dry_run)
    prediction = predict(plan, Question("question", question), cache, seed)
    return _result(plan, prediction, trace=trace)


def predict(plan: Plan, question: Question, cache: Path | None, seed: int) -> Prediction:
    """Answer one question by the method of a plan."""
    from wikidx.runtimes.execution.executor import execute
    from wikidx.runtimes.execution.opening import open_services

    with exit_on_interrupt(), open_services(plan, cache=cache) as services:
        (prediction,) = execute(lambda text: plan.method.run(text, plan.options), [question], services, seed=seed)
    return prediction


def _result(plan: Plan, prediction: Prediction, *, trace: bool) -> Result:
    """Return the answer with its passages, after the requested steps. A failed question is an error, after its steps."""
    from wikidx.runtimes.execution.results import prediction_to_json

    from .trace import print_trace

    steps = [partial(print_trace, prediction, with_prompts=plan.is_dry)] if trace or plan.is_dry else []
    if prediction.error is not None:
        fail = partial(_fail, prediction.error.partition(": ")[2])
        return Result(fail, [*steps, fail])
    record: dict[str, Any] = {"method": plan.method.name, **prediction_to_json(prediction, with_steps=trace or plan.is_dry)}
    cost = ("a dry run: " if plan.is_dry else "") + format_cost(prediction.cost, prediction.seconds)
    notes = [*(f"note: {fallback}" for fallback in prediction.degraded), cost]
    answer = [] if plan.is_dry else [prediction.answer or "(the answer is empty)", *_passage_lines(prediction)]
    return Result({name: value for name, value in record.items() if name not in ("id", "error")}, [*steps, *answer], notes)


def _fail(message: str) -> None:
    raise IdxError(message)


def _passage_lines(prediction: Prediction) -> Iterator[str | Callable[[], None]]:
    for number, passage in enumerate(prediction.passages, 1):
        yield ""
        yield partial(print_passage, f"{number:>3}  {passage.title}  [{passage.id}]", passage.text)


def format_cost(cost: Cost, seconds: float) -> str:
    """Return the cost and duration of answers as one line of text."""
    return (
        f"{pluralize(cost.calls, 'call')} of models ({cost.prompt_tokens:,}+{cost.completion_tokens:,} tokens), "
        f"{pluralize(cost.searches, 'search', 'searches')} with {pluralize(cost.queries, 'query', 'queries')}, {seconds:.1f} s"
    )


def list_methods(methods: Sequence[Method | Builder]) -> Result:
    """Return methods, or builders of training data, one per line."""
    values = {"methods": [{"method": method.name, "summary": method.summary, "source": method.source} for method in methods]}
    return Result(values, [f"{method.name:<16}{method.summary} ({method.source})" for method in methods])


def _explain(method: Method) -> Result:
    """Return a method's summary, roles, presets, prompts and options."""
    from wikidx.runtimes.methods.base import list_options
    from wikidx.runtimes.methods.prompt_sets import list_prompts, prompt_sets

    options, prompts = list_options(method.options()), list(list_prompts(method))
    values = {
        "method": method.name,
        "summary": method.summary,
        "source": method.source,
        "roles": method.roles,
        "presets": {name: dataclasses.asdict(preset) for name, preset in method.presets.items()},
        "prompts": [prompt._asdict() for prompt in prompts],
        "prompt_sets": prompt_sets(method.name),
        "options": options_to_json(options),
    }
    return Result(values, [*_describe(method, prompts), *option_lines(options)])


def _describe(method: Method, prompts: Sequence[PromptFile]) -> Iterator[str]:
    from wikidx.runtimes.methods.prompt_sets import prompt_sets

    yield f"{method.name}: {method.summary} ({method.source})"
    yield f"roles: {', '.join(method.roles)}"
    for name, preset in method.presets.items():
        searched = "".join(f", {option} {value}" for option, value in preset.search.items())
        yield f"preset {name}: {preset.corpus}, {preset.retriever}{searched}"
    for name in prompt_sets(method.name):
        yield f"prompt set {name}: idx ask {method.name} --prompts {name}"
    by_origin: dict[str, list[str]] = {}
    for prompt in prompts:
        shown = prompt.name if prompt.demonstrations is None else f"{prompt.name} ({prompt.demonstrations})"
        by_origin.setdefault(prompt.origin or "origin not said", []).append(shown)
    for origin, names in by_origin.items():
        yield textwrap.fill(f"prompts [{origin}]: {', '.join(names)}", 120, subsequent_indent="    ")


def option_lines(options: Sequence[Option]) -> Iterator[str]:
    """Yield options with their defaults, in the syntax of ``--set``."""
    for option in options:
        choices = f". One of {', '.join(map(str, option.choices))}" if option.choices else ""
        line = f"{option.name}={format_value(option.default)}  [{option.origin}] {option.description}{choices}"
        yield textwrap.fill(line, 120, initial_indent="  ", subsequent_indent="      ")


def options_to_json(options: Sequence[Option]) -> list[dict[str, Any]]:
    """Return options as JSON objects, without the field ``value``."""
    return [{name: value for name, value in option._asdict().items() if name != "value"} for option in options]


def format_value(value: object) -> str:
    """Return an option's value in the syntax of ``--set``."""
    return str(value).lower() if isinstance(value, bool) or value is None else "[]" if value == () else str(value)
