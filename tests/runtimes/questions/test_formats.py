"""Files of questions: every format and spelling known by its content and read in full; what cannot be read is named."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.runtimes.questions.format_files import FIELD_FILES, FORMAT_FILES, FormatFile, lines, read_table
from wikidx.base.errors import InputError, UnknownNameError
from wikidx.corpora.known import sample
from wikidx.corpora.passage import Passage
from wikidx.runtimes.evaluation.retrieval.trec import read_qrels, read_run
from wikidx.runtimes.questions import FORMATS, GivenPassage, Question, detect_format, read_questions, sample_questions
from wikidx.runtimes.questions.fetching import write_questions
from wikidx.runtimes.questions.queries import read_queries


def write(folder: Path, content: str | bytes, name: str = "file.any") -> Path:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def case_of(name: str) -> FormatFile:
    return next(case for case in FORMAT_FILES if str(case) == name)


def test_every_format_is_tried() -> None:
    assert {case.format for case in FORMAT_FILES} | {"asqa-train"} == set(FORMATS)
    assert all("\n" not in one.record and one.record for one in FORMATS.values())


@pytest.mark.parametrize("case", [*FORMAT_FILES, *FIELD_FILES], ids=str)
def test_a_file_is_known_by_its_content_read_and_converted(tmp_path: Path, case: FormatFile) -> None:
    file = write(tmp_path, case.content)
    assert read_questions(file, case.format) == case.questions
    for change in (bytes, gzip.compress, bz2.compress, zstandard.compress, b"\xef\xbb\xbf".__add__):
        file.write_bytes(change(case.content.encode()))
        assert detect_format(file) == case.format
        assert read_questions(file) == case.questions
    write_questions(tmp_path / "converted.jsonl", case.questions)
    assert read_questions(tmp_path / "converted.jsonl") == case.questions
    assert detect_format(tmp_path / "converted.jsonl") == "idx"


@pytest.mark.parametrize("case", FORMAT_FILES, ids=str)
def test_its_questions_are_queries_and_it_is_of_no_other_format(tmp_path: Path, case: FormatFile) -> None:
    file = write(tmp_path, case.content)
    numbers = {str(number) for number in range(1, 10)}  # ids of questions that the file gives none
    for query, question in zip(read_queries(file), case.questions, strict=True):
        assert query.text == question.text
        assert str(query.id) == question.id or (query.id is None and question.id in numbers and case.format not in ("trec", "topics"))
    for forced in {"popqa", "kilt", "dpr-tsv", "halluqa", "2wikimultihopqa", "strategyqa"} - {case.format}:
        with pytest.raises(InputError, match=rf"is not in the format {forced} \(.*\); it looks like {case.format} \("):
            read_questions(file, forced)


def test_a_format_that_is_forced_decides(tmp_path: Path) -> None:
    """2WikiMultihopQA's records have all that HotpotQA's have; ASQA's file has two splits."""
    hop, both = case_of("2wikimultihopqa"), case_of("asqa")
    (question,) = read_questions(write(tmp_path, hop.content), "hotpotqa")
    assert question.gold == {key: value for key, value in hop.questions[0].gold.items() if key != "answer_id"}
    assert [one.id for one in read_questions(write(tmp_path, both.content), "asqa-train")] == ["-1"]
    with pytest.raises(InputError, match="has no questions under 'dev', which the format asqa reads: name another"):
        read_questions(write(tmp_path, json.dumps({"train": json.loads(both.content)["train"]})))
    with pytest.raises(UnknownNameError, match="unknown format 'flashrg': did you mean 'flashrag'"):
        read_questions(tmp_path / "file.any", "flashrg")


def test_aliases_of_2wikimultihopqa(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Aliases and demonyms of the answer's id, as the official evaluator takes them: of two rows the last, and the answer itself once."""
    case = case_of("2wikimultihopqa")
    file = write(tmp_path, case.content, "dev.json")
    table = (
        {"Q_id": "Q79", "aliases": ["old"], "demonyms": []},
        {"Q_id": "", "aliases": [], "demonyms": []},
        {"Q_id": "Q79", "aliases": ["Misr", "Egypt", "EGY"], "demonyms": ["Egyptian", "Misr"]},
    )
    write(tmp_path, lines(*table), "id_aliases.json")
    (question,) = read_questions(file)
    assert question.golden_answers == ("Egypt", "Misr", "EGY", "Egyptian")
    assert caplog.messages == [f"{tmp_path / 'id_aliases.json'}: 1 rows whose 'Q_id' is empty are left out"]
    assert question.gold == {**case.questions[0].gold, "aliases": ["Misr", "EGY", "Egyptian"]}
    for row, message in (
        ('{"Q_id": "Q79", "aliases": ["Misr"], "demonyms": "E"}', "the field 'demonyms' is 'E'"),
        ("{}", "{} has no 'Q_id'"),
    ):
        write(tmp_path, row, "id_aliases.json")
        with pytest.raises(InputError, match=f"id_aliases.json, line 1: {message}"):
            read_questions(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *read_table("refused"),
        (b"who\t['caf\xe9']\n", "line 1: not UTF-8"),
        (b'[{"question": "caf\xe9"}]', "not UTF-8"),
        (b'{"question": "caf\xe9"}', "line 1: not JSON in UTF-8"),
    ],
)
def test_what_cannot_be_read_is_named_and_closed_at_once(tmp_path: Path, content: str | bytes, message: str) -> None:
    check_refused(read_questions, write(tmp_path, content), message)


def check_refused(read: Callable[[Path], object], file: Path, message: str) -> None:
    """The file is named in one line, and not held open by the traceback, which keeps the readers' frames alive."""
    with pytest.raises(InputError, match=message) as caught:
        read(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.tb is not None
    assert file not in {entry.resolve() for entry in Path("/proc/self/fd").glob("*")}  # empty where there is no /proc


def test_rankings_that_are_refused_are_closed_at_once(tmp_path: Path) -> None:
    check_refused(read_qrels, write(tmp_path, "1 0 a 1\n1 0 a b\n"), "line 2")
    check_refused(read_run, write(tmp_path, "1 Q0 a 1 1 x\n1 Q0 b 1 nan x\n"), "line 2")


@pytest.mark.parametrize(
    ("given", "answers", "n_nulls"),
    [('"Ada"', ("Ada",), 0), ("1992", ("1992",), 0), ("[1.5, 1992.0, -3]", ("1.5", "1992", "-3"), 0), ('["Ada", null, NaN]', ("Ada",), 2)],
)
@pytest.mark.parametrize("field", ["golden_answers", "answers", "answer"])
def test_answers_of_any_type(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, field: str, given: str, answers: tuple[str, ...], n_nulls: int
) -> None:
    file = write(tmp_path, f'{{"id": null, "query": "who", "{field}": {given}}}\n')
    assert read_questions(file) == [Question("1", "who", answers)]
    assert caplog.messages == [f"{file}: {n_nulls} of the answers are null, and left out"] * bool(n_nulls)


@pytest.mark.parametrize(
    ("record", "unread"),
    [
        ({"query": "a", "gold_ids": ["d"], "gold_answer": "b", "gold_ids_long": []}, "gold_answer"),
        ({"_id": "1", "text": "a", "reference": "b", "pos": ["c"], "position": 1}, "reference, pos, position"),
        ({"question": "a", "opa": "b", "cop": 0, "extra": {"gold": "c"}, "exp": None}, "opa, cop, extra"),
        ({"question": "a", "golden_ans\ud83d": "b"}, "golden_ans\ufffd"),
        ({"question": "a", "answer": "b", "nq_answer": ["c"]}, ""),
        ({"index": 0, "input": "a", "outputs": ["b"], "length": 9}, "index, outputs, length"),  # RULER's
        ({"id": "1", "input": "a", "output": [], "meta": {"mintaka": 1}}, ""),  # a test set of KILT's
    ],
)
def test_gold_data_that_is_not_read_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, record: dict[str, object], unread: str
) -> None:
    file = write(tmp_path, "".join(f"{json.dumps(each)}\n" for each in (record, record | {"_id": "2", "id": "2"})))
    read_questions(file)
    assert caplog.messages == ([f"{file}: the first record has no known answer; its other fields: {unread}"] if unread else [])


@pytest.mark.parametrize("case", read_table("given_passages"), ids=lambda case: case["name"])
def test_passages_that_records_give_are_read_if_they_are_asked_for_and_converted(tmp_path: Path, case: dict[str, Any]) -> None:
    file = write(tmp_path, lines(case["record"]))
    (question,) = read_questions(file, with_passages=True)
    assert question.passages == tuple(GivenPassage(Passage(id, title, text), score) for id, title, text, score in case["passages"])
    assert read_questions(file) == [question._replace(passages=())]
    write_questions(tmp_path / "converted.jsonl", [question])
    assert read_questions(tmp_path / "converted.jsonl", with_passages=True) == [question]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"docs": "Nile"}, r"line 1: the field 'docs' is 'Nile', not a list of objects"),
        ({"ctxs": [{"text": "x"}, {"title": "Nile"}]}, r"line 1: no passage in 'ctxs, 2': the field 'text' is missing; it has title"),
    ],
)
def test_unusable_passages_are_refused_if_they_are_read(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = write(tmp_path, lines({"question": "Where?", "answer": ["Egypt"], **fields}))
    with pytest.raises(InputError, match=message):
        read_questions(file, with_passages=True)
    assert len(read_questions(file)) == 1


def test_the_sample_corpus_has_questions_and_names_their_gold_passages() -> None:
    found = [(one.id, one.text, one.golden_answers, one.gold["passages"]) for one in sample_questions()]
    assert found == [(one.id, one.question, one.answers, list(one.gold_ids)) for one in sample.questions()]
