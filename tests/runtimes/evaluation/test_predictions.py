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


def written(folder: Path, content: str | bytes) -> Path:
    file = folder / "predictions.any"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def answers(found: Predictions) -> Mapping[str, str | None]:
    return {name: row.answer for name, row in found.rows.items()}


LINES = "".join(json.dumps({"id": name, "answer": answer}) + "\n" for name, answer in PAIRS.items())


@pytest.mark.parametrize(
    "content",
    [
        LINES,
        LINES.rstrip("\n"),
        "\ufeff" + LINES.replace("\n", "\r\n") + "\n \n",
        gzip.compress(LINES.encode()),
        LINES.replace('"answer"', '"prediction"'),
        LINES.replace('"answer"', '"pred"'),
        LINES.replace('"answer"', '"predicted_answer"'),
        LINES.replace('"answer"', '"predicted_label"').replace("}", ', "predicted_evidence": []}'),
        LINES.replace('"answer"', '"response"').splitlines()[0] + "\n" + LINES.replace('"answer"', '"generated_text"').splitlines()[1],
        json.dumps([{"id": name, "answer": answer} for name, answer in PAIRS.items()]),
        json.dumps([{"id": "a", "answer": "Paris"}, {"id": 7, "answer": "42 °C"}]),
        "".join(json.dumps({"id": name, "output": [{"answer": answer, "provenance": []}]}) + "\n" for name, answer in PAIRS.items()),
        json.dumps([{"id": name, "golden_answers": [], "output": {"pred": answer}} for name, answer in PAIRS.items()]),
        json.dumps(
            [{"topic_id": name, "answer": [{"text": part, "citations": [0]} for part in text.split(" ")]} for name, text in PAIRS.items()]
        ),
        json.dumps(PAIRS, indent=1),
        json.dumps({"answer": PAIRS, "sp": {"a": [["T", 0]], "7": []}}),
    ],
    ids=[
        "lines",
        "no end",
        "windows",
        "gzip",
        "prediction",
        "pred",
        "musique",
        "fever",
        "others",
        "list",
        "number as id",
        "kilt",
        "flashrag",
        "trec rag",
        "object",
        "hotpotqa",
    ],
)
def test_every_form_says_the_same(content: str | bytes, tmp_path: Path) -> None:
    found = load_predictions(written(tmp_path, content))
    assert answers(found) == PAIRS
    assert found.data_issues == {}
    assert found.run_json == {}


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
    found = load_predictions(written(tmp_path, "".join(json.dumps(record) + "\n" for record in BATCH[:n])))
    expected = {"a": ("Paris", None), "7": ("42", None), "b": (None, "too long"), "c": (None, "expired")}
    expected |= {"d": ("not of a batch", None), "f": ("of a response", None), "g": ("I cannot", None)}
    assert {name: (row.answer, row.error) for name, row in found.rows.items()} == dict(list(expected.items())[:n])


def test_a_batch_s_answer_of_unknown_form_is_no_failure_of_the_model(tmp_path: Path) -> None:
    line = json.dumps({"id": "r", "custom_id": "a", "response": {"status_code": 200, "body": {"data": [1]}}})
    with pytest.raises(InputError, match="the answer to 'a' has no text of a completion or a response"):
        load_predictions(written(tmp_path, line))


def test_a_single_line_is_a_prediction_and_not_an_object_of_answers(tmp_path: Path) -> None:
    assert answers(load_predictions(written(tmp_path, '{"id": "a", "answer": "x"}'))) == {"a": "x"}


@pytest.mark.parametrize(
    "record", [{"task_id": "1", "model_answer": "x"}, {"ID": "1", "prediction": "x"}, {"uid": 1, "pred": "x", "doc": {}}]
)
def test_a_single_record_of_another_set_is_no_object_of_answers(record: dict[str, object], tmp_path: Path) -> None:
    for content in (json.dumps(record), json.dumps({"model": "m", "results": [record]})):
        (tmp_path / "file").write_text(content)
        assert {name: row.answer for name, row in load_predictions(tmp_path / "file").rows.items()} == {"1": "x"}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"id": "1", "Reply": "x"}, "one of prediction, pred, .* is needed, its first record has id, Reply"),
        ({"input": "who", "output": "x", "score": 1.0}, "one of id, _id, .* is needed, its first record has input, output, score"),
    ],
)
def test_a_single_record_without_id_or_answer_is_told(record: dict[str, object], message: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps(record))
    with pytest.raises(InputError, match=message):
        load_predictions(tmp_path / "file")


def test_data_issues_are_counted_and_nothing_is_lost(tmp_path: Path) -> None:
    records: list[object] = [
        {"id": "a", "answer": "first"},
        {"id": "a", "answer": "last"},
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
    found = load_predictions(written(tmp_path, "".join(json.dumps(record) + "\n" for record in records)))
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


def test_only_the_line_that_counts_can_have_an_issue(tmp_path: Path) -> None:
    found = load_predictions(written(tmp_path, '{"id": "a", "answer": 5}\n{"id": "a", "answer": "five"}\n'))
    assert (answers(found), found.data_issues) == ({"a": "five"}, {"duplicate ids": ["a"]})


def test_predictions_added_to_the_rows_of_a_set_are_not_its_golds(tmp_path: Path) -> None:
    """HotpotQA's and NQ-open's rows have the gold under "answer"; a prediction that is null is none, and not the gold."""
    records: list[dict[str, Any]] = [
        {"_id": "a", "question": "where?", "answer": "gold", "prediction": "ours"},
        {"id": "b", "answer": ["gold"], "pred": "ours"},
        {"id": "c", "answer": "gold", "output": "ours"},
        {"id": "d", "answer": "gold", "prediction": None},
        {"id": "e", "prediction": None, "pred": "ours"},
        {"id": "f", "answer": "ours"},
        {"id": "g", "answer": ["gold"], "pred_answer": "ours"},
        {"id": "h", "answer": "gold", "model_answer": "ours"},
        {"id": "i", "answer": "gold", "generated_answer": "ours"},
        {"id": "j", "answer": "gold", "pred_ans": "ours"},
        {"id": "k", "answer": "gold", "Pred_Answer": "ours"},
    ]
    found = load_predictions(written(tmp_path, "".join(json.dumps(record) + "\n" for record in records)))
    assert answers(found) == {**dict.fromkeys("abcefghijk", "ours"), "d": None}
    assert found.data_issues == {"several fields for an answer": list("abcdeghijk"), "without an answer": ["d"]}
    assert (found.rows["a"].question, found.rows["b"].question) == ("where?", None)


@pytest.mark.parametrize(
    ("given", "answer"), [("1969", "1969"), ("0.5", "0.5"), ("-3", "-3"), ("true", None), ("Infinity", None), ("NaN", None)]
)
def test_a_number_is_its_digits(given: str, answer: str | None, tmp_path: Path) -> None:
    for content in (f'{{"id": "a", "answer": {given}}}\n', f'{{"id": "a", "output": [{{"answer": {given}}}]}}\n'):
        found = load_predictions(written(tmp_path, content))
        assert (answers(found), found.data_issues) == (
            {"a": answer},
            {"answers that are no text" if answer is None else "answers that are numbers": ["a"]},
        )


def test_alces_own_files_come_with_their_passages(tmp_path: Path) -> None:
    docs = [{"id": "5", "title": "T", "text": "x"}]
    row = {"sample_id": "7", "question": "where?", "answer": "gold", "output": "There [1].", "docs": docs}
    (found,) = load_predictions(written(tmp_path, json.dumps({"args": {"model": "m"}, "data": [row]}))).rows.values()
    assert (found.id, found.answer, found.passages) == ("7", "There [1].", tuple(docs))


def test_an_object_that_has_an_id_twice(tmp_path: Path) -> None:
    found = load_predictions(written(tmp_path, '{"a": "first", "b": "x", "a": "last"}'))
    assert (answers(found), found.data_issues) == ({"a": "last", "b": "x"}, {"duplicate ids": ["a"]})


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
        ('{"id": "a", "final": "x"}\n{"id": "b", "final": "y"}', "one of prediction, .*, answer is needed, its first record has id, final"),
        ('{"data": [{"title": "T", "paragraphs": []}], "version": "1.1"}', "has no predictions"),
        ('{"a": "x", "b": ["y"]}', r"has \['y'\] for an answer under 'b'"),
        ('{"a": {"text": "x"}}', "for an answer under 'a'"),
        ('{"id": "1", "answer": ' + "[" * 100_000 + "]" * 100_000 + "}", "line 1: not JSON"),
        (b"\xff\xfe{", "is not in UTF-8"),
        (b"", "is empty"),
        (gzip.compress(LINES.encode())[:-9], "is corrupt"),
    ],
)
def test_files_without_predictions_are_refused(content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        load_predictions(written(tmp_path, content))


def record(name: str, answer: str, error: str | None = None) -> dict[str, Any]:
    cost, passages = {"calls": 1}, [{"id": "p1", "title": "T", "text": "x"}]
    source = {"id": name, "question": f"{name}?", "answer": answer, "error": error, "golden_answers": ["x"]}
    return {**source, "passages": passages, "detail": {"hops": 2}, "cost": cost, "timing": {"seconds": 0.5}}


def test_a_run_with_questions_asked_again_and_an_unfinished_line(tmp_path: Path) -> None:
    with open_run(tmp_path, {"method": "direct"}, {"questions": 3}) as log:
        log.append(record('q"1', "", "LLMError: busy"))
        log.append(record("q2", "y"))
        log.append(record('q"1', "x"))
    with (tmp_path / "predictions.jsonl").open("ab") as file:
        file.write(b'{"id": "q3", "answ')
    found = load_predictions(tmp_path)
    assert answers(found) == {'q"1': "x", "q2": "y"}
    assert found.data_issues == {"asked again": ['q"1']}
    assert found.run_json["settings"] == {"method": "direct"}
    assert found.questions == (Question('q"1', 'q"1?', ("x",)), Question("q2", "q2?", ("x",)))
    row = found.rows["q2"]
    assert row.passages == ({"id": "p1", "title": "T", "text": "x"},)
    assert (row.cost, row.timing) == ({"calls": 1}, {"seconds": 0.5})


def test_folders_that_are_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no predictions.jsonl"):
        load_predictions(tmp_path)
    (tmp_path / "predictions.jsonl").write_text(json.dumps(record("q", "x")) + "\n")
    assert load_predictions(tmp_path).run_json == {}
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ArtifactCorrupt, match=r"run.json cannot be read"):
        load_predictions(tmp_path)


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ([], "it is"),
        ({"settings": {}, "sessions": [1]}, "'sessions' is 1"),
        ({"settings": {}, "sessions": [{"source": "nq.jsonl"}]}, "'source' is 'nq.jsonl'"),
        ({"settings": {}, "sessions": [{"questions": True}]}, "'questions' is True"),
        ({"settings": {"models": {"a": "b"}}, "sessions": []}, "'a' is 'b'"),
        ({"settings": {"models": {"a": None}}, "sessions": []}, "'a' is None"),
        ({"settings": {"questions": {"sample": {"n": "5"}}}, "sessions": []}, "'n' is '5'"),
        ({"settings": {"search": []}, "sessions": []}, "'search' is"),
        ({"settings": {"options": {"k": 5}}, "sessions": []}, "'k' is 5"),
        ({"settings": None, "sessions": []}, "it has no 'settings'"),
    ],
)
def test_a_run_json_of_another_shape_is_corrupt(about: object, why: str, tmp_path: Path) -> None:
    (tmp_path / "predictions.jsonl").write_text(json.dumps(record("q", "x")) + "\n")
    (tmp_path / "run.json").write_text(json.dumps(about))
    with pytest.raises(ArtifactCorrupt, match=rf"run.json cannot be read \({why}"):
        load_predictions(tmp_path)


def test_lines_nested_too_deeply_are_corrupt(tmp_path: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    (tmp_path / "predictions.jsonl").write_text(f'{{"id": "q", "error": null, "answer": {deep}}}\n')
    with pytest.raises(ArtifactCorrupt, match="line 1 is no prediction .*nested too deeply"):
        load_predictions(tmp_path)
    (tmp_path / "predictions.jsonl").write_text(json.dumps(record("q", "x")) + "\n")
    (tmp_path / "run.json").write_text(deep)
    with pytest.raises(ArtifactCorrupt, match=r"run.json cannot be read \(it is nested too deeply"):
        load_predictions(tmp_path)
