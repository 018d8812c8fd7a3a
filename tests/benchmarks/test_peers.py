"""The measurement of peers: it runs with all of them on tiny data, and its recall is right."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.peers.groups import GROUPS, describe_inputs
from benchmarks.peers.recall import best_rows, recall
from tests.conftest import ROOT
from wikidx.corpora.known.sample import CORPUS, questions
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.base import NO_ROW, Hits

_PNG = b"\x89PNG\r\n\x1a\n"
_FEW = 60  # passages: MiniLM embeds as many in a second


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Return options that name the first passages of the sample, all of its questions, and a folder to work in."""
    with (tmp_path / "passages.jsonl").open("w") as file:
        for located, _ in zip(CORPUS.read((), None), range(_FEW), strict=False):  # type: ignore[arg-type]
            file.write(json.dumps(located.passage._asdict()) + "\n")
    records = ({"id": one.id, "question": one.question, "golden_answers": one.answers} for one in questions())
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    options = {"passages": "passages.jsonl", "questions": "questions.jsonl", "work": "work", "charts": "charts"}
    return [word for option, name in options.items() for word in (f"--{option}", str(tmp_path / name))]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    quick = ["--threads", 1, "--rounds", 1, "--seconds", 0.02, "--starts", 1]
    command = [sys.executable, "-m", "benchmarks.peers", *map(str, (*quick, *arguments))]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def figures(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "work" / "figures.json").read_bytes())
    return found


@pytest.mark.slow  # ten seconds
def test_own_engines_and_faiss(files: list[str], tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="needs the extra 'dense'")
    ran = run(*files, "--parts", "bm25", "vectors", "--engines", "bm25", "exact", "faiss", "faiss-best", "--k", 10)
    assert ran.returncode == 0, ran.stderr
    found = figures(tmp_path)
    (bm25,) = found["bm25"]["tables"][GROUPS["bm25"].title]
    vectors = found["vectors"]["tables"][GROUPS["vectors"].title]
    assert [row["engine"] for row in vectors] == ["idx exact", "FAISS at its best", "FAISS with defaults"]
    assert len({row["R@20 %"] for row in vectors}) == 1  # all are exact
    for row in (bm25, *vectors):
        assert 0 < row["R@20 %"] <= 100
        assert row["questions/s"] >= row["(median)"] > 0
        assert 0 < row["p50 ms"] <= row["p95 ms"]
        assert row["first answer s"] > 0
        assert row["peak MB"] > 10 * row["index MB"] > 0
    (sizes,) = (rows for title, rows in found["vectors"]["tables"].items() if "by batch" in title)
    assert [row["batch"] for row in sizes] == [1, 8, 32]  # there are 107 questions
    for name in ("bm25.png", "vectors.png"):
        picture = (tmp_path / "charts" / name).read_bytes()
        assert picture.startswith(_PNG)
        assert 5_000 < len(picture) < 60_000


@pytest.mark.exhaustive
@pytest.mark.slow
def test_all_peers(files: list[str], tmp_path: Path) -> None:
    """Takes two minutes: every peer is imported and compiled several times."""
    for package, extra in (("bm25s", "bench"), ("sentence_transformers", "bench"), ("pyserini", "lucene"), ("faiss", "dense")):
        pytest.importorskip(package, reason=f"needs the extra '{extra}'")
    ran = run(*files, "--parts", "bm25", "dense", "vectors", "server")
    assert ran.returncode == 0, ran.stderr
    assert "is left out" not in ran.stderr  # all extras are there where this test runs
    found = figures(tmp_path)
    for name, group in GROUPS.items():
        rows = found[name]["tables"][group.title]
        assert [(row["k"], row["engine"]) for row in rows] == [(k, engine) for k in (10, 100) for engine in group.engines.values()]
        assert all(row["questions/s"] > 0 for row in rows)
    bm25 = {row["engine"]: row["R@20 %"] for row in found["bm25"]["tables"][GROUPS["bm25"].title]}
    assert bm25["idx bm25"] == bm25["Pyserini"]
    dense = {row["R@20 %"] for name in ("dense", "vectors") for row in found[name]["tables"][GROUPS[name].title]}
    assert len(dense) == 1
    servers = {row["server"]: row["R@20 %"] for row in found["server"]["tables"]["The servers"]}
    assert servers["idx serve, bm25"] == servers["Search-R1's way, bm25"] == bm25["idx bm25"]
    assert {servers["idx serve, minilm"], servers["Search-R1's way, minilm"]} == dense
    assert (tmp_path / "charts" / "server.png").read_bytes().startswith(_PNG)


def test_mistakes_are_named(files: list[str]) -> None:
    ran = run(*files, "--threads", 1000)
    assert ran.returncode == 2
    assert ran.stderr.startswith("--threads [1000]: this process can be pinned to 1 to ")
    assert len(ran.stderr.splitlines()) == 1


def test_charts_are_drawn_again_without_a_measurement(tmp_path: Path) -> None:
    rows = [
        {"k": k, "engine": engine, "R@20 %": 50.0, "questions/s": 100.0 * k, "(median)": 90.0 * k}
        for k in (10, 100)
        for engine in ("a", "b")
    ]
    (tmp_path / "figures.json").write_text(json.dumps({"bm25": {"tables": {GROUPS["bm25"].title: rows}}}))
    ran = run("--parts", "--work", tmp_path, "--charts", tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [str(tmp_path / "bm25.png")]
    assert (tmp_path / "bm25.png").read_bytes().startswith(_PNG)


def test_recall_is_that_of_the_first_twenty_by_score(build: Callable[..., PassageStore]) -> None:
    texts = ["the Nile flows north", "nothing here", "NILE!", "a nilometer", *["filler"] * 26]
    store = build([Passage(str(n), "Nile", text) for n, text in enumerate(texts)])  # a title does not count
    assert recall([[1, 0], [3, 1], [], [2]], [["Nile"], ["Nile"], ["Nile"], ["x", "nile"]], store) == 50
    low_last = Hits(np.array([[*range(1, 21), 0], [0, 1, *[NO_ROW] * 19]]), np.array([[*[2.0] * 20, 1.0], [1.0, 2.0, *[-np.inf] * 19]]))
    assert best_rows(low_last._replace(scores=low_last.scores.astype(np.float32))) == [list(range(1, 21)), [1, 0]]


def test_every_engine_says_what_it_was_given() -> None:
    assert all(describe_inputs(engine) for group in GROUPS.values() for engine in group.engines)
