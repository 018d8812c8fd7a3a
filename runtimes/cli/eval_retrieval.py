"""``idx eval retrieval``: score the rankings of one or several retrievers on questions.

Examples:
    idx eval retrieval --corpus sample --questions sample --retriever bm25 --retriever bm25+minilm
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from wikidx.base.errors import InputError
from wikidx.base.progress_display import show_steps

from . import completion
from .eval_options import Level, Output, Seed, check_output, finish
from .method_options import Device, QueryDtype, Reranker, Search
from .option_groups import command
from .question_options import QuestionOptions, Questions, ScoredQuestionFormat

if TYPE_CHECKING:
    from wikidx.base.progress import Progress
    from wikidx.corpora.store import PassageStore
    from wikidx.retrievers.base import Ranking, Searcher
    from wikidx.retrievers.options import SearchOptions
    from wikidx.runtimes.evaluation.data_issues import DataIssue
    from wikidx.runtimes.evaluation.reports.retrieval_report import ScoredRetriever
    from wikidx.runtimes.evaluation.retrieval.scoring import Scoring
    from wikidx.runtimes.evaluation.retrieval.trec import Qrels, Run
    from wikidx.runtimes.questions import Question

_BATCH = 512  # questions per search call
_FIRST_BATCH = 32  # questions in the first search call, which is not timed, because it loads models and files

Corpus = Annotated[str, completion.corpus_option("A built corpus.")]
Retrievers = Annotated[
    list[str] | None,
    completion.retriever_option(
        "An index as idx list names it, several indexes joined with +, or a pipeline; may be repeated. Default: bm25."
    ),
]
Runs = Annotated[list[Path] | None, typer.Option("--run", help="A TREC run file of another system; may be repeated.")]
Groups = Annotated[
    Path | None,
    typer.Option(help='JSON Lines of {"id", "queries"}: each retriever also searches for groups of a question and these queries.'),
]
Cuts = Annotated[list[int] | None, typer.Option("-k", min=1, max=999_999, help="A k of R@k; may be repeated; default: 1, 5, 20, 100.")]
Match = Annotated[str, typer.Option(help="How answers are matched in passages: string or regex (both as in DPR), kilt, or flashrag.")]
WithTitle = Annotated[bool, typer.Option("--with-title", help="Also match answers in passage titles.")]
Measures = Annotated[
    list[str] | None,
    typer.Option("--measure", help="A measure of trec_eval on gold passages, such as R@20, RR or nDCG@10; may be repeated."),
]
QrelsFile = Annotated[
    Path | None, typer.Option("--qrels", help="Gold passages as qrels of TREC or BEIR; they replace the gold passages of the questions.")
]
RunOut = Annotated[Path | None, typer.Option(help="A folder for the rankings, as TREC runs, and the gold passages, as qrels.")]


class _Task(NamedTuple):
    """Inputs of an evaluation, except the rankings.

    Attributes:
        groups: question id -> queries to search together with the question; None: only single questions are searched.
        qrels: the gold passages.
        data_issues: issues of questions, qrels and groups; ``_score_runs`` appends those of run files.
        run_out: folder for rankings and gold passages; None: they are not written.
    """

    questions: list[Question]
    store: PassageStore
    groups: dict[str, list[str]] | None
    qrels: Qrels
    data_issues: list[DataIssue]
    scoring: Scoring
    run_out: Path | None


@command(question_format=ScoredQuestionFormat)
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
    query_dtype: QueryDtype = None,
    level: Level = 0.95,
    seed: Seed = 0,
    output: Output,
) -> None:
    """Score the rankings of retrievers: how often an answer, or a gold passage, is among the first k."""
    from wikidx.corpora.resolving import require_built
    from wikidx.retrievers.opening import open_searcher
    from wikidx.retrievers.options import SearchOptions
    from wikidx.runtimes.assignments import parse_assignments
    from wikidx.runtimes.evaluation.reports.retrieval_report import Evaluation, question_records, retrieval_json, retrieval_report
    from wikidx.runtimes.evaluation.retrieval.scoring import CUTS, MEASURES, Scoring, check_scoring
    from wikidx.runtimes.evaluation.retrieval.trec import read_run
    from wikidx.runtimes.evaluation.uncertainty import Bootstrap

    check_output(output)
    require_built(corpus)
    cuts = tuple(sorted(set(cut or CUTS)))
    scoring = Scoring(cuts, match, with_title, tuple(measure or MEASURES))
    check_scoring(scoring)
    depth = max([cuts[-1], *(int(name.partition("@")[2] or 1) for name in scoring.measures)])
    options = parse_assignments(SearchOptions, search or (), noun="search option", base={"k": depth, "depth": depth}, excluded=("k",))
    options = options.with_reranker(reranker)
    task = _task(corpus, question_options.read(questions), groups, qrels, scoring, run_out)
    from_files = list(_score_runs([(path, read_run(path)) for path in run or ()], task))  # first, because searches take long
    scored: list[ScoredRetriever] = []
    encoders = dict[str, dict[str, str]]()
    for name in retriever or ([] if run else ["bm25"]):
        searcher = open_searcher(corpus, name, device=device, query_dtype=query_dtype, reranker=reranker)
        scored += _search(searcher, name, options, task)
        encoders |= getattr(searcher, "query_encoders", {})
    evaluation = Evaluation(corpus, task.questions, scoring, scored + from_files, task.data_issues, Bootstrap(level, seed), encoders)
    finish(retrieval_report(evaluation), output, lambda: retrieval_json(evaluation), records=question_records(evaluation))


def _task(
    corpus: str,
    questions: list[Question],
    groups: Path | None,
    qrels: Path | None,
    scoring: Scoring,
    run_out: Path | None,
) -> _Task:
    """Read the gold passages and query groups, and find their data issues."""
    from wikidx.corpora.build import open_store
    from wikidx.runtimes.evaluation.retrieval.query_groups import read_groups
    from wikidx.runtimes.evaluation.retrieval.scoring import MEASURES, gold_pages, gold_passages
    from wikidx.runtimes.evaluation.retrieval.trec import read_qrels
    from wikidx.runtimes.evaluation.retrieval.unmatched import explain_no_gold, group_issues, question_issues

    store = open_store(corpus)
    gold = read_qrels(qrels) if qrels else gold_passages(questions)
    query_groups = read_groups(groups) if groups else None
    has_others = any(question.golden_answers or gold_pages(question) for question in questions)
    if not any(question.id in gold for question in questions) and (scoring.measures != MEASURES or not has_others):
        needed = (
            f"gold passages, such as gold_ids or positive_passages, for {scoring.measures[0]}" if has_others else "answers or gold passages"
        )
        raise InputError(f"none of the {len(questions):,} questions has {needed}: {explain_no_gold(questions, gold if qrels else None)}")
    data_issues = question_issues(questions, gold, store) + (group_issues(questions, query_groups) if query_groups else [])
    if not has_others:
        questions = [question for question in questions if question.id in gold]  # BEIR's queries.jsonl has all splits, its qrels one
    return _Task(questions, store, query_groups, gold, data_issues, scoring, run_out)


def _search(searcher: Searcher, name: str, options: SearchOptions, task: _Task) -> Iterator[ScoredRetriever]:
    """Yield the scores for single questions and, if groups are given, for groups; rankings are not kept in memory."""
    from wikidx.runtimes.evaluation.reports.retrieval_report import GROUP, QUESTION, ScoredRetriever
    from wikidx.runtimes.evaluation.retrieval.scoring import leave_out_excluded, retrieval_values

    excluded = {n: len(question.gold["excluded"]) for n, question in enumerate(task.questions) if question.gold.get("excluded")}
    groups_by_kind = {QUESTION: [[question.text] for question in task.questions]}
    if task.groups is not None:
        groups_by_kind[GROUP] = [[question.text, *task.groups.get(question.id, ())] for question in task.questions]
    for kind, groups in groups_by_kind.items():
        with show_steps() as step:
            found, speed = _time_search(searcher, groups, options, step(f"{name}, {kind}", "questions"))
        if excluded:  # apart from the others, whose fused scores a larger k would change
            deeper = replace(options, k=options.k + max(excluded.values()))
            for n, ranking in zip(excluded, searcher.search_groups([groups[n] for n in excluded], deeper), strict=True):
                found[n] = ranking
        rankings = leave_out_excluded(found, task.questions, options.k)
        _write_run(f"{name}.groups" if kind == GROUP else name, rankings, task)
        yield ScoredRetriever(name, kind, retrieval_values(rankings, task.questions, task.qrels, task.scoring), speed)


def _time_search(
    searcher: Searcher, groups: list[list[str]], options: SearchOptions, progress: Progress
) -> tuple[list[Ranking], tuple[float, float] | None]:
    """Return the rankings, and (groups per second, CPU seconds per group); the pair is None if there is only the untimed first batch."""
    rankings = searcher.search_groups(groups[:_FIRST_BATCH], options)
    started, cpu_started = time.perf_counter(), time.process_time()
    for start in range(_FIRST_BATCH, len(groups), _BATCH):
        progress(len(rankings), len(groups))
        rankings += searcher.search_groups(groups[start : start + _BATCH], options)
    progress(len(rankings), len(groups))
    n = len(rankings) - _FIRST_BATCH
    return rankings, (n / (time.perf_counter() - started), (time.process_time() - cpu_started) / n) if n > 0 else None


def _write_run(name: str, rankings: Sequence[Ranking], task: _Task) -> None:
    """Write rankings as a TREC run, and gold passages as qrels, to ``task.run_out`` unless it is None."""
    from wikidx.runtimes.evaluation.retrieval.scoring import to_run
    from wikidx.runtimes.evaluation.retrieval.trec import write_qrels, write_run

    if task.run_out is None:
        return
    task.run_out.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[\s/]+", "", name)  # of a pipeline: neither a file's name nor a run's may have these
    write_run(task.run_out / f"{name}.run", to_run(rankings, task.questions), f"idx-{name}")
    if task.qrels:
        write_qrels(task.run_out / "qrels", task.qrels)


def _score_runs(runs: Sequence[tuple[Path, Run]], task: _Task) -> Iterator[ScoredRetriever]:
    """Yield the scores of TREC runs, and append the runs' data issues to ``task.data_issues``."""
    from wikidx.runtimes.evaluation.reports.retrieval_report import RUN, ScoredRetriever
    from wikidx.runtimes.evaluation.retrieval.scoring import rankings_of_run, retrieval_values
    from wikidx.runtimes.evaluation.retrieval.unmatched import run_issues

    names = [path.name for path, _ in runs]
    for path, run in runs:
        name = path.name if names.count(path.name) == 1 else str(path)
        task.data_issues.extend(run_issues(name, run, task.questions, task.store))
        rankings = rankings_of_run(run, task.questions, task.store)
        yield ScoredRetriever(name, RUN, retrieval_values(rankings, task.questions, task.qrels, task.scoring))
