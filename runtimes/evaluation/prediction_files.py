"""Reader of prediction files: from any supported form to records, which are JSON objects with an id and an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from wikidx.base.errors import InputError
from wikidx.base.net.endpoint import error_message
from wikidx.corpora.reading.compression import read_bytes
from wikidx.corpora.reading.records import QUESTION_IDS, find_field

_PREDICTED = ("prediction", "pred", "output", "predicted_answer", "predicted_label", "pred_answer", "response", "generated_text")
_OF_AGENTS = ("pred_ans", "Pred_Answer", "final_answer", "generation", "completion")  # R1-Searcher's, Search-o1's and others'
PREDICTED = (*_PREDICTED, "model_answer", "generated_answer", "model_output", "prediction_text", *_OF_AGENTS)
ANSWERS = (*PREDICTED, "answer")  # next to another, "answer" is the gold answer

_CONTAINERS = ("data", "results", "predictions")
_OF_RECORDS = (*QUESTION_IDS, *ANSWERS, "question", "input")  # which tell the only record of a file from an object of id to answer
_UNREADABLE = (ValueError, RecursionError)  # raised by json


def read_prediction_records(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield (position, record) for each record of a file; each entry of an id-to-answer object becomes a record.

    Raises:
        InputError: the file cannot be read, a line is not JSON, the file is a JSON value other than an object or a list, or an answer in an
            id-to-answer object is a list, an object, true or false.
    """
    text = _read_text(path)
    try:
        whole = json.loads(text, object_pairs_hook=_Object)
    except _UNREADABLE:
        yield from _json_lines(path, text)
        return
    if isinstance(whole, _Object):
        whole = next((whole[name] for name in _CONTAINERS if isinstance(whole.get(name), list)), whole)
    if isinstance(whole, list):
        yield from ((f"record {number}", record) for number, record in enumerate(whole, 1))
    elif not isinstance(whole, _Object):
        raise InputError(f"{path} holds {whole!r:.40}, no predictions: an object, a list or lines of objects are read")
    elif find_field(whole, _OF_RECORDS) and not isinstance(whole.get("answer"), dict):
        yield "line 1", whole
    else:
        yield from _records_by_id(path, whole)


class _Object(dict[str, Any]):
    """A JSON object; ``pairs`` also holds the entries with duplicate names."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def _records_by_id(path: Path, whole: _Object) -> Iterator[tuple[str, Any]]:
    answers = whole["answer"] if isinstance(whole.get("answer"), _Object) else whole
    for name, answer in answers.pairs:
        if isinstance(answer, bool | list | dict):
            raise InputError(
                f"{path} has {answer!r:.40} for an answer under '{name:.40}': an object of id to text is read, or lines of "
                '{"id", "answer"}'
            )
        yield name, {"id": name, "answer": answer}


def from_batch(record: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a line of OpenAI's Batch API or vLLM's run-batch as a record with an answer, or an error; any other record unchanged.

    Raises:
        InputError: an answer of status 200 has a form that is not known.
    """
    response = record.get("response", "") if isinstance(record, dict) and "custom_id" in record else ""
    if not isinstance(response, dict | None):
        return record
    read = {"id": record["custom_id"]}
    body = (response or {}).get("body") or response
    try:
        return read | {"answer": _batch_text(body)}
    except (LookupError, TypeError, AttributeError) as error:
        if response and response.get("status_code") == HTTPStatus.OK:
            raise InputError(f"the answer to {read['id']!r:.40} has no text of a completion or a response: {body!r:.80}") from error
        return read | {"error": error_message(record.get("error") or body or "no response")}


def _batch_text(body: Any) -> Any:  # noqa: ANN401 - JSON
    if "output" in body:  # of /v1/responses
        parts = [part for item in body["output"] for part in item.get("content") or ()]
        return "".join(part.get("text") or part.get("refusal") or "" for part in parts)
    choice = body["choices"][0]
    message = choice.get("message")
    return choice["text"] if message is None else message.get("content") or message.get("refusal")


def _json_lines(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield f"line {number}", json.loads(line)
        except _UNREADABLE as error:
            raise InputError(f'{path}, line {number}: not JSON ({error}): each line is {{"id", "answer"}}') from error


def _read_text(path: Path) -> str:
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not in UTF-8 ({error})") from error
