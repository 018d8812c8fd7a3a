"""``idx eval answers`` scores a run, ``idx eval compare`` compares several, and ``idx eval folder`` scores all runs of a folder.

``idx eval self-knowledge`` makes SKR's file of two runs.

Examples:
    idx eval answers runs/rag
    idx eval answers predictions.jsonl --questions nq-test.jsonl --metrics squad_em,squad_f1
    idx eval compare runs/direct runs/rag --html compare.html
    idx eval folder runs
    idx eval folder runs --format latex --table Runs
    idx eval self-knowledge runs/cot runs/iter_retgen --out known.json
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from wikidx.base.artifacts.durable import write_durably
from wikidx.base.errors import InputError

from .eval_options import Level, Output, Scoring, Seed, check_output, find_runs, finish, score_each, score_runs
from .option_groups import command
from .screen import Result


@command()
def answers(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help='A folder of "idx run", or a file of predictions: lines of {"id", "answer"}, or one object of id -> answer.'
        ),
    ],
    *,
    scoring: Scoring,
    level: Level = 0.95,
    seed: Seed = 0,
    output: Output,
) -> None:
    """Score the answers of a run: means with intervals, also by group of questions, what went wrong, costs, examples, data issues."""
    from wikidx.runtimes.evaluation.reports.answers_report import answers_json, answers_report, question_records
    from wikidx.runtimes.evaluation.uncertainty import Bootstrap

    check_output(output)
    (scored,) = score_runs([run], scoring)
    bootstrap = Bootstrap(level, seed)
    finish(
        answers_report(scored, bootstrap),
        output,
        lambda: answers_json(scored, bootstrap),
        records=question_records(scored),
        runs=[scored],
    )


@command()
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help='Folders of "idx run", or files of predictions; each is compared with the first.'),
    ],
    *,
    scoring: Scoring,
    every_pair: Annotated[bool, typer.Option("--every-pair", help="Compare every pair of runs.")] = False,
    every_paper: Annotated[
        bool, typer.Option("--every-figure", help="Show all published results on a data set, not only those of the runs' methods.")
    ] = False,
    level: Level = 0.95,
    seed: Seed = 0,
    output: Output,
) -> None:
    """Compare runs on the questions that they share: differences with paired intervals, wins and losses, costs, published results."""
    from wikidx.runtimes.evaluation.reports.comparison_report import compare as compare_runs
    from wikidx.runtimes.evaluation.reports.comparison_report import comparison_json, comparison_report, question_records
    from wikidx.runtimes.evaluation.uncertainty import Bootstrap

    check_output(output)
    comparison = compare_runs(score_runs(runs, scoring), Bootstrap(level, seed), every_pair=every_pair, every_paper=every_paper)
    finish(
        comparison_report(comparison),
        output,
        lambda: comparison_json(comparison),
        records=question_records(comparison.runs),
        runs=comparison.runs,
    )


@command()
def folder(
    path: Annotated[Path, typer.Argument(metavar="FOLDER", help='A folder that holds folders of "idx run", at any depth.')],
    *,
    scoring: Scoring,
    level: Level = 0.95,
    seed: Seed = 0,
    output: Output,
) -> None:
    """Score all runs in a folder as one table, and runs that differ in the seed alone also as mean and standard deviation."""
    from wikidx.runtimes.evaluation.reports.answers_report import answers_json
    from wikidx.runtimes.evaluation.reports.comparison_report import question_records, seeds_json
    from wikidx.runtimes.evaluation.reports.folder_report import folder_report
    from wikidx.runtimes.evaluation.uncertainty import Bootstrap

    check_output(output)
    scored, left_out = score_each(find_runs(path), path, scoring)
    bootstrap = Bootstrap(level, seed)
    finish(
        folder_report(str(path), scored, left_out, bootstrap),
        output,
        lambda: {
            "folder": str(path),
            "runs": [answers_json(run, bootstrap) for run in scored],
            "seeds": seeds_json(scored),
            "left_out": left_out,
        },
        records=question_records(scored),
        runs=scored,
    )


@command()
def self_knowledge(
    without: Annotated[Path, typer.Argument(metavar="WITHOUT", help='A folder of "idx run" without passages, such as one of cot.')],
    with_passages: Annotated[Path, typer.Argument(metavar="WITH", help="One with passages on the same questions.")],
    *,
    out: Annotated[Path, typer.Option(help="The file, for --set self_knowledge= of the method skr.")],
    scoring: Scoring,
) -> Result:
    """Make SKR's self-knowledge of two runs: for each question whether passages made the answer better or worse, by their first metric."""
    from wikidx.runtimes.evaluation.comparing import self_knowledge as compare_answers

    first, second = score_runs([without, with_passages], scoring)
    metric = next((name for name in first.values if name in second.values), "")
    records = compare_answers(first, second, metric) if metric else []
    if not records:
        raise InputError(f"{without} and {with_passages} share no answered question, or no metric: name one with --metrics")
    write_durably(out, json.dumps(records, ensure_ascii=False, indent=1).encode())
    counts = Counter(record["status"] for record in records)
    shown = [f"{status}: {n:,} questions (by {metric})" for status, n in sorted(counts.items())]
    return Result({"out": str(out), "metric": metric, "questions": len(records), "statuses": counts}, [*shown, str(out)])
