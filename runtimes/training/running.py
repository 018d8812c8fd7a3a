"""A whole making: sets checked and drawn, models asked in a folder that can be resumed, files made from what they replied.

    data/<name>.jsonl         the examples; ``chat`` has the form
    data/dataset_info.json    the table by which LLaMA-Factory finds them: ``dataset_dir`` is this folder
    leaks.jsonl               evaluation questions among those to train on
    manifest.json             written last: counts, rules, models, prompts, seeds, checksums, how the papers train

Each file is replaced whole; equal replies and switches give equal bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wikidx.corpora.artifacts.durable import write_durably
from wikidx.corpora.errors import InputError
from wikidx.corpora.progress import Progress, silent
from wikidx.corpora.registry import near_names
from wikidx.runtimes.evaluation.by_models.measured import RowMetric
from wikidx.runtimes.execution.assignments import assigned
from wikidx.runtimes.execution.identity import questions_digest, versions
from wikidx.runtimes.execution.opening import Plan, described, opened
from wikidx.runtimes.execution.results import Cost
from wikidx.runtimes.execution.runs import PREDICTIONS, open_run, refuse_other_settings
from wikidx.runtimes.methods.base import list_options
from wikidx.runtimes.methods.templates import prompt_hashes

from .base import Builder, Made, Making
from .chat import json_lines, line_of
from .collecting import Asking, Replies, ask, replies
from .leaks import Checked
from .recipes import RECIPES, Recipe
from .recipes import told as recipe_json
from .sets import QuestionSet

DATA, INFO, MANIFEST, LEAKS = "data", "dataset_info.json", "manifest.json", "leaks.jsonl"
FORMAT = 1


class Task(NamedTuple):
    """What is to be made.

    Attributes:
        asking: how the models are asked.
        making: the builder's switches of making.
        plan: models and search.
        sets: the questions that were drawn.
        files: set -> checksum of the file that it was read from; empty: none.
        leaks: what the check against evaluation questions found.
    """

    asking: Asking
    making: Any
    plan: Plan
    sets: list[QuestionSet]
    files: dict[str, str]
    leaks: Checked


class Outcome(NamedTuple):
    """The manifest, what this time's asking cost, and how many bytes of an unfinished reply were cut off."""

    manifest: dict[str, Any]
    cost: Cost
    n_cut: int


class Switches(NamedTuple):
    """What sets the switches of asking, these switches, and those of making."""

    of_asking: list[str]
    asking: Any
    making: Any


def switches_of(builder: Builder, assignments: Sequence[str]) -> Switches:
    """Part assignments ``NAME=VALUE`` into those of asking and of making.

    Raises:
        UnknownNameError, InputError: there is no such switch, or a value is wrong.
    """
    of_making = {field.name for field in dataclasses.fields(builder.making)}
    names = [*(field.name for field in dataclasses.fields(builder.asking)), *of_making]
    for name in (one.partition("=")[0] for one in assignments if "=" in one):
        if name not in names:
            raise near_names("switch", name, names)
    parted = [[one for one in assignments if (one.partition("=")[0] in of_making) is is_making] for is_making in (False, True)]
    asking_options = assigned(builder.asking, parted[0], what="switch")
    making_options = assigned(builder.making, parted[1], what="switch")
    return Switches(parted[0], asking_options, making_options)


def settings(task: Task) -> dict[str, Any]:
    """Return everything that decides what the models reply, as JSON has it; a folder is resumed only with the same."""
    sets = {
        one.name: {
            "sha256": questions_digest([(asked.id, asked.text) for asked in one.questions]),
            "n": len(one.questions),
            "others": questions_digest([(text,) for text in one.others]),
        }
        for one in task.sets
    }
    return {
        "training_data": True,
        **described(task.plan),
        "sets": sets,
        "seed": task.asking.seed,
        "context": task.plan.connection.context,
        "steps": task.asking.with_steps,
    }


def run(task: Task, out: Path, session: dict[str, Any], *, cache: Path | None = None, progress: Progress = silent) -> Outcome:
    """Ask what has not been asked, and make the files.

    Args:
        task: what is to be made.
        out: the folder; made if it is not there.
        session: what is to be known of this start beside the settings.
        cache: where replies of endpoints are kept; None: nowhere.
        progress: called with (questions asked, questions).

    Raises:
        IdxError: the folder holds something else, a model or the search cannot be opened, or a file would be without examples.
    """
    decided = settings(task)
    refuse_other_settings(out, decided)  # before a model is opened, which may take long
    citations = task.asking.builder.citations(task.sets, task.asking.options, task.making, task.plan.device)
    with opened(task.plan, cache=cache) as services, open_run(out, decided, session) as log:
        cost = ask(task.asking, task.sets, services, log, progress)
        n_cut = log.n_cut
    return Outcome(make(task, out, decided, citations), cost, n_cut)


def make(task: Task, out: Path, decided: dict[str, Any], citations: RowMetric | None) -> dict[str, Any]:
    """Make the files from the replies that are written down, and return the manifest.

    Raises:
        InputError: a file would be without examples. The others, and the manifest with its counts, are there all the same.
    """
    builder, asked = task.asking.builder, replies(out, task.sets)
    made = builder.make(asked.collected, Making(task.making, task.asking.options, task.asking.seed, citations))
    write_durably(out / LEAKS, json_lines(leak._asdict() for leak in task.leaks.leaks))
    about = {
        "replies": {"asked": len(asked.collected) + len(asked.errors), "failed": len(asked.errors), "not_asked": asked.n_unasked},
        "sets": {
            one.name: {"file_sha256": task.files[one.name], "read": one.n_read, "eligible": len(one.others), "drawn": len(one.questions)}
            for one in task.sets
        },
        "leaks": task.leaks.told(),
        "switches": {
            one.name: {"value": one.value, "default": one.default, "origin": one.origin}
            for options in (task.asking.options, task.making)
            for one in list_options(options)
        },
        "models": decided["models"],
        "search": decided["search"],
        "citations": None if citations is None else citations.about(),
        "prompts": prompt_hashes([builder.name, "rag"]),
        "seed": task.asking.seed,
        "versions": versions(),
    }
    filled = {name: examples for name, examples in made.files.items() if examples}
    manifest = _write(out, builder, made._replace(files=filled), about)
    if len(filled) < len(made.files):
        raise InputError(_refusal(made, asked, out))
    return manifest


def _refusal(made: Made, asked: Replies, out: Path) -> str:
    """Say which files have no examples, and what most of them were lost by."""
    empty = [name for name, examples in made.files.items() if not examples]
    tallies = [made.tallies[name] for name in empty if name in made.tallies] or list(made.tallies.values())  # of each file, or of all
    lost = Counter({why: sum(tally.dropped[why] for tally in tallies) for tally in tallies for why in tally.dropped})
    if asked.errors:
        lost[f"failed: {asked.errors[0]}"] = len(asked.errors)
    why, n = lost.most_common(1)[0] if lost else ("nothing to learn from", len(asked.collected))
    return (
        f"no examples for {', '.join(f'{name}.jsonl' for name in empty)}: the most frequent reason is '{why}', {n:,} times; see "
        f"{out / PREDICTIONS}, and change the model, with another --out, or the switch that decides; --retry-failed asks failed ones again"
    )


def _write(folder: Path, builder: Builder, made: Made, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write the files and the manifest, and return it; files of an earlier making that are not made any more are deleted."""
    data = folder / DATA
    data.mkdir(exist_ok=True)
    files: dict[str, Any] = {}
    for name, examples in made.files.items():
        content = json_lines(map(line_of, examples))
        write_durably(data / f"{name}.jsonl", content)
        files[name] = {
            "about": made.about[name],
            "examples": len(examples),
            "sha256": hashlib.sha256(content).hexdigest(),
            "training": recipe_json(_begun(name, RECIPES[builder.name], made.files)),
        }
    for file in data.glob("*.jsonl"):
        if file.stem not in files:
            file.unlink()
    write_durably(data / INFO, _json({name: _info(name) for name in files}))
    manifest = {
        "format": FORMAT,
        "method": builder.name,
        "source": builder.source,
        "counts": {what: tally.told() for what, tally in made.tallies.items()},
        "files": files,
        **about,
    }
    write_durably(folder / MANIFEST, _json(manifest))
    return manifest


def _begun(name: str, recipes: Mapping[str, Recipe], files: Collection[str]) -> Recipe:
    """Return a file's recipe; where the stage that it goes on from is not made, it begins from where that stage would."""
    begins_from = recipes[name]["begins_from"]
    while begins_from.value in recipes and begins_from.value not in files:
        begins_from = recipes[begins_from.value]["begins_from"]
    return {**recipes[name], "begins_from": begins_from}


def _info(name: str) -> dict[str, Any]:
    """Return how LLaMA-Factory is to read a file."""
    roles = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant", "system_tag": "system"}
    return {"file_name": f"{name}.jsonl", "formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": roles}


def _json(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()
