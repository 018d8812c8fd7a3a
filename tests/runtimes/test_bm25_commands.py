"""BM25 with chosen k1 and b through the command line: build, list, search, evaluate, check, complete, remove."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.command_line import Command
from wikidx.base.artifacts.building import lock
from wikidx.indexer.catalog import index_ref
from wikidx.retrievers.opening import open_searcher

NAME = "bm25-1.2-0.75"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Passages of different lengths about foxes: the shortest is the best for a large b, the one with most foxes for a small one."""
    path = tmp_path / "notes.jsonl"
    texts = {"short": "A fox.", "long": "A fox, a fox, a fox, a fox. " + "The forest has trees and birds. " * 9, "other": "A whale sings."}
    path.write_text("".join(json.dumps({"id": name, "title": name, "text": text}) + "\n" for name, text in texts.items()))
    return path


def searched(idx: Command, retriever: str) -> list[dict[str, Any]]:
    passages: list[dict[str, Any]] = json.loads(idx("search", "notes", "fox", "-r", retriever, "--json"))["passages"]
    return passages


def test_indexes_are_built_listed_searched_checked_and_removed(idx: Command, notes: Path) -> None:
    planned = json.loads(idx("build", notes, "--index", NAME, "--dry-run", "--json"))["estimates"]
    assert [need["step"] for need in planned] == ["passages", NAME]
    idx("build", notes, "--bm25", "--index", NAME, "--index", "bm25-0.9-0", "--index", "bm25-0.9-1")
    listed = json.loads(idx("list", "--json"))["corpora"]
    built = next(entry["built"] for entry in listed if entry["name"] == "notes")
    assert [part["name"] for part in built] == ["passages", "bm25", "bm25-0.9-0", "bm25-0.9-1", NAME]
    assert [[hit["id"] for hit in searched(idx, name)] for name in ("bm25-0.9-0", "bm25-0.9-1")] == [["long", "short"], ["short", "long"]]
    hits = searched(idx, NAME)
    assert [hit["score"] for hit in hits] == [hit.score for hit in open_searcher("notes", NAME).search(["fox"])[0]]
    assert [hit["score"] for hit in hits] != [hit["score"] for hit in searched(idx, "bm25")]
    fused = searched(idx, f"{NAME}+bm25")
    assert {one["retriever"] for hit in fused for one in hit["provenance"]} == {NAME, "bm25"}
    assert "bm25-0.9-1: as built" in idx("check", "notes").splitlines()
    idx("remove", "notes", "--index", "bm25-0.9-1", "--yes")
    assert "run 'idx build notes --index bm25-0.9-1'" in idx("search", "notes", "fox", "-r", "bm25-0.9-1", status=2)
    (index_ref("notes", NAME).path / "lengths").write_bytes(b"corrupt")
    assert "as built" not in idx("check", "notes", status=1)
    idx("build", "notes", "--index", NAME, "--force")
    assert [hit["score"] for hit in searched(idx, NAME)] == [hit["score"] for hit in hits]


def test_a_corpus_is_not_removed_while_an_index_with_chosen_numbers_is_built(idx: Command, notes: Path) -> None:
    idx("build", notes)
    path = index_ref("notes", NAME).path
    path.with_name(f".{NAME}.partial").mkdir()
    with lock(path):
        assert NAME in idx("remove", "notes", "--yes", status=2)
    idx("remove", "notes", "--yes")


def test_retrievers_with_chosen_numbers_are_evaluated_side_by_side(idx: Command) -> None:
    pytest.importorskip("regex", reason="needs the extra 'eval'")
    idx("build", "sample", "--bm25", "--index", NAME)
    shown = json.loads(idx("eval", "retrieval", "--corpus", "sample", "--questions", "sample", "-r", "bm25", "-r", NAME, "--json"))
    assert [one["retriever"] for one in shown["retrievers"]] == ["bm25", NAME]
    first, second = (one["figures"]["AP"]["mean"] for one in shown["retrievers"])
    assert 0.5 < first != second > 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--index", "bm25-1.20-0.75"), "unknown index 'bm25-1.20-0.75': it is named 'bm25-1.2-0.75'"),
        (("--index", "bm25-0.9-0.4"), "unknown index 'bm25-0.9-0.4': it is named 'bm25'"),
        (("--index", "bm25-1.2"), "known: bm25, bm25-k1-b with k1 from 0 to 1000 and b from 0 to 1"),
        (("--index", "mb25-1.2-0.75"), "unknown kind of index 'mb25-1.2-0.75': known: binary, bm25, hnsw"),
        (("--index", NAME, "--index", "ivf"), "--index ivf needs an encoder: add --encoder NAME"),
    ],
)
def test_numbers_that_cannot_be_are_refused(idx: Command, notes: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in idx("build", notes, *arguments, status=2)
    assert not index_ref("notes", "bm25").path.exists()


def test_a_name_with_numbers_is_completed(idx: Command, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    idx("build", notes, "--bm25", "--index", NAME)
    monkeypatch.setenv("_IDX_COMPLETE", "complete_bash")
    for line, expected in (
        ("search notes fox -r bm25-", [NAME]),
        ("remove notes --index ", ["bm25", NAME]),
        ("serve -r bm25+", [f"bm25+{NAME}"]),
    ):
        monkeypatch.setenv("COMP_WORDS", f"idx {line}")
        monkeypatch.setenv("COMP_CWORD", str(len(f"{line}.".split())))
        assert idx().split() == expected
