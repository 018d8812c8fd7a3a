"""Trace of a question: the requests of its method with their results, printed as a tree."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from wikidx.base.errors import escape_controls
from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import ScoredPassage
from wikidx.runtimes.llms.base import AskYesNo, Call, Gen, Generate, MeanNll, Mix, Nll, Score, Scores, YesNo
from wikidx.runtimes.llms.prompts import Decoding, Prompt, TokenIds, prompt_text
from wikidx.runtimes.methods.requests import Compare, LookUpTitle, Note, Result, Retrieve, Truncate

if TYPE_CHECKING:
    from wikidx.runtimes.execution.results import Prediction, Step

_SHOWN_RESULTS = 10
_WIDTH = 120  # columns, if standard output is not a terminal
_SHOWN_CHARACTERS = 300


def print_trace(prediction: Prediction, *, with_prompts: bool) -> None:
    """Write a prediction's steps to standard output as a tree; the path of a step's request determines the branch.

    Args:
        prediction: the prediction, with its steps.
        with_prompts: show prompts and replies in full; otherwise show the ends of prompts and the beginnings of replies.
    """
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDTH
    console = Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)
    root = Tree(_text(prediction.question, "bold"))
    branches: dict[tuple[str, ...], Tree] = {(): root}
    for step in prediction.steps:
        branch = _branch(branches, step.request.path)
        leaf = branch.add(_text(_headline(step), "yellow" if isinstance(step.request, Note) else "cyan"))
        for kind, text in _lines(step, with_prompts=with_prompts):
            leaf.add(_text(text, kind))
    root.add(_text(f"failed: {prediction.error}", "red") if prediction.error else _text(f"answer: {prediction.answer}", "bold green"))
    console.print(root)


def _branch(branches: dict[tuple[str, ...], Tree], path: tuple[str, ...]) -> Tree:
    """Return the branch of a path; create the branch if it is missing."""
    if path not in branches:
        branches[path] = _branch(branches, path[:-1]).add(_text(path[-1], "bold"))
    return branches[path]


def _text(text: str, style: str) -> Text:
    return Text(escape_controls(text), style=style)


def _headline(step: Step) -> str:
    """Return a one-line description of a request."""
    depth = f"depth {step.depth + 1}"
    match step.request:
        case Generate() as call:
            several = f", {call.n} texts" if call.n > 1 else ""
            schema = f", {type(call.schema).__name__}" if call.schema else ""
            return f"{depth}: generate as '{call.role}' ({_decoding(call.decoding)}{several}{schema}){_tokens(step)}"
        case AskYesNo() as call:
            return f"{depth}: {' or '.join(call.positive)}, or {' or '.join(call.negative)}? as '{call.role}'{_tokens(step)}"
        case MeanNll() as call:
            return f"{depth}: likelihood of a text as '{call.role}'{_tokens(step)}"
        case Mix() as call:
            return f"{depth}: mix {len(call.prompts)} prompts as '{call.role}' ({_decoding(call.decoding)}){_tokens(step)}"
        case Score() as call:
            return f"{depth}: score {len(call.texts)} texts as '{call.role}'{_tokens(step)}"
        case Retrieve() | LookUpTitle() | Compare() as search:
            return f"{depth}: {_search_line(search)}"
        case Truncate() as cut:
            return f"cut to the {'first' if cut.keep == 'start' else 'last'} {cut.max_tokens} tokens of '{cut.role}'"
        case Note() as note:
            return f"{note.text}{': ' + ', '.join(f'{name} {value}' for name, value in note.data.items()) if note.data else ''}"


def _search_line(search: Retrieve | LookUpTitle | Compare) -> str:
    match search:
        case Retrieve():
            rules = "".join(f", {name} {rule}" for name, rule in (("merge", search.merge), ("dedup", search.dedup)) if rule)
            return f"retrieve {search.k}{rules}: {' | '.join(search.queries)}"
        case LookUpTitle():
            return f"look up the title: {search.title}"
        case Compare():
            return f"compare by '{search.encoder}': {search.text} | {' | '.join(search.others[:_SHOWN_RESULTS])}"


def _decoding(decoding: Decoding) -> str:
    sampling = "greedy" if decoding.is_greedy else f"temperature {decoding.temperature:g}, top_p {decoding.top_p:g}, seed {decoding.seed}"
    return f"{sampling}, at most {decoding.max_tokens} tokens" + (f", stop {list(decoding.stop)}" if decoding.stop else "")


def _tokens(step: Step) -> str:
    return f", {step.prompt_tokens}+{step.completion_tokens} tokens"


def _lines(step: Step, *, with_prompts: bool) -> Iterator[tuple[str, str]]:
    """Yield the lines of a request and of its result, each as (style, line)."""
    request = step.request
    if isinstance(request, Call):
        yield "dim", _turns(request.prompt) if with_prompts else _end(prompt_text(request.prompt))
    if isinstance(request, MeanNll):
        yield "dim", f"… {request.continuation}"
    if step.error is not None:
        yield "red", f"failed: {step.error}"
        return
    for line in _results(step.result):
        yield "green", line if with_prompts or len(line) <= 2 * _SHOWN_CHARACTERS else f"{line[: 2 * _SHOWN_CHARACTERS]} …"


def _results(result: Result) -> Iterator[str]:
    match result:
        case YesNo():
            yield f"→ {result.p_positive:.3f} against {result.p_negative:.3f}" + ("" if result.score is None else f": {result.score:.3f}")
        case Nll():
            yield "→ unknown" if result.mean is None else f"→ mean NLL {result.mean:.4f} over {result.n_tokens} tokens"
        case Scores():
            yield f"→ {', '.join(f'{value:.4g}' for value in result.values)}"
        case str():
            yield f"→ {result}"
        case tuple() | list():
            for item in result[:_SHOWN_RESULTS]:
                if isinstance(item, Gen) and item.reasoning:
                    yield f"thought: {item.reasoning}"
                yield f"→ {_format_item(item)}"
            if not result:
                yield "→ no passage"
            if len(result) > _SHOWN_RESULTS:
                yield f"→ and {len(result) - _SHOWN_RESULTS} more"


def _format_item(item: Gen | ScoredPassage | Passage | float) -> str:
    if isinstance(item, float):
        return f"{item:.3f}"
    if isinstance(item, ScoredPassage):
        return f"{item.passage.title} [{item.passage.id}]" + ("" if math.isnan(item.score) else f" {item.score:.3f}")
    if isinstance(item, Passage):
        return f"{item.title} [{item.id}]"
    nll = "" if item.mean_nll is None else f" (mean NLL {item.mean_nll:.4f})"
    return f"{item.text}{nll}" + (" (cut: no tokens left)" if item.finish == "length" else "")


def _turns(prompt: Prompt) -> str:
    """Return the whole prompt as text, with each turn under its role."""
    if isinstance(prompt, str | TokenIds):
        return prompt_text(prompt)
    return "\n".join(f"[{turn.role}]\n{turn.content}" for turn in prompt)


def _end(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN_CHARACTERS else f"… {text[-_SHOWN_CHARACTERS:]}"
