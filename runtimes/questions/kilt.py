"""KILT's format, which is the same for all its tasks: Wizard of Wikipedia, HotpotQA, NQ, TriviaQA, FEVER and others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wikidx.runtimes.llms.text import replace_surrogates

from .base import FEVER_LABELS, Question, gold
from .fields import objects_from, objects_of, record_id, text_from, text_of, unique
from .records import Record

_PAGE_FIELDS = ("wikipedia_id", "title", "start_paragraph_id", "end_paragraph_id")


def parse_kilt(record: Record) -> Question:
    """Parse a KILT question, claim or dialogue; KILT's test sets have no output.

    The golden answers are the distinct answers of all outputs. As in KILT's evaluator, ``provenance`` has a list for every output, even if
    the output has no answer. A single answer that is a FEVER label becomes the gold ``label``. All other answers are also
    ``long_answers``, because a record does not name its task. An input of several lines is a conversation.
    """
    outputs = objects_of(record, "output")
    answers = unique(text_from(record, output["answer"], "answer") for output in outputs if output.get("answer") not in (None, ""))
    provenance = [[_page_fields(page) for page in objects_from(record, output.get("provenance"), "provenance")] for output in outputs]
    titles = unique(page["title"] for pages in provenance for page in pages if isinstance(page.get("title"), str))
    label = answers[0] if len(answers) == 1 and answers[0] in FEVER_LABELS else None
    text = text_of(record, "input", "question")
    turns = text.strip().count("\n") + 1
    gold_data = gold(
        label=label,
        long_answers=None if label else list(answers),
        titles=list(titles),
        provenance=provenance,
        turns=turns if turns > 1 else None,
    )
    return Question(record_id(record), text, answers, gold_data)


def _page_fields(page: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: page[name] for name in _PAGE_FIELDS if name in page}
    return {name: replace_surrogates(value) if isinstance(value, str) else value for name, value in fields.items()}
