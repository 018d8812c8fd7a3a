"""``idx eval answers``: how right the answers of a run are, with intervals, and what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .eval_options import Level, Output, Scoring, Seed, check_output, finish, scored_runs
from .option_groups import flatten


@flatten()
def answers(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help='A folder of "idx run", or a file of predictions: lines of {"id", "answer"}, or id to answer.'),
    ],
    *,
    how: Scoring,
    level: Level = 0.95,
    seed: Seed = 0,
    output: Output,
) -> None:
    """Score the answers of a run: means with intervals, by type of question where there are types, costs, and all that was odd."""
    from wikidx.runtimes.evaluation.answers.metrics import METRICS
    from wikidx.runtimes.evaluation.reports.answers_report import answers_json, answers_report, question_records

    check_output(output)
    (scored,) = scored_runs([run], how)
    finish(
        answers_report(scored, METRICS, level=level, seed=seed),
        output,
        lambda: answers_json(scored, METRICS, level=level, seed=seed),
        records=question_records(scored.scored),
        runs=[scored],
    )
