"""A folder of BEIR is one command: its corpus, and its questions by the corpus's name, with graded relevance."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.runtimes.command_line import Command
from wikidx.base.errors import InputError
from wikidx.runtimes.evaluation.retrieval.scoring import gold_passages
from wikidx.runtimes.questions import find_questions
from wikidx.runtimes.questions.beir import beir_questions, store_questions

FILES = {
    "corpus.jsonl": '{"_id": "d1", "title": "T", "text": "one"}\n{"_id": "d2", "title": "", "text": "two"}\n',
    "queries.jsonl": '{"_id": "q1", "text": "what one"}\n{"_id": "q2", "text": "what two"}\n{"_id": "q3", "text": "none"}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td2\t1\n",
    "qrels/dev.tsv": "q3\td1\t1\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / "made" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path / "made"


def test_questions_and_relevance_are_those_of_the_files(folder: Path, home: Path) -> None:
    assert store_questions(folder, "made") == ["made:dev", "made:test"]
    questions = find_questions("made")
    assert [(question.id, question.text) for question in questions] == [("q1", "what one"), ("q2", "what two")]
    assert gold_passages(questions) == {"q1": {"d1": 2, "d2": 0}, "q2": {"d2": 1}}
    assert [question.id for question in find_questions("made:dev")] == ["q3"]
    with pytest.raises(InputError, match="there is no file other"):
        find_questions("other")
    assert store_questions(folder, "nq") == []  # the name of a published set


def test_a_folder_or_archive_is_one_command(folder: Path, tmp_path: Path, home: Path, idx: Command) -> None:
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        for name in FILES:
            archive.write(folder / name, f"inner/{name}")
    for source in (folder, tmp_path / "packed.zip"):
        name = source.stem
        idx("build", source)
        assert f"questions: --questions {name}:dev, {name}:test" in idx.err
        found = idx.json("eval", "retrieval", "--corpus", name, "--questions", name, "--measure", "nDCG@10")
        assert found["questions"] == 2


def test_qrels_that_are_not_utf_8_are_refused_in_a_line(folder: Path) -> None:
    (folder / "qrels" / "dev.tsv").write_bytes(b"q1\td\xe9\t1\n")
    with pytest.raises(InputError, match=r"dev.tsv, line 1: byte 5 of the line is not UTF-8"):
        list(beir_questions(folder))


@pytest.mark.parametrize("row", ["q1\td1\n", "q1\td1\tmuch\n"])
def test_a_bad_row_of_qrels_is_named(folder: Path, row: str) -> None:
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n" + row)
    with pytest.raises(InputError, match=r"dev.tsv, line 2: not a question, a passage and a whole number"):
        list(beir_questions(folder))
