"""Passages that a question's record gives with it, such as those of ALCE's file of ASQA, best first.

DPR's readers, FiD         ctxs                       [{id, title, text, score}]
ALCE                       docs                       [{id, title, text, score}]
FlashRAG's own runs        output: retrieval_result   [{id, contents}]

Ids, titles and scores may be missing. ``gold`` data, such as DPR's ``positive_ctxs``, are none of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from wikidx.corpora.reading.records import passage_from_record
from wikidx.runtimes.llms.text import replace_surrogates

from .base import GivenPassage
from .fields import objects_from
from .records import Record

FIELDS = ("docs", "ctxs")
_RUN, _RESULT = "output", "retrieval_result"


def given_passages(record: Record, question: str) -> tuple[GivenPassage, ...]:
    """Return the passages of a question's record; the n-th is called ``<question's id>:<n>`` if it has no id or that of an earlier one.

    Raises:
        InputError: the field is not a list of objects, or one has no text.
    """
    fields = record.value if isinstance(record.value, dict) else {}
    name = next((name for name in FIELDS if name in fields), None)
    output = fields.get(_RUN)
    if name is None and isinstance(output, dict):
        name, fields = _RESULT, output
    found = objects_from(record, fields.get(name), name) if name else []
    passages = dict[str, GivenPassage]()
    for number, item in enumerate(found, 1):
        default_id = f"{question}:{number}"
        given = _passage(record, item, default_id, f"{name}, {number}")
        if given.passage.id in passages:  # such as the id of a document cut into several passages
            given = given._replace(passage=given.passage._replace(id=default_id))
        passages[given.passage.id] = given
    return tuple(passages.values())


def _passage(record: Record, item: Mapping[str, Any], default_id: str, where: str) -> GivenPassage:
    known = {key: value for key, value in item.items() if value is not None}
    try:
        passage = passage_from_record(known, default_id)
    except ValueError as error:
        raise record.error(f"no passage in '{where}': {error}") from error
    return GivenPassage(type(passage)(*map(replace_surrogates, passage)), _score(item.get("score")))


def _score(value: object) -> float | None:
    """Return a score, which DPR's files have as text; None if there is none."""
    try:
        score = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        return None
    return score if math.isfinite(score) else None
