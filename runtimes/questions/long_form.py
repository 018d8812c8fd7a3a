"""Questions with long answers: ASQA, ALCE's file of it, HalluQA, and the turns of Wizard of Wikipedia in BEGIN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wikidx.corpora.errors import InputError

from .base import Question, gold
from .fields import id_from, identifier, objects_of, once, text_from, text_of, texts_from
from .records import Record


def asqa(record: Record) -> Question:
    """Read an ambiguous question of ASQA: in its own file its id is the name that leads to it.

    The golden answers are all short answers; ``answer_groups`` keeps those of each reading together.
    """
    pairs = objects_of(record, "qa_pairs")
    groups = [list(texts_from(record, pair.get("short_answers"), "short_answers")) for pair in pairs]
    written = [one["long_answer"] for one in objects_of(record, "annotations") if "long_answer" in one]
    if not written and record.value.get("answer") is not None:
        written = [record.value["answer"]]
    long_answers = [text_from(record, one, "long_answer") for one in written]
    return Question(
        id_from(record, record.within[1]) if len(record.within) > 1 else identifier(record),
        text_of(record, "question", "ambiguous_question"),
        once(answer for group in groups for answer in group),
        gold(answer_groups=groups, long_answers=long_answers),
    )


def halluqa(record: Record) -> Question:
    """Read a question of HalluQA: one best answer and one wrong one on knowledge, up to four of each on misleading questions."""
    answers, wrong = (tuple(_numbered(record, names)) for names in (("Best Answer", "Best_Answer"), ("Wrong_Answer", "Wrong Answer")))
    if not answers:
        raise InputError(f"{record.where}: no field 'Best Answer' or 'Best Answer1': not a question of HalluQA")
    kind = text_of(record, "Category") if "Category" in record.value else None
    return Question(identifier(record), text_of(record, "Question"), once(answers), gold(type=kind, wrong_answers=list(once(wrong))))


def _numbered(record: Record, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the texts in the fields of these names with or without a number behind, but for null and empty ones."""
    for name, value in record.value.items():
        if name.rstrip("0123456789") in names and value not in (None, ""):
            yield text_from(record, value, name)


def begin(record: Record) -> Question:
    """Read a turn of a dialogue from BEGIN's table; its responses are models', so that no answer is golden."""
    row: Any = record.value
    kind = row.get("data_source") if isinstance(row, dict) else None
    return Question(str(record.number), text_of(record, "message"), (), gold(type=kind or None))
