"""Indexes over vectors through the command line: build, list, search with parameters, check, recall, remove."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from tests.indexer.made_vectors import clustered, put_vectors
from tests.runtimes.command_line import Command
from wikidx.corpora.build import open_store
from wikidx.indexer import VECTOR_INDEXES
from wikidx.indexer.catalog import index_ref

faiss = pytest.importorskip("faiss", reason="needs the extra 'dense'")

N = 40
KINDS = [argument for kind in VECTOR_INDEXES for argument in ("--index", kind)]


@pytest.fixture
def idx(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


@pytest.fixture
def notes(idx: Command, tmp_path: Path) -> str:
    """A corpus of forty passages."""
    path = tmp_path / "notes.jsonl"
    subjects = ("rivers", "mountains", "planets", "metals")
    path.write_text(
        "".join(
            json.dumps({"id": str(n), "title": f"{subjects[n % 4]} {n}", "text": f"Note {n} on {subjects[n % 4]}."}) + "\n"
            for n in range(N)
        )
    )
    idx("build", path)
    return "notes"


@pytest.fixture
def indexed(idx: Command, notes: str) -> str:
    """The corpus with every kind of index over vectors of minilm."""
    idx("build", notes, "--encoder", "minilm", *KINDS)
    return notes


def test_a_dry_run_says_what_each_index_needs(idx: Command, notes: str) -> None:
    needs = json.loads(idx("build", notes, "--encoder", "minilm", *KINDS, "--dry-run", "--json"))["estimates"]
    assert [need["step"] for need in needs] == ["minilm", *(f"minilm-{kind}" for kind in VECTOR_INDEXES)]
    by_step = {need["step"]: need for need in needs}
    assert by_step["minilm-int8"]["disk_bytes"] == N * 384
    assert all(need["memory_bytes"] > 0 for need in needs)


def test_indexes_are_built_listed_searched_checked_and_removed(idx: Command, indexed: str) -> None:
    listed = {entry["name"]: entry["built"] for entry in json.loads(idx("list", "--json"))["corpora"]}[indexed]
    names = [f"minilm-{kind}" for kind in VECTOR_INDEXES]
    assert [part["name"] for part in listed] == ["passages", "bm25", "minilm", *names]
    assert {part["rows"] for part in listed} == {N}
    exact = json.loads(idx("search", indexed, "rivers 4", "-r", "minilm", "-k", 3, "--json"))["passages"]
    for name in names:
        found = json.loads(idx("search", indexed, "rivers 4", "-r", name, "-k", 3, "--json"))["passages"]
        assert found[0]["id"] == exact[0]["id"]
        assert found[0]["provenance"][0]["retriever"] == name
    fused = json.loads(idx("search", indexed, "rivers 4", "-r", "minilm-ivfpq+minilm-hnsw", "--nprobe", 1, "--ef-search", 64, "--json"))
    assert {found["retriever"] for found in fused["passages"][0]["provenance"]} == {"minilm-ivfpq", "minilm-hnsw"}
    assert idx("check", indexed).splitlines() == [f"{part}: as built" for part in ("passages", "bm25", "minilm", *names)]
    idx("remove", indexed, "--index", "minilm-ivf", "--yes")
    assert "idx build notes --encoder minilm --index ivf" in idx("search", indexed, "rivers", "-r", "minilm-ivf", status=2)
    said = idx("build", indexed, "--encoder", "minilm", "--index", "ivf")
    assert said == "built 'notes': minilm-ivf (40 rows)\nalready there, not built again: passages (40 rows), minilm (40 rows)\n"


def test_force_replaces_an_index_and_not_the_vectors_it_is_made_of(idx: Command, notes: str) -> None:
    idx("build", notes, "--encoder", "minilm", "--index", "int8")
    vectors, index = (index_ref(notes, name).path.stat().st_ino for name in ("minilm", "minilm-int8"))
    idx("build", notes, "--encoder", "minilm", "--index", "int8", "--force")
    assert index_ref(notes, "minilm").path.stat().st_ino == vectors
    assert index_ref(notes, "minilm-int8").path.stat().st_ino != index
    store = open_store(notes)
    shutil.rmtree(index_ref(notes, "minilm").path)
    put_vectors(store, clustered(N, 384, 0), corpus=notes)
    error = idx("search", notes, "rivers", "-r", "minilm-int8", status=2)
    assert "was built from other vectors of 'minilm'" in error
    assert error.endswith("run 'idx build notes --encoder minilm --index int8 --force'")
    idx("check", notes, status=1)
    idx("build", notes, "--encoder", "minilm", "--index", "int8", "--force")
    assert index_ref(notes, "minilm-int8").manifest(store.fingerprint).counts["vectors"] == N


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "notes", "--index", "ivf"], "--index ivf needs an encoder: add --encoder NAME"),
        (["build", "notes", "--encoder", "minilm", "--index", "ivfp"], "unknown kind of index 'ivfp': did you mean 'ivfpq'"),
        (["search", "notes", "q", "-r", "minilm-ivff"], "unknown retriever 'minilm-ivff': did you mean 'minilm-ivf'"),
        (
            ["search", "notes", "q", "-r", "minilm-int8", "--nprobe", "3"],
            "nprobe is no parameter of 'minilm-int8': 'minilm-int8' has refine",
        ),
        (["search", "notes", "q", "-r", "minilm-int8", "--refine", "-1"], "refine is -1: it should be greater than or equal to 0"),
        (["search", "notes", "q", "-r", "minilm-int8", "--device", "gpu"], "the device 'gpu' is none of auto"),
        (["search", "notes", "q", "-r", "minilm-ivf", "--nprobe", "3"], "run 'idx build notes --encoder minilm --index ivf'"),
        (["remove", "notes", "--index", "minilm-hnsw", "--yes"], "'notes' has bm25, minilm, minilm-int8"),
        (["remove", "notes", "--index", "int8", "--yes"], "minilm-int8"),
        (["check", "notes", "--queries", "none"], "--queries is for --recall"),
        (["check", "notes", "--recall", "--queries", "none"], "there is no file none"),
    ],
)
def test_mistakes_are_one_line(idx: Command, notes: str, arguments: list[str], message: str) -> None:
    if "build" not in arguments:
        put_vectors(open_store(notes), clustered(N, 384, 0), corpus=notes)
        idx("build", notes, "--encoder", "minilm", "--index", "int8")
    assert message in idx(*arguments, status=2)


def test_removing_vectors_names_the_indexes_that_lose_them(
    idx: Command, notes: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_vectors(open_store(notes), clustered(N, 384, 0), corpus=notes)
    idx("build", notes, "--encoder", "minilm", "--index", "ivf", "--index", "int8")
    left = json.loads(idx("remove", notes, "--index", "minilm", "--index", "minilm-int8", "--yes", "--json"))["left_without_vectors"]
    assert left == ["minilm-ivf"]


def test_the_folder_of_a_kind_that_has_gone_is_listed_and_can_be_removed(idx: Command, notes: str) -> None:
    folder = index_ref(notes, "bm25").path.with_name("minilm-sq8")
    folder.mkdir(parents=True)
    assert "this version of idx has no such index: 'idx remove notes --index minilm-sq8' deletes it" in idx("list")
    idx("remove", notes, "--index", "minilm-sq8", "--yes")
    assert not folder.exists()


def test_recall_of_a_corpus_without_such_an_index_is_refused(idx: Command, notes: str) -> None:
    assert "run 'idx build notes --encoder NAME --index KIND'" in idx("check", notes, "--recall", status=2)


def test_recall_is_measured_and_written(idx: Command, indexed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wikidx.indexer.recall._MIN_S", 0.0)
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"question": "rivers"}\n\nwhich metals\nwhich metals\n')
    reports = json.loads(idx("check", indexed, "--recall", "--queries", questions, "--json"))["recall"]
    assert list(reports) == [f"minilm-{kind}" for kind in VECTOR_INDEXES]
    for name, report in reports.items():
        assert json.loads((index_ref(indexed, name).path / "recall.json").read_text()) == report
        assert (report["queries"], report["queries_from"]) == (2, str(questions))
        assert list(report["points"][-1]["recall"]) == ["1", "10"]  # of forty passages
        assert report["points"][-1]["recall"]["10"] >= 0.95
    assert reports["minilm-hnsw"]["parameter"] == "ef_search"
    said = idx("check", indexed, "--recall")  # titles of its passages
    assert "minilm-ivf  (exact search: " in said
    assert idx("check", indexed).splitlines()[0] == "passages: as built"  # measured files are no part of an index


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b'{"answer": "x"}\n',
            "line 1: no field 'question' or 'query' or 'input' or 'prompt' or 'problem' or",
        ),
        (b"caf\xe9\n", "line 1: neither text nor JSON in UTF-8"),
        (b'{"question": 3}\n{"question": null}\n', "line 1: the field 'question' is 3, not a text"),
        (b"\n\n", "has no queries"),
        (gzip.compress(b"one\ntwo\n")[:-9], "is corrupt"),
        (gzip.compress(bytes(65 << 20)), "line 1: the line is longer than 64 MiB"),
    ],
)
def test_queries_that_cannot_be_used_are_named(idx: Command, notes: str, tmp_path: Path, content: bytes, message: str) -> None:
    put_vectors(open_store(notes), clustered(N, 384, 0), corpus=notes)
    idx("build", notes, "--encoder", "minilm", "--index", "int8")
    path = tmp_path / "queries.txt"
    path.write_bytes(content)
    assert message in idx("check", notes, "--recall", "--queries", path, status=2)
