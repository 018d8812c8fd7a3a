"""``idx eval answers``: how right the answers of a run are, with intervals, and what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .eval_options import (
    AsJson,
    AsMarkdown,
    Citations,
    Datasets,
    Device,
    Html,
    JudgeModel,
    Level,
    Metrics,
    Output,
    PerQuestion,
    Questions,
    Scoring,
    Seed,
    Sentences,
    Votes,
    check_output,
    finish,
    scored_runs,
)
from .question_options import QuestionFormat


def answers(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help='A folder of "idx run", or a file of predictions: lines of {"id", "answer"}, or id to answer.'),
    ],
    questions: Questions = None,
    question_format: QuestionFormat = None,
    metrics: Metrics = None,
    dataset: Datasets = None,
    citations: Citations = None,
    sentences: Sentences = "punkt",
    judge: JudgeModel = None,
    votes: Votes = 5,
    device: Device = "auto",
    level: Level = 0.95,
    seed: Seed = 0,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
    html: Html = None,
    per_question: PerQuestion = None,
) -> None:
    """Score the answers of a run: means with intervals, by type of question where there are types, costs, and all that was odd."""
    from runtimes.evaluation.answers.metrics import METRICS
    from runtimes.evaluation.reports.answers_report import answers_json, answers_report, question_records

    output = Output(as_json=as_json, as_markdown=as_markdown, html=html, per_question=per_question)
    check_output(output)
    how = Scoring(
        questions=questions,
        form=question_format,
        metrics=metrics,
        datasets=dataset,
        citations=citations,
        sentences=sentences,
        judge=judge,
        votes=votes,
        device=device,
    )
    (scored,) = scored_runs([run], how)
    finish(
        answers_report(scored, METRICS, level=level, seed=seed),
        output,
        lambda: answers_json(scored, METRICS, level=level, seed=seed),
        records=question_records(scored.scored),
        runs=[scored],
    )
