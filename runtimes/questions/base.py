"""Questions of any data set."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from wikidx.corpora.passage import Passage

FEVER_LABELS = ("SUPPORTS", "REFUTES", "NOT ENOUGH INFO")

_NO_GOLD: Mapping[str, Any] = MappingProxyType({})


class GivenPassage(NamedTuple):
    """A passage that a file gives with a question, and its score there; None: it has none."""

    passage: Passage
    score: float | None = None


class Question(NamedTuple):
    """A question.

    Attributes:
        id: the id in the data set.
        text: the only part that a method sees.
        golden_answers: the right answers, each of which suffices; empty: no answer is known, or the question is unanswerable.
        gold: further gold data as JSON values, with these names if available:
            ``label``            the label of a claim, one of ``FEVER_LABELS``
            ``aliases``          alternative answer strings (2WikiMultihopQA)
            ``answer_id``        the answer's Wikidata id (2WikiMultihopQA)
            ``answer_groups``    the short answers for each interpretation of an ambiguous question (ASQA)
            ``long_answers``     reference texts (ASQA, KILT)
            ``wrong_answers``    incorrect answers (HalluQA)
            ``titles``           titles of the gold pages
            ``supporting``       a list of [title, sentence number from 0] (HotpotQA, 2WikiMultihopQA)
            ``provenance``       a list of pages for each output (KILT)
            ``passages``         ids of the gold passages
            ``excluded``         ids of the passages that no ranking may hold (BRIGHT)
            ``type``             the question type in the data set
            ``turns``            the number of turns of a conversation so far (KILT's Wizard of Wikipedia, BEGIN)
            ``hops``             the number of passages that an answer takes (the sample corpus, FlashRAG)
            ``popularity``       monthly views of the subject's page (PopQA)
        passages: the passages that the file gives with the question, best first, if they were read.
    """

    id: str
    text: str
    golden_answers: tuple[str, ...] = ()
    gold: Mapping[str, Any] = _NO_GOLD
    passages: tuple[GivenPassage, ...] = ()


def gold(**values: Any) -> Mapping[str, Any]:  # noqa: ANN401 - JSON
    """Return a question's gold data, without values that are None or empty lists."""
    return MappingProxyType({name: value for name, value in values.items() if value is not None and value != []}) or _NO_GOLD
