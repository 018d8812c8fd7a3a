"""Options of the ``idx eval`` commands, and functions that score runs and write reports."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wikidx.base.artifacts.durable import write_durably
from wikidx.base.errors import IdxError, InputError
from wikidx.base.progress_display import show_steps

from .completion import words
from .method_options import exit_on_interrupt
from .question_options import ScoredQuestionFormat
from .screen import Result, note, print_result

if TYPE_CHECKING:
    from wikidx.runtimes.evaluation.answers.metric import Metric
    from wikidx.runtimes.evaluation.by_models.row_metrics import RowMetric
    from wikidx.runtimes.evaluation.reports.report import Report
    from wikidx.runtimes.evaluation.scoring import ScoredRun
    from wikidx.runtimes.questions import Question

Level = Annotated[float, typer.Option(min=0.5, max=0.999, help="Confidence level of the intervals.")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed of the bootstrap and of the randomisation test.")]

_EVERY_METRIC = "all"
METRICS_HELP = "Metrics, joined by commas, also plug-ins as FILE.py:NAME; or all."

FORMATS = ("table", "markdown", "csv", "latex", "html", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Options of scoring. If ``citations`` or ``judge`` is None, that metric is not computed; for other options, None means the default."""

    questions: Annotated[
        str | None,
        typer.Option(
            help='A file of questions with gold answers, or "sample". Default: the file that the run read; if it is missing, the '
            "questions in the predictions."
        ),
    ] = None
    question_format: ScoredQuestionFormat = None
    metrics: Annotated[str | None, typer.Option(help=METRICS_HELP + " Default: the run's own, or those of the data set.")] = None
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            "--dataset", help="Name of the data set, such as NQ or HotpotQA; default: from the file's name. May be repeated, once per run."
        ),
    ] = None
    citations: Annotated[
        str | None,
        typer.Option(help="Also compute ALCE's citation recall and precision with this NLI model: true, small, hf:NAME or a folder."),
    ] = None
    sentences: Annotated[str, typer.Option(help="Sentence splitter for --citations: punkt (as in ALCE) or simple.")] = "punkt"
    judge: Annotated[str | None, typer.Option("--judge", help="Also judge the answers with this language model: BACKEND:MODEL[@URL].")] = (
        None
    )
    votes: Annotated[int, typer.Option(min=1, help="Number of the judge's votes per answer.")] = 5
    device: Annotated[str, typer.Option(help="Device of the NLI model and of a local judge: auto, cpu, cuda, cuda:1, mps.")] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Destinations and formats of a report."""

    format: Annotated[str, typer.Option(help=f"Format of the output: {', '.join(FORMATS)}.", autocompletion=words(*FORMATS))] = "table"
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help="Print only the tables whose title begins with this text; may be repeated."),
    ] = None
    html: Annotated[Path | None, typer.Option(help="Also write the report with plots as one HTML file.")] = None
    per_question: Annotated[Path | None, typer.Option(help="Also write the values of every question, as JSON Lines.")] = None

    @property
    def is_json(self) -> bool:
        """True if the report is printed as JSON."""
        return self.as_json or self.format == "json"


def find_runs(folder: Path) -> list[Path]:
    """Return the folders of ``idx run`` in a folder, at any depth.

    Raises:
        InputError: the folder does not exist, or holds no run.
    """
    from wikidx.runtimes.execution.runs import PREDICTIONS

    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: name one that holds folders of 'idx run --out'")
    found = sorted(file.parent for file in folder.rglob(PREDICTIONS))
    if not found:
        raise InputError(f"{folder} holds no {PREDICTIONS}, at any depth: name a folder that holds folders of 'idx run --out'")
    return found


def score_each(paths: Sequence[Path], folder: Path, scoring: Scoring) -> tuple[list[ScoredRun], dict[str, str]]:
    """Read and score the runs in a folder; the name of a run is its path in the folder.

    Returns:
        The scored runs, and why others were left out: name -> error.

    Raises:
        InputError: no run can be scored.
    """
    errors: dict[Path, str] = {}
    names = {path: path.name if path == folder else str(path.relative_to(folder)) for path in paths}
    runs = [run._replace(name=names[run.predictions.path]) for run in score_runs(paths, scoring, errors)]
    left_out = {names[path]: error for path, error in errors.items()}
    for name, error in left_out.items():
        note(f"{name} is left out: {error}")
    if not runs:
        raise InputError(f"none of the {len(paths)} runs in {folder} can be scored: the lines above say why")
    return runs, left_out


def score_runs(paths: Sequence[Path], scoring: Scoring, left_out: dict[Path, str] | None = None) -> list[ScoredRun]:
    """Read and score runs.

    Args:
        paths: folders or files of the runs.
        scoring: the options.
        left_out: receives the error of each run that cannot be scored; None: such an error is raised.

    Raises:
        InputError: a run or its questions cannot be used, a run is named twice, or several data sets are named but not one per run.
        IdxError: a metric's name is unknown, or a model cannot be opened.
    """
    from wikidx.runtimes.evaluation.scoring import ScoredRun

    datasets = _one_per_run(scoring.dataset or [], len(paths))
    runs = list[ScoredRun]()
    with exit_on_interrupt(), _row_metrics(scoring) as row_metrics:
        for path, name, dataset in zip(paths, _names(paths), datasets, strict=True):
            try:
                runs.append(_score_run(path, name, dataset, scoring, row_metrics))
            except IdxError as error:
                if left_out is None:
                    raise
                left_out[path] = str(error)
    return runs


def _score_run(path: Path, name: str, dataset: str, scoring: Scoring, row_metrics: Sequence[RowMetric]) -> ScoredRun:
    from wikidx.runtimes.evaluation.predictions import load_predictions
    from wikidx.runtimes.evaluation.retrieval.passage_texts import PassageTexts
    from wikidx.runtimes.evaluation.run_questions import run_questions
    from wikidx.runtimes.evaluation.scoring import score_run
    from wikidx.runtimes.evaluation.step_recall import step_recall

    predictions = load_predictions(path)
    questions = run_questions(predictions, scoring.questions, scoring.question_format)
    metrics = select_metrics(scoring.metrics or recorded_metrics(path, predictions.run_json), questions.questions)
    if not metrics and not row_metrics:
        raise InputError(f"no metric applies to the questions of {path}, which have no gold answers: name others with --questions")
    scored = score_run(name, predictions, questions, metrics, row_metrics, dataset)
    return scored._replace(recall=step_recall(scored.rows, scored.questions, PassageTexts(predictions.run_json)))


def select_metrics(names_text: str | None, questions: Sequence[Question]) -> list[Metric]:
    """Return the metrics in a comma-separated list of names; "all" selects all metrics, None the default metrics of the questions.

    Raises:
        InputError: the list names no metric, or a plug-in cannot be used.
        UnknownNameError: a name is unknown.
    """
    from wikidx.base.plugins import name_of
    from wikidx.runtimes.evaluation.answers.metrics import default_metrics, find_metric, metric_names

    if names_text == _EVERY_METRIC:
        return list(map(find_metric, metric_names()))
    names = default_metrics(questions) if names_text is None else [name.strip() for name in names_text.split(",") if name.strip()]
    if names_text is not None and not names:
        raise InputError(f"--metrics '{names_text}' names no metric: name some, joined by commas, or use all")
    return [find_metric(name) for name in dict.fromkeys(name_of("metric", name) for name in names)]


def recorded_metrics(path: Path, run_json: Mapping[str, Any]) -> str | None:
    """Return the metrics that a run was given, as ``Scoring.metrics``; None if it was given none.

    Raises:
        InputError: one of them is a plug-in that has not been named again, or another version of it has.
    """
    from wikidx.runtimes.evaluation.answers.metrics import describe_metrics

    recorded: Mapping[str, Mapping[str, str]] = (run_json.get("settings") or {}).get("metrics") or {}
    for name, about in recorded.items():
        if describe_metrics([name])[name] != about:
            raise InputError(
                f"{path} records the metric '{name}', a plug-in (sha256 {about.get('metric_sha256', ''):.12}…): name this file again "
                "with --plugin FILE.py:NAME, or choose metrics with --metrics"
            )
    return ",".join(recorded) or None


def finish(
    report: Report, output: Output, to_json: Callable[[], Any], *, records: Iterable[Mapping[str, Any]], runs: Sequence[ScoredRun] = ()
) -> None:
    """Write and print a report; exit with status 1 if the model of a metric failed on some answers of the runs.

    Args:
        report: the report.
        output: destinations and formats.
        to_json: returns the report as JSON values; called only if JSON is requested.
        records: one record per question, for ``output.per_question``.
        runs: the scored runs.
    """
    from wikidx.runtimes.evaluation.reports import report as reports

    selected = reports.select_tables(report, output.tables) if output.tables else report
    if output.html is not None:
        write_durably(output.html, reports.to_html(report).encode())
        note(f"report: {output.html}")
    if output.per_question is not None:
        lines = "".join(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in records)
        write_durably(output.per_question, lines.encode())
        note(f"per question: {output.per_question}")
    failures = [
        f"{run.name}: {name} failed on {about['counts']['failed']:,} answers, most often ({n:,} calls): {why}"
        for run in runs
        for name, about in run.row_metrics.items()
        for why, n in Counter[str](about.get("failures")).most_common(1)
    ]
    shown = [] if output.is_json else [reports.render(selected, output.format)]
    print_result(Result(to_json, shown, failure="\n".join(failures) or None), as_json=output.is_json)


def check_output(output: Output) -> None:
    """Check the options of a report.

    Raises:
        InputError: JSON and another format are requested, tables of JSON are selected, an output's folder does not exist, or an output is a
            folder.
        UnknownNameError: the format is unknown.
    """
    from wikidx.base.registry import unknown_name_error

    if output.format not in FORMATS:
        raise unknown_name_error("format", output.format, FORMATS)
    if output.as_json and output.format not in ("table", "json"):
        raise InputError(f"--json and --format {output.format}: use one of them")
    if output.tables and output.is_json:
        raise InputError("--table selects tables, which JSON has not: leave it out, or use another --format")
    for file in filter(None, (output.html, output.per_question)):
        if not file.absolute().parent.is_dir():
            raise InputError(f"{file} cannot be written: there is no folder {file.absolute().parent}")
        if file.is_dir():
            raise InputError(f"{file} is a folder: name a file")


@contextlib.contextmanager
def _row_metrics(scoring: Scoring) -> Iterator[list[RowMetric]]:
    """Yield the list of requested metrics that use a model; close the judge's model at the end."""
    row_metrics: list[RowMetric] = []
    with contextlib.ExitStack() as stack:
        step = stack.enter_context(show_steps())
        if scoring.citations is not None:
            from wikidx.runtimes.evaluation.by_models.citations import AlceCitations
            from wikidx.runtimes.evaluation.by_models.nli import Checkpoint
            from wikidx.runtimes.evaluation.by_models.sentence_splitting import splitter
            from wikidx.runtimes.llms.options import EngineOptions

            nli = Checkpoint(scoring.citations, EngineOptions(device=scoring.device))
            row_metrics.append(AlceCitations(nli, splitter(scoring.sentences), progress=step("citations", "pairs")))
        if scoring.judge is not None:
            from wikidx.runtimes.evaluation.by_models.judge import Judge
            from wikidx.runtimes.llms.naming import Settings, assign_models, close_llms, open_llms

            llms = open_llms(assign_models([scoring.judge], ["judge"]), Settings(device=scoring.device))
            stack.callback(close_llms, llms.values())
            row_metrics.append(Judge(llms["judge"], votes=scoring.votes, progress=step("judge", "votes")))
        yield row_metrics


def _names(paths: Sequence[Path]) -> list[str]:
    """Return a name for each run: its folder's or file's name, or its whole path if several runs share the name."""
    short = [path.resolve().name if path.is_dir() else path.name.partition(".")[0] for path in paths]
    names = [name if short.count(name) == 1 else str(path) for name, path in zip(short, paths, strict=True)]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise InputError(f"{doubled} is named twice: name each run once")
    return names


def _one_per_run(datasets: Sequence[str], n: int) -> list[str]:
    if len(datasets) not in (0, 1, n):
        raise InputError(f"{len(datasets)} --dataset for {n} runs: give one for all, or one for each in order")
    return list(datasets or [""]) * (n if len(datasets) <= 1 else 1)
