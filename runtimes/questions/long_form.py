"""Questions with long answers: ASQA, ALCE's version of ASQA, HalluQA, and BEGIN's dialogue turns from Wizard of Wikipedia."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .base import Question, gold
from .fields import id_from, objects_of, record_id, text_from, text_of, texts_from, unique
from .records import Record


def parse_asqa(record: Record) -> Question:
    """Parse an ASQA question. In ASQA's own file, the record's key is the question's id.

    The golden answers are all short answers; ``answer_groups`` groups the short answers by interpretation of the question.
    """
    pairs = objects_of(record, "qa_pairs")
    groups = [list(texts_from(record, pair.get("short_answers"), "short_answers")) for pair in pairs]
    long_answers = [annotation["long_answer"] for annotation in objects_of(record, "annotations") if "long_answer" in annotation]
    if not long_answers and record.value.get("answer") is not None:
        long_answers = [record.value["answer"]]
    texts = [text_from(record, annotation, "long_answer") for annotation in long_answers]
    return Question(
        id_from(record, record.path[1]) if len(record.path) > 1 else record_id(record),
        text_of(record, "question", "ambiguous_question"),
        unique(answer for group in groups for answer in group),
        gold(answer_groups=groups, long_answers=texts),
    )


def parse_halluqa(record: Record) -> Question:
    """Parse a HalluQA question. A knowledge question has one right and one wrong answer; a misleading question has up to four of each."""
    answers, wrong = (tuple(_numbered_texts(record, names)) for names in (("Best Answer", "Best_Answer"), ("Wrong_Answer", "Wrong Answer")))
    if not answers:
        raise record.error("no field 'Best Answer' or 'Best Answer1': not a question of HalluQA")
    kind = text_of(record, "Category") if "Category" in record.value else None
    return Question(record_id(record), text_of(record, "Question"), unique(answers), gold(type=kind, wrong_answers=list(unique(wrong))))


def _numbered_texts(record: Record, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the non-empty texts of the fields that have one of these names, with or without a number at the end."""
    for name, value in record.value.items():
        if name.rstrip("0123456789") in names and value not in (None, ""):
            yield text_from(record, value, name)


def parse_begin(record: Record) -> Question:
    """Parse a dialogue turn of BEGIN's table. Models generated the table's responses, so there is no golden answer."""
    row: Any = record.value
    kind = row.get("data_source") if isinstance(row, dict) else None
    return Question(str(record.number), text_of(record, "message"), (), gold(type=kind or None, turns=1))
