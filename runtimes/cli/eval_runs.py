"""``idx eval answers`` scores a run's answers; ``idx eval compare`` compares several runs and tests their differences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .eval_options import Level, Output, Scoring, Seed, check_output, finish, score_runs
from .option_groups import flatten


@flatten()
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
    """Score the answers of a run: means with intervals, also by type of question if known, costs, and data issues."""
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


@flatten()
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
