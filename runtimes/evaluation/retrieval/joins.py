"""What is odd in the input of a retrieval evaluation, or does not join: counted, with the rule that holds for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from wikidx.corpora.store import PassageStore
from wikidx.runtimes.evaluation.retrieval.trec import Qrels, Run
from wikidx.runtimes.evaluation.retrieval.values import gold_pages
from wikidx.runtimes.questions import Question


class Oddity(NamedTuple):
    """How often something odd was met, an id that it befell, and what is done about it; ``where`` names a file or what is meant."""

    where: str
    what: str
    n: int
    example: str
    rule: str


def odd_questions(questions: Sequence[Question], qrels: Qrels, store: PassageStore) -> list[Oddity]:
    """Return what is odd about questions and their gold passages; that a set has no answers at all, or no gold passages, is not."""
    ids = [question.id for question in questions]
    without = {
        "without answers": [one.id for one in questions if not one.golden_answers],
        "without gold passages": [one.id for one in questions if one.id not in qrels],
        "without gold pages": [one.id for one in questions if not gold_pages(one)],
    }
    rules = ("misses in R@k, as DPR counts", "not in the figures on these", "not in the figures on these")
    found = list[Oddity]()
    for (what, some), rule in zip(without.items(), rules, strict=True):
        found += _odd("questions", what, some, rule) if len(some) < len(ids) else []
    judged = [one for one in ids if one in qrels]
    barren = [one for one in judged if max(qrels[one].values()) < 1]
    gold = {passage for one in judged for passage, relevance in qrels[one].items() if relevance > 0}
    found += _odd("questions", "nothing in their qrels is relevant", barren, "0 in every figure, as trec_eval counts")
    found += _odd("qrels", "question is not asked", qrels.keys() - set(ids), "left out")
    found += _odd("gold passages", "not in the corpus", _absent(gold, store), "never found")
    return found


def odd_groups(questions: Sequence[Question], groups: Mapping[str, Sequence[str]]) -> list[Oddity]:
    """Return what is odd about groups of queries."""
    ids = {question.id for question in questions}
    return [
        *_odd("groups", "question is not asked", groups.keys() - ids, "left out"),
        *_odd("groups", "none for a question", ids - groups.keys(), "the question is asked alone"),
    ]


def odd_run(name: str, run: Run, questions: Sequence[Question], store: PassageStore) -> list[Oddity]:
    """Return what is odd about a run."""
    ids = {question.id for question in questions}
    passages = {passage for one in ids & run.keys() for passage in run[one]}
    return [
        *_odd(name, "question is not asked", run.keys() - ids, "left out"),
        *_odd(name, "question without a ranking", ids - run.keys(), "0 in every figure"),
        *_odd(name, "passage is not in the corpus", _absent(passages, store), "keeps its place and holds no answer"),
    ]


def _odd(where: str, what: str, ids: Collection[str], rule: str) -> Iterator[Oddity]:
    if ids:
        yield Oddity(where, what, len(ids), min(ids), rule)


def _absent(ids: Collection[str], store: PassageStore) -> list[str]:
    names = sorted(ids)
    return [name for name, row in zip(names, store.rows_of(names).tolist(), strict=True) if row < 0]
