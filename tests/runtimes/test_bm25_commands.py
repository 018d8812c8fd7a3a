"""BM25 with chosen k1 and b through the command line: build, list, search, evaluate, check, complete, remove."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.runtimes.command_line import Command
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
    passages: list[dict[str, Any]] = idx.json("search", "notes", "fox", "-r", retriever)["passages"]
    return passages


def test_indexes_are_built_listed_completed_searched_checked_and_removed(
    idx: Command, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = idx.json("build", notes, "--index", NAME, "--dry-run")["estimates"]
    assert [need["step"] for need in planned] == ["passages", NAME]
    idx("build", notes, "--bm25", "--index", NAME, "--index", "bm25-0.9-0", "--index", "bm25-0.9-1")
    built = next(entry["built"] for entry in idx.json("list")["corpora"] if entry["name"] == "notes")
    assert [part["name"] for part in built] == ["passages", "bm25", "bm25-0.9-0", "bm25-0.9-1", NAME]
    assert [[hit["id"] for hit in searched(idx, name)] for name in ("bm25-0.9-0", "bm25-0.9-1")] == [["long", "short"], ["short", "long"]]
    hits = searched(idx, NAME)
    assert [hit["score"] for hit in hits] == [hit.score for hit in open_searcher("notes", NAME).search(["fox"])[0]]
    assert [hit["score"] for hit in hits] != [hit["score"] for hit in searched(idx, "bm25")]
    fused = searched(idx, f"{NAME}+bm25")
    assert {one["retriever"] for hit in fused for one in hit["provenance"]} == {NAME, "bm25"}
    assert "bm25-0.9-1: as built" in idx("check", "notes").splitlines()
    for name in ("bm25-0.9-0", "bm25-0.9-1"):
        idx("remove", "notes", "--index", name, "--yes")
        assert f"run 'idx build notes --index {name}'" in idx("search", "notes", "fox", "-r", name, status=2)
    with monkeypatch.context() as patch:
        for line, expected in (("search notes fox -r bm25-", [NAME]), ("remove notes --index ", ["bm25", NAME])):
            variables = {"_IDX_COMPLETE": "complete_bash", "COMP_WORDS": f"idx {line}", "COMP_CWORD": str(len(f"{line}.".split()))}
            for variable, value in variables.items():
                patch.setenv(variable, value)
            assert idx().split() == expected
    (index_ref("notes", NAME).path / "lengths").write_bytes(b"corrupt")
    idx("check", "notes", status=1)
    assert f"{NAME}: as built" not in idx.out
    idx("build", "notes", "--index", NAME, "--force")
    assert [hit["score"] for hit in searched(idx, NAME)] == [hit["score"] for hit in hits]


def test_retrievers_with_chosen_numbers_are_evaluated_side_by_side(idx: Command, built_sample: Path, home: Path) -> None:
    pytest.importorskip("regex", reason="needs the extra 'eval'")
    shutil.copytree(built_sample, home)
    idx("build", "sample", "--index", NAME)
    shown = idx.json("eval", "retrieval", "--corpus", "sample", "--questions", "sample", "-r", "bm25", "-r", NAME)
    assert [one["retriever"] for one in shown["retrievers"]] == ["bm25", NAME]
    first, second = (one["figures"]["AP"]["mean"] for one in shown["retrievers"])
    assert 0.5 < first != second > 0.5
