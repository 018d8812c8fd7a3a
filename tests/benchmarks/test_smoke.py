"""Every benchmark runs on tiny data, so that none can rot."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT
from wikidx.corpora.known.sample import passages, questions

_FEW = 60  # passages: MiniLM embeds as many in a second
LEXICAL = ("bm25", "call", "groups", "pyserini", "bm25s", "bm25s-strings", "sqlite", "tantivy")
DENSE = ("minilm", "sentence-transformers", "exact", "faiss")
VECTORS = ("exact", "int8", "binary", "ivf", "ivfpq", "hnsw", "faiss", "faiss-best", "semantic-search", "hnswlib", "usearch")
QUICK = ("--threads", 1, "--rounds", 1, "--seconds", 0.02, "--k", 10)
MADE = ("--n", 2_000, "--hidden", 64, "--layers", 2, "--groups", 20, "--seconds", 0.5, "--clients", 4, "--posts", 2)
SEARCHED = ("--n", 20_000, "--dim", 64, "--batches", 1, 8, "--ks", 10, "--rounds", 1)
NETWORKS = ("--passages", 200, "--hidden", 64, "--layers", 2, "--words", 30, "--requests", 4, "--pairs", 10, "--rounds", 1)
SOAK = ("--minutes", 0.5, "--warm-up", 0.2, "--retriever", "bm25", "--clients", 4, "--rate", 0, "--every", 0.5, "--limit", 100)
RUNS = ("--methods", "rag", "--latency", "constant", "--concurrency", 8, "--questions", 16, "--commit", ROOT)

Row = dict[str, Any]


def start(module: str, *arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments), "--json", str(folder / "out.json")]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def tables(module: str, *arguments: object, folder: Path) -> list[list[Row]]:
    """Run a benchmark; return its tables."""
    ran = start(module, *arguments, folder=folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads((folder / "out.json").read_bytes())
    return list(found["tables"].values()) if "tables" in found else [found["rows"]]


def rows(module: str, *arguments: object, folder: Path) -> list[Row]:
    return tables(module, *arguments, folder=folder)[0]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return the first passages of the sample, and all of its questions, as files."""
    some, asked = tmp_path / "passages.jsonl", tmp_path / "questions.jsonl"
    some.write_text("".join(json.dumps(passage._asdict()) + "\n" for passage, _ in zip(passages(), range(_FEW), strict=False)))
    records = ({"id": one.id, "question": one.question, "golden_answers": one.answers} for one in questions())
    asked.write_text("".join(json.dumps(record) + "\n" for record in records))
    return some, asked


@pytest.mark.exhaustive
@pytest.mark.parametrize("engines", [LEXICAL, DENSE], ids=["lexical", "dense"])
def test_engines_find_the_same(files: tuple[Path, Path], tmp_path: Path, engines: tuple[str, ...]) -> None:
    chosen = ("--corpora", files[0], "--questions", files[1], "--engines", *engines, "--work", tmp_path)
    _, indexes, searches = tables("engines", *chosen, *QUICK, folder=tmp_path)
    assert {row["engine"] for row in searches} == set(engines)
    equal = {"bm25", "call", "pyserini", *DENSE}  # the others have other lengths, parameters or terms
    assert all(row["same set %"] == 100 and row["score difference"] < 0.01 for row in searches if row["engine"] in equal)
    assert all(row["same rows %"] > 60 for row in searches if row["engine"] != "groups")
    assert len({round(row["R@20 %"], 9) for row in indexes if row["engine"] in equal}) == 1
    assert all(0 < row["p50 ms"] <= row["p95 ms"] for row in searches if row["batch"] == 1)
    assert all(row["index MB"] > 0.001 and row["build peak MB"] > 10 and row["first answer s"] > 0 for row in indexes)


@pytest.mark.exhaustive
def test_vectors(tmp_path: Path) -> None:
    np.save(tmp_path / "V.npy", np.random.default_rng(0).standard_normal((200, 8), dtype=np.float32))
    for given, engines in (("--dim", 32, "--vectors", 3000), VECTORS), (("--vectors-from", tmp_path / "V.npy"), ("exact",)):
        options = (*given, "--engines", *engines, "--batch", 1, 32, "--work", tmp_path)
        indexes, searches = tables("vectors", *options, *QUICK, folder=tmp_path)
        disk = {row["engine"]: row["index MB"] for row in indexes}
        found = {row["engine"]: row["same rows %"] for row in searches if row["batch"] == 32}
        assert found.keys() == disk.keys() == set(engines)
        assert min(found[engine] for engine in engines if engine in ("exact", "int8", "faiss", "faiss-best", "semantic-search")) > 99
        assert min(found.values()) > 60
        assert disk.get("ivfpq", 0) < disk.get("int8", 1) < disk.get("ivf", 2)


@pytest.mark.exhaustive
def test_growth_resumes(files: tuple[Path, Path], tmp_path: Path) -> None:
    data = ("--source", files[0], "--questions", files[1], "--work", tmp_path)
    options = ("--sizes", 500, 1500, *data, "--vectors", "--clients", 2, "--rounds", 1, "--seconds", 0.1)
    assert tables("growth", *options, "--minutes", 0, folder=tmp_path) == [[]]
    tables("growth", *options, "--steps", "passages", "build", folder=tmp_path)
    before = json.loads((tmp_path / "figures.json").read_bytes())
    (found,) = tables("growth", *options, folder=tmp_path)
    after = json.loads((tmp_path / "figures.json").read_bytes())
    assert all(after[size]["build"] == before[size]["build"] for size in ("500", "1500"))
    values = {f"{row['step']}, {row['figure']}": row["1,500"] for row in found}
    assert min(values[name] for name in ("search bm25, k 10, batch 32: s", "serve minilm, 2 clients: s", "open bm25, cold, s")) > 0


@pytest.mark.exhaustive  # two minutes
def test_serve(files: tuple[Path, Path], tmp_path: Path) -> None:
    options = ("--corpus", files[0], "--questions", files[1], "--clients", 8, "--rounds", 1, "--seconds", 0.3, "--work", tmp_path)
    requests, servers, batches, overload = tables("serve", *options, folder=tmp_path)
    assert all(min(row["idx requests/s"], row["empty handler"], row["Search-R1's way"]) > 0 for row in requests)
    assert [servers[at]["R@20 %"] for at in (0, 2)] == pytest.approx([servers[at]["R@20 %"] for at in (1, 3)])
    assert all(row["questions/s"] > 0 for row in batches)
    assert all(row["4 ×: answered/s"] > 0 and row["not answered after"] == 0 for row in overload)


@pytest.mark.parametrize(
    ("module", "arguments", "positive"),
    [
        ("gpu", ("--device", "cpu", *MADE), ("queries/s", "CPU ms a query")),
        ("gpu.search", ("--device", "cpu", *SEARCHED), ("GB/s", "s for 32 GB")),
        ("gpu.networks", ("--device", "cpu", *NETWORKS), ("first ms", "p50 ms", "p95 ms")),
        pytest.param("models", ("speed", "--limit", 1, "--tokens", 4), ("tokens read",), marks=pytest.mark.exhaustive),
        pytest.param("models", ("methods", "--limit", 1, "--methods", "rag"), ("first s", "calls"), marks=pytest.mark.exhaustive),
        ("execution", RUNS, ("now s", "before s")),
        pytest.param("serve.soak", SOAK, (), marks=pytest.mark.exhaustive),
    ],
)
def test_program(tmp_path: Path, module: str, arguments: tuple[object, ...], positive: tuple[str, ...]) -> None:
    for row in tables(module, *arguments, "--work", tmp_path, folder=tmp_path)[-1]:
        assert all(row[column] > 0 for column in positive)
        assert row.get("anonymous bytes an answer", 0) < 1_000
        assert row.get("calls before", "") in ("", row.get("calls"))


@pytest.mark.exhaustive  # three minutes
def test_programs_on_files(shared_data: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    start_, analysis, store = tables("parts", "--files", files[0], "--passages", files[0], "--rounds", 1, folder=tmp_path)
    assert (start_[0]["command"], analysis[0]["passages"], store[0]["passages"]) == ("idx --help", _FEW, _FEW)
    (embedded,) = rows("embed", "--passages", 12, "--rounds", 1, folder=tmp_path)
    assert embedded["max difference"] <= 5e-5
    assert 0 < embedded["overhead %"] < 100
    compared = rows("commits", ROOT, "--rounds", 1, "--seconds", 0.05, "--passages", files[0], folder=tmp_path)
    assert len(compared) == 16
    assert all(row["ratio"] == row["least"] == row["largest"] > 0 for row in compared)


def test_charts(tmp_path: Path) -> None:
    searches = [{"k": k, "batch": "all", "threads": 1, "engine": engine, "median": 90.0 * k} for k in (10, 100) for engine in ("a", "b")]
    (tmp_path / "bm25.json").write_text(json.dumps({"tables": {"Searches of it": searches}}))
    assert start("charts", tmp_path / "bm25.json", "--out", tmp_path, folder=tmp_path).returncode == 0
    assert (tmp_path / "bm25.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize("arguments", [("--threads", 1000), ("--threads", 1, "--questions", "nowhere.jsonl")])
def test_mistakes_are_named(tmp_path: Path, arguments: tuple[object, ...]) -> None:
    ran = start("engines", "--engines", "bm25", *arguments, folder=tmp_path)
    assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1)
    assert str(arguments[-1]) in ran.stderr


@pytest.mark.exhaustive
@pytest.mark.slow  # half a minute
def test_ray(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra 'ray'")
    alone, cluster = rows("ray", "embedding", "--passages", 16, "--range-rows", 4, "--nodes", 1, folder=tmp_path)
    assert (alone["nodes"], cluster["nodes"], cluster["same bytes"]) == ("this process", "1", "yes")
