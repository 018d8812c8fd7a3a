"""Experiment files: question sets and rows of a table, in TOML.

Keys at the top are defaults of all rows. ``[questions.NAME]`` is a question set, NAME that of the papers (``published.json``) if it has
one. ``[[rows]]`` is a row of the table: a method with its options, or a reason why the row is missing.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from wikidx.base.errors import IdxError, InputError
from wikidx.base.registry import unknown_name_error
from wikidx.base.validation import options
from wikidx.corpora.reading.compression import read_toml
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.evaluation.answers.metrics import metric_names
from wikidx.runtimes.evaluation.published import PublishedFigure, published_figures
from wikidx.runtimes.evaluation.retrieval.search_steps import RECALL_METRICS
from wikidx.runtimes.evaluation.scoring import COSTS
from wikidx.runtimes.llms.naming import parse_spec
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.methods.base import Method
from wikidx.runtimes.methods.forms import FORMS
from wikidx.runtimes.methods.prompt_sets import read_prompt_set
from wikidx.runtimes.questions import PROTOCOLS, SAMPLE

from .made import made_folder

T = TypeVar("T")

_SUFFIX = ".toml"


@options
class QuestionSet:
    """A question set of an experiment.

    Attributes:
        protocol: the selection of questions; None: all.
        file: "sample", a file, or a set such as "nq:test"; None: the protocol's set.
        metrics: names of the metrics or costs, those of ``idx eval``; empty: the metrics of the data set.
        form: the form of the answers, which a method must know by its option "form"; None: a short answer.
        options: options on this set, of all methods that have them.
        corpus, retriever: those of this set; None: the experiment's.
        figures: the set's name in ``published.json``; None: its name in the experiment.
        missing: the reason why no run on this set can be made; None: runs can be made.
        needs: what would make runs possible, in place of ``missing``.
    """

    protocol: str | None = None
    file: str | None = None
    metrics: list[str] = dataclasses.field(default_factory=list)
    form: str | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    corpus: str | None = None
    retriever: str | None = None
    figures: str | None = None
    missing: str | None = None
    needs: str | None = None

    @property
    def reason(self) -> str | None:
        """The reason why no run can be made; None: runs can be made."""
        return _reason(self.missing, self.needs)

    @property
    def source(self) -> str:
        """The file or set of the questions; "" if neither the set nor its protocol names one."""
        return self.file or (PROTOCOLS[self.protocol].questions if self.protocol else "")


@options
class Row:
    """A row of an experiment's table.

    Attributes:
        name: the name of the row, and of the folder of its runs.
        method: the method; None if the row cannot be made.
        missing: the reason why the row cannot be made.
        needs: what would make the row possible, such as a trained checkpoint, in place of ``missing``.
        options: options of the method.
        sweep: option -> values; the row stands for one row per value. Several options change together.
        on: the question sets of the row; empty: all.
        systems: the systems of the paper's table that the row stands for; None: those of this name, or else those of the method.
        seeds: seeds of the runs; None: the experiment's.
        prompts: a prompt set of the method, or a folder, as of ``--prompts``.
        llm: models, as of ``--llm``, which replace those of the command.
        made: whether, with ``--sample``, a checkpoint with made weights and Self-RAG's tokens stands in for these models.
    """

    name: str
    method: str | None = None
    missing: str | None = None
    needs: str | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    sweep: dict[str, list[Any]] = dataclasses.field(default_factory=dict)
    on: list[str] = dataclasses.field(default_factory=list)
    systems: list[str] | None = None
    seeds: list[int] | None = None
    prompts: str | None = None
    llm: list[str] = dataclasses.field(default_factory=list)
    made: bool = False


@options
class Experiment:
    """A table or figure.

    Attributes:
        title: one line.
        corpus, retriever: those of all searches; "" if no method searches.
        paper, table: paper and table in ``published.json``; "" if the values are not published.
        search: search options.
        options: options of all methods that have them.
        seeds: seeds of the runs, one run per seed.
        models: role -> the paper's model, for display.
        notes: what else a reader has to know.
        questions: name -> question set.
        rows: the rows, in order.
    """

    title: str
    corpus: str = ""
    retriever: str = ""
    paper: str = ""
    table: str = ""
    search: dict[str, Any] = dataclasses.field(default_factory=dict)
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    seeds: list[int] = dataclasses.field(default_factory=lambda: [0])
    models: dict[str, str] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    questions: dict[str, QuestionSet]
    rows: list[Row]

    def cells(self) -> Iterator[Cell]:
        """Yield the cells of the table, row by row."""
        for row in self.rows:
            for name, questions in self.questions.items():
                if name in row.on or not row.on:
                    yield _cell(self, row, name, questions)

    def figures(self, row: Row) -> list[PublishedFigure]:
        """Return the paper's figures that a row stands for."""
        table = [figure for figure in published_figures() if (figure.paper, figure.table) == (self.paper, self.table)]
        systems = [row.name] if row.systems is None else row.systems
        named = [figure for figure in table if figure.system in systems]
        is_named = bool(named) or row.systems is not None or row.method is None
        return named if is_named else [figure for figure in table if figure.method == row.method]


class Cell(NamedTuple):
    """A row on a question set.

    Attributes:
        row: the row.
        dataset: the name of the question set.
        questions: the question set.
        options: the options of the row's method.
        missing: the reason why there are no runs; None: there is a run for each seed.
    """

    row: Row
    dataset: str
    questions: QuestionSet
    options: Mapping[str, Any] = {}
    missing: str | None = None


def _reason(missing: str | None, needs: str | None) -> str | None:
    return f"needs {needs}" if needs else missing


def folder_name(text: str) -> str:
    """Return a row's name in the form of a folder's, such as "w-o-rap"."""
    return re.sub(r"[^\w.=]+", "-", text.lower()).strip("-.")


def experiment_names() -> list[str]:
    """Return the names of the experiments of the package, such as "ra_isf/table1"."""
    return sorted(_packaged())


def read_experiment(name: str) -> Experiment:
    """Return an experiment of the package, or of a file.

    Raises:
        InputError: the file cannot be read, or a key is missing, unknown or has an unusable value.
        UnknownNameError: there is no such experiment, or the file names an unknown method, metric or protocol.
    """
    file = Path(str(_packaged().get(name, name)))
    if not file.is_file():
        raise unknown_name_error("experiment", name, _packaged())
    content = read_toml(file)
    try:
        experiment = _parse(content)
        _check(experiment)
    except IdxError as error:
        raise type(error)(f"{name}: {error}") from error
    return experiment


@cache
def _packaged() -> dict[str, Traversable]:
    folders = [folder for folder in resources.files(__package__).iterdir() if folder.is_dir()]
    files = [(folder.name, file) for folder in folders for file in folder.iterdir() if file.name.endswith(_SUFFIX)]
    return {f"{folder}/{file.name.removesuffix(_SUFFIX)}": file for folder, file in files}


def narrow(experiment: Experiment, rows: Collection[str], datasets: Collection[str]) -> Experiment:
    """Return an experiment with the named rows and question sets alone; without names, with all.

    Raises:
        UnknownNameError: there is no such row or question set.
    """
    _known("row", rows, [row.name for row in experiment.rows])
    _known("question set", datasets, experiment.questions)
    sets = {name: questions for name, questions in experiment.questions.items() if name in datasets or not datasets}
    kept = [row for row in experiment.rows if row.name in rows or not rows]
    on = [dataclasses.replace(row, on=[name for name in row.on if name in sets]) for row in kept if not row.on or sets.keys() & set(row.on)]
    return dataclasses.replace(experiment, questions=sets, rows=on)


def on_sample(experiment: Experiment) -> Experiment:
    """Return an experiment with the sample corpus, BM25 and the sample's questions in place of its own.

    The first question set with short answers is replaced, and the others are left out; every row stands on it.
    """
    short = {name: questions for name, questions in experiment.questions.items() if questions.form is None and questions.reason is None}
    name, first = next(iter((short or experiment.questions).items()))
    metrics = first.metrics if first in short.values() else ["squad_em", "squad_f1"]
    questions = QuestionSet(
        file=SAMPLE,
        metrics=metrics,
        options=first.options,
        corpus=SAMPLE,
        retriever="bm25",
        figures=name,
    )
    return dataclasses.replace(experiment, search={}, questions={SAMPLE: questions}, rows=list(map(_on_sample, experiment.rows)))


def _on_sample(row: Row) -> Row:
    """Return a row that stands on the sample, marked if its models have made weights."""
    if not row.made:
        return dataclasses.replace(row, on=[])
    systems = [row.name] if row.systems is None else row.systems
    return dataclasses.replace(row, on=[], name=f"{row.name} (made)", systems=systems, llm=[f"hf:{made_folder()}"])


def _parse(content: Mapping[str, Any]) -> Experiment:
    sets, rows = content.get("questions"), content.get("rows")
    if not isinstance(sets, dict) or not sets:
        raise InputError("questions: name a question set, as [questions.NAME]")
    if not isinstance(rows, list) or not rows:
        raise InputError("rows: give the table a row, as [[rows]]")
    questions = {name: _make(QuestionSet, values, f"questions.{name}") for name, values in sets.items()}
    made = [_make(Row, values, f"rows, number {number}") for number, values in enumerate(rows, 1)]
    return _make(Experiment, {**content, "questions": questions, "rows": [each for row in made for each in _expand(row)]}, "")


def _make(kind: type[T], values: object, where: str) -> T:
    """Create a part of an experiment; an error says where the part stands."""
    if not isinstance(values, dict):
        raise InputError(f"{where} is {values!r:.40}: write a table")
    try:
        return kind(**values)
    except IdxError as error:
        raise InputError(f"{where}: {error}" if where else str(error)) from error


def _expand(row: Row) -> list[Row]:
    """Return the rows that a row with a sweep stands for."""
    if not row.sweep:
        return [row]
    if len({len(values) for values in row.sweep.values()}) > 1 or not all(row.sweep.values()):
        raise InputError(f"row '{row.name}': the options of 'sweep' change together: give each the same number of values, at least one")
    steps = [dict(zip(row.sweep, values, strict=True)) for values in zip(*row.sweep.values(), strict=True)]
    return [
        dataclasses.replace(
            row, name=f"{row.name}, {next(iter(step))}={next(iter(step.values()))}", options={**row.options, **step}, sweep={}, systems=[]
        )
        for step in steps
    ]


def _check(experiment: Experiment) -> None:
    """Check names and values beyond their types; raise ``InputError`` or ``UnknownNameError``."""
    table = {figure for figure in published_figures() if figure.paper == experiment.paper}
    _known("paper", filter(None, [experiment.paper]), {figure.paper for figure in published_figures()})
    _known("table", filter(None, [experiment.table]), {figure.table for figure in table})
    systems = {figure.system for figure in table if figure.table == experiment.table}
    SearchOptions(**experiment.search)
    _check_seeds(experiment.seeds, "")
    for row in experiment.rows:
        _known(f"system of row '{row.name}'", row.systems or [], systems)
        _check_row(experiment, row)
    methods = {row.method for row in experiment.rows if row.method is not None}
    every_option = {field.name for name in methods for field in dataclasses.fields(find_method(name).options)}
    _known("option", experiment.options, every_option)
    for name, questions in experiment.questions.items():
        _known("protocol", filter(None, [questions.protocol]), PROTOCOLS)
        _known(f"metric of questions.{name}", questions.metrics, _metric_names())
        _known(f"form of questions.{name}", filter(None, [questions.form]), FORMS)
        _known(f"option of questions.{name}", questions.options, every_option)
        if not questions.source and questions.reason is None:
            raise InputError(f"questions.{name} needs a 'protocol' that has a set of questions, or a 'file'")
    _check_names("row", [row.name for row in experiment.rows])
    _check_names("question set", list(experiment.questions))


def _check_names(kind: str, names: list[str]) -> None:
    """Raise ``InputError`` unless each name gives a folder of its own."""
    folders = list(map(folder_name, names))
    for name, folder in zip(names, folders, strict=True):
        if not folder or folders.count(folder) > 1:
            raise InputError(f"{kind} '{name}' has the name of another {kind}, or none for a folder: give each its own")


def _check_row(experiment: Experiment, row: Row) -> None:
    where = f"row '{row.name}'"
    _known(f"question set of {where}", row.on, experiment.questions)
    _check_seeds(row.seeds or [0], f"{where}: ")
    if [row.method, row.missing, row.needs].count(None) != 2:
        raise InputError(f"{where} needs a 'method', or under 'missing' the reason why it cannot be made, or under 'needs' what it lacks")
    if row.method is None:
        return
    try:
        method: Method = find_method(row.method)
        if row.prompts is not None:
            read_prompt_set(row.method, row.prompts, method.parts)
        _known("option", row.options, {field.name for field in dataclasses.fields(method.options)})
        _known("role", filter(None, (parse_spec(text).role for text in row.llm)), method.roles)
        for questions in experiment.questions.values():
            _check_options(method, _method_options(experiment, row, questions))
    except IdxError as error:
        raise type(error)(f"{where}: {error}") from error


def _check_seeds(seeds: list[int], where: str) -> None:
    if not seeds or min(seeds) < 0 or len(set(seeds)) < len(seeds):
        raise InputError(f"{where}seeds is {seeds}: give different numbers from 0 on")


def _known(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    known = set(known)
    for name in names:
        if name not in known:
            raise unknown_name_error(kind, name, known)


def _metric_names() -> set[str]:
    """Return the names of the metrics of single answers and of searches, and of those that a model computes or that are costs."""
    return {*metric_names(), *RECALL_METRICS, *COSTS, *(name for figure in published_figures() for name in figure.own_metrics)}


def _method_options(experiment: Experiment, row: Row, questions: QuestionSet) -> dict[str, Any]:
    """Return the options of a row, with those of the experiment and of a question set that its method has."""
    known = {field.name for field in dataclasses.fields(find_method(row.method or "").options)}
    defaults = {**experiment.options, **questions.options}
    return {**{name: value for name, value in defaults.items() if name in known}, **row.options}


def _check_options(method: Method, values: Mapping[str, Any]) -> None:
    """Raise ``IdxError`` if a method cannot have options with these values."""
    method.options(**{**method.question_texts(values, ["a question"]), **values})


def _cell(experiment: Experiment, row: Row, name: str, questions: QuestionSet) -> Cell:
    if row.method is None or questions.reason is not None:
        return Cell(row, name, questions, missing=_reason(row.missing, row.needs) or questions.reason)
    values = _method_options(experiment, row, questions)
    if questions.form is not None:
        values = {"form": questions.form, **values}
        try:
            _check_options(find_method(row.method), values)
        except IdxError:
            return Cell(row, name, questions, missing=f"{row.method} gives no answers of the form '{questions.form}'")
    return Cell(row, name, questions, values)
