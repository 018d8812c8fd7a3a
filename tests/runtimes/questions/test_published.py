"""The published sets: how many questions they have, and single questions read by hand."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from wikidx.runtimes.questions import PROTOCOLS, Question, Selection, detect_format, read_questions, sample, select

SIZES = [
    ("datasets/2wiki_dev_questions.jsonl.gz", "nq-open", 12_576),
    ("datasets/asqa_dev.json.gz", "asqa", 948),
    ("datasets/data_nq_sampled.jsonl.gz", "self-reasoning", 500),
    ("datasets/data_triviaqa_sampled.jsonl.gz", "self-reasoning", 500),
    ("datasets/evaluator_gold_small.json", "strategyqa", 10),
    ("datasets/fever_paper_dev.jsonl.gz", "fever", 9_999),
    ("datasets/fever_paper_test.jsonl.gz", "fever", 9_999),
    ("datasets/hotpotqa_200.jsonl.gz", "hotpotqa", 200),
    ("datasets/kilt_hotpotqa_400.jsonl.gz", "kilt", 400),
    ("datasets/kilt_nq_400.jsonl.gz", "kilt", 400),
    ("datasets/strategyqa_dev.json.gz", "strategyqa", 229),
    ("datasets/wow_begin_dev.tsv.gz", "begin", 430),
    ("dpr_union/queries.nq_oracle.jsonl.gz", "questions", 2_655),
    ("flashrag/nq_test_sample.jsonl", "flashrag", 17),
    ("gar/topics.nq.test.gar-t5.answers.tsv.gz", "topics", 3_610),
    ("gar/topics.nq.test.gar-t5.sentences.tsv.gz", "topics", 3_610),
    ("gar/topics.nq.test.gar-t5.titles.tsv.gz", "topics", 3_610),
    ("gar/topics.nq.test.txt.gz", "dpr-tsv", 3_610),
    ("qa/NQ-open.dev.jsonl.gz", "nq-open", 3_610),
    ("qa/topics.dpr.nq.test.txt.gz", "dpr-tsv", 3_610),
    ("qa/topics.dpr.trivia.test.txt.gz", "dpr-tsv", 11_313),
    ("wiki_intro/queries.hybridqa_dev.jsonl.gz", "questions", 3_466),
]


@pytest.mark.parametrize(("file", "name", "n"), SIZES, ids=[file for file, _, _ in SIZES])
def test_format_and_size(shared_data: Path, file: str, name: str, n: int) -> None:
    questions = read_questions(shared_data / file)
    assert (detect_format(shared_data / file), len(questions)) == (name, n)
    assert all(one.golden_answers for one in questions) == (name not in {"topics", "begin"})


def records(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as text:
        whole = text.read()
    return json.loads(whole) if whole.startswith("[") else [json.loads(line) for line in whole.splitlines()]


def test_nq_and_triviaqa_as_dpr_has_them(shared_data: Path) -> None:
    questions = read_questions(shared_data / "qa/topics.dpr.nq.test.txt.gz")
    assert questions[1] == Question("2", "when is the next deadpool movie being released", ("May 18 , 2018",))
    assert questions[36].golden_answers == ("Solange Knowles", "Destiny 's Child")
    trivia = read_questions(shared_data / "qa/topics.dpr.trivia.test.txt.gz")
    assert trivia[17].text == '"How many different animal shapes are there in the ""Animal Crackers"" cookie zoo?"'
    with gzip.open(shared_data / "qa/topics.dpr.trivia.test.txt.gz", "rt", encoding="utf-8", newline="") as text:
        assert [one.text for one in trivia] == [row[0] for row in csv.reader(text, delimiter="\t")]


def test_the_two_forms_of_nq_ask_the_same(shared_data: Path) -> None:
    """A sample of one form holds the questions that a sample of the other has, though order, ids and answers differ."""
    topics = read_questions(shared_data / "gar/topics.nq.test.txt.gz")
    shuffled = read_questions(shared_data / "qa/NQ-open.dev.jsonl.gz")
    assert [one.text for one in topics] != [one.text for one in shuffled]
    assert {one.text for one in topics} == {one.text for one in shuffled}
    assert {one.text for one in sample(topics, 300, 5)} == {one.text for one in sample(shuffled, 300, 5)}


def test_fever(shared_data: Path) -> None:
    questions = read_questions(shared_data / "datasets/fever_paper_dev.jsonl.gz")
    assert Counter(one.gold["label"] for one in questions) == {"SUPPORTS": 3_333, "REFUTES": 3_333, "NOT ENOUGH INFO": 3_333}
    assert questions[4].golden_answers == ("REFUTES",)
    assert questions[4].gold["titles"] == ["Telemundo", "Hispanic and Latino Americans"]
    assert sum("titles" in one.gold for one in questions) == 6_666


def test_asqa(shared_data: Path) -> None:
    questions = read_questions(shared_data / "datasets/asqa_dev.json.gz")
    for question, record in zip(questions, records(shared_data / "datasets/asqa_dev.json.gz"), strict=True):
        assert question.gold["answer_groups"] == [pair["short_answers"] for pair in record["qa_pairs"]]
        assert set(question.golden_answers) == set(record["all_short_answers"])
        assert len(question.gold["long_answers"]) == 2
    assert questions[0].golden_answers[:3] == ("Daei", "Ali Daei", "Bican")


def test_hotpotqa_and_strategyqa(shared_data: Path) -> None:
    questions = read_questions(shared_data / "datasets/hotpotqa_200.jsonl.gz")
    assert questions[0].golden_answers == ("Rush",)
    assert questions[0].gold == {
        "titles": ["Nobody's Hero", "Neil Peart"],
        "supporting": [["Nobody's Hero", 0], ["Neil Peart", 1]],
        "type": questions[0].gold["type"],
    }
    assert {one.gold["type"] for one in questions} == {"bridge", "comparison"}
    strategy = read_questions(shared_data / "datasets/strategyqa_dev.json.gz")
    truths = [record["answer"] for record in records(shared_data / "datasets/strategyqa_dev.json.gz")]
    assert [one.golden_answers == ("yes",) for one in strategy] == truths
    assert {one.golden_answers for one in strategy} == {("yes",), ("no",)}


def test_kilt(shared_data: Path) -> None:
    file = shared_data / "datasets/kilt_nq_400.jsonl.gz"
    for one, record in zip(read_questions(file), records(file), strict=True):
        assert (
            list(one.golden_answers)
            == list(one.gold["long_answers"])
            == list(dict.fromkeys(o["answer"] for o in record["output"] if "answer" in o))
        )
        pages = [[page["wikipedia_id"] for page in o.get("provenance", [])] for o in record["output"]]
        assert [[page["wikipedia_id"] for page in group] for group in one.gold["provenance"]] == pages


def test_gold_passages(shared_data: Path) -> None:
    questions = read_questions(shared_data / "dpr_union/queries.nq_oracle.jsonl.gz")
    assert questions[0].gold == {"passages": ["18039"]}
    assert sum("passages" in one.gold for one in questions) == 2_588


def test_protocols_on_the_files_that_are_here(shared_data: Path) -> None:
    nq, trivia = shared_data / "qa/topics.dpr.nq.test.txt.gz", shared_data / "qa/topics.dpr.trivia.test.txt.gz"
    assert len(select(read_questions(nq), Selection("refeed-nq"))) == 3_610
    assert len(select(read_questions(trivia), Selection("refeed-triviaqa"))) == 11_313
    assert len(select(read_questions(shared_data / "datasets/asqa_dev.json.gz"), Selection("self-reasoning-asqa"))) == 948
    assert len(select(read_questions(shared_data / "datasets/fever_paper_dev.jsonl.gz"), Selection("self-reasoning-fever"))) == 9_999
    wiki = read_questions(shared_data / "datasets/2wiki_dev_questions.jsonl.gz")
    assert select(wiki, Selection("retrorag-2wikimultihopqa")) == wiki[:500]
    assert {"ra-isf", "self-reasoning", "retrorag", "refeed"} <= {name.rpartition("-")[0] for name in PROTOCOLS}
