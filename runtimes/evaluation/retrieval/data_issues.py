"""Data issues of a retrieval evaluation: counts of irregular or unmatched input."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from wikidx.base.errors import InputError
from wikidx.corpora.store import PassageStore
from wikidx.runtimes.evaluation.retrieval.scoring import gold_pages
from wikidx.runtimes.evaluation.retrieval.trec import Qrels, Run
from wikidx.runtimes.questions import Question


class DataIssue(NamedTuple):
    """A data issue.

    Attributes:
        source: the run or kind of input that has the issue.
        issue: a description.
        n: number of affected ids.
        example: one of these ids.
        rule: the effect of the issue on the metrics.
    """

    source: str
    issue: str
    n: int
    example: str
    rule: str


def question_issues(questions: Sequence[Question], qrels: Qrels, store: PassageStore) -> list[DataIssue]:
    """Return the issues of questions, qrels and gold passages.

    A kind of gold data (answers, gold passages, gold pages) counts as missing only if at least one question has it.
    """
    ids = [question.id for question in questions]
    missing = [
        ("without answers", [question.id for question in questions if not question.golden_answers], "count as misses in R@k, as in DPR"),
        ("without gold passages", [question.id for question in questions if question.id not in qrels], "left out of passage measures"),
        ("without gold pages", [question.id for question in questions if not gold_pages(question)], "left out of page measures"),
    ]
    issues = [
        found for issue, affected, rule in missing if len(affected) < len(ids) for found in _issues("questions", issue, affected, rule)
    ]
    judged = [question for question in ids if question in qrels]
    without_relevant = [question for question in judged if max(qrels[question].values()) < 1]
    gold = {passage for question in judged for passage, relevance in qrels[question].items() if relevance > 0}
    issues += _issues("questions", "nothing in their qrels is relevant", without_relevant, "0 in every measure, as in trec_eval")
    issues += _issues("qrels", "question is not asked", qrels.keys() - set(ids), "left out")
    issues += _issues("gold passages", "not in the corpus", _absent(gold, store), "never found")
    return issues


def explain_no_gold(questions: Sequence[Question], qrels: Qrels | None) -> str:
    """Return why no question has a relevant passage, or what to do; ``qrels`` are those of a file, if one was named."""
    if qrels is None:
        return "name qrels that have them with --qrels"
    if not any(question.id in qrels for question in questions):
        return f"the qrels are of other ids, such as {min(qrels)!r:.80}, where a question has {questions[0].id!r:.80}"
    return "the qrels call no passage relevant"


def group_issues(questions: Sequence[Question], groups: Mapping[str, Sequence[str]]) -> list[DataIssue]:
    """Return the issues of groups of queries."""
    ids = {question.id for question in questions}
    return [
        *_issues("groups", "question is not asked", groups.keys() - ids, "left out"),
        *_issues("groups", "none for a question", ids - groups.keys(), "the question is searched alone"),
    ]


def run_issues(name: str, run: Run, questions: Sequence[Question], store: PassageStore) -> list[DataIssue]:
    """Return the issues of a run.

    Raises:
        InputError: the run ranks passages for none of the questions, or none of these passages is in the corpus.
    """
    ids = {question.id for question in questions}
    passages = {passage for question in ids & run.keys() for passage in run[question]}
    absent = _absent(passages, store)
    if not passages:
        raise InputError(f"the run {name} ranks for none of the {len(ids):,} questions: {min(run)!r:.80} is none's id, {min(ids)!r:.80} is")
    if len(absent) == len(passages):
        raise InputError(
            f"none of the {len(absent):,} passages in the run {name} is in the corpus, such as {absent[0]!r:.80}: it is of another"
        )
    return [
        *_issues(name, "question is not asked", run.keys() - ids, "left out"),
        *_issues(name, "question without a ranking", ids - run.keys(), "0 in every measure"),
        *_issues(name, "passage is not in the corpus", absent, "keeps its rank and counts as a miss"),
    ]


def _issues(source: str, issue: str, ids: Collection[str], rule: str) -> Iterator[DataIssue]:
    if ids:
        yield DataIssue(source, issue, len(ids), min(ids), rule)


def _absent(ids: Collection[str], store: PassageStore) -> list[str]:
    names = sorted(ids)
    return [name for name, row in zip(names, store.rows_of(names).tolist(), strict=True) if row < 0]
