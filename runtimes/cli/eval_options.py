"""Options and steps shared by ``idx eval answers`` and ``idx eval compare``: read and score runs, write the report."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wikidx.corpora.artifacts.durable import write_durably
from wikidx.corpora.errors import InputError

from .method_options import leaving_at_once
from .question_options import QuestionFormat
from .screen import note, say, say_json, steps

if TYPE_CHECKING:
    from wikidx.runtimes.evaluation.answers.metric import Metric
    from wikidx.runtimes.evaluation.by_models.measured import RowMetric
    from wikidx.runtimes.evaluation.reports.report import Report
    from wikidx.runtimes.evaluation.scoring import ScoredRun
    from wikidx.runtimes.questions import Question

Level = Annotated[float, typer.Option(min=0.5, max=0.999, help="Of the intervals.")]
Seed = Annotated[int, typer.Option(min=0, help="Of resamples and random swaps.")]

_EVERY_METRIC = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Options of scoring; None: not requested, or detected from the run."""

    questions: Annotated[
        str | None,
        typer.Option(
            help='A file of questions with gold answers, or "sample"; unless named the run\'s own file, if it is here, else its '
            "predictions."
        ),
    ] = None
    question_format: QuestionFormat = None
    metrics: Annotated[
        str | None, typer.Option(help="Names of metrics, joined by commas, or all; those of the questions' data set unless named.")
    ] = None
    dataset: Annotated[
        list[str] | None,
        typer.Option("--dataset", help="What the questions are called, as NQ or HotpotQA; by their file's name unless said."),
    ] = None
    citations: Annotated[
        str | None, typer.Option(help="Also ALCE's citation recall and precision, by this NLI model: true, small, hf:NAME, or a folder.")
    ] = None
    sentences: Annotated[str, typer.Option(help="How answers are cut into sentences for --citations: punkt, as ALCE does, or simple.")] = (
        "punkt"
    )
    judge: Annotated[str | None, typer.Option("--judge", help="Also the verdict of a language model, as BACKEND:MODEL[@URL].")] = None
    votes: Annotated[int, typer.Option(min=1, help="How often the judge is asked about an answer.")] = 5
    device: Annotated[str, typer.Option(help="Where the NLI model and a local judge run: auto, cpu, cuda, cuda:1, mps.")] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Destinations and formats of a report."""

    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False
    html: Annotated[Path | None, typer.Option(help="Also write the report with plots as one HTML file.")] = None
    per_question: Annotated[Path | None, typer.Option(help="Also write the values of every question, as JSON Lines.")] = None


def scored_runs(paths: Sequence[Path], how: Scoring) -> list[ScoredRun]:
    """Read and score runs.

    Raises:
        InputError: a run, its questions or a name of a metric cannot be used, or the data sets are not as many as the runs.
        IdxError: a model cannot be opened.
    """
    from wikidx.runtimes.evaluation.predictions import read
    from wikidx.runtimes.evaluation.run_questions import run_questions
    from wikidx.runtimes.evaluation.scoring import ScoredRun, score

    datasets = _one_each(how.dataset or [], len(paths))
    runs = list[ScoredRun]()
    with leaving_at_once(), _row_metrics(how) as row_metrics:
        for path, name, dataset in zip(paths, _names(paths), datasets, strict=True):
            predictions = read(path)
            asked = run_questions(predictions, how.questions, how.question_format)
            metrics = chosen_metrics(how.metrics, asked.questions)
            if not metrics and not row_metrics:
                raise InputError(f"no metric applies to the questions of {path}, which have no gold answers: name others with --questions")
            runs.append(score(name, predictions, asked, metrics, row_metrics, dataset))
    return runs


def chosen_metrics(named: str | None, questions: Sequence[Question]) -> list[Metric]:
    """Return the metrics of a list of names.

    Raises:
        InputError: the list is empty.
        UnknownNameError: a name is not known.
    """
    from wikidx.corpora.registry import near_names
    from wikidx.runtimes.evaluation.answers.metrics import METRICS, default_metrics

    if named == _EVERY_METRIC:
        return list(METRICS.values())
    names = default_metrics(questions) if named is None else [name.strip() for name in named.split(",") if name.strip()]
    if named is not None and not names:
        raise InputError(f"--metrics '{named}' names no metric: name some, joined by commas, or say all")
    unknown = next((name for name in names if name not in METRICS), None)
    if unknown is not None:
        raise near_names("metric", unknown, METRICS)
    return [METRICS[name] for name in dict.fromkeys(names)]


def finish(
    report: Report, output: Output, told: Callable[[], Any], *, records: Iterable[Mapping[str, Any]], runs: Sequence[ScoredRun] = ()
) -> None:
    """Write and print a report; exit with status 1 if a judge failed on some answers of the runs.

    Args:
        report: the report.
        output: destinations and formats.
        told: returns the report as JSON values.
        records: one per question.
        runs: the scored runs.

    Raises:
        MissingExtraError: HTML is requested and matplotlib is not installed.
    """
    from wikidx.runtimes.evaluation.reports.report import as_html, as_markdown, as_text

    if output.html is not None:
        write_durably(output.html, as_html(report).encode())
        note(f"report: {output.html}")
    if output.per_question is not None:
        lines = "".join(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in records)
        write_durably(output.per_question, lines.encode())
        note(f"per question: {output.per_question}")
    if output.as_json:
        say_json(told())
    else:
        say((as_markdown if output.as_markdown else as_text)(report))
    failures = [(run.name, name, about) for run in runs for name, about in run.measured.items() if about.get("failures")]
    for run, name, about in failures:
        why, n = max(about["failures"].items(), key=lambda failure: failure[1])
        note(f"{run}: {name} failed on {about['counts']['failed']:,} answers, most often ({n:,} calls): {why}")
    if failures:
        raise typer.Exit(1)


def check_output(output: Output) -> None:
    """Raise ``InputError`` if an output cannot be written, before a computation that may take long."""
    if output.as_json and output.as_markdown:
        raise InputError("--json and --markdown: say one of them")
    for file in filter(None, (output.html, output.per_question)):
        if not file.absolute().parent.is_dir():
            raise InputError(f"{file} cannot be written: there is no folder {file.absolute().parent}")
        if file.is_dir():
            raise InputError(f"{file} is a folder: name a file")


@contextlib.contextmanager
def _row_metrics(how: Scoring) -> Iterator[list[RowMetric]]:
    """Open the models for citations and the judge; the judge's is closed at the end."""
    found: list[RowMetric] = []
    with contextlib.ExitStack() as closing:
        step = closing.enter_context(steps())
        if how.citations is not None:
            from wikidx.runtimes.evaluation.by_models.citations import AlceCitations
            from wikidx.runtimes.evaluation.by_models.nli import Checkpoint
            from wikidx.runtimes.evaluation.by_models.sentence_splitting import splitter
            from wikidx.runtimes.llms.options import EngineOptions

            nli = Checkpoint(how.citations, EngineOptions(device=how.device))
            found.append(AlceCitations(nli, splitter(how.sentences), progress=step("citations", "pairs")))
        if how.judge is not None:
            from wikidx.runtimes.evaluation.by_models.judge import Judge
            from wikidx.runtimes.llms.naming import Settings, choose, close_llms, open_llms

            llms = open_llms(choose([how.judge], ["judge"]), Settings(device=how.device))
            closing.callback(close_llms, llms.values())
            found.append(Judge(llms["judge"], votes=how.votes, progress=step("judge", "votes")))
        yield found


def _names(paths: Sequence[Path]) -> list[str]:
    """Return names of runs: those of their folders or files, or the whole paths if names repeat."""
    short = [path.resolve().name if path.is_dir() else path.name.partition(".")[0] for path in paths]
    names = [name if short.count(name) == 1 else str(path) for name, path in zip(short, paths, strict=True)]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise InputError(f"{doubled} is named twice: name each run once")
    return names


def _one_each(datasets: Sequence[str], n: int) -> list[str]:
    if len(datasets) not in (0, 1, n):
        raise InputError(f"{len(datasets)} --dataset for {n} runs: give one for all, or one for each in order")
    return list(datasets or [""]) * (n if len(datasets) <= 1 else 1)
