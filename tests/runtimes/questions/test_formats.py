"""Every format: known by its content, read in full, and refused where another one is."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from tests.runtimes.questions.format_files import FORMAT_FILES, FormatFile, array, lines
from wikidx.base.errors import InputError, UnknownNameError
from wikidx.runtimes.questions import FORMATS, Question, detect_format, read_questions

_COMPRESS: tuple[Callable[[bytes], bytes], ...] = (bytes, gzip.compress, bz2.compress, zstandard.compress)


def write(folder: Path, content: str | bytes, name: str = "file.any") -> Path:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def label(case: FormatFile) -> str:
    return f"{case.format} {case.file}".strip()


def test_every_format_is_tried() -> None:
    assert {case.format for case in FORMAT_FILES} | {"asqa-train"} == set(FORMATS)
    assert all("\n" not in one.record and one.record for one in FORMATS.values())


@pytest.mark.parametrize("case", FORMAT_FILES, ids=label)
def test_a_file_is_known_by_its_content_and_read(tmp_path: Path, case: FormatFile) -> None:
    for compress in _COMPRESS:
        file = write(tmp_path, compress(case.content.encode()))
        assert detect_format(file) == case.format
        assert read_questions(file) == read_questions(file, case.format) == case.questions
    for question in case.questions:
        json.dumps(dict(question.gold))
    marked = write(tmp_path, b"\xef\xbb\xbf" + case.content.encode())
    assert read_questions(marked) == case.questions


@pytest.mark.parametrize(
    ("case", "forced"),
    [
        (case, name)
        for case in FORMAT_FILES
        for name in ("popqa", "kilt", "dpr-tsv", "halluqa", "2wikimultihopqa", "strategyqa")
        if case.format != name
    ],
    ids=lambda value: value if isinstance(value, str) else label(value),
)
def test_a_file_in_another_format_is_refused(tmp_path: Path, case: FormatFile, forced: str) -> None:
    with pytest.raises(InputError, match=rf"is not in the format {forced} \(.*\); it looks like {case.format} \("):
        read_questions(write(tmp_path, case.content), forced)


def test_a_format_that_is_forced_decides(tmp_path: Path) -> None:
    """2WikiMultihopQA's records have all that HotpotQA's have: read as those, no aliases are looked for."""
    case = next(case for case in FORMAT_FILES if case.format == "2wikimultihopqa")
    (question,) = read_questions(write(tmp_path, case.content), "hotpotqa")
    assert "answer_id" not in question.gold
    assert question.gold["titles"] == case.questions[0].gold["titles"]


def test_the_training_questions_of_asqa(tmp_path: Path) -> None:
    both = next(case for case in FORMAT_FILES if label(case) == "asqa")
    assert [one.id for one in read_questions(write(tmp_path, both.content), "asqa-train")] == ["-1"]
    with pytest.raises(InputError, match="has no questions under 'dev', which the format asqa reads: name another"):
        read_questions(write(tmp_path, json.dumps({"train": json.loads(both.content)["train"]})))


def test_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown format 'flashrg': did you mean 'flashrag'"):
        read_questions(write(tmp_path, FORMAT_FILES[0].content), "flashrg")


def test_aliases_of_2wikimultihopqa(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Aliases and demonyms of the answer's id, as the official evaluator takes them: of two rows the last, and the answer itself once."""
    case = next(case for case in FORMAT_FILES if case.format == "2wikimultihopqa")
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
    write(tmp_path, '{"Q_id": "Q79", "aliases": ["Misr"], "demonyms": "Egyptian"}\n', "id_aliases.json")
    with pytest.raises(InputError, match="id_aliases.json, line 1: the field 'demonyms' is 'Egyptian', not a list of texts"):
        read_questions(file)
    write(tmp_path, "{}\n", "id_aliases.json")
    with pytest.raises(InputError, match="id_aliases.json, line 1: {} has no 'Q_id'"):
        read_questions(file)


def test_test_sets_without_answers(tmp_path: Path) -> None:
    hop: dict[str, object] = {"_id": "1", "question": "Where?", "supporting_facts": None, "context": []}
    assert read_questions(write(tmp_path, array(hop))) == [Question("1", "Where?")]
    strategy = {"qid": "1", "question": "Is it?", "decomposition": []}
    assert read_questions(write(tmp_path, array(strategy))) == [Question("1", "Is it?")]
    trivia = {"Data": [{"Question": "What?", "QuestionId": "tc_1"}]}
    assert read_questions(write(tmp_path, json.dumps(trivia))) == [Question("tc_1", "What?")]
    kilt = {"id": "1", "input": "What?", "output": []}
    assert read_questions(write(tmp_path, lines(kilt))) == [Question("1", "What?")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (array({"question": "a"}, ["b"]), r"record 2 \(line 5\): \['b'\] is not an object"),
        (
            array({"id": 1, "question": "a"}, {"id": "1", "question": "b"}),
            r"record 2 \(line 6\): the id '1' is that of record 1 \(line 2\) too",
        ),
        ('[{"question": "a"},\n {"question": ]', "line 2: not JSON"),
        ('[{"question": "a"}\n {"question": "b"}]', "line 2: '{' where JSON has ','"),
        ('[{"question": "a"}', "line 1: the end where JSON has ','"),
        ('[{"question": "a"}]\n[]', "line 2: '\\[' after the end of the JSON"),
        ("[]", "has no questions"),
        ('{\n "Domain": "Web",\n "Data": []\n}', "has no questions"),
        ('{\n "q1": {"answer": 1}\n}', "one JSON object without Data"),
        ("{\n 1: 2}", "line 2: 1 where JSON has a name in quotes"),
        ("one field\n", "line 1: .* is no question in a known format"),
        ("a\tb\tc\n", "line 1: .* is no question in a known format"),
        ("who\t['a'\n", "line 1: .* is no question in a known format"),
        ("who\t['a']\nwhen\n", "line 2: 1 fields, not a question and its answers"),
        ("who\t['a']\nwhen\tnow\n", "line 2: the field 'answers' is 'now', not a list of texts"),
        ("who\t['a']\nwhen\t[1]\n", "line 2: the field 'answers' is \\[1\\], not a list of texts"),
        ("question\tpossible_answers\nwho\n", "line 2: 1 fields, and the header has 2"),
        ("question\tpossible_answers\nwho\tLima\n", "line 2: the field 'possible_answers' is 'Lima', not a list of texts"),
        ('question\tpossible_answers\ts_pop\nwho\t["a"]\tmany\n', "line 2: the field 's_pop' is 'many', not a whole number"),
        ("who\t['a']\n\tx\t\n", "line 2: 3 fields"),
        ("1\twho\n1\twhen\n", "line 2: the id '1' is that of line 1 too"),
        ("1\twho\n2\t\n", "line 2: the field 'question' is '', not a text"),
        (b"who\t['caf\xe9']\n", "line 1: not UTF-8"),
        (b'[{"question": "caf\xe9"}]', "not UTF-8"),
        (lines({"id": 1, "claim": "a", "label": "MAYBE"}), "line 1: the label is 'MAYBE', none of SUPPORTS, REFUTES, NOT ENOUGH INFO"),
        (lines({"id": 1, "claim": "a", "evidence": [["p"]]}), "the field 'evidence' is"),
        (array({"question": "a", "supporting_facts": [["t"]]}), "the field 'supporting_facts' is"),
        (array({"question": "a", "supporting_facts": {"title": ["t"], "sent_id": []}}), "the field 'supporting_facts' is"),
        (array({"question": "a", "supporting_facts": [], "answer": 7}), "the field 'answer' is 7, not a text"),
        (array({"qid": "a", "question": "a", "answer": True}, {"qid": "b", "question": "a", "answer": "yes"}), "neither true nor false"),
        (json.dumps({"examples": [{"input": "a", "target_scores": {"Yes": 1}}]}), "not scores of 'Yes' and 'No'"),
        (json.dumps({"examples": [{"input": "a", "target_scores": {"Yes": 1, "No": 1}}]}), "one of the two must be 1"),
        (array({"question": "a", "qa_pairs": [{"short_answers": "b"}]}), "the field 'short_answers' is 'b', not a list of texts"),
        (array({"question": "a", "qa_pairs": "b"}), "the field 'qa_pairs' is 'b', not a list of objects"),
        (lines({"id": "1", "input": "a", "output": [{"answer": 1}]}), "the field 'answer' is 1, not a text"),
        (lines({"id": "1", "input": "a", "output": [{"provenance": "p"}]}), "the field 'provenance' is 'p', not a list of objects"),
        (array({"Question": "a", "Best Answer": "b"}, {"Question": "a", "question_id": 1}), "no field 'Best Answer'"),
        (json.dumps({"Data": [{"Question": "a", "QuestionId": "1", "Answer": "b"}]}), "the field 'Answer' is 'b', not an object"),
        (lines({"id": "1", "contents": "a passage"}), "no field 'question' .*; it has the fields 'id', 'contents'"),
        (
            lines({"foo": "a", "bar": "b"}, {"foo": "c", "bar": "d"}),
            "line 1: foo, bar are no fields of a question: 'question' or 'query' is",
        ),
        (lines({"question": "a", "gold_ids": "7"}), "the field 'gold_ids' is '7', not a list"),
        (lines({"question": "a", "choices": ["b", "c"], "answer": "E"}), "the answer 'E' is neither text, label nor number of a choice"),
        (lines({"question": "a", "options": {"A": "b"}, "answer": 1}), "the answer 1 is neither text, label nor number of a choice"),
        (lines({"question": "a", "answers": [{"results": {}}]}), r"the field 'answers' is \[{'results': {}}\], not a list of texts"),
        (lines({"claim_id": 1, "claim": "a", "claim_label": "DISPUTED"}), "the label is 'DISPUTED', none of .*: leave the record out"),
        (json.dumps({"questions": [{"question": [{"string": "a"}]}]}), r"record 1 \(line 1\): the field 'question' is \[{'string': 'a'}\]"),
        (lines({"question": "a", "gold_ids": [None]}), "the id is None"),
        (lines({"question": "a", "answers": [True]}), "the field 'answers' is \\[True\\], not a list of texts"),
        ("<top>\n<title> a\n</top>\n", r"topic 1 \(line 1\): no field 'num' or 'number' or "),
        ("<top>\n<num> 1\n<title>\n</top>\n", r"topic 1 \(line 1\): the field 'title' is '\\n', not a text"),
        ("id,question\n1,who\n", "is CSV, which is not read here: write its rows as JSON Lines"),
        ("PAR1\x15\x04", "is a Parquet file: write its rows as JSON Lines"),
        (
            "<data><item>a</item></data>\n",
            "has no questions in a known form: of XML and SGML, <top>, <topic>, and <query> in <queries> are read",
        ),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, content: str | bytes, message: str) -> None:
    file = write(tmp_path, content)
    with pytest.raises(InputError, match=message) as caught:
        read_questions(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
