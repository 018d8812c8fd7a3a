"""The benchmark of the server, on passages made here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.retrievers.server.conftest import WORDS, some_passages


@pytest.mark.exhaustive
@pytest.mark.slow  # a minute and a half
def test_every_part_runs(tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="needs the extra 'dense'")
    pytest.importorskip("pyserini", reason="needs the extra 'lucene'")
    passages, questions, out = tmp_path / "passages.jsonl", tmp_path / "questions.jsonl", tmp_path / "out.json"
    passages.write_text("".join(json.dumps(passage._asdict()) + "\n" for passage in some_passages()))
    questions.write_text("".join(json.dumps({"question": f"{word} number {n}"}) + "\n" for n in range(100) for word in WORDS))
    arguments = [
        "--work",
        tmp_path / "work",
        "--passages",
        passages,
        "--questions",
        questions,
        "--json",
        out,
        "--rounds",
        1,
        "--seconds",
        0.1,
    ]
    command = [sys.executable, "-m", "benchmarks.serve", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=dict(os.environ), check=False)
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(out.read_bytes())["rows"]
    assert set(rows) == {"singles", "peers", "batches", "half", "overload", "long", "start"}
    assert all(row["idx, sample, requests/s"] > 0 and row["idx, wiki_intro"] > 0 for row in rows["singles"])
    assert {row["retriever"] for row in rows["peers"]} == {"bm25", "dense"}
    assert [row["searches"] for row in rows["long"]] == [1, 1, 1]
