"""Scores of a retriever's rankings: one value per question and metric.

answer@k                     DPR's R@k: 1 if one of the first k passages contains an answer (``has_answer``), else 0
Success@k, R@k, RR, AP, …    trec_eval's metrics on gold passages (``rankings``); NaN for a question without gold passages
kilt_Rprec, kilt_recall@k    KILT's metrics on gold pages (``kilt_pages``), matched by title; NaN for a question without gold pages

A metric is left out if no question has its gold data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wikidx.base.registry import unknown_name_error
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.retrievers.base import Ranking, ScoredPassage
from wikidx.runtimes.evaluation.missing_extras import leave_out_missing
from wikidx.runtimes.evaluation.retrieval.has_answer import MATCHES, answer_hits
from wikidx.runtimes.evaluation.retrieval.kilt_pages import page_figures, page_names
from wikidx.runtimes.evaluation.retrieval.rankings import check_measures, gold_values, hit_values
from wikidx.runtimes.evaluation.retrieval.trec import Qrels, Run, trec_order
from wikidx.runtimes.evaluation.uncertainty import FloatArray
from wikidx.runtimes.questions import Question

CUTS = (1, 5, 20, 100)
MEASURES = ("P@5", "R@20", "RR", "AP", "nDCG@10")


class Scoring(NamedTuple):
    """Options for scoring rankings.

    Attributes:
        cuts: the values of k.
        match: the rule of answer matching, one of ``has_answer.MATCHES``.
        with_title: whether answers are matched in ``title + " . " + text``, as DPR joins them, instead of the text alone.
        measures: trec_eval's measures in addition to Success at each cut.
    """

    cuts: tuple[int, ...] = CUTS
    match: str = "string"
    with_title: bool = False
    measures: tuple[str, ...] = MEASURES


def check_scoring(scoring: Scoring) -> None:
    """Raise ``InputError`` or ``UnknownNameError`` for an unknown measure or matching rule."""
    check_measures(scoring.measures)
    if scoring.match not in MATCHES:
        raise unknown_name_error("rule of matching", scoring.match, MATCHES)


def rankings_of_run(run: Run, questions: Sequence[Question], store: PassageStore) -> list[Ranking]:
    """Return a run's rankings for questions, in trec_eval's order. A passage that is not in the corpus has an empty text."""
    distinct = list(dict.fromkeys(name for question in questions for name in run.get(question.id, {})))
    rows = store.rows_of(distinct)
    found = iter(store.get_many(rows[rows >= 0]))
    passages = {name: (next(found) if row >= 0 else Passage(name, "", ""), row) for name, row in zip(distinct, rows.tolist(), strict=True)}
    scores = [run.get(question.id, {}) for question in questions]
    hits = [[ScoredPassage(*passages[name], by_passage[name], ()) for name in trec_order(by_passage)] for by_passage in scores]
    return leave_out_excluded(list(map(Ranking, hits)), questions)


def leave_out_excluded(rankings: Sequence[Ranking], questions: Sequence[Question], k: int | None = None) -> list[Ranking]:
    """Return rankings of at most ``k`` passages without those that their questions exclude, as BRIGHT's own evaluation does."""
    pairs = ((ranking, set(question.gold.get("excluded", ()))) for ranking, question in zip(rankings, questions, strict=True))
    return [Ranking([hit for hit in hits if hit.passage.id not in excluded][:k], hits.queries, hits.error) for hits, excluded in pairs]


def gold_passages(questions: Sequence[Question]) -> dict[str, dict[str, int]]:
    """Return the questions' gold passages as qrels, with their relevance if it is known."""
    return {
        question.id: question.gold.get("relevance") or dict.fromkeys(question.gold["passages"], 1)
        for question in questions
        if question.gold.get("passages")
    }


def to_run(rankings: Sequence[Ranking], questions: Sequence[Question]) -> dict[str, dict[str, float]]:
    """Return rankings as a TREC run."""
    return {question.id: {hit.passage.id: hit.score for hit in ranking} for question, ranking in zip(questions, rankings, strict=True)}


def retrieval_values(
    rankings: Sequence[Ranking],
    questions: Sequence[Question],
    qrels: Qrels,
    scoring: Scoring,
) -> dict[str, FloatArray]:
    """Return metric -> values, shape ``(questions,)``.

    Args:
        rankings: one ranking per question.
        questions: questions with unique ids.
        qrels: the gold passages.
        scoring: the scoring options.

    Raises:
        InputError: a measure is not supported.
        UnknownNameError: the matching rule is unknown.
        MissingExtraError: ``ir_measures`` is not installed, and there are only gold passages; otherwise their figures are left out.
    """
    values = dict[str, FloatArray]()
    if any(question.golden_answers for question in questions):
        values |= _answer_values(rankings, questions, scoring)
    if any(map(gold_pages, questions)):
        values |= _page_values(rankings, questions, scoring.cuts)
    if any(question.id in qrels for question in questions):
        measures = [*(f"Success@{k}" for k in scoring.cuts), *scoring.measures]
        with leave_out_missing(is_alone=not values):
            values |= gold_values(to_run(rankings, questions), qrels, [question.id for question in questions], measures)
    return values


def gold_pages(question: Question) -> list[list[str]]:
    """Return the page titles of each non-empty evidence set; an empty list if the question has no gold pages."""
    provenance = question.gold.get("provenance")
    if provenance:
        return [page_names(pages, ["title"]) for pages in provenance if pages]
    titles = question.gold.get("titles")
    return [list(dict.fromkeys(titles))] if titles else []


def _answer_values(rankings: Sequence[Ranking], questions: Sequence[Question], scoring: Scoring) -> dict[str, FloatArray]:
    passages = {hit.passage.id: hit.passage for ranking in rankings for hit in ranking}
    texts = [f"{passage.title} . {passage.text}" if scoring.with_title else passage.text for passage in passages.values()]
    numbers = {name: number for number, name in enumerate(passages)}
    numbered = [[numbers[hit.passage.id] for hit in ranking] for ranking in rankings]
    hits = answer_hits(numbered, texts, [question.golden_answers for question in questions], scoring.match)
    return {f"answer@{k}": hit_values(hits, k) for k in scoring.cuts}


def _page_values(rankings: Sequence[Ranking], questions: Sequence[Question], cuts: Sequence[int]) -> dict[str, FloatArray]:
    figures = list[Mapping[str, float]]()
    for question, ranking in zip(questions, rankings, strict=True):
        evidence, pages = gold_pages(question), list(dict.fromkeys(hit.passage.title for hit in ranking))
        figures.append(page_figures(evidence, pages, cuts) if evidence else {})
    names = [*next(filter(None, figures))]
    return {f"kilt_{name}": np.array([question_figures.get(name, np.nan) for question_figures in figures]) for name in names}
