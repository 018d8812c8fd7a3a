"""Predictions of ``idx run`` or of another program.

The form is detected from the content::

    a folder of 'idx run'                                   predictions.jsonl and run.json
    {"id": "7", "answer": "…"} per line, or all in a list   or another field of ``ANSWERS``, such as MuSiQue's and FEVER's
    {"id": "7", "output": [{"answer": "…"}]} per line       KILT's form
    {"id": "7", "output": {"pred": "…"}} per line           FlashRAG's form
    {"topic_id": "7", "answer": [{"text": "…"}, …]}         TREC RAG's form, one sentence each
    {"custom_id": "7", "response": {"body": …}} per line    OpenAI's Batch API, vLLM's run-batch
    {"data": [{"sample_id": "7", "output": "…"}, …]}        ALCE's form, with passages in "docs"
    {"7": "…", "8": "…"}                                    SQuAD's form, id to answer
    {"answer": {"7": "…"}, "sp": {…}}                       HotpotQA's and 2WikiMultihopQA's form

``Predictions.data_issues`` lists irregular records, and ``data_issues.toml`` says how each kind is handled.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from wikidx.base.errors import InputError
from wikidx.corpora.reading.records import QUESTION_IDS
from wikidx.runtimes.evaluation.prediction_files import ANSWERS, from_batch, read_prediction_records
from wikidx.runtimes.evaluation.retrieval.search_steps import SearchStep, read_search_steps
from wikidx.runtimes.evaluation.run_facts import read_run_json
from wikidx.runtimes.execution.runs import PREDICTIONS, read_predictions
from wikidx.runtimes.llms.text import replace_surrogates
from wikidx.runtimes.methods.sentences import normalize_words
from wikidx.runtimes.questions import Question
from wikidx.runtimes.questions.fields import given_id, record_id
from wikidx.runtimes.questions.records import Record

_MODULES = {
    "self_knowledge": "self-knowledge",
    "passages": "passage relevance",
    "synthesis": "decomposition",
    "fallback_closed_book": "fallback",
    "fallback_passages": "fallback",
}
_UNANSWERED = "unanswered"
MODULES = (*dict.fromkeys(_MODULES.values()), _UNANSWERED)
"""RA-ISF's modules, as its predictions are counted."""

_QUESTION_FIELDS = ("question", "input", "claim")
_EMPTY: Mapping[str, Any] = MappingProxyType({})


class PredictionRow(NamedTuple):
    """The prediction for a question.

    Attributes:
        id: the question's id.
        answer: the answer; None if there is none.
        passages: the answer's evidence as JSON objects; those of ``idx run`` have ``id``, ``title`` and ``text``.
        cost, timing: as in ``predictions.jsonl``; empty if not recorded.
        question: the question's text; None if not recorded.
        degraded: fallbacks for capabilities that a model lacks.
        yes_no: number and mean mass of the yes/no questions to models, as in ``predictions.jsonl``; empty if there were none.
        error: the error with which the method ended; None: no error.
        parse_ok: whether the answer was found in the expected form and is whole; None: not recorded.
        replies: numbers of generated texts, of cut and of empty ones, as in ``predictions.jsonl``; empty if not recorded.
        groups: breakdown -> group, from what the method records: "answered from" (RA-ISF) and "inferences" (RetroRAG).
        modules: those of ``MODULES`` -> number of questions that they answered, this one and its sub-questions; empty if not of RA-ISF.
        searches: the searches that the steps record.
    """

    id: str
    answer: str | None
    passages: tuple[Mapping[str, Any], ...] = ()
    cost: Mapping[str, Any] = _EMPTY
    timing: Mapping[str, Any] = _EMPTY
    question: str | None = None
    degraded: tuple[str, ...] = ()
    yes_no: Mapping[str, Any] = _EMPTY
    error: str | None = None
    parse_ok: bool | None = None
    replies: Mapping[str, Any] = _EMPTY
    groups: Mapping[str, str] = _EMPTY
    modules: Mapping[str, int] = _EMPTY
    searches: tuple[SearchStep, ...] = ()


class Predictions(NamedTuple):
    """The predictions of one run.

    Attributes:
        path: the folder or file.
        rows: question id -> prediction, in file order.
        data_issues: kind, as in ``data_issues.toml``, -> ids of the records; for records without an id, their positions in the file.
        questions: the questions of those records that contain ``question`` and ``golden_answers``.
        run_json: the content of ``run.json``; empty if there is none.
    """

    path: Path
    rows: Mapping[str, PredictionRow]
    data_issues: Mapping[str, list[str]]
    questions: tuple[Question, ...] = ()
    run_json: Mapping[str, Any] = _EMPTY


def load_predictions(path: Path) -> Predictions:
    """Read the predictions of a run.

    Args:
        path: a folder that ``idx run`` wrote, or a file in one of the forms that this module lists, plain or compressed.

    Raises:
        InputError: the path does not exist, has no predictions, or has a line that is not JSON.
        ArtifactCorrupt: ``run.json`` or a line of ``predictions.jsonl`` cannot be read.
    """
    if not path.is_dir():
        return _collect(path, ((position, from_batch(record)) for position, record in read_prediction_records(path)))
    if not (path / PREDICTIONS).is_file():
        raise InputError(f"{path} holds no {PREDICTIONS}: name the folder of 'idx run --out', or a file of predictions")
    predictions = _collect(path, read_predictions(path))
    data_issues = {"asked again" if kind == "duplicate ids" else kind: names for kind, names in predictions.data_issues.items()}
    return predictions._replace(run_json=read_run_json(path), data_issues=data_issues)


def _collect(path: Path, records: Iterator[tuple[str, Any]]) -> Predictions:
    """Return the predictions of a file; ``records`` are (position, record)."""
    rows, questions, issues_by_id = dict[str, PredictionRow](), dict[str, Question](), dict[str, list[str]]()
    data_issues: dict[str, list[str]] = {"duplicate ids": [], "without an id": []}
    first, can_be_answered = cast(Any, None), False
    for position, record in records:
        name = _id(record)
        first = record if first is None else first
        if name is None:
            data_issues["without an id"].append(position)
            continue
        if name in rows:
            data_issues["duplicate ids"].append(name)
        rows[name], issues_by_id[name] = _row(name, record)
        can_be_answered |= not record.keys().isdisjoint((*ANSWERS, "error"))
        if _has_gold(record):
            questions[name] = Question(name, record["question"], tuple(record["golden_answers"]))
    if not can_be_answered:
        hint = ""
        if isinstance(first, dict):
            record_id(Record(first, str(path), "first record", 1))  # which refuses an id such as 1.0
            hint = f"; one of {', '.join(ANSWERS if rows else QUESTION_IDS)} is needed, its first record has {', '.join(first)}"
        raise InputError(f'{path} has no predictions: lines of {{"id", "answer"}} or an object of id to answer are read{hint:.400}')
    for name, issues in issues_by_id.items():
        for kind in issues:
            data_issues.setdefault(kind, []).append(name)
    return Predictions(path, rows, {kind: names for kind, names in data_issues.items() if names}, tuple(questions.values()))


def _id(record: Any) -> str | None:  # noqa: ANN401 - JSON
    value = given_id(record) if isinstance(record, dict) else None
    is_id = isinstance(value, str | int) and not isinstance(value, bool) and value != ""
    return replace_surrogates(str(value)) if is_id else None


def _row(name: str, record: Mapping[str, Any]) -> tuple[PredictionRow, list[str]]:
    """Return a record's prediction and the kinds of its data issues."""
    answer, kind = _answer(record)
    several = "several fields for an answer" if sum(field in record for field in ANSWERS) > 1 else None
    documents = record.get("passages", record.get("docs"))
    passages = tuple(item for item in documents if isinstance(item, dict)) if isinstance(documents, list) else ()
    question = next((record[field] for field in _QUESTION_FIELDS if isinstance(record.get(field), str)), None)
    cost, timing, yes_no, detail, replies = (_mapping(record.get(field)) for field in ("cost", "timing", "yes_no", "detail", "replies"))
    degraded = record.get("degraded")
    fallbacks = tuple(text for text in degraded if isinstance(text, str)) if isinstance(degraded, list) else ()
    error, parse_ok = record.get("error"), detail.get("parse_ok")
    row = PredictionRow(
        name,
        answer,
        passages,
        cost,
        timing,
        question,
        fallbacks,
        yes_no,
        None if error is None else str(error),
        parse_ok if isinstance(parse_ok, bool) else None,
        replies,
        _groups(detail),
        _count_modules(_mapping(detail.get("tree"))),
        read_search_steps(record.get("steps")),
    )
    return row, [item for item in (several, kind) if item]


def _groups(detail: Mapping[str, Any]) -> dict[str, str]:
    """Return the groups that follow from a prediction's ``detail``: the module that answered, and whether there were inferences."""
    source, rounds = _mapping(detail.get("tree")).get("answered_from"), detail.get("rounds")
    found = {"answered from": source} if isinstance(source, str) else {}
    if "entities" in detail and isinstance(rounds, list):
        found["inferences"] = "some" if any(_mapping(each).get("inferred") for each in rounds) else "none"
    return found


def _count_modules(tree: Mapping[str, Any]) -> Mapping[str, int]:
    """Return module -> number of questions in RA-ISF's tree that it answered; "unknown" is no answer, as for the method itself.

    A synthesis without an answered sub-question, as of ``if_none_answered=synthesise``, is a fallback.
    """
    modules, left = list[str](), [tree] if isinstance(tree.get("answered_from"), str) else []
    while left:
        node = left.pop()
        children = node.get("sub_questions")
        sub_questions = list(map(_mapping, children)) if isinstance(children, list) else []
        source = str(node.get("answered_from"))
        if source == "synthesis" and not any(map(_is_answered, sub_questions)):
            source = "fallback_closed_book"
        modules.append(_MODULES.get(source, _UNANSWERED) if _is_answered(node) else _UNANSWERED)
        left += sub_questions
    return Counter(modules)


def _is_answered(node: Mapping[str, Any]) -> bool:
    return normalize_words(str(node.get("answer") or "")) not in ("", "unknown")


def _answer(record: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return a record's answer and the kind of the answer's data issue."""
    if record.get("error") is not None:
        return None, "failed"
    present = [field for field in ANSWERS if field in record]
    predicted = [field for field in present if field != "answer"] or present  # next to other fields, "answer" is the gold answer
    value = next((record[field] for field in predicted if record[field] is not None), None)
    if isinstance(value, list) and value and all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in value):
        value = " ".join(part["text"] for part in value)  # TREC RAG's form
    elif isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):  # KILT's form
        value = value[0].get("answer")
    elif isinstance(value, dict):
        value = value.get("pred")
    if isinstance(value, str):
        return replace_surrogates(value), None
    if (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and math.isfinite(value)):
        return str(value), "answers that are numbers"
    return None, "without an answer" if value is None else "answers that are no text"


def _has_gold(record: Mapping[str, Any]) -> bool:
    gold = record.get("golden_answers")
    return isinstance(record.get("question"), str) and isinstance(gold, list) and all(isinstance(text, str) for text in gold)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else _EMPTY
