"""``idx reproduce``: make the runs of an experiment, a paper's table or one's own, and set the figures beside the paper's.

Examples:
    idx reproduce
    idx reproduce ra_isf/table1 --sample --limit 3
    idx reproduce refeed/table1 --dry-run
    idx reproduce refeed/table1 --dataset NQ --llm openai:qwen@http://127.0.0.1:8001/v1 --limit 500
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from wikidx.base.artifacts.durable import write_durably
from wikidx.base.errors import InputError
from wikidx.base.progress_display import format_duration, show_steps

from .eval_options import Scoring, score_runs
from .method_options import InFlight, ModelOptions, PlanOptions, RetryFailed, choose_model, exit_on_interrupt, make_plan
from .option_groups import command
from .screen import Result, note, pluralize, print_result

if TYPE_CHECKING:
    from wikidx.runtimes.evaluation.scoring import ScoredRun
    from wikidx.runtimes.execution.opening import Plan
    from wikidx.runtimes.execution.resumable import ResumableRun
    from wikidx.runtimes.experiments.files import Experiment
    from wikidx.runtimes.experiments.jobs import Job
    from wikidx.runtimes.experiments.results import Outcome

REPLIES, HTML, JSON = "replies.sqlite", "report.html", "report.json"

Name = Annotated[
    str | None,
    typer.Argument(metavar="[EXPERIMENT]", help="An experiment, such as ra_isf/table1, or a TOML file; none: the experiments are listed."),
]


class _Planned(NamedTuple):
    """A job with its run, and the models that the command gives to all roles."""

    job: Job
    run: ResumableRun
    llms: tuple[str, ...]


@command()
def reproduce(
    name: Name = None,
    out: Annotated[
        Path | None, typer.Option(help=f"Folder for the runs, {HTML} and {JSON}; default: runs/EXPERIMENT, or runs/EXPERIMENT-sample.")
    ] = None,
    *,
    model_options: ModelOptions,
    questions_from: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A folder with files of questions named as their sets, such as nq-test.jsonl.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N questions of each set.")] = None,
    row: Annotated[list[str] | None, typer.Option(help="Run only this row of the table; may be repeated.")] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Run only this question set; may be repeated.")] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Use the sample corpus, BM25 and the sample's questions in place of the experiment's.")
    ] = False,
    citations: Annotated[str | None, typer.Option(help="Compute ALCE's citation metrics with this NLI model, as idx eval does.")] = None,
    judge: Annotated[str | None, typer.Option(help="Judge the answers with this language model, as idx eval does.")] = None,
    in_flight: InFlight = None,
    retry_failed: RetryFailed = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only estimate calls, tokens and time.")] = False,
) -> Result:
    """Make the runs of a paper's table, beside the paper's figures.

    Every run is a folder of idx run. Repeat the command after an interruption, or with a higher --limit, to make what is missing. The
    report holds all runs so far. Exit status 1 if questions have failed.
    """
    from wikidx.runtimes.evaluation.uncertainty import Bootstrap
    from wikidx.runtimes.experiments.jobs import check_roles, plan_jobs
    from wikidx.runtimes.experiments.results import Outcome, check_metrics

    if name is None:
        return _list_experiments()
    experiment, selected = _read(name, row or (), dataset or (), sample=sample)
    check_metrics(experiment, {"--citations": citations, "--judge": judge})
    folder = out or _default_folder(name, is_sample=sample)
    jobs = plan_jobs(selected, folder, questions_from, limit)
    estimated = _estimate(jobs, retry_failed=retry_failed)
    if dry_run:
        return estimated
    print_result(estimated, as_json=False)
    roles = {role for job in jobs for role in job.method.roles}
    options = choose_model(model_options, roles, dry_run=False)
    check_roles(options.llm or (), roles)
    _make([_prepare(job, experiment, options, in_flight, retry_failed=retry_failed) for job in jobs], folder)
    result = _write(Outcome(name, experiment, *_score(experiment, folder, citations, judge), Bootstrap()), folder)
    n_failed = sum(job.finished().n_failed for job in jobs)
    failure = f"{pluralize(n_failed, 'question')} failed: add --retry-failed to repeat failed questions" if n_failed else None
    return result._replace(failure=failure)


def _read(name: str, rows: Sequence[str], datasets: Sequence[str], *, sample: bool) -> tuple[Experiment, Experiment]:
    """Return an experiment, and its selected part; both on the sample corpus if ``sample``."""
    from wikidx.runtimes.experiments.files import narrow, on_sample, read_experiment

    experiment = read_experiment(name)
    selected = narrow(experiment, rows, datasets)
    return (on_sample(narrow(experiment, (), datasets)), on_sample(selected)) if sample else (experiment, selected)


def _default_folder(name: str, *, is_sample: bool) -> Path:
    from wikidx.runtimes.experiments.files import experiment_names

    known = name if name in experiment_names() else Path(name).stem
    return Path("runs") / (f"{known}-sample" if is_sample else known)


def _list_experiments() -> Result:
    from wikidx.runtimes.experiments.files import experiment_names, read_experiment

    titles = {name: read_experiment(name).title for name in experiment_names()}
    values = {"experiments": [{"experiment": name, "title": title} for name, title in titles.items()]}
    return Result(values, [f"{name:<26}{title}" for name, title in titles.items()])


def _estimate(jobs: Sequence[Job], *, retry_failed: bool) -> Result:
    """Return what the missing questions will take."""
    from wikidx.runtimes.evaluation.reports import tables
    from wikidx.runtimes.experiments.jobs import ASSUMED_SPEED, Estimate, estimate, tokens_per_second

    finished = {job.folder: job.finished() for job in jobs}
    counts = [(job, job.n_asked - finished[job.folder].n_done(retry_failed=retry_failed)) for job in jobs]
    costs = [(job.name, n, estimate(job, finished[job.folder]).times(n)) for job, n in counts if n]
    total, speed = Estimate(*(math.fsum(each) for each in zip(*(cost for *_, cost in costs), strict=True))), tokens_per_second(finished)
    rows: list[list[tables.Cell]] = [[name, n, *cost] for name, n, cost in (*costs, ("all", sum(n for _, n, _ in costs), total))]
    names, seconds = ("run", "questions", *Estimate._fields), total.tokens / (speed or ASSUMED_SPEED)
    columns = tables.columns(*(name.replace("_", " ") for name in names), show=tables.brief)
    source = "as in the runs so far" if speed else "assumed until a run is finished"
    notes = [
        tables.text(tables.Table(columns, rows, "To be done")),
        f"about {format_duration(seconds)}, at {speed or ASSUMED_SPEED:,.0f} tokens a second ({source})",
        "from the questions asked so far, or from a dry run of one question, whose generated texts count at full length",
    ]
    values = {"runs": [dict(zip(names, row, strict=True)) for row in rows], "tokens_per_s": speed, "seconds": seconds}
    return Result(values, notes=notes if costs else ["nothing is left to be done"])


def _prepare(
    job: Job,
    experiment: Experiment,
    options: ModelOptions,
    in_flight: int | None,
    *,
    retry_failed: bool,
) -> _Planned:
    from wikidx.runtimes.execution.resumable import RunOptions, answering_run
    from wikidx.runtimes.experiments.made import make_checkpoint
    from wikidx.runtimes.questions import SAMPLE

    if job.cell.row.made and job.cell.dataset == SAMPLE:
        make_checkpoint()
    run_options = RunOptions(seed=job.seed, in_flight=in_flight, retry_failed=retry_failed)
    run = answering_run(_plan(job, experiment, options), job.questions, job.selection, run_options, limit=job.limit)
    return _Planned(job, run, tuple(job.cell.row.llm or options.llm or ()))


def _plan(job: Job, experiment: Experiment, options: ModelOptions) -> Plan:
    """Return the plan of a job; without a search if its method can do without one.

    The user's options of searches are not for passages that the experiment's questions give.
    """
    from wikidx.runtimes.execution.given import GIVEN
    from wikidx.runtimes.experiments.jobs import model_options_of, models_of

    questions, row, roles = job.cell.questions, job.cell.row, job.method.roles
    chosen = {text.partition("=")[0] for text in options.search or ()}
    search = [f"{name}={value}" for name, value in experiment.search.items() if name not in chosen]
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)} | {
        "llm": models_of(roles, row.llm or options.llm or ()),
        "llm_option": model_options_of(roles, options.llm_option or ()),
    }
    closed_book = {**values, "corpus": None, "retriever": None, "search": None, "reranker": None, "url": None}
    try:
        return make_plan(job.method, PlanOptions(**closed_book), dry_run=False, base=job.values)
    except InputError:
        retriever = options.retriever or questions.retriever or experiment.retriever
        if retriever != GIVEN:
            values["corpus"] = options.corpus or questions.corpus or experiment.corpus
            values["search"] = [*search, *(options.search or ())]
        elif options.retriever is None:
            values = closed_book
        values["retriever"] = retriever
        return make_plan(job.method, PlanOptions(**values), dry_run=False, base=job.values, questions=job.questions)


def _make(planned: Sequence[_Planned], folder: Path) -> None:
    """Make what is missing of the runs; those with the same models and search share them."""
    from wikidx.runtimes.execution.opening import open_services
    from wikidx.runtimes.execution.runs import check_settings

    for each in planned:  # first, because the runs may take long
        check_settings(each.job.folder, each.run.settings())
    logging.getLogger("wikidx.runtimes.execution.resumable").setLevel(logging.WARNING)
    missing = [each for each in planned if each.job.finished().n_done(retry_failed=each.run.options.retry_failed) < each.job.n_asked]
    n_made = 0
    with exit_on_interrupt("interrupted: the same command resumes, and then writes the report"):
        for group in _groups(missing):
            with open_services(_shared_plan(group), cache=folder / REPLIES) as services, show_steps() as step:
                for each in group:
                    n_made += 1
                    source = {"file": each.job.file, "format": None}
                    progress = step(f"{n_made}/{len(missing)} {each.job.name}", "questions")
                    each.run.run(each.job.folder, services=services, source=source, progress=progress)


def _groups(planned: Sequence[_Planned]) -> Iterator[list[_Planned]]:
    """Yield the runs with the same models and search."""
    left = list(planned)
    while left:
        key = left[0].llms, left[0].run.plan.target
        yield [each for each in left if (each.llms, each.run.plan.target) == key]
        left = [each for each in left if (each.llms, each.run.plan.target) != key]


def _shared_plan(group: Sequence[_Planned]) -> Plan:
    """Return a plan whose models have the roles of all methods of a group."""
    from wikidx.runtimes.experiments.jobs import models_of

    plan = group[0].run.plan
    roles = tuple(dict.fromkeys(role for each in group for role in each.run.plan.method.roles))
    options = dict.fromkeys(option for each in group for option in each.run.plan.llm_options)
    method = dataclasses.replace(plan.method, roles=roles)
    return dataclasses.replace(plan, method=method, llms=models_of(roles, group[0].llms), llm_options=tuple(options))


def _score(
    experiment: Experiment, folder: Path, citations: str | None, judge: str | None
) -> tuple[dict[tuple[str, str], list[ScoredRun]], dict[tuple[str, str], str]]:
    """Return (row, question set) -> its scored runs, and (row, question set) -> the error of a run that cannot be scored."""
    from wikidx.runtimes.evaluation.answers.metrics import metric_names
    from wikidx.runtimes.experiments.jobs import describe_changes, run_folders, run_name
    from wikidx.runtimes.experiments.results import option_of

    scored: dict[tuple[str, str], list[ScoredRun]] = {}
    left_out: dict[tuple[str, str], str] = {}
    found = {path: (cell, run_name(cell, seed, path)) for cell, seed, path in run_folders(experiment, folder) if _has_predictions(path)}
    for dataset, questions in experiment.questions.items():
        options = set(map(option_of, questions.metrics))
        scoring = Scoring(
            metrics=",".join(name for name in questions.metrics if name in metric_names()) or None,
            dataset=[dataset],
            citations=citations if "--citations" in options else None,
            judge=judge if "--judge" in options else None,
        )
        errors: dict[Path, str] = {}
        for run in score_runs([path for path, (cell, _) in found.items() if cell.dataset == dataset], scoring, errors):
            cell, name = found[run.predictions.path]
            if changes := describe_changes(cell, run.predictions.run_json):
                errors[run.predictions.path] = (
                    f"{run.predictions.path} was made before the row changed, {changes}: remove it to run the row anew"
                )
            else:
                scored.setdefault((cell.row.name, dataset), []).append(run._replace(name=name))
        for path, error in errors.items():
            cell, name = found[path]
            left_out[cell.row.name, dataset] = error
            note(f"{name} is left out: {error}")
    return scored, left_out


def _has_predictions(folder: Path) -> bool:
    from wikidx.runtimes.execution.runs import PREDICTIONS

    return (folder / PREDICTIONS).is_file() and (folder / PREDICTIONS).stat().st_size > 0


def _write(outcome: Outcome, folder: Path) -> Result:
    """Write the report as HTML and JSON, and return the figures."""
    from wikidx.runtimes.evaluation.reports import report as reports
    from wikidx.runtimes.experiments.results import outcome_json, outcome_report, summary_report

    content: Any = outcome_json(outcome)
    folder.mkdir(parents=True, exist_ok=True)
    write_durably(folder / JSON, json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False).encode())
    report = outcome_report(outcome)
    write_durably(folder / HTML, reports.to_html(report).encode())
    more = f"with the set-ups that differ, costs and groups of questions: {folder / HTML}, {folder / JSON}"
    return Result(content, [reports.to_text(summary_report(report))], [more])
