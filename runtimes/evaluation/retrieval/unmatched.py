"""Data issues of a retrieval evaluation: what its questions, gold passages, groups and runs do not share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from wikidx.base.errors import InputError
from wikidx.corpora.store import PassageStore
from wikidx.runtimes.evaluation.data_issues import DataIssue, find_issues
from wikidx.runtimes.evaluation.retrieval.scoring import gold_pages
from wikidx.runtimes.evaluation.retrieval.trec import Qrels, Run
from wikidx.runtimes.questions import Question


def question_issues(questions: Sequence[Question], qrels: Qrels, store: PassageStore) -> list[DataIssue]:
    """Return the issues of questions, qrels and gold passages.

    A kind of gold data (answers, gold passages, gold pages) counts as missing only if at least one question has it.
    """
    ids = {question.id for question in questions}
    missing = {
        "without answers": {question.id for question in questions if not question.golden_answers},
        "without gold passages": ids - qrels.keys(),
        "without gold pages": {question.id for question in questions if not gold_pages(question)},
    }
    judged = ids & qrels.keys()
    without_relevant = {question for question in judged if max(qrels[question].values()) < 1}
    gold = {passage for question in judged for passage, relevance in qrels[question].items() if relevance > 0}
    some = {issue: affected for issue, affected in missing.items() if len(affected) < len(ids)}
    return [
        *find_issues("questions", {**some, "nothing in their qrels is relevant": without_relevant}),
        *find_issues("qrels", {"question is not asked": qrels.keys() - ids}),
        *find_issues("gold passages", {"not in the corpus": _absent(gold, store)}),
    ]


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
    return find_issues("groups", {"question is not asked": groups.keys() - ids, "none for a question": ids - groups.keys()})


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
    unmatched = {
        "question is not asked": run.keys() - ids,
        "question without a ranking": ids - run.keys(),
        "passage is not in the corpus": absent,
    }
    return find_issues(name, unmatched)


def _absent(ids: Collection[str], store: PassageStore) -> list[str]:
    names = sorted(ids)
    return [name for name, row in zip(names, store.rows_of(names).tolist(), strict=True) if row < 0]
