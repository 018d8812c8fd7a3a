from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.benchmarks.test_smoke import rows
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.known.sample import CORPUS
from wikidx.indexer.build import build_index

QUESTIONS = ["longest river of Africa", "metal that is liquid", "capital of France"]


def write_lines(path: Path, lines: list[str]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))


@pytest.mark.slow
def test_search(tmp_path: Path) -> None:
    build_store(CORPUS, StoreOptions())
    build_index("sample", "bm25", open_store("sample"))
    write_lines(tmp_path / "topics.nq.test.txt.gz", [f"{question}\t['an answer']" for question in QUESTIONS])
    for kind in ("answers", "titles", "sentences"):
        lines = [f"{n}\t{question} some {kind} *** more" for n, question in enumerate(QUESTIONS)]
        write_lines(tmp_path / f"topics.nq.test.gar-t5.{kind}.tsv.gz", lines)
    arguments = ("--gar", tmp_path, "--retrievers", "bm25", "bm25+minilm", "--rounds", 1, "--merged-groups", 20)
    alone, fused = rows("search", "sample", *arguments, folder=tmp_path)
    assert (alone["retrievers"], fused["retrievers"]) == ("bm25", "bm25+minilm")
    assert alone["queries"] == alone["(distinct)"] == 15
    assert alone["beyond ms"] > 0


@pytest.mark.slow
def test_the_whole_call(tmp_path: Path) -> None:
    build_store(CORPUS, StoreOptions())
    build_index("sample", "bm25", open_store("sample"))
    write_lines(tmp_path / "questions.jsonl.gz", [json.dumps({"question": question}) for question in QUESTIONS])
    calls = rows("search", "sample", "--questions", tmp_path / "questions.jsonl.gz", "--rounds", 1, folder=tmp_path)
    assert [(row["k"], row["batch"]) for row in calls] == [(10, 1), (10, 32), (10, 512), (100, 1), (100, 32), (100, 512)]
    assert all(row["×"] == row["search µs/question"] / row["index µs/question"] > 0 for row in calls)  # interpreted kernels: any ratio
