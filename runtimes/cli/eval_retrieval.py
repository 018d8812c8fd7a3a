"""``idx eval retrieval``: how often retrievers find what the questions ask for, several of them side by side."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from wikidx.corpora.errors import InputError

from . import completion
from .eval_options import Level, Output, Seed, check_output, write_files
from .method_options import Reranker, Search
from .option_groups import flatten
from .question_options import QuestionOptions, Questions, asked
from .screen import say, say_json, steps

if TYPE_CHECKING:
    from wikidx.corpora.store import PassageStore
    from wikidx.retrievers.base import Ranking, Searcher
    from wikidx.retrievers.options import SearchOptions
    from wikidx.runtimes.evaluation.reports.retrieval_report import Evaluation, Scored
    from wikidx.runtimes.evaluation.retrieval.joins import Oddity
    from wikidx.runtimes.evaluation.retrieval.trec import Qrels
    from wikidx.runtimes.evaluation.retrieval.values import Found, Scoring
    from wikidx.runtimes.questions import Question

_RUN_SUFFIX, _QRELS = ".run", "qrels"
_BATCH = 512  # questions searched at a time

Corpus = Annotated[str, completion.corpus_option("A built corpus.")]
Retrievers = Annotated[
    list[str] | None,
    completion.retriever_option("An index as idx list names it, or several joined with +; may be repeated; bm25 unless named."),
]
Runs = Annotated[list[Path] | None, typer.Option("--run", help="A TREC run of a search done elsewhere; may be repeated.")]
Groups = Annotated[
    Path | None, typer.Option(help='JSON Lines of {"id", "queries"}: each retriever is asked these too, beside the question, as a group.')
]
Cuts = Annotated[list[int] | None, typer.Option("-k", min=1, help="Of R@k; may be repeated; 1, 5, 20 and 100 unless named.")]
Match = Annotated[str, typer.Option(help="What counts as an answer in a passage: string or regex, as DPR has them, kilt or flashrag.")]
WithTitle = Annotated[bool, typer.Option("--with-title", help="An answer may also stand in a passage's title.")]
Measures = Annotated[
    list[str] | None,
    typer.Option("--measure", help="A figure of trec_eval on gold passages, such as R@20, RR or nDCG@10; may be repeated."),
]
QrelsFile = Annotated[Path | None, typer.Option("--qrels", help="TREC qrels: the gold passages, in place of what the questions say.")]
RunOut = Annotated[Path | None, typer.Option(help="A folder for the rankings, as TREC runs, and the gold passages, as qrels.")]
Device = Annotated[str, typer.Option(help="Where encoders and indexes run: auto, cpu, cuda, cuda:0,1, all GPUs, mps.")]


class _Where(NamedTuple):
    """Where and how is searched."""

    corpus: str
    options: SearchOptions
    reranker: str | None
    device: str


class _Task(NamedTuple):
    """What is asked, and what it is joined with.

    Attributes:
        groups: further queries by a question's id; None: there are none.
        odd: what does not join.
    """

    questions: list[Question]
    store: PassageStore
    where: _Where
    groups: dict[str, list[str]] | None
    qrels: Qrels
    odd: list[Oddity]


class _Result(NamedTuple):
    """What was found, and whose it is; ``asked`` as in ``Scored``."""

    retriever: str
    asked: str
    found: Found
    seconds: float | None = None


@flatten()
def retrieval(
    corpus: Corpus,
    questions: Questions,
    retriever: Retrievers = None,
    run: Runs = None,
    groups: Groups = None,
    *,
    question_options: QuestionOptions,
    cut: Cuts = None,
    match: Match = "string",
    with_title: WithTitle = False,
    measure: Measures = None,
    qrels: QrelsFile = None,
    run_out: RunOut = None,
    search: Search = None,
    reranker: Reranker = None,
    device: Device = "auto",
    level: Level = 0.95,
    seed: Seed = 0,
    output: Output,
) -> None:
    """Measure retrievers: how often an answer, or a gold passage, is among the first k."""
    from wikidx.corpora.resolving import require_built
    from wikidx.runtimes.evaluation.reports.retrieval_report import Evaluation
    from wikidx.runtimes.evaluation.retrieval.values import CUTS, MEASURES, Scoring, check_scoring

    check_output(output)
    require_built(corpus)
    cuts = tuple(sorted(set(cut or CUTS)))
    scoring = Scoring(cuts, match, with_title, tuple(measure or MEASURES))
    check_scoring(scoring)
    where = _Where(corpus, _options(search, cuts[-1]), reranker, device)
    task = _task(asked(questions, question_options.question_format, question_options.selection()), where, groups, qrels)
    results = _results(task, retriever or ([] if run else ["bm25"]), run or [])
    scored = [_scored(result, task, scoring, run_out) for result in results]
    _show(Evaluation(corpus, task.questions, scoring, scored, task.odd, level, seed), output)


def _options(assignments: Sequence[str] | None, k: int) -> SearchOptions:
    from wikidx.retrievers.options import SearchOptions
    from wikidx.runtimes.execution.assignments import assigned

    return assigned(SearchOptions, assignments or (), what="search option", base={"k": k, "depth": k}, but=("k",))


def _task(questions: list[Question], where: _Where, groups: Path | None, qrels: Path | None) -> _Task:
    """Read what the questions are joined with, and count what does not join."""
    from wikidx.corpora.build import open_store
    from wikidx.runtimes.evaluation.retrieval.joins import odd_groups, odd_questions
    from wikidx.runtimes.evaluation.retrieval.query_groups import read_groups
    from wikidx.runtimes.evaluation.retrieval.trec import read_qrels
    from wikidx.runtimes.evaluation.retrieval.values import gold_pages, gold_passages

    store = open_store(where.corpus)
    gold = read_qrels(qrels) if qrels else gold_passages(questions)
    more = read_groups(groups) if groups else None
    if not any(one.golden_answers or one.id in gold or gold_pages(one) for one in questions):
        raise InputError(f"none of the {len(questions):,} questions has answers or gold passages: name qrels that have them with --qrels")
    odd = odd_questions(questions, gold, store) + (odd_groups(questions, more) if more else [])
    return _Task(questions, store, where, more, gold, odd)


def _results(task: _Task, retrievers: Sequence[str], runs: Sequence[Path]) -> Iterator[_Result]:
    """Yield what the retrievers find and the runs hold, one after another: the passages of several may not fit into memory."""
    from wikidx.retrievers.opening import open_searcher
    from wikidx.runtimes.evaluation.reports.retrieval_report import GROUP, QUESTION, RUN
    from wikidx.runtimes.evaluation.retrieval.joins import odd_run
    from wikidx.runtimes.evaluation.retrieval.trec import read_run
    from wikidx.runtimes.evaluation.retrieval.values import found_in_run

    names = [path.name for path in runs]
    given = [(str(path) if names.count(path.name) > 1 else path.name, read_run(path)) for path in runs]  # before searches: they take long
    kinds = [(QUESTION, [[question.text] for question in task.questions])]
    if task.groups is not None:
        kinds.append((GROUP, [[question.text, *task.groups.get(question.id, ())] for question in task.questions]))
    for name in retrievers:
        searcher = open_searcher(task.where.corpus, name, device=task.where.device, reranker=task.where.reranker)
        for kind, groups in kinds:
            yield _searched(searcher, name, kind, groups, task.where.options)
    for name, run in given:
        task.odd.extend(odd_run(name, run, task.questions, task.store))
        yield _Result(name, RUN, found_in_run(run, task.questions, task.store))


def _searched(searcher: Searcher, name: str, kind: str, groups: Sequence[Sequence[str]], options: SearchOptions) -> _Result:
    """Search in batches, and time it."""
    from wikidx.runtimes.evaluation.retrieval.values import found_by_search

    rankings: list[Ranking] = []
    seconds = 0.0
    with steps() as step:
        progress = step(f"{name}, {kind}", "questions")
        for start in range(0, len(groups), _BATCH):
            started = time.perf_counter()
            rankings += searcher.search_groups(groups[start : start + _BATCH], options)
            seconds += time.perf_counter() - started
            progress(len(rankings), len(groups))
    return _Result(name, kind, found_by_search(rankings), seconds)


def _scored(result: _Result, task: _Task, scoring: Scoring, run_out: Path | None) -> Scored:
    """Score what was found, and write it down if there is a folder for that; of the passages nothing is kept."""
    from wikidx.runtimes.evaluation.reports.retrieval_report import RUN, Scored
    from wikidx.runtimes.evaluation.retrieval.values import retrieval_values

    if run_out and result.asked != RUN:
        _write_run(run_out, result, task)
    values = retrieval_values(result.found, task.questions, task.qrels, scoring)
    return Scored(result.retriever, result.asked, values, len(task.questions) / result.seconds if result.seconds else None)


def _write_run(folder: Path, result: _Result, task: _Task) -> None:
    """Write rankings as a TREC run, and the gold passages beside it."""
    from wikidx.runtimes.evaluation.reports.retrieval_report import GROUP
    from wikidx.runtimes.evaluation.retrieval.trec import write_qrels, write_run
    from wikidx.runtimes.evaluation.retrieval.values import as_run

    folder.mkdir(parents=True, exist_ok=True)
    name = f"{result.retriever}.groups" if result.asked == GROUP else result.retriever
    write_run(folder / f"{name}{_RUN_SUFFIX}", as_run(result.found, task.questions), f"idx-{name}")
    if task.qrels:
        write_qrels(folder / _QRELS, task.qrels)


def _show(found: Evaluation, output: Output) -> None:
    from wikidx.runtimes.evaluation.reports.report import as_markdown, as_text
    from wikidx.runtimes.evaluation.reports.retrieval_report import question_records, retrieval_json, retrieval_report

    report = retrieval_report(found)
    write_files(report, question_records(found), output)
    if output.as_json:
        say_json(retrieval_json(found))
    else:
        say((as_markdown if output.as_markdown else as_text)(report))
