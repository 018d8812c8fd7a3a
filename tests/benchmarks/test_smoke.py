"""Every benchmark runs on tiny data, so that none can rot."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.known.sample import CORPUS, questions
from wikidx.indexer.build import build_index


def rows(module: str, *arguments: object, folder: Path) -> list[dict[str, Any]]:
    out = folder / "out.json"
    subprocess.run([sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments), "--json", str(out)], cwd=ROOT, check=True)
    found: list[dict[str, Any]] = json.loads(out.read_bytes())["rows"]
    return found


@pytest.mark.slow  # compiles for half a minute
def test_has_answer(tmp_path: Path) -> None:
    build_store(CORPUS, StoreOptions())
    build_index("sample", "bm25", open_store("sample"))
    lines = ({"id": one.id, "question": one.question, "golden_answers": one.answers} for one in questions())
    (tmp_path / "questions").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found, distinct = rows("has_answer", "sample", "--questions", tmp_path / "questions", "--plain", 10, folder=tmp_path)
    assert found["differ"] == distinct["differ"] == 0
    assert found["texts"] < distinct["texts"] == found["pairs"]


def test_store(tmp_path: Path) -> None:
    source = tmp_path / "some.jsonl"
    source.write_text("".join(json.dumps({"id": str(n), "title": "t", "text": f"some text {n}"}) + "\n" for n in range(2000)))
    (figures,) = rows("store", source, "--runs", 1, folder=tmp_path)
    assert figures["passages"] == 2000


@pytest.mark.slow  # compiles with an empty cache: half a minute
def test_startup(tmp_path: Path) -> None:
    assert [figures["command"] for figures in rows("startup", "--runs", 1, folder=tmp_path)][0] == "idx --help"


@pytest.mark.slow  # embeds passages
def test_fusion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data" / "dpr_union"
    data.mkdir(parents=True)
    asked = questions()[:20]
    build_store(CORPUS, StoreOptions())
    gold = open_store("sample").rows_of([name for one in asked for name in one.gold_ids])
    passages = [passage._asdict() for passage in open_store("sample").get_many(sorted({*gold.tolist(), *range(20)}))]
    records = [{"qid": one.id, "question": one.question, "answers": one.answers} for one in asked]
    for name, lines in (("passages", passages), ("queries.nq_oracle", records)):
        (data / f"{name}.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    monkeypatch.setenv("IDX_TEST_DATA", str(tmp_path / "data"))
    five, twenty = rows("fusion", tmp_path / "files", "dpr_union", folder=tmp_path)
    assert [row["metric"] for row in (five, twenty)] == ["answer@5", "answer@20"]
    assert all(0 < float(row[name].split()[0]) <= 100 for row in (five, twenty) for name in ("bm25", "minilm", "RRF", "tuned"))
