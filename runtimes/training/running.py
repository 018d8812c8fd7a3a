"""The pipeline of training data: check and draw sets, ask models in a folder that can be resumed, make files from the replies.

    data/<name>.jsonl         the examples
    data/dataset_info.json    the table by which LLaMA-Factory finds them: ``dataset_dir`` is this folder
    leaks.jsonl               evaluation questions among training questions
    manifest.json             written last: counts, rules, models, prompts, seeds, checksums, the papers' recipes

Each file is replaced atomically; equal replies and options give equal bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wikidx.corpora.artifacts.durable import write_durably
from wikidx.corpora.errors import InputError
from wikidx.corpora.progress import Progress, silent
from wikidx.corpora.registry import near_names
from wikidx.runtimes.evaluation.by_models.measured import RowMetric
from wikidx.runtimes.execution.asking import Asked, Asking, AskOptions
from wikidx.runtimes.execution.assignments import assigned
from wikidx.runtimes.execution.identity import questions_digest, versions
from wikidx.runtimes.execution.opening import Plan
from wikidx.runtimes.execution.runs import PREDICTIONS, read_predictions
from wikidx.runtimes.methods.base import list_options
from wikidx.runtimes.methods.templates import prompt_hashes
from wikidx.runtimes.questions import Question

from .base import Builder, Collected, Made
from .leaks import Checked
from .recipes import RECIPES, Recipe, recipe_json
from .sets import QuestionSet

DATA, INFO, MANIFEST, LEAKS = "data", "dataset_info.json", "manifest.json", "leaks.jsonl"
FORMAT = 1


class Task(NamedTuple):
    """Training data to make.

    Attributes:
        builder: the builder.
        sets: the questions that were drawn.
        leaks: result of the check against evaluation questions.
        plan: models, search, and the builder's options of asking.
        making: its options of making.
        options: of asking.
    """

    builder: Builder
    sets: list[QuestionSet]
    leaks: Checked
    plan: Plan
    making: Any
    options: AskOptions

    def asking(self) -> Asking:
        """Return the questions for the models; a folder is resumed only with the same ones."""
        batches = [
            (self.builder.method(one, self.options.seed), [asked._replace(id=_record_id(one, asked)) for asked in one.questions])
            for one in self.sets
        ]
        sets = {
            one.name: {
                "sha256": questions_digest([(asked.id, asked.text) for asked in one.questions]),
                "n": len(one.questions),
                "others": questions_digest([(text,) for text in one.others]),
            }
            for one in self.sets
        }
        return Asking(self.plan, batches, {"training_data": True, "sets": sets}, self.options)


class Switches(NamedTuple):
    """The assignments of asking, the options that they yield, and the options of making."""

    of_asking: list[str]
    asking: Any
    making: Any


def switches_of(builder: Builder, assignments: Sequence[str]) -> Switches:
    """Split assignments ``NAME=VALUE`` into those of asking and of making.

    Raises:
        UnknownNameError, InputError: there is no such option, or a value is invalid.
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


def draw(builder: Builder, sets: Sequence[QuestionSet], switches: Switches, seed: int) -> list[QuestionSet]:
    """Return the sets with the questions to ask.

    Raises:
        InputError: a set has none, or files could not be made from them.
    """
    drawn = builder.draw(sets, switches.asking, seed)
    empty = next((one.name for one in drawn if not one.questions), None)
    if empty is not None:
        raise InputError(
            f"no question of the set '{empty}' is left to train on: all were left out, or fewer were wanted than there are sets"
        )
    builder.check(drawn, switches.asking, switches.making)
    return drawn


def run(task: Task, out: Path, *, cache: Path | None = None, progress: Progress = silent) -> tuple[dict[str, Any], Asked]:
    """Ask the questions without an answer and make the files; return the manifest, and the outcome of asking.

    Args:
        task: the training data.
        out: the folder; created if missing.
        cache: file for replies of endpoints; None: in the folder.
        progress: called with (questions asked, questions).

    Raises:
        IdxError: the folder has other content, a model or the search cannot be opened, or a file would be without examples.
    """
    citations = task.builder.citations(task.sets, task.plan.options, task.making, task.plan.device)
    asked = task.asking().run(out, cache=cache, progress=progress)
    return _make(task, out, asked, citations), asked


def _make(task: Task, out: Path, asked: Asked, citations: RowMetric | None) -> dict[str, Any]:
    """Make the files from the stored replies, and return the manifest.

    Raises:
        InputError: a file would be without examples. The others, and the manifest with its counts, are written nevertheless.
    """
    builder, seed, records = task.builder, task.options.seed, read_predictions(out).records
    replies = [Collected(one.name, question, records[_record_id(one, question)]) for one in task.sets for question in one.questions]
    collected = [reply for reply in replies if reply.record["error"] is None]
    made = builder.make(collected, task.plan.options, task.making, seed, citations)
    write_durably(out / LEAKS, json_lines(leak._asdict() for leak in task.leaks.leaks))
    about = {
        "replies": {"asked": len(replies), "failed": len(asked.errors)},
        "sets": {
            one.name: {"file_sha256": one.sha256, "read": one.n_read, "eligible": len(one.others), "drawn": len(one.questions)}
            for one in task.sets
        },
        "leaks": task.leaks.to_json(),
        "switches": {
            one.name: {"value": one.value, "default": one.default, "origin": one.origin}
            for options in (task.plan.options, task.making)
            for one in list_options(options)
        },
        "models": asked.settings["models"],
        "search": asked.settings["search"],
        "citations": None if citations is None else citations.about(),
        "prompts": prompt_hashes([builder.name, "rag"]),
        "seed": seed,
        "versions": versions(),
    }
    filled = {name: examples for name, examples in made.files.items() if examples}
    manifest = _write(out, builder, made._replace(files=filled), about)
    if len(filled) < len(made.files):
        raise InputError(_refusal(made, asked.errors, len(collected), out))
    return manifest


def _record_id(one: QuestionSet, question: Question) -> str:
    """Return a question's id that is unique over all sets."""
    return f"{one.name}/{question.id}"


def _refusal(made: Made, errors: Sequence[str], n_collected: int, out: Path) -> str:
    """Return an error message on the files without examples and the main reasons."""
    empty = [name for name, examples in made.files.items() if not examples]
    tallies = [made.tallies[name] for name in empty if name in made.tallies] or list(made.tallies.values())  # of each file, or of all
    lost = Counter({why: sum(tally.dropped[why] for tally in tallies) for tally in tallies for why in tally.dropped})
    if errors:
        lost[f"failed: {errors[0]}"] = len(errors)
    why, n = lost.most_common(1)[0] if lost else ("nothing to learn from", n_collected)
    return (
        f"no examples for {', '.join(f'{name}.jsonl' for name in empty)}: the most frequent reason is '{why}', {n:,} times; see "
        f"{out / PREDICTIONS}, and change the model, with another --out, or the switch that decides; --retry-failed asks failed ones again"
    )


def _write(folder: Path, builder: Builder, made: Made, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write the files and the manifest, and return the manifest; files of an earlier run that are no longer made are deleted."""
    data = folder / DATA
    data.mkdir(exist_ok=True)
    files: dict[str, Any] = {}
    for name, examples in made.files.items():
        content = json_lines(example.to_json() for example in examples)
        write_durably(data / f"{name}.jsonl", content)
        files[name] = {
            "about": builder.about[name],
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
        "counts": {what: tally.to_json() for what, tally in made.tallies.items()},
        "files": files,
        **about,
    }
    write_durably(folder / MANIFEST, _json(manifest))
    return manifest


def _begun(name: str, recipes: Mapping[str, Recipe], files: Collection[str]) -> Recipe:
    """Return a file's recipe; if the stage that it continues is not made, it starts from that stage's own starting point."""
    begins_from = recipes[name]["begins_from"]
    while begins_from.value in recipes and begins_from.value not in files:
        begins_from = recipes[begins_from.value]["begins_from"]
    return {**recipes[name], "begins_from": begins_from}


def _info(name: str) -> dict[str, Any]:
    """Return a file's entry for LLaMA-Factory."""
    roles = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant", "system_tag": "system"}
    return {"file_name": f"{name}.jsonl", "formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": roles}


def json_lines(values: Iterable[Mapping[str, Any]]) -> bytes:
    """Return objects as JSON Lines."""
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values).encode()


def _json(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()
