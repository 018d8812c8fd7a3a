"""Open-domain questions with short answers: NQ, TriviaQA, PopQA and similar sets, in their common formats."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from wikidx.corpora.artifacts.durable import json_value
from wikidx.corpora.errors import InputError

from .base import FEVER_LABELS, Question, gold
from .fields import id_from, identifier, objects_from, objects_of, once, text_from, text_of, texts_from, texts_of
from .multi_hop import supporting_facts
from .records import Record

_ANSWERS = ("golden_answers", "answers", "answer")


def plain(record: Record) -> Question:
    """Parse a question with any of the usual fields for its answers; FlashRAG's ``metadata`` and ids of gold passages if present."""
    text = text_of(record, "question")
    answers = _answers(record)
    metadata = record.value.get("metadata")
    return Question(identifier(record), text, answers, _plain_gold(record, answers, metadata if isinstance(metadata, dict) else {}))


def _answers(record: Record) -> tuple[str, ...]:
    one = next((name for name in ("answer", "answer-text") if name in record.value), "")  # the second is OTT-QA's and HybridQA's
    if isinstance(record.value.get(one), str) and not any(name in record.value for name in _ANSWERS[:2]):
        return (text_from(record, record.value[one], one),)
    return texts_of(record, *_ANSWERS)


def _plain_gold(record: Record, answers: tuple[str, ...], metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    supporting = supporting_facts(record, metadata.get("supporting_facts"))
    kind, views = metadata.get("type"), metadata.get("s_pop")
    return gold(
        label=answers[0] if len(answers) == 1 and answers[0] in FEVER_LABELS else None,
        titles=list(once(fact[0] for fact in supporting)),
        supporting=supporting,
        passages=[id_from(record, one) for one in _list(record, "gold_ids")],
        type=kind if isinstance(kind, str) else None,
        popularity=views if type(views) is int else None,
    )


def dpr(record: Record) -> Question:
    """Parse a question of DPR's training files; its gold passages are ``positive_ctxs``."""
    positive = objects_of(record, "positive_ctxs")
    ids = [one[name] for one in positive for name in ("passage_id", "psg_id") if name in one]
    titles = once(text_from(record, one["title"], "title") for one in positive if one.get("title"))
    known = gold(titles=list(titles), passages=list(once(id_from(record, one) for one in ids)))
    return Question(identifier(record), text_of(record, "question"), texts_of(record, "answers"), known)


def dpr_table(record: Record) -> Question:
    """Parse a row of DPR's ``*.qas.csv`` and Anserini's ``topics.dpr.*``: the question, a tab, a list in Python's or JSON's syntax."""
    row = record.value
    question, answers = (row.get("question"), row.get("answers")) if isinstance(row, dict) else (row[0], row[-1])
    if answers is None or (isinstance(row, tuple) and len(row) != 2):
        raise InputError(f"{record.where}: {len(row)} fields, not a question and its answers: check its tabs and quotes")
    return Question(str(record.number), text_from(record, question, "question"), texts_from(record, written_list(answers), "answers"))


def topic(record: Record) -> Question:
    """Parse a row of a topics file: an id, a tab, the question."""
    if not isinstance(record.value, tuple) or len(record.value) != 2:
        raise InputError(f"{record.where}: {len(record.value)} fields, not an id and a question: check its tabs and quotes")
    name, text = record.value
    return Question(id_from(record, name.strip()), text_from(record, text, "question"))


def triviaqa(record: Record) -> Question:
    """Parse a question of TriviaQA, from its own files or the hub's (lower-case names); the answer comes first, then its aliases."""
    answer = record.value.get("Answer", record.value.get("answer"))
    if answer is not None and not isinstance(answer, dict):
        raise InputError(f"{record.where}: the field 'Answer' is {answer!r:.40}, not an object with 'Value' and 'Aliases'")
    about = record._replace(value={name.lower(): value for name, value in (answer or {}).items()})
    value = (text_of(about, "value"),) if about.value.get("value") else ()
    answers = once((*value, *texts_of(about, "aliases"), *texts_of(about, "humananswers")))
    return Question(identifier(record), text_of(record, "Question", "question"), answers)


def of_article(record: Record) -> Iterator[Record]:
    """Yield the questions of an article of SQuAD, each with its title; any other record is one question."""
    if not isinstance(record.value, dict) or "paragraphs" not in record.value:
        yield record
        return
    for paragraph in objects_of(record, "paragraphs"):
        for asked in objects_from(record, paragraph.get("qas"), "qas"):
            yield record._replace(value={**asked, "title": record.value.get("title")})


def squad(record: Record) -> Question:
    """Read a question of SQuAD, or as the hub has them; one that its passage does not answer has no answers."""
    given, title = record.value.get("answers"), record.value.get("title")
    if isinstance(given, dict):
        answers = texts_of(record._replace(value=given), "text")
    else:
        answers = tuple(text_from(record, one.get("text"), "text") for one in objects_of(record, "answers"))
    titles = [text_from(record, title, "title")] if title else []
    return Question(identifier(record), text_of(record, "question"), once(answers), gold(titles=titles))


def popqa(record: Record) -> Question:
    """Parse a question of PopQA; its answers are a JSON list in a text field."""
    answers = record.value.get("possible_answers")
    views, kind = record.value.get("s_pop"), record.value.get("prop")
    listed = written_list(answers) if isinstance(answers, str) else answers
    known = gold(popularity=None if views in (None, "") else _whole(record, views, "s_pop"), type=kind if isinstance(kind, str) else None)
    return Question(identifier(record), text_of(record, "question"), texts_from(record, listed, "possible_answers"), known)


def written_list(text: str) -> object:
    """Parse a list in JSON's or Python's syntax; return the text itself if it is neither."""
    try:
        return json_value(text)
    except ValueError:
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's warning about invalid escapes
            return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _whole(record: Record, value: object, name: str) -> int:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 20:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{record.where}: the field '{name}' is {value!r:.40}, not a whole number")
    return value


def _list(record: Record, name: str) -> list[Any]:
    value = record.value.get(name) or []
    if not isinstance(value, list):
        raise InputError(f"{record.where}: the field '{name}' is {value!r:.40}, not a list")
    return value
