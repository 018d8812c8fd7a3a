"""A corpus through the commands: built, listed, searched, checked, mended, removed. Refusals are in ``test_command_errors``."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.runtimes.command_line import Command
from wikidx.base.artifacts.building import lock, staging_path
from wikidx.corpora.build import skipped_records, store_path
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.vectors.file import VectorFile


def found(idx: Command, *arguments: object) -> list[dict[str, Any]]:
    passages: list[dict[str, Any]] = idx.json("search", *arguments)["passages"]
    return passages


def ids(idx: Command, *arguments: object) -> list[str]:
    return [passage["id"] for passage in found(idx, *arguments)]


def built(idx: Command, corpus: str) -> list[tuple[str, int]]:
    """Return the parts of a corpus that are listed, with their rows."""
    corpora = {entry["name"]: entry["built"] for entry in idx.json("list")["corpora"]}
    return [(part["name"], part["rows"]) for part in corpora[corpus]]


def written(path: Path, *records: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def in_a_process(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)


def test_help_imports_no_large_package() -> None:
    said = in_a_process("""
import atexit, sys
from wikidx.runtimes.cli import main
atexit.register(lambda: print(*sys.modules))
sys.argv = ["idx", "--help"]
main()
""").stdout
    assert "search" in said
    assert {"numpy", "numba", "torch", "lmdb", "rich.progress"} & set(said.split()) == set()


def test_retries_of_a_download_are_said_once() -> None:
    """The hub's library reports them by a handler of its own."""
    pytest.importorskip("huggingface_hub", reason="needs the extra 'dense'")
    ran = in_a_process("""
import atexit, logging, sys, huggingface_hub.file_download
from wikidx.runtimes.cli import main
atexit.register(logging.getLogger("huggingface_hub.utils").warning, "Retrying in 1s")
sys.argv = ["idx", "list"]
main()
""")
    assert ran.stderr.count("Retrying in 1s") == 1


def test_a_file_becomes_a_corpus_that_is_listed_searched_checked_and_removed(idx: Command, built_animals: Path) -> None:
    file = built_animals / "animals.jsonl"
    idx("build", file, "--dry-run")
    assert [line.split()[0] for line in idx.err.splitlines()] == ["corpus", "about", "to", "passages", "bm25"]
    assert [need["step"] for need in idx.json("build", file, "--dry-run")["estimates"]] == ["passages", "bm25"]
    assert not store_path("animals").exists()
    assert idx("build", file) == "built 'animals': passages (3 rows), bm25 (3 rows)\n"
    assert idx("build", file) == "already there, not built again: passages (3 rows), bm25 (3 rows)\n"
    again = idx("build", file, "--bm25", "--force").splitlines()
    assert again == ["built 'animals': bm25 (3 rows)", "already there, not built again: passages (3 rows)"]
    assert (built(idx, "animals"), built(idx, "wiki2018")) == ([("passages", 3), ("bm25", 3)], [])
    assert "Fox  [a]" in idx("search", "animals", "red fox")
    assert idx("search", "animals", "zebra") == "no passage found\n"
    assert ids(idx, "animals", "") == []
    assert idx("check", "animals").splitlines() == ["passages: as built", "bm25: as built"]
    idx("remove", "animals", "--index", "bm25", "--yes")
    assert "idx build animals --bm25" in idx("search", "animals", "fox", status=2)
    idx("remove", "animals", "--yes")
    assert not store_path("animals").parent.exists()


@pytest.mark.usefixtures("animals")
def test_several_queries_are_one_group(idx: Command) -> None:
    passages = found(idx, "animals", "den", "ship", "-k", "2")
    assert sorted(passage["id"] for passage in passages) == ["a", "c"]
    assert [list(passage) for passage in passages] == [["rank", "id", "title", "text", "row", "score", "provenance"]] * 2
    assert {entry["query"] for passage in passages for entry in passage["provenance"]} == {"den", "ship"}
    assert ids(idx, "animals", "fox", "--depth", 10**12, "-k", 10**12) == ["a"]
    alone = found(idx, "animals", "whale")
    assert [passage["id"] for passage in alone] == ["b", "c"]
    assert ids(idx, "animals", "whale", "ship", "--merge", "sum") == ["c", "b"]
    reranked = found(idx, "animals", "whale", "ship", "--rerank", "primary", "--rerank-depth", 2)
    assert [(passage["id"], passage["score"]) for passage in reranked] == [(passage["id"], passage["score"]) for passage in alone]


def test_a_terminal_is_told_nothing_by_texts_names_and_errors(idx: Command, tmp_path: Path) -> None:
    text = "a \u001b[31mred\u009b2J fox \u202e\U000e0041"
    path = written(tmp_path / "a\u001b[31m.jsonl", {"id": "a", "title": "Fox\u001b[2J", "text": text, "n\u009b": 1})
    idx("build", path, "--name", "controls")
    assert "a\\x1b[31m.jsonl" in idx.err
    assert "a\\x1b[31m.jsonl" in idx("list")
    said = idx("search", "controls", "fox")
    assert "Fox\\x1b[2J  [a]\n     a \\x1b[31mred\\x9b2J fox \\u202e\\U000e0041\n" in said
    assert found(idx, "controls", "fox")[0]["text"] == text
    assert {"\u009b", "\u202e", "\U000e0041"}.isdisjoint(idx.out)
    missing = idx("build", tmp_path / "b\u001b[31m.jsonl", "--name", "other", status=2)
    assert "b\\x1b[31m.jsonl" in missing
    assert "\u001b" not in idx.err


def test_a_build_prints_what_it_leaves_out_and_interrupted_ones_are_listed(idx: Command, tmp_path: Path) -> None:
    path = written(tmp_path / "one.jsonl", {"id": "a", "text": "fox", "url": "https://example.org"})
    notes = ["fields that are not kept: url (a passage has an id, a title and a text)"]
    assert idx.json("build", path, "--dry-run")["notes"] == notes
    report = idx.json("build", path)
    assert (report["notes"], report["built"]["passages"]["rows"]) == (notes, 1)
    vectors, other = (staging_path(index_ref("one", name).path) for name in ("minilm", "bm25-1.2-0.75"))
    for staging in (vectors, other):
        staging.mkdir(parents=True)
    VectorFile(vectors, 3, "float32", 1).write(range(1), np.ones((1, 384), dtype=np.float32))
    (other / "block").write_bytes(b"x" * 4_200)
    listed = idx("list")
    assert re.findall("^ +(passages|bm25|minilm) +(.+?)  ", listed, re.MULTILINE) == [
        ("passages", "1 row"),
        ("bm25", "1 row"),
        ("minilm", "1 row"),
    ]
    lines = re.findall("^ +(.+?) +unfinished: the same 'idx build' resumes$", listed, re.MULTILINE)
    assert [line.split()[:3] for line in lines] == [["minilm", "1", "row"], ["bm25-1.2-0.75", "4.2", "kB"]]
    entries = {entry["name"]: entry["unfinished"] for entry in idx.json("list")["corpora"]}
    assert sorted((part["name"], part["rows"]) for part in entries.pop("one")) == [("bm25-1.2-0.75", None), ("minilm", 1)]
    assert entries == {"sample": [], "wiki2018": [], "wiki2020": []}
    staging_path(store_path("begun")).mkdir(parents=True)
    assert idx("check", "begun", status=2) == "error: the corpus 'begun' is not finished: run the 'idx build' that began it again"


def test_bad_records_are_left_out_on_request(idx: Command, tmp_path: Path) -> None:
    """Also where characters of ids and file names are strange."""
    bad = tmp_path / os.fsdecode(b"new\nline \xff.jsonl")
    written(bad, {"id": "a\nb", "title": "t", "text": "good"}, {"id": "a\nb", "text": "again"}, {"id": 3})
    idx("build", bad, "--name", "bad", "--on-error", "skip")
    assert "skipped: 2 records, listed in" in idx.err
    assert "line 3: the field 'text' is missing" in idx.err
    reasons = [(record.line, record.reason) for record in skipped_records("bad")]
    assert reasons == [(3, "the field 'text' is missing"), (2, f"the id 'a\nb' is already that of {bad}, line 1")]
    assert "passages (1 row), bm25 (1 row)" in idx("build", "bad", "--bm25")


def test_a_local_file_called_sample_does_not_hide_the_corpus(idx: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(written(tmp_path / "sample", {"id": "a", "text": "x"}).parent)
    idx("build", "sample", "--dry-run")
    assert "for the file write ./sample" in idx.err
    assert "about 784 passages" in idx.err
    assert "'sample' is the name of a corpus that idx knows" in idx("build", "./sample", status=2)


@pytest.mark.usefixtures("animals")
def test_a_name_already_built_from_another_file_is_kept(idx: Command, tmp_path: Path) -> None:
    other = written(tmp_path / "other.jsonl", {"id": "z", "text": "other"})
    for dry in ((), ("--dry-run",)):
        assert "was built from animals.jsonl" in idx("build", other, "--name", "animals", *dry, status=2)
    assert ids(idx, "animals", "fox") == ["a"]
    needs = idx.json("build", other, "--name", "animals", "--bm25", "--force", "--dry-run")["estimates"]
    assert [need["step"] for need in needs] == ["passages", "bm25"]
    idx("build", other, "--name", "animals", "--force")
    assert ids(idx, "animals", "other") == ["z"]


@pytest.mark.usefixtures("animals")
def test_a_damaged_corpus_is_listed_and_mended_by_force(idx: Command) -> None:
    (store_path("animals") / "text_keys.u64").write_bytes(b"")
    assert "text_keys.u64 has 0 bytes instead of 24" in idx("list")
    assert "run 'idx build animals --force'" in idx("search", "animals", "fox", status=2)
    idx("check", "animals", status=1)
    assert "text_keys.u64 has 0 bytes" in idx.out
    idx("build", "animals", "--force")
    assert ids(idx, "animals", "fox") == ["a"]
    assert idx("check", "animals").splitlines() == ["passages: as built", "bm25: as built"]
    file = store_path("animals") / "passages.lmdb"
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)
    problems = idx.json("check", "animals", status=1)["problems"]
    assert "passages.lmdb is corrupt" in problems["passages"][0]
    assert problems["bm25"] == []


def test_an_index_of_a_part_is_built_and_built_again_without_the_source(idx: Command, built_animals: Path, tmp_path: Path) -> None:
    file = shutil.copy(built_animals / "animals.jsonl", tmp_path)
    idx("build", file, "--limit", 2)
    assert "bm25 (2 rows)" in idx("build", "animals@2", "--bm25")
    before = (store_path("animals@2") / "manifest.json").read_bytes()
    (index_ref("animals@2", "bm25").path / "lengths").write_bytes(b"")
    assert "run 'idx build animals@2 --bm25 --force'" in idx("search", "animals@2", "fox", status=2)
    os.unlink(file)  # the index needs the store, not its source
    idx("build", "animals@2", "--bm25", "--force")
    assert ids(idx, "animals@2", "fox") == ["a"]
    assert (store_path("animals@2") / "manifest.json").read_bytes() == before
    refusal = idx("build", "animals@2", "--force", status=2)
    assert f"was built from {file}, which is not there any more: name its source: idx build FILE" in refusal


@pytest.mark.usefixtures("animals")
@pytest.mark.parametrize("is_folder", [False, True])
def test_an_index_without_its_manifest_is_found_and_mended(idx: Command, is_folder: bool) -> None:
    index = index_ref("animals", "bm25").path
    (index / "manifest.json").unlink()
    if is_folder:
        (index / "manifest.json").mkdir()
    expected = f"{index} has no file manifest.json: run 'idx build animals --bm25'"
    idx("check", "animals", status=1)
    assert idx.out.splitlines() == ["passages: as built", f"bm25: {expected}"]
    assert expected in idx("search", "animals", "cat", status=2)
    idx("build", "animals")
    assert idx("check", "animals").splitlines() == ["passages: as built", "bm25: as built"]


@pytest.mark.usefixtures("animals")
def test_what_an_interrupted_removal_left_is_no_corpus_and_can_be_removed(idx: Command) -> None:
    folder = store_path("animals").parent
    folder.rename(folder.with_name(".animals.old"))
    (folder.with_name("Strange folder") / "passages").mkdir(parents=True)
    (folder.with_name("Strange folder") / "passages" / "manifest.json").write_text("{}")
    assert "animals" not in idx("list")
    idx("remove", "animals", "--yes")
    assert not folder.with_name(".animals.old").exists()


@pytest.mark.usefixtures("animals")
def test_a_corpus_is_removed_whole_when_nobody_builds_it(idx: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be on another disk, behind a link; the question whether to remove it is no output."""
    folder = store_path("animals").parent
    for path in (store_path("animals"), index_ref("animals", "bm25-1.2-0.75").path):
        staging_path(path).mkdir()
        with lock(path):
            refusal = idx("remove", "animals", "--yes", status=2)
        assert path.name in refusal
        assert "is being worked on by process" in refusal
    folder.rename(tmp_path / "big disk")
    folder.symlink_to(tmp_path / "big disk")
    assert ids(idx, "animals", "fox") == ["a"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert idx.json("remove", "animals")["deleted"] == [str(folder)]
    assert not folder.is_symlink()
    assert not (tmp_path / "big disk").exists()


def test_a_copied_corpus_can_be_searched_but_does_not_know_its_source(idx: Command, built_sample: Path, home: Path) -> None:
    shutil.copytree(built_sample / "sample", home / "copied")
    assert found(idx, "copied", "liquid metal", "-k", 1)[0]["title"] == "Mercury (element)"
    assert "does not say which file it was built from" in idx("build", "copied", "--bm25", status=2)
