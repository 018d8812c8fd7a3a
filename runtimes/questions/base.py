"""Questions, independent of their data set."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

FEVER_LABELS = ("SUPPORTS", "REFUTES", "NOT ENOUGH INFO")

_NO_GOLD: Mapping[str, Any] = MappingProxyType({})


class Question(NamedTuple):
    """A question of a set.

    Attributes:
        id: as in the data set.
        text: the only part that a method sees.
        golden_answers: any of them is right; none: unknown.
        gold: further gold data of the set, JSON values, under these names where available:
            ``label``            a claim's, one of ``FEVER_LABELS``
            ``aliases``          other texts of the answer (2WikiMultihopQA)
            ``answer_id``        the answer's Wikidata id (2WikiMultihopQA)
            ``answer_groups``    the short answers of each reading of an ambiguous question (ASQA)
            ``long_answers``     reference texts (ASQA, KILT)
            ``wrong_answers``    (HalluQA)
            ``titles``           titles of the gold passages' pages
            ``supporting``       [title, number of a sentence from 0] each (HotpotQA, 2WikiMultihopQA)
            ``provenance``       a list of pages for each answer (KILT)
            ``passages``         ids of the gold passages
            ``type``             the set's own kind of question
            ``popularity``       how often the subject's page is read in a month (PopQA)
    """

    id: str
    text: str
    golden_answers: tuple[str, ...] = ()
    gold: Mapping[str, Any] = _NO_GOLD


def gold(**known: Any) -> Mapping[str, Any]:  # noqa: ANN401 - JSON
    """Return gold data of a question, without values that are None or empty."""
    return MappingProxyType({name: value for name, value in known.items() if value is not None and value != []}) or _NO_GOLD
