"""Predictions in every supported form, and all their data issues."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from wikidx.base.errors import ArtifactCorrupt, InputError
from wikidx.runtimes.evaluation.data_issues import issue_rules
from wikidx.runtimes.evaluation.predictions import Predictions, load_predictions
from wikidx.runtimes.execution.runs import open_run
from wikidx.runtimes.questions import Question

PAIRS = {"a": "Paris", "7": "42 °C"}


def lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def loaded(folder: Path, content: str | bytes) -> Predictions:
    file = folder / "predictions.any"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load_predictions(file)


def answers(found: Predictions) -> Mapping[str, str | None]:
    return {name: row.answer for name, row in found.rows.items()}


LINES = lines(*({"id": name, "answer": answer} for name, answer in PAIRS.items()))
FORMS: dict[str, str | bytes] = {
    "lines": LINES,
    "no end": LINES.rstrip("\n"),
    "windows": "\ufeff" + LINES.replace("\n", "\r\n") + "\n \n",
    "gzip": gzip.compress(LINES.encode()),
    "musique": LINES.replace('"answer"', '"predicted_answer"'),
    "fever": LINES.replace('"answer"', '"predicted_label"').replace("}", ', "predicted_evidence": []}'),
    "others": LINES.replace('"answer"', '"response"', 1).replace('"answer"', '"generated_text"'),
    "list, number as id": json.dumps([{"id": "a", "answer": "Paris"}, {"id": 7, "answer": "42 °C"}]),
    "kilt": lines(*({"id": name, "output": [{"answer": answer, "provenance": []}]} for name, answer in PAIRS.items())),
    "flashrag": json.dumps([{"id": name, "golden_answers": [], "output": {"pred": answer}} for name, answer in PAIRS.items()]),
    "trec rag": json.dumps([{"topic_id": name, "answer": [{"text": part} for part in text.split(" ")]} for name, text in PAIRS.items()]),
    "object": json.dumps(PAIRS, indent=1),
    "hotpotqa": json.dumps({"answer": PAIRS, "sp": {"a": [["T", 0]], "7": []}}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_says_the_same(form: str, tmp_path: Path) -> None:
    found = loaded(tmp_path, FORMS[form])
    assert (answers(found), found.data_issues, found.run_json) == (PAIRS, {}, {})


BATCH = [
    {"id": "r", "custom_id": "a", "response": {"body": {"choices": [{"message": {"content": "Paris"}}]}}, "error": None},
    {"id": "r", "custom_id": 7, "response": {"body": {"choices": [{"text": "42"}]}}},
    {"id": "r", "custom_id": "b", "response": {"status_code": 400, "body": {"error": {"message": "too long"}}}, "error": None},
    {"id": "r", "custom_id": "c", "response": None, "error": {"code": "batch_expired", "message": "expired"}},
    {"id": "d", "custom_id": "e", "response": "not of a batch"},
    {"custom_id": "f", "response": {"status_code": 200, "body": {"output": [{"summary": []}, {"content": [{"text": "of a response"}]}]}}},
    {"custom_id": "g", "response": {"body": {"choices": [{"message": {"content": None, "refusal": "I cannot"}}]}}},
]


@pytest.mark.parametrize("n", [1, len(BATCH)])
def test_batches_of_requests_have_answers_and_errors(n: int, tmp_path: Path) -> None:
    found = loaded(tmp_path, lines(*BATCH[:n]))
    expected = {"a": ("Paris", None), "7": ("42", None), "b": (None, "too long"), "c": (None, "expired")}
    expected |= {"d": ("not of a batch", None), "f": ("of a response", None), "g": ("I cannot", None)}
    assert {name: (row.answer, row.error) for name, row in found.rows.items()} == dict(list(expected.items())[:n])


@pytest.mark.parametrize(
    "record",
    [{"id": "1", "answer": "x"}, {"task_id": "1", "model_answer": "x"}, {"ID": "1", "prediction": "x"}, {"uid": 1, "pred": "x", "doc": {}}],
)
def test_a_single_record_is_a_prediction_and_no_object_of_answers(record: dict[str, object], tmp_path: Path) -> None:
    for content in (json.dumps(record), json.dumps({"model": "m", "results": [record]})):
        assert answers(loaded(tmp_path, content)) == {"1": "x"}


def test_data_issues_are_counted_and_nothing_is_lost(tmp_path: Path) -> None:
    records: list[object] = [
        {"id": "a", "answer": 5},
        {"id": "a", "answer": "last"},  # only the line that counts can have another issue
        {"id": "b", "answer": 1969},
        {"id": "c", "answer": ["x"]},
        {"id": "d", "answer": None},
        {"id": "e"},
        {"id": "f", "answer": "", "error": "TimeoutError: late"},
        {"id": "g", "answer": ""},
        {"answer": "whose?"},
        {"id": True, "answer": "x"},
        ["a", "x"],
        {"id": "h", "answer": "half \ud83d"},
    ]
    found = loaded(tmp_path, lines(*records))
    assert answers(found) == {"a": "last", "b": "1969", "c": None, "d": None, "e": None, "f": None, "g": "", "h": "half \ufffd"}
    assert found.data_issues == {
        "duplicate ids": ["a"],
        "without an id": ["line 9", "line 10", "line 11"],
        "answers that are numbers": ["b"],
        "answers that are no text": ["c"],
        "without an answer": ["d", "e"],
        "failed": ["f"],
    }
    assert set(found.data_issues) <= set(issue_rules())
    twice = loaded(tmp_path, '{"a": "first", "b": "x", "a": "last"}')
    assert (answers(twice), twice.data_issues) == ({"a": "last", "b": "x"}, {"duplicate ids": ["a"]})


def test_predictions_added_to_the_rows_of_a_set_are_not_its_golds(tmp_path: Path) -> None:
    """HotpotQA's and NQ-open's rows have the gold under "answer"; a prediction that is null is none, and not the gold."""
    fields = ("prediction", "output", "pred_answer", "model_answer", "generated_answer", "pred_ans", "Pred_Answer")
    records: list[dict[str, Any]] = [{"id": field, "question": "where?", "answer": "gold", field: "ours"} for field in fields]
    records += [{"_id": "_id", "answer": ["gold"], "pred": "ours"}, {"id": "null", "answer": "gold", "prediction": None}]
    records += [{"id": "second", "prediction": None, "pred": "ours"}, {"id": "alone", "answer": "ours"}]
    found = loaded(tmp_path, lines(*records))
    assert answers(found) == {**dict.fromkeys([*fields, "_id", "second", "alone"], "ours"), "null": None}
    assert found.data_issues == {"several fields for an answer": [*fields, "_id", "null", "second"], "without an answer": ["null"]}
    assert (found.rows["output"].question, found.rows["_id"].question) == ("where?", None)


@pytest.mark.parametrize(("given", "answer"), [("0.5", "0.5"), ("-3", "-3"), ("true", None), ("Infinity", None), ("NaN", None)])
def test_a_number_is_its_digits(given: str, answer: str | None, tmp_path: Path) -> None:
    for content in (f'{{"id": "a", "answer": {given}}}\n', f'{{"id": "a", "output": [{{"answer": {given}}}]}}\n'):
        found = loaded(tmp_path, content)
        assert answers(found) == {"a": answer}
        assert found.data_issues == {"answers that are no text" if answer is None else "answers that are numbers": ["a"]}


def test_what_methods_and_alce_s_files_record(tmp_path: Path) -> None:
    docs = [{"id": "5", "title": "T", "text": "x"}]
    row = {"sample_id": "7", "question": "where?", "answer": "gold", "output": "There [1].", "docs": docs}
    (found,) = loaded(tmp_path, json.dumps({"args": {"model": "m"}, "data": [row]})).rows.values()
    assert (found.id, found.answer, found.passages) == ("7", "There [1].", tuple(docs))
    details: list[dict[str, Any]] = [
        {"tree": {"answered_from": "passages"}},
        {"entities": "", "rounds": [{"inferred": []}, {"query": "q", "inferred": [{"text": "t", "score": 1.0}]}]},
        {"entities": "", "rounds": [{"query": "q"}]},
        {"rounds": [{"query": "q", "inferred": "not of RetroRAG"}]},
        {"tree": "none", "entities": "", "rounds": None},
    ]
    rows = loaded(tmp_path, lines(*({"id": n, "answer": "x", "detail": detail} for n, detail in enumerate(details)))).rows
    assert [row.groups for row in rows.values()] == [{"answered from": "passages"}, {"inferences": "some"}, {"inferences": "none"}, {}, {}]


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"id": "a", "answer": "x"}\nnot json\n', "line 2: not JSON"),
        ("[]", "has no predictions"),
        ('{"id": 1.0, "answer": "x"}\n{"answer": "y"}', r"p.*, first record: the id is 1\.0, neither a text nor a whole number"),
        ('{"id": null, "answer": "x"}', "has no predictions.* its first record has id, answer"),
        ("5", "holds 5, no predictions"),
        ('{"data": [], "version": "1.1"}', "has no predictions"),
        ('{"data": [{"question": "q", "output": "y"}]}', "one of id, .*, task_id is needed, its first record has question, output"),
        ('{"id": "1", "Reply": "x"}', "one of prediction, pred, .* is needed, its first record has id, Reply"),
        ('{"data": [{"title": "T", "paragraphs": []}], "version": "1.1"}', "has no predictions"),
        ('{"a": "x", "b": ["y"]}', r"has \['y'\] for an answer under 'b'"),
        (f'{{"id": "1", "answer": {DEEP}}}', "line 1: not JSON"),
        (
            json.dumps({"id": "r", "custom_id": "a", "response": {"status_code": 200, "body": {"data": [1]}}}),
            "the answer to 'a' has no text of a completion or a response",
        ),
        (b"\xff\xfe{", "is not in UTF-8"),
        (b"", "is empty"),
        (gzip.compress(LINES.encode())[:-9], "is corrupt"),
    ],
)
def test_files_without_predictions_are_refused(content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        loaded(tmp_path, content)


def record(name: str, answer: str, error: str | None = None) -> dict[str, Any]:
    cost, passages = {"calls": 1}, [{"id": "p1", "title": "T", "text": "x"}]
    source = {"id": name, "question": f"{name}?", "answer": answer, "error": error, "golden_answers": ["x"]}
    return {**source, "passages": passages, "detail": {"hops": 2}, "cost": cost, "timing": {"seconds": 0.5}}


def test_a_run_with_questions_asked_again_and_an_unfinished_line(tmp_path: Path) -> None:
    with open_run(tmp_path, {"method": "direct"}, {"questions": 3}) as log:
        for each in (record('q"1', "", "LLMError: busy"), record("q2", "y"), record('q"1', "x")):
            log.append(each)
    with (tmp_path / "predictions.jsonl").open("ab") as file:
        file.write(b'{"id": "q3", "answ')
    found = load_predictions(tmp_path)
    assert (answers(found), found.data_issues) == ({'q"1': "x", "q2": "y"}, {"asked again": ['q"1']})
    assert found.run_json["settings"] == {"method": "direct"}
    assert found.questions == (Question('q"1', 'q"1?', ("x",)), Question("q2", "q2?", ("x",)))
    row = found.rows["q2"]
    assert (row.passages, row.cost, row.timing) == (({"id": "p1", "title": "T", "text": "x"},), {"calls": 1}, {"seconds": 0.5})


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ("[]", "it is"),
        ("{}", "it has no 'settings'"),
        (DEEP, "it is nested too deeply"),
        ('{"settings": {}, "sessions": [1]}', "'sessions' is 1"),
        ('{"settings": {}, "sessions": [{"source": "nq.jsonl"}]}', "'source' is 'nq.jsonl'"),
        ('{"settings": {}, "sessions": [{"questions": true}]}', "'questions' is True"),
        ('{"settings": {"models": {"a": null}}, "sessions": []}', "'a' is None"),
        ('{"settings": {"questions": {"sample": {"n": "5"}}}, "sessions": []}', "'n' is '5'"),
        ('{"settings": {"options": {"k": 5}}, "sessions": []}', "'k' is 5"),
    ],
)
def test_folders_that_are_no_run(about: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no predictions.jsonl"):
        load_predictions(tmp_path)
    (tmp_path / "predictions.jsonl").write_text(lines(record("q", "x")))
    assert load_predictions(tmp_path).run_json == {}
    (tmp_path / "run.json").write_text(about)
    with pytest.raises(ArtifactCorrupt, match=rf"run.json cannot be read \({why}"):
        load_predictions(tmp_path)
    (tmp_path / "predictions.jsonl").write_text(f'{{"id": "q", "error": null, "answer": {DEEP}}}\n')
    with pytest.raises(ArtifactCorrupt, match="line 1 is no prediction .*nested too deeply"):
        load_predictions(tmp_path)
