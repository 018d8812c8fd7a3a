"""Reports that compare retrievers: tables and plots, JSON values, and records per question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from wikidx.runtimes.evaluation.data_issues import DataIssue
from wikidx.runtimes.evaluation.long_table import METRIC, Series, nest, pivot
from wikidx.runtimes.evaluation.retrieval.scoring import Scoring
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, FloatArray, Interval
from wikidx.runtimes.questions import Question

from .drawings import Drawing
from .report import Report, Section
from .run_tables import issue_table
from .tables import Cell, Column, Table, brief, cell_json, columns, p_value, percent, plain, signed_percent, to_records

QUESTION, GROUP, RUN = "question", "group", "run"  # values of ``ScoredRetriever.queries``


class ScoredRetriever(NamedTuple):
    """A retriever with one value per question and metric.

    Attributes:
        retriever: name of the retriever or of a run file.
        queries: ``QUESTION`` if each question is searched alone, ``GROUP`` if it is searched with its group of queries, ``RUN`` if the
            rankings come from a run file.
        values: metric -> values, shape ``(questions,)``; NaN: undefined for the question.
        speed: questions per second, and this process's CPU seconds per question; None: not measured.
    """

    retriever: str
    queries: str
    values: Mapping[str, FloatArray]
    speed: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        """The retriever's name in a plot."""
        return self.retriever if self.queries != GROUP else f"{self.retriever}, groups"


class Evaluation(NamedTuple):
    """The measurements of a retrieval evaluation.

    Attributes:
        corpus: name of the corpus.
        scored: the retrievers, at least one, all with the same metrics.
        data_issues: the data issues of questions, groups, qrels and runs.
        bootstrap: the parameters of intervals and paired tests.
        query_encoders: precision and device of each encoder of queries, by retriever.
    """

    corpus: str
    questions: Sequence[Question]
    scoring: Scoring
    scored: Sequence[ScoredRetriever]
    data_issues: Sequence[DataIssue]
    bootstrap: Bootstrap
    query_encoders: Mapping[str, Mapping[str, str]]

    def table(self) -> list[Series]:
        """Return the values of each retriever; ``part`` is the kind of its queries."""
        n = len(self.questions)
        return [
            Series(result.retriever, self.corpus, METRIC, (result.queries,), name, values, n, self.bootstrap)
            for result in self.scored
            for name, values in result.values.items()
        ]


def retrieval_report(evaluation: Evaluation) -> Report:
    """Return the report: tables and plots of the metrics, differences between retrievers, speed, and data issues."""
    answers, gold = _success_names(evaluation.scoring)
    pages = ["kilt_Rprec", *(f"kilt_{name}@{k}" for name in ("recall", "success_rate") for k in evaluation.scoring.cuts)]
    where = "text or title" if evaluation.scoring.with_title else "text"
    tables = [
        (
            f"R@k, %: an answer in the {where} of one of the first k passages (has_answer, match {evaluation.scoring.match})",
            answers,
            percent,
        ),
        ("Success@k, %: a gold passage among the first k passages (trec_eval)", gold, percent),
        ("Gold passages (trec_eval; without @: to the largest cutoff, of whole run files)", list(evaluation.scoring.measures), plain),
        ("Gold pages, by title, % (KILT)", pages, percent),
    ]
    table = evaluation.table()
    available = {each.metric for each in table}
    rendered = [_table(title, names, show, table) for title, names, show in tables if names and names[0] in available]
    compared = differences(evaluation)
    speeds = [(result.retriever, result.queries, *result.speed) for result in evaluation.scored if result.speed]
    facts = [("corpus", evaluation.corpus), ("questions", f"{len(evaluation.questions):,}"), ("in brackets", evaluation.bootstrap.note())]
    facts += [("queries encoded", f"{name} in {one['dtype']} on {one['device']}") for name, one in evaluation.query_encoders.items()]
    heads = columns("retriever", "queries", "questions/s") + columns("CPU s/question", show=brief)
    sections = [
        Section("Figures", rendered, _plots(evaluation, table)),
        Section("Differences", [compared] if compared else []),
        Section("Speed of the searches", [Table(heads, speeds, "Speed of the searches")] if speeds else []),
        Section("Data issues", issue_table(evaluation.data_issues, "source")),
    ]
    return Report(f"Retrieval on {evaluation.corpus}", facts, sections)


def differences(evaluation: Evaluation) -> Table | None:
    """Return a table of paired differences in R@k by answers; without answers, in Success@k by gold passages.

    A retriever on groups is compared with the same retriever on the questions alone, if the latter was scored. Every other retriever is
    compared with the first. Return None for a single retriever, or if neither metric was scored.
    """
    names = next((names for names in _success_names(evaluation.scoring) if names[0] in evaluation.scored[0].values), None)
    if names is None or len(evaluation.scored) < 2:
        return None
    heads = columns("retriever", "queries", "against", "with queries")
    for name in names:
        heads += [Column(_heading(name), signed_percent), Column(f"p ({_heading(name)})", p_value)]
    rows = list[list[Cell]]()
    for result in evaluation.scored[1:]:
        alone = (other for other in evaluation.scored if result.queries == GROUP and other[:2] == (result.retriever, QUESTION))
        base = next(alone, evaluation.scored[0])
        row: list[Cell] = [result.retriever, result.queries, base.retriever, base.queries]
        for name in names:
            pair = evaluation.bootstrap.paired_test(result.values[name], base.values[name])
            row += [Interval(pair.difference, pair.low, pair.high, pair.n), pair.p]
        rows.append(row)
    return Table(heads, rows, "Differences in percentage points; p: paired randomisation test")


def retrieval_json(evaluation: Evaluation) -> dict[str, Any]:
    """Return the evaluation as JSON values. Metric values are from 0 to 1, not rounded."""
    compared = differences(evaluation)
    figures = nest(evaluation.table(), lambda each: cell_json(each.mean), by_run=True)
    return {
        "corpus": evaluation.corpus,
        "questions": len(evaluation.questions),
        **evaluation.scoring._asdict(),
        "interval": evaluation.bootstrap.to_json(),
        "query_encoders": evaluation.query_encoders,
        "retrievers": [
            {
                "retriever": result.retriever,
                "queries": result.queries,
                **dict(zip(("questions_per_s", "cpu_s_per_question"), result.speed or (None, None), strict=True)),
                "figures": figures[result.retriever][result.queries],
            }
            for result in evaluation.scored
        ],
        "differences": to_records(compared) if compared else [],
        "data_issues": [_issue_json(issue) for issue in evaluation.data_issues],
    }


def question_records(evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    """Yield one record per question, with the values of every retriever; None: undefined."""
    for position, question in enumerate(evaluation.questions):
        retrievers = [
            {
                "retriever": result.retriever,
                "queries": result.queries,
                "figures": {name: cell_json(float(values[position])) for name, values in result.values.items()},
            }
            for result in evaluation.scored
        ]
        yield {"id": question.id, "question": question.text, "retrievers": retrievers}


def _success_names(scoring: Scoring) -> tuple[list[str], list[str]]:
    """Return the names of R@k by answers, and of Success@k by gold passages."""
    return [f"answer@{k}" for k in scoring.cuts], [f"Success@{k}" for k in scoring.cuts]


def _heading(name: str) -> str:
    return name.removeprefix("kilt_").replace("answer@", "R@")


def _table(title: str, names: Sequence[str], show: Callable[[Cell], str], table: Sequence[Series]) -> Table:
    heads = columns("retriever", "queries") + columns(*map(_heading, names), show=show)
    return Table(heads, pivot(table, names), title)


def _plots(evaluation: Evaluation, table: Sequence[Series]) -> list[Drawing]:
    """Return the recall curves, if there are several values of k."""
    available = {each.metric for each in table}
    titles = ("Questions with an answer in the first k passages", "Questions with a gold passage among the first k")
    plots = list[Drawing]()
    for title, names in zip(titles, _success_names(evaluation.scoring), strict=True):
        if names[0] in available and len(names) > 1:
            rows = zip(evaluation.scored, pivot(table, names), strict=True)
            lines = {result.name: dict(zip(evaluation.scoring.cuts, means, strict=True)) for result, (_, _, *means) in rows}
            plots.append(Drawing(title, "curves", (title, lines, _heading(names[0]).partition("@")[0])))
    return plots


def _issue_json(issue: DataIssue) -> dict[str, Any]:
    return {"source": issue.source, "issue": issue.issue, "n": issue.n, "example": issue.examples[0], "rule": issue.rule}
