"""Runs of an experiment: one for each row, question set and seed, each in a folder of its own, and an estimate of what is left of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from wikidx.base.errors import InputError
from wikidx.base.registry import unknown_name_error
from wikidx.runtimes.evaluation.run_facts import read_run_json, wall_seconds
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.rehearsal import PASSAGE_TEXT, stand_in_llm, stand_in_services
from wikidx.runtimes.execution.runs import PREDICTIONS, differences, read_predictions
from wikidx.runtimes.llms.base import Call, Generate, Mix
from wikidx.runtimes.llms.naming import parse_spec
from wikidx.runtimes.llms.prompts import prompt_text
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.methods.base import Method
from wikidx.runtimes.methods.prompt_sets import hash_prompts, read_prompt_set, with_prompts
from wikidx.runtimes.questions import SAMPLE, Question, Selection, find_questions, select

from .files import Cell, Experiment, folder_name

ASSUMED_SPEED = 1000  # tokens a second, read and generated; assumed until a run has been made
_TOKENS_PER_WORD = 1.4
_PASSAGE_TOKENS = 140  # of 100 words


class Estimate(NamedTuple):
    """The cost of a question, or of several."""

    calls: float = 0
    searches: float = 0
    prompt_tokens: float = 0
    completion_tokens: float = 0

    @property
    def tokens(self) -> float:
        """Tokens read and generated."""
        return self.prompt_tokens + self.completion_tokens

    def times(self, n: float) -> Estimate:
        """Return the cost of ``n`` such questions."""
        return Estimate(*(n * value for value in self))


class Finished(NamedTuple):
    """The questions of a run that are on disk: their number, that of the failed ones, and their cost."""

    n: int = 0
    n_failed: int = 0
    cost: Estimate = Estimate()

    def n_done(self, *, retry_failed: bool) -> int:
        """Return the number of questions that are not asked again."""
        return self.n - self.n_failed if retry_failed else self.n


class Job(NamedTuple):
    """A run to be made.

    Attributes:
        cell: row and question set.
        seed: the seed of the run.
        folder: the folder of the run.
        file: the file of the questions, or "sample".
        selection: the protocol.
        questions: the selected questions.
        limit: the number of questions to ask; None: all.
    """

    cell: Cell
    seed: int
    folder: Path
    file: str
    selection: Selection
    questions: Sequence[Question]
    limit: int | None

    @property
    def name(self) -> str:
        """The name of the run, for display."""
        return run_name(self.cell, self.seed, self.folder)

    @property
    def method(self) -> Method:
        """The method of the row, with the row's prompts."""
        return _method(self.cell)

    @property
    def values(self) -> dict[str, Any]:
        """The values of the method's options that differ from its defaults."""
        texts = self.method.question_texts(self.cell.options, [question.text for question in self.questions])
        return {**texts, **self.cell.options}

    @property
    def n_asked(self) -> int:
        """The number of questions to ask."""
        return len(self.questions[: self.limit])

    def finished(self) -> Finished:
        """Return what is on disk of the questions to ask."""
        if not (self.folder / PREDICTIONS).is_file():
            return Finished()
        asked = {question.id for question in self.questions[: self.limit]}
        found = {name: (record["error"], _cost(record)) for name, record in read_predictions(self.folder) if name in asked}
        n_failed = sum(error is not None for error, _ in found.values())
        return Finished(len(found), n_failed, Estimate(*map(math.fsum, zip(*(cost for _, cost in found.values()), strict=True))))


def _method(cell: Cell) -> Method:
    found: Method = find_method(cell.row.method or "")
    prompts = cell.row.prompts
    return with_prompts(found, read_prompt_set(found.name, prompts, found.parts)) if prompts else found


def run_name(cell: Cell, seed: int, folder: Path) -> str:
    """Return row and question set of a run, for display, and the seed if the row has several."""
    return f"{cell.row.name}, {cell.dataset}" + (f", seed {seed}" if folder.name.startswith("seed-") else "")


def run_folders(experiment: Experiment, out: Path) -> Iterator[tuple[Cell, int, Path]]:
    """Yield cell, seed and folder of each run of an experiment, in the order of the table."""
    for cell in experiment.cells():
        seeds = cell.row.seeds or experiment.seeds
        folder = out / folder_name(cell.row.name) / folder_name(cell.dataset)
        for seed in seeds if cell.missing is None else ():
            yield cell, seed, folder / f"seed-{seed}" if len(seeds) > 1 else folder


def describe_changes(cell: Cell, run_json: Mapping[str, Any]) -> str:
    """Return how method, options and prompts of a row have changed since a run was made, from its ``run.json``; "" if they have not."""
    method = _method(cell)
    settings, current = run_json.get("settings") or {}, {"method": method.name, **cell.options}
    recorded = {"method": settings.get("method"), **{name: option.get("value") for name, option in settings.get("options", {}).items()}}
    changes = differences({name: recorded.get(name) for name in current}, current)
    has_its_prompts = settings.get("prompts") == hash_prompts(method, str(cell.options.get("expand", "none")))
    return "; ".join(changes if has_its_prompts else [*changes, "it has other prompts"])


def plan_jobs(experiment: Experiment, out: Path, questions_from: Path | None, limit: int | None) -> list[Job]:
    """Return the runs of an experiment, in the order of the table.

    Raises:
        InputError, UnknownNameError: questions cannot be found or read; one line for all sets.
    """
    read = cache(lambda file, protocol: select(find_questions(file, with_passages=True), Selection(protocol)))
    jobs, errors = list[Job](), dict[str, None]()
    for cell, seed, folder in run_folders(experiment, out):
        try:
            file, selection = locate(cell.questions.source, questions_from), Selection(cell.questions.protocol)
            jobs.append(Job(cell, seed, folder, file, selection, read(file, cell.questions.protocol), limit))
        except InputError as error:
            errors[str(error)] = None
    if errors:
        raise InputError(f"{'; '.join(errors)}; --dataset leaves out the rows of other sets, and --sample needs no questions")
    return jobs


def locate(name: str, folder: Path | None) -> str:
    """Return the file of a question set: in a folder the one of this name, with any suffix; else the name itself.

    Raises:
        InputError: the folder has no such file, or several.
    """
    if folder is None or name == SAMPLE:
        return name
    stem = Path(name).name.partition(".")[0].replace(":", "-")
    found = [file for file in folder.glob(f"{stem}*") if file.name.partition(".")[0] == stem]
    if len(found) != 1:
        number = "several files" if found else "no file"
        raise InputError(f"{folder} has {number} {stem}.*: put the questions of '{name}' there")
    return str(found[0])


def estimate(job: Job, finished: Finished) -> Estimate:
    """Return the cost of a question: the mean of those that the run has asked, or else that of a dry run of the first.

    The dry run takes one branch of the method. Generated texts count as long as they may become, passages as 140 tokens.

    Raises:
        InputError: the method fails with these options.
    """
    if finished.n:
        return finished.cost.times(1 / finished.n)
    method, options = job.method, job.method.options(**job.values)
    services = stand_in_services(method.roles, stand_in_llm())
    (prediction,) = execute(lambda text: method.run(text, options), job.questions[:1], services)
    if prediction.error is not None:
        raise InputError(f"{job.name}: {prediction.error.partition(': ')[2]}")
    calls = [step.request for step in prediction.steps if isinstance(step.request, Call)]
    texts = [prompt_text(prompt) for call in calls for prompt in (call.prompts if isinstance(call, Mix) else (call.prompt,))]
    prompt = sum(_TOKENS_PER_WORD * len(text.split()) + _PASSAGE_TOKENS * text.count(PASSAGE_TEXT) for text in texts)
    generated = sum(call.decoding.max_tokens * call.n if isinstance(call, Generate | Mix) else 1 for call in calls)
    return Estimate(len(calls), prediction.cost.searches, prompt, generated)


def tokens_per_second(finished: Mapping[Path, Finished]) -> float | None:
    """Return the speed of the runs in some folders, over all their tokens; None without a run."""
    totals = [(runs.cost.tokens, wall_seconds(read_run_json(folder))) for folder, runs in finished.items() if runs.n]
    seconds = sum(seconds for _, seconds in totals if seconds > 0)
    return sum(tokens for tokens, seconds in totals if seconds > 0) / seconds if seconds else None


def _cost(record: Mapping[str, Any]) -> Estimate:
    cost = record.get("cost") or {}
    return Estimate(*(cost.get(name, 0) for name in Estimate._fields))


def models_of(roles: Collection[str], models: Sequence[str]) -> list[str]:
    """Return the models, ``[ROLE=]BACKEND:MODEL[@URL]``, that are for one of the roles or for all."""
    return [text for text in models if (role := parse_spec(text).role) is None or role in roles]


def model_options_of(roles: Collection[str], options: Sequence[str]) -> list[str]:
    """Return the options of models, ``[ROLE.]NAME=VALUE``, that are for one of the roles or for all."""
    names = (text.partition("=")[0] for text in options)
    return [text for text, name in zip(options, names, strict=True) if "." not in name or name.partition(".")[0] in roles]


def check_roles(models: Sequence[str], roles: Collection[str]) -> None:
    """Raise ``UnknownNameError`` if a model is for a role that no method has."""
    for text in models:
        role = parse_spec(text).role
        if role is not None and role not in roles:
            raise unknown_name_error("role", role, roles)
