"""The published sets: how many questions they have, single questions read by hand, and the table of those that are fetched."""

from __future__ import annotations

import csv
import functools
import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.questions.format_files import read_table
from wikidx.base.errors import UnknownNameError
from wikidx.runtimes.questions import FORMATS, PROTOCOLS, Question, Selection, detect_format, read_questions, select
from wikidx.runtimes.questions.sets import find_set, published_sets


@functools.cache
def questions_of(file: Path) -> list[Question]:
    """Return the questions of a file, which is read once; they are not to be changed."""
    return read_questions(file)


@pytest.mark.parametrize(("file", "name", "n", "known"), read_table("published"))
def test_format_size_and_a_question_read_by_hand(shared_data: Path, file: str, name: str, n: int, known: list[Any]) -> None:
    questions = questions_of(shared_data / file)
    assert (detect_format(shared_data / file), len(questions)) == (name, n)
    assert all(one.golden_answers for one in questions) == (name not in {"topics", "begin"})
    for at, answers, gold in known:
        assert (questions[at].golden_answers, questions[at].gold) == (tuple(answers), gold)


def records(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as text:
        whole = text.read()
    return json.loads(whole) if whole.startswith("[") else [json.loads(line) for line in whole.splitlines()]


def test_quotes_of_triviaqa_s_table_are_csv_s(shared_data: Path) -> None:
    file = shared_data / "qa/topics.dpr.trivia.test.txt.gz"
    with gzip.open(file, "rt", encoding="utf-8", newline="") as text:
        assert [one.text for one in questions_of(file)] == [row[0] for row in csv.reader(text, delimiter="\t")]


def test_labels_groups_and_pages_are_those_of_the_records(shared_data: Path) -> None:
    folder = shared_data / "datasets"
    fever = questions_of(folder / "fever_paper_dev.jsonl.gz")
    assert Counter(one.gold["label"] for one in fever) == {"SUPPORTS": 3_333, "REFUTES": 3_333, "NOT ENOUGH INFO": 3_333}
    assert sum("titles" in one.gold for one in fever) == 6_666
    sampled = records(file := folder / "data_nq_sampled.jsonl.gz")
    assert questions_of(file) == [Question(str(n), record["question"], tuple(record["answers"])) for n, record in enumerate(sampled, 1)]
    for one, record in zip(questions_of(file := folder / "asqa_dev.json.gz"), records(file), strict=True):
        assert one.gold["answer_groups"] == [pair["short_answers"] for pair in record["qa_pairs"]]
        assert set(one.golden_answers) == set(record["all_short_answers"])
        assert len(one.gold["long_answers"]) == 2
    strategy = questions_of(file := folder / "strategyqa_dev.json.gz")
    assert [one.golden_answers for one in strategy] == [("yes",) if record["answer"] else ("no",) for record in records(file)]
    for one, record in zip(questions_of(file := folder / "kilt_nq_400.jsonl.gz"), records(file), strict=True):
        answers = list(dict.fromkeys(output["answer"] for output in record["output"] if "answer" in output))
        assert list(one.golden_answers) == list(one.gold["long_answers"]) == answers
        pages = [[page["wikipedia_id"] for page in output.get("provenance", [])] for output in record["output"]]
        assert [[page["wikipedia_id"] for page in group] for group in one.gold["provenance"]] == pages
    assert sum("passages" in one.gold for one in questions_of(shared_data / "dpr_union/queries.nq_oracle.jsonl.gz")) == 2_588


@pytest.mark.parametrize(
    ("file", "protocol", "n"),
    [
        ("qa/topics.dpr.nq.test.txt.gz", "refeed-nq", 3_610),
        ("qa/topics.dpr.trivia.test.txt.gz", "refeed-triviaqa", 11_313),
        ("datasets/asqa_dev.json.gz", "self-reasoning-asqa", 948),
        ("datasets/fever_paper_dev.jsonl.gz", "self-reasoning-fever", 9_999),
        ("datasets/2wiki_dev_questions.jsonl.gz", "retrorag-2wikimultihopqa", 500),
    ],
)
def test_protocols_on_the_files_that_are_here(shared_data: Path, file: str, protocol: str, n: int) -> None:
    questions = questions_of(shared_data / file)
    assert select(questions, Selection(protocol)) == questions[:n]


def test_every_line_of_the_table_is_usable() -> None:
    assert max(Counter(entry.key for entry in published_sets()).values()) == 1
    for entry in published_sets():
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]*:[a-z-]+", entry.key)
        assert entry.format in FORMATS
        assert re.fullmatch(r"https?://[a-z0-9.-]+/\S+", entry.file.url)
        assert entry.file.sha256 is None or re.fullmatch("[0-9a-f]{64}", entry.file.sha256)
        assert bool(entry.members) == entry.file.name.endswith((".zip", ".tar"))


def test_protocols_name_sets_of_a_permitted_size() -> None:
    named = [protocol for protocol in PROTOCOLS.values() if protocol.questions]
    assert len(named) == 22
    for protocol in named:
        entry = find_set(protocol.questions)
        assert entry is not None
        assert entry.key == protocol.questions
        assert entry.n in (protocol.n_in_file or (entry.n,))
    assert {"ra-isf", "self-reasoning", "retrorag", "refeed"} <= {name.rpartition("-")[0] for name in PROTOCOLS}


def test_a_name_alone_means_the_first_split() -> None:
    found = [find_set(name) for name in ("nq", "nq:train", "hotpotqa", "nowhere")]
    assert [one and one.key for one in found] == ["nq:test", "nq:train", "hotpotqa:dev", None]
    with pytest.raises(UnknownNameError, match=r"unknown split of 'nq' 'tets': did you mean 'test'\? known: dev, test, train"):
        find_set("nq:tets")
