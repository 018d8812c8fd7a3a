"""The training-data pipeline: draw questions, collect replies in a resumable folder, and build files from the replies.

    data/<name>.jsonl         the examples
    data/dataset_info.json    LLaMA-Factory's index of the example files
    leaks.jsonl               evaluation questions among training questions
    manifest.json             counts, options, models, prompt checksums, seed, file checksums and the papers' recipes; written last

Each file is replaced atomically. Identical replies and options produce identical bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wikidx.base.artifacts.durable import write_durably
from wikidx.base.artifacts.manifest import package_versions
from wikidx.base.errors import InputError
from wikidx.base.progress import Progress, silent
from wikidx.base.registry import unknown_name_error
from wikidx.runtimes.assignments import parse_assignments
from wikidx.runtimes.evaluation.by_models.row_metrics import RowMetric
from wikidx.runtimes.execution.identity import PACKAGES, questions_digest
from wikidx.runtimes.execution.opening import Plan
from wikidx.runtimes.execution.resumable import ResumableRun, RunOptions, RunSummary
from wikidx.runtimes.execution.runs import PREDICTIONS, read_predictions
from wikidx.runtimes.methods.base import list_options
from wikidx.runtimes.methods.templates import prompt_hashes
from wikidx.runtimes.questions import Question

from .base import Builder, Dataset, Response
from .leaks import LeakCheck
from .recipes import Recipe, recipe_json, recipes_of
from .sets import QuestionSet

DATA, INFO, MANIFEST, LEAKS = "data", "dataset_info.json", "manifest.json", "leaks.jsonl"
FORMAT = 2


class Task(NamedTuple):
    """The specification of training data to build.

    Attributes:
        builder: the builder.
        sets: the drawn questions.
        leaks: result of the check against evaluation questions.
        plan: models, search and collect options.
        build_options: the build options.
        run_options: seed, concurrency and retries of the run that asks the models.
    """

    builder: Builder
    sets: list[QuestionSet]
    leaks: LeakCheck
    plan: Plan
    build_options: Any
    run_options: RunOptions

    def resumable_run(self) -> ResumableRun:
        """Return the run that asks the models. A folder can be resumed only with the same questions."""
        batches = [
            (
                self.builder.method(item, self.run_options.seed),
                [question._replace(id=_record_id(item, question)) for question in item.questions],
            )
            for item in self.sets
        ]
        sets = {
            item.name: {
                "sha256": questions_digest([(question.id, question.text) for question in item.questions]),
                "n": len(item.questions),
                "others": questions_digest([(text,) for text in item.others]),
                **item.format,
            }
            for item in self.sets
        }
        return ResumableRun(self.plan, batches, {"training_data": True, "sets": sets}, self.run_options)


class BuilderOptions(NamedTuple):
    """The parsed options of a builder, and the ``NAME=VALUE`` assignments of the collect options."""

    collect_assignments: list[str]
    collect: Any
    build: Any


def parse_options(builder: Builder, assignments: Sequence[str]) -> BuilderOptions:
    """Parse assignments ``NAME=VALUE`` into collect options and build options.

    Raises:
        UnknownNameError: an option is unknown.
        InputError: a value is invalid.
    """
    build_names = {field.name for field in dataclasses.fields(builder.build_options)}
    names = [*(field.name for field in dataclasses.fields(builder.collect_options)), *build_names]
    for name in (item.partition("=")[0] for item in assignments if "=" in item):
        if name not in names:
            raise unknown_name_error("option", name, names)
    groups = [[item for item in assignments if (item.partition("=")[0] in build_names) is is_build] for is_build in (False, True)]
    collect = parse_assignments(builder.collect_options, groups[0], noun="option")
    build = parse_assignments(builder.build_options, groups[1], noun="option")
    return BuilderOptions(groups[0], collect, build)


def draw(builder: Builder, sets: Sequence[QuestionSet], options: BuilderOptions, seed: int) -> list[QuestionSet]:
    """Return the sets with the questions to ask.

    Raises:
        InputError: no question is drawn from a set, or the files cannot be built.
    """
    chosen = builder.draw(sets, options.collect, seed)
    empty = next((item.name for item in chosen if not item.questions), None)
    if empty is not None:
        raise InputError(
            f"no question of the set '{empty}' is left to train on: all were left out, or fewer were wanted than there are sets"
        )
    builder.check(chosen, options.collect, options.build)
    return chosen


def run(
    task: Task,
    out: Path,
    *,
    cache: Path | None = None,
    progress: Progress = silent,
) -> tuple[dict[str, Any], RunSummary]:
    """Ask the unanswered questions and build the files; return the manifest and the run's summary.

    Args:
        task: the training data to build.
        out: the folder; created if missing.
        cache: file that caches the replies of endpoints; None: a file in the folder.
        progress: called with (finished questions, all questions).

    Raises:
        IdxError: the folder holds a run with other settings, a model or the search cannot be opened, or a file would have no examples.
    """
    citation_scorer = task.builder.citation_scorer(task.sets, task.plan.options, task.build_options, task.plan.device)
    summary = task.resumable_run().run(out, cache=cache, progress=progress)
    return _make(task, out, summary, citation_scorer), summary


def _make(task: Task, out: Path, summary: RunSummary, citation_scorer: RowMetric | None) -> dict[str, Any]:
    """Build the files from the stored replies, and return the manifest.

    Raises:
        InputError: a file would have no examples. The other files and the manifest are written nevertheless.
    """
    builder, seed, records = task.builder, task.run_options.seed, dict(read_predictions(out))
    replies = [Response(item.name, question, records[_record_id(item, question)]) for item in task.sets for question in item.questions]
    responses = [reply for reply in replies if reply.record["error"] is None]
    dataset = builder.build(responses, task.plan.options, task.build_options, seed, citation_scorer)
    write_durably(out / LEAKS, json_lines(leak._asdict() for leak in task.leaks.leaks))
    metadata = {
        "replies": {"questions": len(replies), "failed": len(summary.errors)},
        "sets": {
            item.name: {
                "file_sha256": item.sha256,
                **item.format,
                "read": item.n_read,
                "eligible": len(item.others),
                "drawn": len(item.questions),
            }
            for item in task.sets
        },
        "leaks": task.leaks.to_json(),
        "options": {
            item.name: {"value": item.value, "default": item.default, "origin": item.origin}
            for options in (task.plan.options, task.build_options)
            for item in list_options(options)
        },
        "models": summary.settings["models"],
        "search": summary.settings["search"],
        "citations": None if citation_scorer is None else citation_scorer.metadata(),
        "prompts": prompt_hashes([builder.name, "rag"]),
        "seed": seed,
        "versions": package_versions(PACKAGES),
    }
    filled = {name: examples for name, examples in dataset.files.items() if examples}
    manifest = _write(out, builder, dataset._replace(files=filled), metadata)
    if len(filled) < len(dataset.files):
        raise InputError(_refusal(dataset, summary.errors, len(responses), out))
    return manifest


def _record_id(question_set: QuestionSet, question: Question) -> str:
    """Return an id for a question, unique across all sets."""
    return f"{question_set.name}/{question.id}"


def _refusal(dataset: Dataset, errors: Sequence[str], n_responses: int, out: Path) -> str:
    """Return an error message with the files that have no examples and the most frequent reason."""
    empty = [name for name, examples in dataset.files.items() if not examples]
    tallies = [dataset.tallies[name] for name in empty if name in dataset.tallies] or [*dataset.tallies.values()]
    reasons = Counter({reason: sum(tally.dropped[reason] for tally in tallies) for tally in tallies for reason in tally.dropped})
    if errors:
        reasons[f"failed: {errors[0]}"] = len(errors)
    reason, n = reasons.most_common(1)[0] if reasons else ("nothing to learn from", n_responses)
    return (
        f"no examples for {', '.join(f'{name}.jsonl' for name in empty)}: the most frequent reason is '{reason}', {n:,} times; see "
        f"{out / PREDICTIONS}, and change the model, with another --out, or the option that decides; --retry-failed asks failed ones again"
    )


def _write(folder: Path, builder: Builder, dataset: Dataset, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Write the files and the manifest, delete other data files, and return the manifest."""
    data = folder / DATA
    data.mkdir(exist_ok=True)
    files, recipes = dict[str, Any](), recipes_of(builder.name)
    for name, examples in dataset.files.items():
        content = json_lines(example.to_json() for example in examples)
        write_durably(data / f"{name}.jsonl", content)
        files[name] = {
            "description": builder.descriptions[name],
            "examples": len(examples),
            "sha256": hashlib.sha256(content).hexdigest(),
            "training": recipe_json(_resolve_start(name, recipes, dataset.files)),
        }
    for file in data.glob("*.jsonl"):
        if file.stem not in files:
            file.unlink()
    write_durably(data / INFO, _json({name: _info(name) for name in files}))
    manifest = {
        "format": FORMAT,
        "method": builder.name,
        "source": builder.source,
        "counts": {name: tally.to_json() for name, tally in dataset.tallies.items()},
        "files": files,
        **metadata,
    }
    write_durably(folder / MANIFEST, _json(manifest))
    return manifest


def _resolve_start(name: str, recipes: Mapping[str, Recipe], files: Collection[str]) -> Recipe:
    """Return a file's recipe. If ``begins_from`` names a stage without a file, the ``begins_from`` of that stage replaces it."""
    begins_from = recipes[name]["begins_from"]
    while begins_from.value in recipes and begins_from.value not in files:
        begins_from = recipes[begins_from.value]["begins_from"]
    return {**recipes[name], "begins_from": begins_from}


def _info(name: str) -> dict[str, Any]:
    """Return a file's entry in LLaMA-Factory's index."""
    roles = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant", "system_tag": "system"}
    return {"file_name": f"{name}.jsonl", "formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": roles}


def json_lines(values: Iterable[Mapping[str, Any]]) -> bytes:
    """Return objects as JSON Lines."""
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values).encode()


def _json(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()
