"""Passages that records give with their questions: the published spellings, what they lack, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wikidx.base.errors import InputError
from wikidx.corpora.passage import Passage
from wikidx.runtimes.questions import GivenPassage, read_questions
from wikidx.runtimes.questions.fetching import write_questions

NILE = {"id": "7", "title": "Nile", "text": "A river."}
ALCE = {"sample_id": "a", "question": "Where?", "qa_pairs": [{"short_answers": ["Egypt"]}], "docs": [{**NILE, "score": 0.75}]}
CASES: dict[str, tuple[dict[str, Any], tuple[GivenPassage, ...]]] = {
    "ALCE": (ALCE, (GivenPassage(Passage("7", "Nile", "A river."), 0.75),)),
    "DPR's reader": (
        {
            "question": "Where?",
            "answers": ["Egypt"],
            "ctxs": [{**NILE, "score": "81.5", "has_answer": False}, {"title": None, "text": "Sea."}],
        },
        (GivenPassage(Passage("7", "Nile", "A river."), 81.5), GivenPassage(Passage("1:2", "", "Sea."))),
    ),
    "FlashRAG's run": (
        {
            "id": "f",
            "question": "Where?",
            "golden_answers": ["Egypt"],
            "output": {"retrieval_result": [{"id": 7, "contents": '"Nile"\nA river.'}], "pred": "Egypt"},
        },
        (GivenPassage(Passage("7", "Nile", "A river.")),),
    ),
    "DPR's training file": ({"question": "Where?", "answers": ["Egypt"], "positive_ctxs": [NILE]}, ()),
    "no score that is a number": (
        {"question": "Where?", "answer": ["Egypt"], "ctxs": [{**NILE, "score": "good"}, {**NILE, "score": True}, {**NILE, "score": "nan"}]},
        (
            GivenPassage(Passage("7", "Nile", "A river.")),
            GivenPassage(Passage("1:2", "Nile", "A river."), 1.0),
            GivenPassage(Passage("1:3", "Nile", "A river.")),
        ),
    ),
}


def write(folder: Path, *records: dict[str, Any]) -> Path:
    file = folder / "questions.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return file


@pytest.mark.parametrize("name", CASES)
def test_published_spellings(name: str, tmp_path: Path) -> None:
    record, expected = CASES[name]
    (question,) = read_questions(write(tmp_path, record), with_passages=True)
    assert question.passages == expected
    (without,) = read_questions(tmp_path / "questions.jsonl")
    assert without == question._replace(passages=())


def test_converted_questions_keep_their_passages(tmp_path: Path) -> None:
    asked = read_questions(
        write(tmp_path, *(record for name in ("ALCE", "DPR's reader") for record in [CASES[name][0]])), with_passages=True
    )
    write_questions(tmp_path / "converted.jsonl", asked)
    assert read_questions(tmp_path / "converted.jsonl", with_passages=True) == asked
    assert [len(question.passages) for question in asked] == [1, 2]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"docs": "Nile"}, r"line 1: the field 'docs' is 'Nile', not a list of objects"),
        ({"ctxs": [NILE, {"title": "Nile"}]}, r"line 1: no passage in 'ctxs, 2': the field 'text' is missing; it has title"),
        ({"ctxs": [{**NILE, "text": 7}]}, r"line 1: no passage in 'ctxs, 1': the field 'text' is a number, not a string"),
    ],
)
def test_a_record_with_unusable_passages_is_refused_if_they_are_read(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = write(tmp_path, {"question": "Where?", "answer": ["Egypt"], **fields})
    with pytest.raises(InputError, match=message):
        read_questions(file, with_passages=True)
    assert len(read_questions(file)) == 1
