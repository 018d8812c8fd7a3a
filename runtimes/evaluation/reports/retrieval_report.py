"""Retrievers side by side: their figures with intervals, the differences between them, recall curves; as a report and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from wikidx.runtimes.evaluation.retrieval.data_issues import DataIssue
from wikidx.runtimes.evaluation.retrieval.scoring import Scoring
from wikidx.runtimes.evaluation.uncertainty import Bootstrap, FloatArray, Interval
from wikidx.runtimes.questions import Question

from .report import Drawing, Report, Section
from .tables import Cell, Column, Table, brief, json_value, p_value, percent, records, shown, signed_percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION, GROUP, RUN = (
    "question",
    "group",
    "run",
)  # queries of a retriever: the question alone, or a group; RUN: a run file of another program


class Scored(NamedTuple):
    """A retriever and its metrics' values, one per question.

    Attributes:
        speed: questions per second, and CPU seconds of this process per question; None: not measured.
    """

    retriever: str
    asked: str
    values: Mapping[str, FloatArray]
    speed: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        """Name of the retriever in a plot."""
        return self.retriever if self.asked != GROUP else f"{self.retriever}, groups"


class Evaluation(NamedTuple):
    """The measurements of a retrieval evaluation.

    Attributes:
        corpus, questions: their names.
        scoring: the scoring options.
        scored: every retriever, at least one, all with the same metrics.
        odd: data issues.
        bootstrap: of the intervals.
    """

    corpus: str
    questions: Sequence[Question]
    scoring: Scoring
    scored: Sequence[Scored]
    odd: Sequence[DataIssue]
    bootstrap: Bootstrap

    def mean(self, one: Scored, name: str) -> Interval:
        """Return the mean of a retriever's metric."""
        return self.bootstrap.interval(one.values[name])


def retrieval_report(found: Evaluation) -> Report:
    """Return the report: R@k by answers, gold passages and gold pages, as far as the questions have them, and the differences."""
    answers, gold = _hits(found.scoring)
    pages = ["kilt_Rprec", *(f"kilt_{name}@{k}" for name in ("recall", "success_rate") for k in found.scoring.cuts)]
    where = "text or title" if found.scoring.with_title else "text"
    drawn = [
        (f"R@k, %: an answer in the {where} of one of the first k (DPR's has_answer, {found.scoring.match})", answers, percent),
        ("Success@k, %: a gold passage among the first k (trec_eval)", gold, percent),
        ("Gold passages (trec_eval)", list(found.scoring.measures), shown),
        ("Gold pages, by title, % (KILT)", pages, percent),
    ]
    there = found.scored[0].values
    tables = [_table(title, names, show, found) for title, names, show in drawn if names and names[0] in there]
    compared = differences(found)
    speeds = [(one.retriever, one.asked, *one.speed) for one in found.scored if one.speed]
    facts = [("corpus", found.corpus), ("questions", f"{len(found.questions):,}"), ("in brackets", found.bootstrap.note())]
    columns = (Column("retriever"), Column("asked"), Column("questions/s"), Column("CPU s/question", brief))
    sections = [
        Section("Figures", tables, _plots(found)),
        Section("Differences", [compared] if compared else []),
        Section("Speed of the searches", [Table(columns, speeds, "Speed of the searches")] if speeds else []),
        Section("Odd input", _odd_tables(found.odd)),
    ]
    return Report(f"Retrieval on {found.corpus}", facts, sections)


def differences(found: Evaluation) -> Table | None:
    """Return the gains over the first retriever, and of groups over the question alone; None: there is nothing to compare."""
    names = next((names for names in _hits(found.scoring) if names[0] in found.scored[0].values), None)
    if names is None or len(found.scored) < 2:
        return None
    columns = [Column("retriever"), Column("asked"), Column("against"), Column("which was asked")]
    for name in names:
        columns += [Column(_heading(name), signed_percent), Column(f"p ({_heading(name)})", p_value)]
    rows = list[list[Cell]]()
    for one in found.scored[1:]:
        alone = (other for other in found.scored if one.asked == GROUP and other[:2] == (one.retriever, QUESTION))
        base = next(alone, found.scored[0])
        row: list[Cell] = [one.retriever, one.asked, base.retriever, base.asked]
        for name in names:
            pair = found.bootstrap.paired(one.values[name], base.values[name])
            row += [Interval(pair.difference, pair.low, pair.high, pair.n), pair.p]
        rows.append(row)
    return Table(columns, rows, "Differences in points; p of a paired randomisation test")


def retrieval_json(found: Evaluation) -> dict[str, Any]:
    """Return every metric of every retriever as JSON values: shares from 0 to 1, unrounded."""
    compared = differences(found)
    return {
        "corpus": found.corpus,
        "questions": len(found.questions),
        **found.scoring._asdict(),
        "interval": found.bootstrap.to_json(),
        "retrievers": [
            {
                "retriever": one.retriever,
                "asked": one.asked,
                **dict(zip(("questions_per_s", "cpu_s_per_question"), one.speed or (None, None), strict=True)),
                "figures": {name: json_value(found.mean(one, name)) for name in one.values},
            }
            for one in found.scored
        ],
        "differences": records(compared) if compared else [],
        "odd": [oddity._asdict() for oddity in found.odd],
    }


def question_records(found: Evaluation) -> Iterator[dict[str, Any]]:
    """Yield for each question the values of every retriever; null: undefined."""
    for place, question in enumerate(found.questions):
        retrievers = [
            {
                "retriever": one.retriever,
                "asked": one.asked,
                "figures": {name: json_value(float(values[place])) for name, values in one.values.items()},
            }
            for one in found.scored
        ]
        yield {"id": question.id, "question": question.text, "retrievers": retrievers}


def _hits(scoring: Scoring) -> tuple[list[str], list[str]]:
    """Return the names of R@k by answers and by gold passages."""
    return [f"answer@{k}" for k in scoring.cuts], [f"Success@{k}" for k in scoring.cuts]


def _heading(name: str) -> str:
    return name.removeprefix("kilt_").replace("answer@", "R@")


def _table(title: str, names: Sequence[str], show: Callable[[Cell], str], found: Evaluation) -> Table:
    columns = [Column("retriever"), Column("asked"), *(Column(_heading(name), show) for name in names)]
    rows: list[list[Cell]] = [[one.retriever, one.asked, *(found.mean(one, name) for name in names)] for one in found.scored]
    return Table(columns, rows, title)


def _plots(found: Evaluation) -> list[Drawing]:
    """Return recall curves if there are several depths."""
    titles = ("Questions with an answer among the first k", "Questions with a gold passage among the first k")
    there = [(title, names) for title, names in zip(titles, _hits(found.scoring), strict=True) if names[0] in found.scored[0].values]
    return [Drawing(title, partial(_curves, title, names, found)) for title, names in there if len(names) > 1]


def _curves(title: str, names: Sequence[str], found: Evaluation) -> Figure:
    from .plots import curves

    lines = {one.name: {int(name.partition("@")[2]): found.mean(one, name) for name in names} for one in found.scored}
    return curves(title, lines, measure=_heading(names[0]).partition("@")[0])


def _odd_tables(odd: Sequence[DataIssue]) -> list[Table]:
    columns = (Column("where"), Column("what"), Column("how many"), Column("such as"), Column("rule"))
    return [Table(columns, odd, "Odd input")] if odd else []
