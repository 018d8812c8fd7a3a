"""Files of questions."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtimes.questions.format_files import FORMAT_FILES, FormatFile
from wikidx.base.errors import InputError
from wikidx.corpora.known import sample
from wikidx.runtimes.evaluation.retrieval.trec import read_qrels, read_run
from wikidx.runtimes.questions import Question, read_questions, sample_questions
from wikidx.runtimes.questions.queries import Query, read_queries


def test_questions_of_one_file(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    lines = [
        '\ufeff{"id": "a", "question": "Who wrote Öliver?", "golden_answers": ["Ada", "Äda"]}',
        "",
        '{"id": 7, "question": "Where?", "other": [1]}',
        '{"question": " When? ", "answers": ["then"], "passages": ["Document 1 …"]}',
        '{"id": "half", "question": "half \\ud83d of it", "golden_answers": []}',
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    assert read_questions(file) == [
        Question("a", "Who wrote Öliver?", ("Ada", "Äda")),
        Question("7", "Where?", ()),
        Question("4", " When? ", ("then",)),
        Question("half", "half \ufffd of it", ()),
    ]


def test_the_published_samples(shared_data: Path) -> None:
    """500 questions of NQ and TriviaQA as Self-Reasoning's authors publish them; FlashRAG's 17."""
    file = shared_data / "datasets" / "data_nq_sampled.jsonl.gz"
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    assert len(records) == 500
    assert read_questions(file) == [
        Question(str(number), record["question"], tuple(record["answers"])) for number, record in enumerate(records, 1)
    ]
    assert len(read_questions(shared_data / "datasets" / "data_triviaqa_sampled.jsonl.gz")) == 500
    questions = read_questions(shared_data / "flashrag" / "nq_test_sample.jsonl")
    assert questions[0] == Question("test_0", "who got the first nobel prize in physics", ("Wilhelm Conrad Röntgen",))
    assert len(questions) == 17


def test_the_sample_corpus_has_questions() -> None:
    questions = sample_questions()
    assert [(item.id, item.text, item.golden_answers) for item in questions] == [
        (item.id, item.question, item.answers) for item in sample.questions()
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"question": "a"}\n{"question": ', "line 2: not JSON in UTF-8"),
        (b'{"question": "caf\xe9"}', "line 1: not JSON in UTF-8"),
        (b'[["a"]]', "line 1: \\[\\['a'\\]\\] is not an object with a 'question'"),
        (b'{"id": "1"}', "line 1: no field 'question' or 'query' or 'input' or 'prompt' .*; it has the fields"),
        (b'{"question": "  "}', "line 1: the field 'question' is '  ', not a text"),
        (b'{"id": [1], "question": "a"}', "line 1: the id is \\[1\\], neither a text nor a whole number"),
        (b'{"id": true, "question": "a"}', "line 1: the id is True"),
        (b'{"id": "", "question": "a"}', "line 1: the id is ''"),
        (b'{"question": "a", "golden_answers": {"b": 1}}', "line 1: the field 'golden_answers' is {'b': 1}, not a list of texts"),
        (b'{"question": "a", "answers": true}', "line 1: the field 'answers' is True, not a list of texts"),
        (b'{"id": "1", "question": "a"}\n\n{"id": 1, "question": "b"}', "line 3: the id '1' is that of line 1 too"),
        (b"\n\n", "has no questions"),
        (b"", "is empty"),
        (gzip.compress(b'{"question": "a"}\n' * 9)[:-9], "is corrupt"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_questions(file)


@pytest.mark.parametrize(
    ("given", "answers", "n_nulls"),
    [
        ('"Ada"', ("Ada",), 0),
        ("1992", ("1992",), 0),
        ("[1.5, 1992.0, -3]", ("1.5", "1992", "-3"), 0),
        ('["Ada", null, NaN]', ("Ada",), 2),
        ("null", (), 1),
    ],
)
@pytest.mark.parametrize("field", ["golden_answers", "answers", "answer"])
def test_answers_of_any_type(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, field: str, given: str, answers: tuple[str, ...], n_nulls: int
) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(f'{{"id": null, "query": "who", "{field}": {given}}}\n')
    assert read_questions(file) == [Question("1", "who", answers)]
    assert caplog.messages == [f"{file}: {n_nulls} of the answers are null, and left out"] * bool(n_nulls)


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("n", [1, 5_000], ids=["one", "longer than what decides"])
def test_a_text_for_each_id(tmp_path: Path, indent: int | None, n: int) -> None:
    texts = {f"q{number}": f"who is {number}" for number in range(n)}
    (tmp_path / "map.json").write_text(json.dumps(texts, indent=indent))
    assert {one.id: one.text for one in read_questions(tmp_path / "map.json")} == texts
    assert {one.id: one.text for one in read_queries(tmp_path / "map.json")} == texts


@pytest.mark.parametrize("case", FORMAT_FILES, ids=lambda case: f"{case.format} {case.file}")
def test_queries_are_those_of_any_file_of_questions(tmp_path: Path, case: FormatFile) -> None:
    (tmp_path / "file").write_text(case.content, encoding="utf-8")
    numbers = {str(number) for number in range(1, 10)}  # ids of questions that the file gives none
    for query, question in zip(read_queries(tmp_path / "file"), case.questions, strict=True):
        assert query.text == question.text
        assert str(query.id) == question.id or (query.id is None and question.id in numbers and case.format not in ("trec", "topics"))


def test_quotes_of_topics_are_their_own(tmp_path: Path) -> None:
    (tmp_path / "topics.tsv").write_text('1\t"open\n2\tplain\n3\t"a ""b"" c"\n4\t"x" y\n')
    assert [(one.id, one.text) for one in read_questions(tmp_path / "topics.tsv")] == [
        ("1", '"open'),
        ("2", "plain"),
        ("3", 'a "b" c'),
        ("4", '"x" y'),
    ]


@pytest.mark.parametrize(
    ("header", "row", "expected"),
    [
        ("_id\ttext", "q1\tNile", Query("Nile", "q1")),
        ("qid\ttext", 'q1\t"a ""b"""', Query('a "b"', "q1")),
        ("Query\tquery-id", "Nile\tq1", Query("Nile", "q1")),
        ("topic_id\ttitle", "q1\tNile", Query("Nile", "q1")),
        ("number\tquery", "q1\tNile", Query("Nile", "q1")),
        ("qid\tpid\tquery\tpassage", "q1\tp1\tNile\tA river.", Query("Nile", "q1")),
    ],
)
def test_a_header_of_known_names_is_no_query(tmp_path: Path, header: str, row: str, expected: Query) -> None:
    (tmp_path / "file").write_text(f"{header}\n{row}\n")
    assert read_queries(tmp_path / "file") == [expected]


def test_a_first_line_with_another_word_is_a_query(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("q1\ttext\nid\ttitle\n")
    assert read_queries(tmp_path / "file") == [Query("text", "q1"), Query("title", "id")]


def test_queries_are_lines_of_text_and_json(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(
        '"whole phrase" a\tb\n[CLS] ?\n\n {"text": "half \\ud83d", "id": 7}\n{"query": "x"}\n<b> is a tag\n'
        '"caf\\u00e9"\n["Nile" river\n"\\d"\n'
    )
    assert read_queries(tmp_path / "file") == [
        Query('"whole phrase" a\tb'),
        Query("[CLS] ?"),
        Query("half \ufffd", 7),
        Query("x"),
        Query("<b> is a tag"),
        Query("café"),
        Query('["Nile" river'),
        Query('"\\d"'),
    ]


@pytest.mark.parametrize(
    "content", ['["den", "blue \\"whale\\""]', '["den",\n"blue \\"whale\\""]\n', '[{"query": "den"}, "blue \\"whale\\""]']
)
def test_an_array_of_texts_is_a_list_of_queries(tmp_path: Path, content: str) -> None:
    (tmp_path / "file").write_text(content)
    assert read_queries(tmp_path / "file") == [Query("den"), Query('blue "whale"')]


def test_gold_answers_that_cannot_be_read_cost_no_query(tmp_path: Path) -> None:
    records = [
        {"id": 1, "query": "who", "answer": [["a", "b"]]},
        {"question": "where", "answer": {"x": 1}},
        {"claim": "it is", "label": "D"},
    ]
    (tmp_path / "file").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert read_queries(tmp_path / "file") == [Query("who", 1), Query("where"), Query("it is")]
    with pytest.raises(InputError, match=r"line 1: the field 'answer' is \[\['a', 'b'\]\], not a list of texts"):
        read_questions(tmp_path / "file")


def test_a_record_without_a_query_costs_only_itself(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(
        '{"id": "1", "query": "a"}\n{"id": 2, "query": null}\n{"id": "3"}\n{"id": "4", "query": ["b"]}\n{"id": "5", "query": "c"}\n'
    )
    found = read_queries(file)
    assert [(one.id, one.text) for one in found] == [("1", "a"), (2, ""), ("3", ""), ("4", ""), ("5", "c")]
    assert [one.error.split(": ")[0] for one in found if one.error] == [f"{file}, line {number}" for number in (2, 3, 4)]


@pytest.mark.parametrize("n", [1, 2])
def test_records_of_unknown_fields_are_told_by_these(tmp_path: Path, n: int) -> None:
    (tmp_path / "file").write_text('{"Riddle": "Which element has the symbol Au?", "Answer": "Gold"}\n' * n)
    with pytest.raises(InputError, match="line 1: .*'?Riddle'?, '?Answer'?"):
        read_queries(tmp_path / "file")


def test_a_line_that_is_no_query_costs_only_itself(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b'{\\em Nile} river\n{"id": 1, "query": "a"}\n{"id": 2, "query": "b\n{\'query\': 1}\n{query: 1}\ncaf\xe9\nd\n{}\x00\n')
    found = read_queries(file)
    assert [(one.text, one.id) for one in found if not one.error] == [("{\\em Nile} river", None), ("a", 1), ("d", None)]
    assert [one.error.split(": ")[0] for one in found if one.error] == [f"{file}, line {number}" for number in (3, 4, 5, 6, 8)]
    assert "can't decode byte 0xe9" in found[5].error
    file.write_bytes("first\nsecond\n".encode("utf-16"))
    with pytest.raises(InputError, match="line 1: neither text nor JSON in UTF-8"):
        read_queries(file)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's list of open files")
@pytest.mark.parametrize(
    ("read", "content"),
    [
        (read_questions, '{"question": "a"}\n{"question": ""}\n'),
        (read_qrels, "1 0 a 1\n1 0 a b\n"),
        (read_run, "1 Q0 a 1 1 x\n1 Q0 b 1 nan x\n"),
    ],
)
def test_a_file_that_is_refused_is_closed_at_once(tmp_path: Path, read: Callable[[Path], object], content: str) -> None:
    """The traceback keeps the readers' frames alive: whoever holds the error would hold the file open."""
    file = tmp_path / "bad"
    file.write_text(content)
    n_open = len(os.listdir("/proc/self/fd"))
    with pytest.raises(InputError) as caught:
        read(file)
    assert caught.tb is not None
    assert len(os.listdir("/proc/self/fd")) == n_open


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        read_questions(tmp_path / "none.jsonl")
