"""Data issues of a retrieval evaluation: irregular or unmatched input, counted, with the rule applied."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from wikidx.corpora.errors import InputError
from wikidx.corpora.store import PassageStore
from wikidx.runtimes.evaluation.retrieval.scoring import gold_pages
from wikidx.runtimes.evaluation.retrieval.trec import Qrels, Run
from wikidx.runtimes.questions import Question


class DataIssue(NamedTuple):
    """A data issue: how often it occurs, an id of an example, and how it is handled; ``where`` names the file or kind of input."""

    where: str
    what: str
    n: int
    example: str
    rule: str


def question_issues(questions: Sequence[Question], qrels: Qrels, store: PassageStore) -> list[DataIssue]:
    """Return issues of questions and their gold passages; a set without any answers or gold passages is not an issue."""
    ids = [question.id for question in questions]
    without = [
        ("without answers", [one.id for one in questions if not one.golden_answers], "misses in R@k, as DPR counts"),
        ("without gold passages", [one.id for one in questions if one.id not in qrels], "not in the figures on these"),
        ("without gold pages", [one.id for one in questions if not gold_pages(one)], "not in the figures on these"),
    ]
    found = [issue for what, some, rule in without if len(some) < len(ids) for issue in _odd("questions", what, some, rule)]
    judged = [one for one in ids if one in qrels]
    barren = [one for one in judged if max(qrels[one].values()) < 1]
    gold = {passage for one in judged for passage, relevance in qrels[one].items() if relevance > 0}
    found += _odd("questions", "nothing in their qrels is relevant", barren, "0 in every figure, as trec_eval counts")
    found += _odd("qrels", "question is not asked", qrels.keys() - set(ids), "left out")
    found += _odd("gold passages", "not in the corpus", _absent(gold, store), "never found")
    return found


def group_issues(questions: Sequence[Question], groups: Mapping[str, Sequence[str]]) -> list[DataIssue]:
    """Return issues of groups of queries."""
    ids = {question.id for question in questions}
    return [
        *_odd("groups", "question is not asked", groups.keys() - ids, "left out"),
        *_odd("groups", "none for a question", ids - groups.keys(), "the question is asked alone"),
    ]


def run_issues(name: str, run: Run, questions: Sequence[Question], store: PassageStore) -> list[DataIssue]:
    """Return issues of a run.

    Raises:
        InputError: none of its questions is asked, or none of their passages is in the corpus.
    """
    ids = {question.id for question in questions}
    passages = {passage for one in ids & run.keys() for passage in run[one]}
    absent = _absent(passages, store)
    if not passages:
        raise InputError(f"the run {name} ranks for none of the {len(ids):,} questions: {min(run)!r:.80} is none's id, {min(ids)!r:.80} is")
    if len(absent) == len(passages):
        raise InputError(
            f"none of the {len(absent):,} passages in the run {name} is in the corpus, such as {absent[0]!r:.80}: it is of another"
        )
    return [
        *_odd(name, "question is not asked", run.keys() - ids, "left out"),
        *_odd(name, "question without a ranking", ids - run.keys(), "0 in every figure"),
        *_odd(name, "passage is not in the corpus", absent, "keeps its place and holds no answer"),
    ]


def _odd(where: str, what: str, ids: Collection[str], rule: str) -> Iterator[DataIssue]:
    if ids:
        yield DataIssue(where, what, len(ids), min(ids), rule)


def _absent(ids: Collection[str], store: PassageStore) -> list[str]:
    names = sorted(ids)
    return [name for name, row in zip(names, store.rows_of(names).tolist(), strict=True) if row < 0]
