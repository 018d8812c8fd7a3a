"""Indexes over vectors through the command line: build, list, search with parameters, check, recall, remove."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.indexer.made_vectors import clustered, put_vectors
from tests.retrievers.retrieving import at_home
from tests.runtimes.command_line import Command
from wikidx.corpora.build import open_store
from wikidx.indexer import VECTOR_INDEXES
from wikidx.indexer.catalog import index_ref
from wikidx.retrievers.build_and_open import build

faiss = pytest.importorskip("faiss", reason="needs the extra 'dense'")

N = 40
NAMES = [f"minilm-{kind}" for kind in VECTOR_INDEXES]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of forty passages."""
    path = tmp_path_factory.mktemp("source") / "notes.jsonl"
    subjects = ("rivers", "mountains", "planets", "metals")
    records = [{"id": str(n), "title": f"{subjects[n % 4]} {n}", "text": f"Note {n} on {subjects[n % 4]}."} for n in range(N)]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture(scope="module")
def built(source: Path) -> Path:
    """A home in which they have every kind of index over vectors of minilm; to be copied."""
    with at_home(source.parent / "home") as home:
        build(source, f"bm25+{'+'.join(['minilm', *NAMES])}", device="cpu", show_progress=False).close()
        return home


@pytest.fixture
def indexed(built: Path, home: Path) -> str:
    shutil.copytree(built, home)
    return "notes"


def test_a_dry_run_says_what_each_index_needs(idx: Command, source: Path) -> None:
    kinds = [argument for kind in VECTOR_INDEXES for argument in ("--index", kind)]
    idx("build", source)
    needs = {need["step"]: need for need in idx.json("build", "notes", "--encoder", "minilm", *kinds, "--dry-run")["estimates"]}
    assert list(needs) == ["minilm", *NAMES]
    assert needs["minilm-int8"]["disk_bytes"] == N * 384
    assert all(need["memory_bytes"] > 0 for need in needs.values())
    assert "run 'idx build notes --encoder NAME --index KIND'" in idx("check", "notes", "--recall", status=2)


def test_indexes_are_built_listed_searched_checked_and_removed(idx: Command, indexed: str) -> None:
    listed = {entry["name"]: entry["built"] for entry in idx.json("list")["corpora"]}[indexed]
    assert [part["name"] for part in listed] == ["passages", "bm25", "minilm", *NAMES]
    assert {part["rows"] for part in listed} == {N}
    fused = idx.json("search", indexed, "rivers 4", "-r", "+".join(["minilm", *NAMES]), "--nprobe", 1, "--ef-search", 64)
    best = {found["retriever"]: found["rank"] for found in fused["passages"][0]["provenance"]}
    assert best == dict.fromkeys(["minilm", *NAMES], 1)
    assert idx("check", indexed).splitlines() == [f"{part}: as built" for part in ("passages", "bm25", "minilm", *NAMES)]
    idx("remove", indexed, "--index", "minilm-ivf", "--yes")
    assert "idx build notes --encoder minilm --index ivf" in idx("search", indexed, "rivers", "-r", "minilm-ivf", status=2)
    said = idx("build", indexed, "--encoder", "minilm", "--index", "ivf")
    assert said == "built 'notes': minilm-ivf (40 rows)\nalready there, not built again: passages (40 rows), minilm (40 rows)\n"
    left = idx.json("remove", indexed, "--index", "minilm", "--index", "minilm-int8", "--yes")["left_without_vectors"]
    assert left == [name for name in NAMES if name != "minilm-int8"]
    folder = index_ref(indexed, "bm25").path.with_name("minilm-sq8")
    folder.mkdir()
    assert "this version of idx has no such index: 'idx remove notes --index minilm-sq8' deletes it" in idx("list")
    idx("remove", indexed, "--index", "minilm-sq8", "--yes")
    assert not folder.exists()


def test_force_replaces_an_index_and_not_the_vectors_it_is_made_of(idx: Command, indexed: str) -> None:
    force = ("build", indexed, "--encoder", "minilm", "--index", "int8", "--force")
    vectors, index = (index_ref(indexed, name).path.stat().st_ino for name in ("minilm", "minilm-int8"))
    idx(*force)
    assert index_ref(indexed, "minilm").path.stat().st_ino == vectors
    assert index_ref(indexed, "minilm-int8").path.stat().st_ino != index
    store = open_store(indexed)
    shutil.rmtree(index_ref(indexed, "minilm").path)
    put_vectors(store, clustered(N, 384, 0), corpus=indexed)
    error = idx("search", indexed, "rivers", "-r", "minilm-int8", status=2)
    assert "was built from other vectors of 'minilm'" in error
    assert error.endswith("run 'idx build notes --encoder minilm --index int8 --force'")
    idx("check", indexed, status=1)
    idx(*force)
    assert index_ref(indexed, "minilm-int8").manifest(store.fingerprint).counts["vectors"] == N


def test_recall_is_measured_and_written(idx: Command, indexed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikidx.indexer.recall._MIN_S", 0.0)
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"question": "rivers"}\n\nwhich metals\nwhich metals\n')
    reports = idx.json("check", indexed, "--recall", "--queries", questions)["recall"]
    assert list(reports) == NAMES
    for name, report in reports.items():
        assert json.loads((index_ref(indexed, name).path / "recall.json").read_text()) == report
        assert (report["queries"], report["queries_from"]) == (2, str(questions))
        assert list(report["points"][-1]["recall"]) == ["1", "10"]  # of forty passages
        assert report["points"][-1]["recall"]["10"] >= 0.95
    assert reports["minilm-hnsw"]["parameter"] == "ef_search"
    assert "minilm-ivf  (exact search: " in idx("check", indexed, "--recall")  # titles of its passages
    assert idx("check", indexed).splitlines()[0] == "passages: as built"  # measured files are no part of an index
