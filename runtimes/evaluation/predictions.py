"""Predictions of a run of idx or of another program.

Forms, detected from the content::

    a folder of 'idx run'                                   predictions.jsonl and run.json
    {"id": "7", "answer": "…"} a line, or all in a list     "prediction", "pred" or "output" for "answer"; these have priority
    {"id": "7", "output": [{"answer": "…"}]} a line         KILT's; FlashRAG's is {"output": {"pred": "…"}}
    {"data": [{"sample_id": "7", "output": "…"}, …]}        ALCE's, with its passages in "docs"
    {"7": "…", "8": "…"}                                    id to answer, as SQuAD's evaluator reads it
    {"answer": {"7": "…"}, "sp": {…}}                       HotpotQA's and 2WikiMultihopQA's

Nothing is dropped silently: data issues are counted, by kind, in ``Predictions.odd``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from wikidx.corpora.errors import InputError
from wikidx.runtimes.evaluation.prediction_files import ANSWERS, records
from wikidx.runtimes.evaluation.run_facts import read_run_json
from wikidx.runtimes.execution.runs import PREDICTIONS, read_predictions
from wikidx.runtimes.llms.text import whole_characters
from wikidx.runtimes.questions import Question
from wikidx.runtimes.questions.fields import ID_FIELDS

# Kinds of data issues, and the handling of each.
ASKED_AGAIN = "asked again"
DUPLICATE = "duplicate ids"
WITHOUT_ID = "without an id"
SEVERAL_FIELDS = "several fields for an answer"
NUMBER = "answers that are numbers"
NOT_A_TEXT = "answers that are no text"
FAILED = "failed"
NO_ANSWER = "without an answer"
READING_RULES = {
    ASKED_AGAIN: "lines of questions that had failed and were asked again: the last one counts",
    DUPLICATE: "the last one counts, as in the JSON that SQuAD's and HotpotQA's evaluators read; KILT's refuses such a file",
    WITHOUT_ID: "cannot be joined with a question: left out",
    SEVERAL_FIELDS: "'prediction', 'pred' or 'output', the first of them that is not null, counts; 'answer' is then taken for the gold",
    NUMBER: "their digits count, as KILT's evaluator reads them",
    NOT_A_TEXT: "lists, objects, true and false, on which the official evaluators stop: counted as no answer",
    FAILED: "the method gave up with an error: no answer",
    NO_ANSWER: "null, or no field that holds one: no answer",
}

_ASKED = ("question", "input", "claim")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class PredictionRow(NamedTuple):
    """The answer to a question.

    Attributes:
        id: the question's.
        answer: None: there is none.
        passages: those that the answer is based on, each with ``id``, ``title``, ``text``.
        cost, timing: as in ``predictions.jsonl``; empty for files of other programs.
        question: the question's text; None: not in the predictions.
    """

    id: str
    answer: str | None
    passages: tuple[Mapping[str, Any], ...] = ()
    cost: Mapping[str, Any] = _NOTHING
    timing: Mapping[str, Any] = _NOTHING
    question: str | None = None


class Predictions(NamedTuple):
    """The predictions of one run.

    Attributes:
        path: their folder or file.
        rows: by the question's id, in file order.
        odd: kind of data issue -> ids, or places in the file without an id; kinds are the keys of ``READING_RULES``.
        told: questions in the predictions themselves, of the lines with ``golden_answers``.
        about: ``run.json``; empty for other programs' files.
    """

    path: Path
    rows: Mapping[str, PredictionRow]
    odd: Mapping[str, list[str]]
    told: tuple[Question, ...] = ()
    about: Mapping[str, Any] = _NOTHING


def read(path: Path) -> Predictions:
    """Read the predictions of a run.

    Args:
        path: a folder that ``idx run`` wrote, or a file in any of the forms above, plain or compressed.

    Raises:
        InputError: the path does not exist, has no predictions, or has a line that is not JSON.
        ArtifactDamaged: ``run.json`` or a line of a run cannot be read.
    """
    if not path.is_dir():
        return _gathered(path, records(path))
    if not (path / PREDICTIONS).is_file():
        raise InputError(f"{path} holds no {PREDICTIONS}: name the folder of 'idx run --out', or a file of predictions")
    lines = read_predictions(path)
    found = _gathered(path, iter(lines.records.items()))
    odd = {**found.odd, ASKED_AGAIN: lines.asked_again} if lines.asked_again else found.odd
    return found._replace(about=read_run_json(path), odd=odd)


def _gathered(path: Path, found: Iterator[tuple[str, Any]]) -> Predictions:
    """Return the rows of records, each with its place in the file."""
    rows, told, kinds = dict[str, PredictionRow](), dict[str, Question](), dict[str, list[str]]()
    odd: dict[str, list[str]] = {DUPLICATE: [], WITHOUT_ID: []}
    first: Any = None
    for place, record in found:
        name = _id(record)
        first = record if first is None else first
        if name is None:
            odd[WITHOUT_ID].append(place)
            continue
        if name in rows:
            odd[DUPLICATE].append(name)
        rows[name], kinds[name] = _row(name, record)
        if _has_gold(record):
            told[name] = Question(name, record["question"], tuple(record["golden_answers"]))
    if not rows:
        there = (
            f"; an id is looked for in {', '.join(ID_FIELDS)}, its first record has {', '.join(first)}" if isinstance(first, dict) else ""
        )
        raise InputError(f'{path} has no predictions: lines of {{"id", "answer"}} or an object of id to answer are read{there:.300}')
    for name, some in kinds.items():
        for kind in some:
            odd.setdefault(kind, []).append(name)
    return Predictions(path, rows, {kind: names for kind, names in odd.items() if names}, tuple(told.values()))


def _id(record: Any) -> str | None:  # noqa: ANN401 - JSON
    given = next((record[name] for name in ID_FIELDS if name in record), None) if isinstance(record, dict) else None
    is_id = isinstance(given, str | int) and not isinstance(given, bool) and given != ""
    return whole_characters(str(given)) if is_id else None


def _row(name: str, record: Mapping[str, Any]) -> tuple[PredictionRow, list[str]]:
    """Return the row of a record, and the data issue of its answer."""
    answer, kind = _answer(record)
    several = SEVERAL_FIELDS if sum(field in record for field in ANSWERS) > 1 else None
    documents = record.get("passages", record.get("docs"))
    passages = tuple(one for one in documents if isinstance(one, dict)) if isinstance(documents, list) else ()
    question = next((record[field] for field in _ASKED if isinstance(record.get(field), str)), None)
    cost, timing = _mapping(record.get("cost")), _mapping(record.get("timing"))
    return PredictionRow(name, answer, passages, cost, timing, question), [one for one in (several, kind) if one]


def _answer(record: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the answer of a record, and its data issue."""
    if record.get("error") is not None:
        return None, FAILED
    there = [field for field in ANSWERS if field in record]
    predicted = [field for field in there if field != "answer"] or there  # a null prediction is not replaced by the gold answer
    given = next((record[field] for field in predicted if record[field] is not None), None)
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], dict):  # KILT's output, one answer per question
        given = given[0].get("answer")
    elif isinstance(given, dict):
        given = given.get("pred")
    if isinstance(given, str):
        return whole_characters(given), None
    if (isinstance(given, int) and not isinstance(given, bool)) or (isinstance(given, float) and math.isfinite(given)):
        return str(given), NUMBER
    return None, NO_ANSWER if given is None else NOT_A_TEXT


def _has_gold(record: Mapping[str, Any]) -> bool:
    gold = record.get("golden_answers")
    return isinstance(record.get("question"), str) and isinstance(gold, list) and all(isinstance(one, str) for one in gold)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else _NOTHING
