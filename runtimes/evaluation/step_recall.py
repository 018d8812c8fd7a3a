"""Recall of the passages that a run's questions found, by the step of the search: R@k, as in figure 4 of ReFeed.

The values are those of ``answer@k`` of ``idx eval retrieval``: 1 if the text of one of the first k passages has a gold answer by DPR's
``has_answer``, else 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wikidx.runtimes.evaluation.missing_extras import leave_out_missing
from wikidx.runtimes.evaluation.predictions import PredictionRow
from wikidx.runtimes.evaluation.retrieval.passage_texts import PassageTexts
from wikidx.runtimes.evaluation.retrieval.search_steps import RECALL_METRICS, SearchStep
from wikidx.runtimes.evaluation.uncertainty import FloatArray
from wikidx.runtimes.questions import Question

from . import normalizing

LAST = "last search"
"""Name of each question's last search, whatever its own name."""

_BATCH = 256  # questions whose texts are in memory together
_NO_FACTS = {"yes", "no"}

Values = dict[str, FloatArray]
_Hits = list[bool | None]


class StepRecall(NamedTuple):
    """Recall of a run's searches.

    Attributes:
        steps: name of a search -> metric "answer@k" -> float64 (questions,), for k up to the least depth of the search. NaN: the question
            has no such search, or no answer to look for. ``LAST`` is among the names.
        n_unknown: number of found passages whose texts are unknown; the searches that found them are left out.
    """

    steps: Mapping[str, Values] = {}
    n_unknown: int = 0


def step_recall(rows: Sequence[PredictionRow], questions: Sequence[Question], texts: PassageTexts) -> StepRecall:
    """Return the recall of the searches that predictions record; empty without the extra ``eval``.

    Args:
        rows: one prediction per question.
        questions: the questions; those whose answers are yes, no or a label have no answer to look for.
        texts: the texts of the passages.
    """
    found, depths = dict[str, dict[int, _Hits]](), dict[str, int]()
    unknown = set[str]()
    with leave_out_missing():
        for position, step, hits in _hits(rows, questions, texts):
            unknown.update(name for name, is_hit in zip(step.ids, hits, strict=True) if is_hit is None)
            for name in (step.name, LAST):  # of the last searches the last one stays
                found.setdefault(name, {})[position] = hits
                depths[name] = min(depths.get(name, step.k), step.k)
    named = {name: of for name, of in found.items() if not any(None in hits for hits in of.values())}
    last = {LAST: named.pop(LAST)} if LAST in named else {}
    return StepRecall({name: _values(of, depths[name], len(rows)) for name, of in {**named, **last}.items()}, len(unknown))


def _values(hits: Mapping[int, _Hits], depth: int, n: int) -> Values:
    """Return the values of one search of each of ``n`` questions; ``hits`` are by the position of the question."""
    values = {metric: np.full(n, np.nan) for metric, k in RECALL_METRICS.items() if k <= depth}
    for metric, each in values.items():
        for position, of_question in hits.items():
            each[position] = float(any(of_question[: RECALL_METRICS[metric]]))
    return values


def _hits(rows: Sequence[PredictionRow], questions: Sequence[Question], texts: PassageTexts) -> Iterator[tuple[int, SearchStep, _Hits]]:
    """Yield the position of a question, a search of it, and for each passage whether it has an answer; None: its text is unknown."""
    from wikidx.runtimes.evaluation.retrieval.has_answer import answer_hits

    asked = [at for at, (row, question) in enumerate(zip(rows, questions, strict=True)) if row.searches and _has_findable(question)]
    for start in range(0, len(asked), _BATCH):
        batch = asked[start : start + _BATCH]
        recorded = {at: texts.recorded(rows[at].passages, questions[at]) for at in batch}
        searches = [(at, step) for at in batch for step in rows[at].searches]
        in_corpus = texts.in_corpus(name for at, step in searches for name in step.ids if name not in recorded[at])
        found = [[recorded[at].get(name, in_corpus.get(name)) for name in step.ids] for at, step in searches]
        numbers = {text: number for number, text in enumerate(dict.fromkeys(text for each in found for text in each if text is not None))}
        numbered = [[numbers[text] for text in each if text is not None] for each in found]
        is_hit = answer_hits(numbered, list(numbers), [questions[at].golden_answers for at, _ in searches])
        for (at, step), each, known in zip(searches, found, is_hit, strict=True):
            values = iter(known.tolist())
            yield at, step, [None if text is None else next(values) for text in each]


def _has_findable(question: Question) -> bool:
    """Return whether a question has an answer that a passage may contain."""
    return not question.gold.get("label") and not {*map(normalizing.squad, question.golden_answers)} <= _NO_FACTS
