"""Open-domain questions with short answers: NQ, TriviaQA, PopQA and similar sets, in their common formats."""

from __future__ import annotations

import ast
import json
import math
import re
import string
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wikidx.base.artifacts.durable import parse_json
from wikidx.corpora.reading.compression import read_toml
from wikidx.corpora.reading.records import PASSAGE_IDS, QUESTION_IDS, find_field, record_unkept_fields
from wikidx.runtimes.llms.text import replace_surrogates

from .base import FEVER_LABELS, Question, gold
from .fields import id_from, objects_from, objects_of, record_id, text_from, text_of, texts_from, texts_of, unique
from .multi_hop import supporting_facts
from .records import Record

_FIELDS = read_toml(Path(__file__).with_name("fields.toml"))
QUESTIONS, ANSWERS = tuple(_FIELDS["questions"]), tuple(_FIELDS["answers"])
_READ = frozenset(QUESTION_IDS).union(*(names for of, names in _FIELDS.items() if of != "within"))
_NO_ANSWERS = ("", "No Answer Present.")  # the last: MS MARCO's
_NONE = "N/A"  # BRIGHT's
_LABEL = re.compile(r"\s*((Topic|Title|Description):|Number:\s*(0+(?=\d))?)?", re.IGNORECASE)  # which qrels lack, as zeros in front


def parse_plain(record: Record) -> Question:
    """Parse a question with the usual fields of answers and gold passages, and optionally with FlashRAG's ``metadata``."""
    metadata = record.value.get("metadata") if isinstance(record.value, dict) else None
    return _parse(record, QUESTIONS, metadata if isinstance(metadata, dict) else {})


def parse_beir(record: Record) -> Question:
    """Parse a query of BEIR's ``queries.jsonl``. BEIR's own files have no answers."""
    return _parse(record, ("text",), {})


def _parse(record: Record, names: tuple[str, ...], metadata: Mapping[str, Any]) -> Question:
    text, answers = text_of(record, *names), _answers(record)
    return Question(record_id(record), text, answers, _plain_gold(record, answers, metadata))


def unread_fields(record: Record, question: Question) -> list[str]:
    """Return the fields that may hold gold data if ``parse_plain`` or ``parse_beir`` has read no answers: all but those that they know."""
    return [] if question.golden_answers else record_unkept_fields(record.value, _READ)


def _answers(record: Record) -> tuple[str, ...]:
    """Return the answers: a list or a single one, of texts, of numbers, or of letters or numbers of choices."""
    name, given = _given_answers(record)
    choices = _choices(record.value, is_key=name == "answerKey")
    texts = [_choose(record, one, choices) if choices and type(one) in (int, str) else one for one in given if one == one]
    answers = [str(one).removesuffix(".0") if type(one) in (int, float) else one for one in texts if one not in _NO_ANSWERS]
    return texts_from(record, answers, name, record.value.get(name))


def _choose(record: Record, key: Any, choices: Mapping[Any, Any]) -> Any:  # noqa: ANN401 - JSON
    """Return the text of a key's choice, whatever its case and brackets; "" for -1, which test sets have; a text that is no key unchanged.

    Raises:
        InputError: it is a letter or a number, and no choice's.
    """
    bare = str(key).strip(" ()[].:").casefold()
    if str(key) in choices or key in choices:
        return choices.get(str(key), choices.get(key))
    if str(key).casefold() in {str(text).casefold() for text in choices.values()}:
        return key
    if bare not in choices and re.fullmatch(r"\d+|-[02-9]\d*|[a-z]", bare):
        raise record.error(f"the answer {key!r:.40} is neither text, label nor number of a choice: correct it, or leave it out")
    return "" if bare == "-1" else choices.get(bare, key)


def _given_answers(record: Record) -> tuple[str, list[Any]]:
    """Return the field of the answers, and the answers; NaN in place of null."""
    name = find_field(record.value, ANSWERS) or ANSWERS[0]
    given = [
        *_flatten(record.value.get(name, [])),
        *(one for further in _FIELDS["further_answers"] for one in _flatten(record.value.get(further) or [])),
    ]
    return name, [math.nan if answer is None else answer for answer in given]


def _flatten(value: Any) -> list[Any]:  # noqa: ANN401 - JSON
    """Return the answers in a list, or one, each a text or an object with one of the fields "within" and perhaps "aliases"."""
    if isinstance(value, str) and value.startswith("["):
        texts = parse_list(value)
        value = texts if isinstance(texts, list) and all(isinstance(text, str) for text in texts) else value
    if isinstance(value, list):
        return [answer for one in value for answer in ([one] if isinstance(one, list) else _flatten(one))]
    known = {name: inner for name, inner in value.items() if inner not in (None, "", [])} if isinstance(value, dict) else {}
    name = find_field(known, _FIELDS["within"])
    return [*_flatten(known[name]), *_flatten(known.get("aliases", []))] if name else [value]


def _choices(value: Mapping[str, Any], *, is_key: bool) -> dict[Any, Any]:
    """Return number from 0, also as text, and letter or label, also in lower case -> text of each choice of a record.

    Labels of the record decide before texts, as with an answer that is a key; of other letters and numbers, those that are texts are none.
    """
    texts: Any = next((value[name] for name in _FIELDS["choices"] if name in value), None)
    labels: Any = list(string.ascii_uppercase)
    if isinstance(texts, list) and all(isinstance(one, dict) for one in texts):  # ARC's own [{"text": …, "label": …}]
        texts = {name: [one.get(name) for one in texts] for name in ("text", "label")}
    if isinstance(texts, dict):  # the hub's {"text": […], "label": […]}, MedQA's {"A": …}
        labels, texts = texts.get("label", list(texts)), texts.get("text", list(texts.values()))
        is_key = is_key or "answer_idx" not in value  # which MedQA has next to a text
    if not isinstance(texts, list) or not isinstance(labels, list):
        return {}
    names = list(map(str, labels))
    choices: dict[Any, Any] = dict(enumerate(texts))
    for keys in (map(str, choices), map(str.casefold, names), names):
        choices |= dict(zip(keys, texts, strict=False))
    named = {*map(str.casefold, map(str, texts))}
    return {key: text for key, text in choices.items() if is_key or not (key in texts or key in named)}


def _passage_ids(record: Record) -> list[str]:
    """Return the ids of the gold passages; objects without one are left out."""
    given = next((_list(record, name) for name in _FIELDS["passages"] if name in record.value), [])
    named = [one if isinstance(one, dict) else {PASSAGE_IDS[0]: one} for one in given]
    return list(unique(id_from(record, next(one[name] for name in PASSAGE_IDS if name in one)) for one in named if {*PASSAGE_IDS} & {*one}))


def count_nulls(record: Record) -> int:
    """Return the number of null answers of a record, which ``parse_plain`` leaves out."""
    return sum(answer != answer for answer in _given_answers(record)[1]) if isinstance(record.value, dict) else 0


def _plain_gold(record: Record, answers: tuple[str, ...], metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    supporting = supporting_facts(record, metadata.get("supporting_facts"))
    contexts = [text_from(record, one["title"], "title") for one in objects_of(record, "positive_ctxs") if one.get("title")]
    kind, hops = (record.value.get(name, metadata.get(name)) for name in ("type", "hops"))
    views = metadata.get("s_pop")
    return gold(
        label=answers[0] if len(answers) == 1 and answers[0] in FEVER_LABELS else None,
        titles=list(unique([*(fact[0] for fact in supporting), *contexts])),
        supporting=supporting,
        passages=_passage_ids(record),
        excluded=[id_from(record, value) for value in _list(record, "excluded_ids")],
        type=kind if isinstance(kind, str) else None,
        popularity=views if type(views) is int else None,
        hops=hops if type(hops) is int else None,
    )


def parse_converted(record: Record) -> Question:
    """Parse a question as ``idx questions`` writes it: all fields of ``Question``."""
    gold_data = record.value.get("gold")
    if not isinstance(gold_data, dict):
        raise record.wrong("gold", gold_data, "not an object")
    gold_data = parse_json(replace_surrogates(json.dumps(gold_data, ensure_ascii=False)))
    return Question(record_id(record), text_of(record, "question"), texts_of(record, "golden_answers"), gold(**gold_data))


def parse_trec_topic(record: Record) -> Question:
    """Parse a topic of TREC. The question is what is searched for: the query or title, else the description or the topic's own text."""
    names = ("num", "number", "identifier", *QUESTION_IDS), ("query", "content", "title", "question", "desc", "description", "topic")
    number, text = (" ".join(_LABEL.sub("", text_of(record, *of), count=1).split()) for of in names)
    return Question(id_from(record, number), text_from(record, text, "title"))


def parse_dpr_row(record: Record) -> Question:
    """Parse a row of DPR's ``*.qa.csv`` or Anserini's ``topics.dpr.*``: question, tab, answers as a list in Python or JSON syntax."""
    row = record.value
    question, answers = (row.get("question"), row.get("answers")) if isinstance(row, dict) else (row[0], row[-1])
    if answers is None or (isinstance(row, tuple) and len(row) != 2):
        raise record.error(f"{len(row)} fields, not a question and its answers: check its tabs and quotes")
    return Question(str(record.number), text_from(record, question, "question"), texts_from(record, parse_list(answers), "answers"))


def parse_topic(record: Record) -> Question:
    """Parse a row of a topics file: id, tab, question, which may be in quotes as in CSV."""
    if not isinstance(record.value, tuple) or len(record.value) != 2:
        raise record.error(f"{len(record.value)} fields, not an id and a question: check its tabs and quotes")
    name, text = record.value
    text = text[1:-1].replace('""', '"') if re.fullmatch('"([^"]|"")*"', text) else text
    return Question(id_from(record, name.strip()), text_from(record, text, "question"))


def parse_triviaqa(record: Record) -> Question:
    """Parse a TriviaQA question in the original format or the Hugging Face hub's, which has field names in lower case.

    The first golden answer is the answer itself; the aliases follow.
    """
    answer = record.value.get("Answer", record.value.get("answer"))
    if answer is not None and not isinstance(answer, dict):
        raise record.wrong("Answer", answer, "not an object with 'Value' and 'Aliases'")
    fields = record._replace(value={name.lower(): value for name, value in (answer or {}).items()})
    value = (text_of(fields, "value"),) if fields.value.get("value") else ()
    answers = unique((*value, *texts_of(fields, "aliases"), *texts_of(fields, "humananswers")))
    return Question(record_id(record), text_of(record, "Question", "question"), answers)


def split_article(record: Record) -> Iterator[Record]:
    """Yield the questions of a SQuAD article, each with the article's title. Any other record is yielded unchanged."""
    if not isinstance(record.value, dict) or "paragraphs" not in record.value or "question" in record.value:  # MuSiQue's have both
        yield record
        return
    for paragraph in objects_of(record, "paragraphs"):
        for question in objects_from(record, paragraph.get("qas"), "qas"):
            yield record._replace(value={**question, "title": record.value.get("title")})


def parse_squad(record: Record) -> Question:
    """Parse a SQuAD question in the original format or the Hugging Face hub's. An unanswerable question has no answers."""
    answer_field, title = record.value.get("answers"), record.value.get("title")
    if isinstance(answer_field, dict):
        answers = texts_of(record._replace(value=answer_field), "text")
    else:
        answers = tuple(text_from(record, answer.get("text"), "text") for answer in objects_of(record, "answers"))
    titles = [text_from(record, title, "title")] if title else []
    return Question(record_id(record), text_of(record, "question"), unique(answers), gold(titles=titles))


def parse_popqa(record: Record) -> Question:
    """Parse a PopQA question. The answers are a list, or a string that contains a JSON list."""
    answers = record.value.get("possible_answers")
    views, kind = record.value.get("s_pop"), record.value.get("prop")
    answer_list = parse_list(answers) if isinstance(answers, str) else answers
    popularity = None if views in (None, "") else _integer(record, views, "s_pop")
    gold_data = gold(popularity=popularity, type=kind if isinstance(kind, str) else None)
    return Question(record_id(record), text_of(record, "question"), texts_from(record, answer_list, "possible_answers"), gold_data)


def parse_list(text: str) -> object:
    """Parse a literal in JSON or Python syntax. Any other text is returned unchanged."""
    try:
        return parse_json(text)
    except ValueError:
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's warning about invalid escape sequences
            return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _integer(record: Record, value: object, name: str) -> int:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 20:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise record.wrong(name, value, "not a whole number")
    return value


def _list(record: Record, name: str) -> list[Any]:
    """Return the list in a field, empty if it is absent or null, without BRIGHT's "N/A" for none."""
    value = record.value.get(name) or []
    value = [] if value == _NONE else value
    if not isinstance(value, list):
        raise record.wrong(name, value, "not a list")
    return [one for one in value if one != _NONE]
