"""KILT's one format for all its tasks: Wizard of Wikipedia, HotpotQA, NQ, TriviaQA, FEVER and the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wikidx.runtimes.llms.text import whole_characters

from .base import FEVER_LABELS, Question, gold
from .fields import identifier, objects_from, objects_of, once, text_from, text_of
from .records import Record

_OF_A_PAGE = ("wikipedia_id", "title", "start_paragraph_id", "end_paragraph_id")


def kilt(record: Record) -> Question:
    """Parse a question, claim or dialogue of KILT; its test sets have no output.

    Golden answers are the texts of all outputs. ``provenance`` has a list for each output, with or without an answer, as in the evaluator.
    A record does not name its task, so answers are ``long_answers`` too, unless they are FEVER's labels.
    """
    outputs = objects_of(record, "output")
    answers = once(text_from(record, one["answer"], "answer") for one in outputs if one.get("answer") not in (None, ""))
    provenance = [[_page(page) for page in objects_from(record, one.get("provenance"), "provenance")] for one in outputs]
    titles = once(page["title"] for pages in provenance for page in pages if isinstance(page.get("title"), str))
    label = answers[0] if len(answers) == 1 and answers[0] in FEVER_LABELS else None
    known = gold(label=label, long_answers=None if label else list(answers), titles=list(titles), provenance=provenance)
    return Question(identifier(record), text_of(record, "input", "question"), answers, known)


def _page(page: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: page[name] for name in _OF_A_PAGE if name in page}
    return {name: whole_characters(value) if isinstance(value, str) else value for name, value in known.items()}
