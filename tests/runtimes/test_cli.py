from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.faults import commands
from tests.faults.commands import Finished
from wikidx.base.artifacts.building import lock, staging_path
from wikidx.corpora.build import skipped_records, store_path
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.vectors.file import VectorFile

IDX = [sys.executable, "-c", "from wikidx.runtimes.cli import main; main()"]


def idx(*arguments: object, status: int = 0, cwd: Path = ROOT) -> Finished:
    """Run the command line in a process of its own; a traceback is never acceptable."""
    with contextlib.chdir(cwd):
        ran = commands.idx(*arguments)
    assert "Traceback" not in ran.err
    assert ran.status == status, ran.err
    return ran


def error(*arguments: object, cwd: Path = ROOT) -> str:
    """Run what must fail with exit status 2, and return the error, which is one line."""
    return idx(*arguments, status=2, cwd=cwd).error


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    path = tmp_path / "animals.jsonl"
    records = [
        {"id": "a", "title": "Fox", "text": "The red fox digs a den."},
        {"id": "b", "title": "Whale", "text": "The blue whale sings."},
        {"id": "c", "title": "Sea", "text": "Whales and a red ship in the blue sea."},
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def found(*arguments: object) -> list[dict[str, Any]]:
    passages: list[dict[str, Any]] = json.loads(idx("search", *arguments, "--json").out)["passages"]
    return passages


def test_help_answers_at_once() -> None:
    run = partial(subprocess.run, [*IDX, "--help"], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "search" in run().stdout
    started = time.perf_counter()
    run()
    assert time.perf_counter() - started < 3  # a gross bound; the figure is measured in benchmarks
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, wikidx.runtimes.cli; print(' '.join(sys.modules))"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert {"numpy", "numba", "torch", "lmdb", "rich.progress"} & set(loaded.stdout.split()) == set()


def test_retries_of_a_download_are_said_once() -> None:
    """The hub's library reports them by a handler of its own."""
    pytest.importorskip("huggingface_hub", reason="needs the extra 'dense'")
    code = """
import atexit, logging, sys, huggingface_hub.file_download
from wikidx.runtimes.cli import main
atexit.register(logging.getLogger("huggingface_hub.utils").warning, "Retrying in 1s")
sys.argv = ["idx", "list"]
main()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stderr.count("Retrying in 1s") == 1


def test_a_file_becomes_a_corpus_that_is_listed_searched_checked_and_removed(animals: Path) -> None:
    assert "built 'animals': passages (3 rows), bm25 (3 rows)" in idx("build", animals).out
    listed = {entry["name"]: entry["built"] for entry in json.loads(idx("list", "--json").out)["corpora"]}
    assert [(part["name"], part["rows"]) for part in listed["animals"]] == [("passages", 3), ("bm25", 3)]
    assert listed["wiki2018"] == []
    assert "Fox  [a]" in idx("search", "animals", "red fox").out
    assert idx("check", "animals").out.splitlines() == ["passages: as built", "bm25: as built"]
    idx("remove", "animals", "--index", "bm25", "--yes")
    assert "idx build animals --bm25" in error("search", "animals", "fox")
    idx("remove", "animals", "--yes")
    assert not store_path("animals").parent.exists()


def test_several_queries_are_one_group(animals: Path) -> None:
    idx("build", animals, "--name", "zoo")
    passages = found("zoo", "den", "ship", "-k", "2")
    assert sorted(passage["id"] for passage in passages) == ["a", "c"]
    assert [list(passage) for passage in passages] == [["rank", "id", "title", "text", "row", "score", "provenance"]] * 2
    assert {entry["query"] for passage in passages for entry in passage["provenance"]} == {"den", "ship"}


def test_a_terminal_is_told_nothing_by_passages(tmp_path: Path) -> None:
    path = tmp_path / "controls.jsonl"
    path.write_text(json.dumps({"id": "a", "title": "Fox\u001b[2J", "text": "a \u001b[31mred\u009b2J fox \u202e\U000e0041"}) + "\n")
    idx("build", path)
    said = idx("search", "controls", "fox").out
    assert "Fox\\x1b[2J  [a]\n     a \\x1b[31mred\\x9b2J fox \\u202e\\U000e0041\n" in said
    assert found("controls", "fox")[0]["text"] == "a \u001b[31mred\u009b2J fox \u202e\U000e0041"
    assert {"\u009b", "\u202e", "\U000e0041"}.isdisjoint(idx("search", "controls", "fox", "--json").out)


def test_a_terminal_is_told_nothing_by_names_and_errors(tmp_path: Path) -> None:
    path = tmp_path / "a\u001b[31m.jsonl"
    path.write_text(json.dumps({"id": "a", "title": "", "text": "fox", "n\u009b": 1}) + "\n")
    assert "a\\x1b[31m.jsonl" in idx("build", path, "--name", "controls").err
    assert "a\\x1b[31m.jsonl" in idx("list").out
    missing = idx("build", tmp_path / "b\u001b[31m.jsonl", "--name", "other", status=2)
    assert "b\\x1b[31m.jsonl" in missing.err
    assert "\u001b" not in missing.err


def test_a_finished_build_is_not_said_to_be_built_again(animals: Path) -> None:
    idx("build", animals)
    assert idx("build", animals).out == "already there, not built again: passages (3 rows), bm25 (3 rows)\n"
    again = idx("build", animals, "--bm25", "--force").out.splitlines()
    assert again == ["built 'animals': bm25 (3 rows)", "already there, not built again: passages (3 rows)"]


def test_a_build_prints_what_it_leaves_out_and_one_row_is_listed_as_one(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text('{"id": "a", "text": "fox", "url": "https://example.org"}\n')
    notes = ["fields that are not kept: url (a passage has an id, a title and a text)"]
    assert json.loads(idx("build", path, "--dry-run", "--json").out)["notes"] == notes
    built = json.loads(idx("build", path, "--json").out)
    assert (built["notes"], built["built"]["passages"]["rows"]) == (notes, 1)
    vectors = staging_path(index_ref("one", "minilm").path)
    vectors.mkdir(parents=True)
    VectorFile(vectors, 3, "float32", 1).write(range(1), np.ones((1, 384), dtype=np.float32))
    listed = re.findall("^ +(passages|bm25|minilm) +(.+?)  ", idx("list").out, re.MULTILINE)
    assert listed == [("passages", "1 row"), ("bm25", "1 row"), ("minilm", "1 row")]


def test_interrupted_builds_are_listed(animals: Path) -> None:
    idx("build", animals)
    vectors, other = (staging_path(index_ref("animals", name).path) for name in ("minilm", "bm25-1.2-0.75"))
    for staging in (vectors, other):
        staging.mkdir(parents=True)
    VectorFile(vectors, 3, "float32", 2).write(range(2), np.ones((2, 384), dtype=np.float32))
    (other / "block").write_bytes(b"x" * 4_200)
    listed = re.findall("^ +(.+?) +unfinished: the same 'idx build' resumes$", idx("list").out, re.MULTILINE)
    assert [line.split()[:3] for line in listed] == [["minilm", "2", "rows"], ["bm25-1.2-0.75", "4.2", "kB"]]
    entries = {entry["name"]: entry["unfinished"] for entry in json.loads(idx("list", "--json").out)["corpora"]}
    assert sorted((part["name"], part["rows"]) for part in entries.pop("animals")) == [("bm25-1.2-0.75", None), ("minilm", 2)]
    assert entries == {"sample": [], "wiki2018": [], "wiki2020": []}


def test_a_corpus_whose_build_was_interrupted_is_not_unknown(animals: Path) -> None:
    staging_path(store_path("animals")).mkdir(parents=True)
    assert error("check", "animals") == "the corpus 'animals' is not finished: run the 'idx build' that began it again"
    assert "unknown corpus 'anomals'" in error("check", "anomals")


def test_no_hits_and_empty_queries_find_nothing(animals: Path) -> None:
    idx("build", animals)
    assert idx("search", "animals", "zebra").out == "no passage found\n"
    assert found("animals", "") == []


def test_a_dry_run_builds_nothing(animals: Path) -> None:
    planned = idx("build", animals, "--dry-run").err
    assert [line.split()[0] for line in planned.splitlines()] == ["corpus", "about", "to", "passages", "bm25"]
    needs = json.loads(idx("build", animals, "--dry-run", "--json").out)["estimates"]
    assert [need["step"] for need in needs] == ["passages", "bm25"]
    assert not store_path("animals").exists()


def test_an_index_is_added_to_a_built_corpus_by_name(animals: Path) -> None:
    idx("build", animals, "--limit", 2)
    assert "bm25 (2 rows)" in idx("build", "animals@2", "--bm25").out


def test_bad_records_are_named_or_left_out(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": "a", "title": "t", "text": "good"}\n{"id": "a", "title": "t", "text": "again"}\n{"id": 3}\n')
    message = error("build", bad)
    assert f"{bad}, line 3: the field 'text' is missing" in message
    assert "--on-error skip" in message
    ran = idx("build", bad, "--on-error", "skip")
    assert "skipped: 2 records" in ran.err
    assert f"{bad}, line 3: the field 'text' is missing" in ran.err
    assert list(skipped_records("bad")) == [
        (str(bad), 3, "the field 'text' is missing"),
        (str(bad), 2, f"the id 'a' is already that of {bad}, line 1"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "wiki2081"], "unknown corpus (and no file of that name is here) 'wiki2081': did you mean 'wiki2018'"),
        (["build", "nothing/here.jsonl"], "there is no file nothing/here.jsonl"),
        (["build", "{file}", "--name", "../x"], "'../x' cannot be a name"),
        (["build", "{file}", "--name", "passages"], "'passages' is a reserved name"),
        (["build", "{file}", "--name", "unnamed-0123abcd"], "idx gives such names to corpora without one"),
        (["build", "{file}", "--name", "sample"], "'sample' is the name of a corpus that idx knows"),
        (["build", "{file}", "--encoder", "minilmm"], "unknown encoder 'minilmm': did you mean 'minilm'"),
        (["build", "{file}", "--encoder", "bm25"], "unknown encoder 'bm25'"),
        (["build", "{file}", "--device", "meta"], "the device 'meta' is none of auto, cpu, cuda"),
        (["build", "sample", "--words", "50"], "--words is for corpora from a file"),
        (["build", "sample@10", "--limit", "20"], "'sample@10' has 10 passages, --limit says 20"),
        (["build", "sample@x"], "'sample@x' cannot be a name"),
        (["build", "{file}", "--format", "json"], "unknown format 'json': did you mean 'jsonl'"),
        (["build", "{file}", "--split", "word"], "unknown splitting rule 'word': did you mean 'words'"),
        (["build", "{file}", "--words", "0"], "--words 0: a passage needs at least one word"),
        (["build", "{file}", "--limit", "0"], "--limit 0: at least one passage is needed"),
        (["build", "{file}", "--on-error", "ignore"], "--on-error ignore: use fail or skip"),
        (["build", "{file}", "--source", "x"], "--source is for known corpora"),
        (["build", "sample", "--name", "x"], "--name is for corpora from a file"),
        (["build", "sample", "--source", "x"], "the corpus 'sample' ships with idx: --source does not apply"),
        (["build", "wiki2018", "--source", "nowhere.tsv"], "there is no file nowhere.tsv"),
        (["build", "{folder}"], "is a directory: name one file"),
        (["search", "smaple", "x"], "unknown corpus 'smaple': did you mean 'sample'"),
        (["search", "sample", "x"], "the corpus 'sample' is not built: run 'idx build sample'"),
        (["search", "sample@10", "x"], "the corpus 'sample@10' is not built: run 'idx build sample@10'"),
        (["search", "../x", "x"], "'../x' cannot be a name"),
        (["check", "nothing"], "unknown corpus 'nothing'"),
        (["remove", "nothing", "--yes"], "unknown corpus 'nothing'"),
        (["remove", "sample", "--yes"], "the corpus 'sample' is not built"),
        (["remove", "..", "--yes"], "'..' cannot be a name"),
    ],
)
def test_mistakes_are_one_line(animals: Path, arguments: list[str], message: str) -> None:
    assert message in error(*(argument.format(file=animals, folder=animals.parent) for argument in arguments))


def test_a_local_file_called_sample_does_not_hide_the_corpus(tmp_path: Path) -> None:
    (tmp_path / "sample").write_text('{"id": "a", "text": "x"}\n')
    planned = idx("build", "sample", "--dry-run", cwd=tmp_path).err
    assert "for the file write ./sample" in planned
    assert "about 784 passages" in planned
    assert "'sample' is the name of a corpus that idx knows" in error("build", "./sample", cwd=tmp_path)


def test_a_name_already_built_from_another_file_is_kept(animals: Path, tmp_path: Path) -> None:
    idx("build", animals, "--name", "zoo")
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "z", "text": "other"}\n')
    assert "was built from animals.jsonl" in error("build", other, "--name", "zoo")
    assert found("zoo", "fox")[0]["id"] == "a"
    idx("build", other, "--name", "zoo", "--force")
    assert found("zoo", "other")[0]["id"] == "z"


def test_search_refuses_what_it_cannot_do(animals: Path) -> None:
    idx("build", animals)
    assert "merge is 'mean': " in error("search", "animals", "x", "--merge", "mean")
    assert "unknown retriever 'minilmm'" in error("search", "animals", "x", "-r", "minilmm")
    assert "the device 'gpu' is none of" in error("search", "animals", "x", "--device", "gpu")
    assert "query 2 is not UTF-8" in error("search", "animals", "x", os.fsdecode(b"a\xff"))
    assert "k is 10" in error("search", "animals", "x", "-k", 10**30)
    assert "rerank_depth is 3, but rerank is 'none'" in error("search", "animals", "x", "--rerank-depth", 3)
    assert "--weight bm25: give a retriever and a number" in error("search", "animals", "x", "--fuse", "weighted", "--weight", "bm25")
    assert "opened without one" in error("search", "animals", "x", "--rerank", "cross-encoder")
    assert len(found("animals", "fox", "--depth", 10**12, "-k", 10**12)) == 1


def test_candidates_are_ranked_by_the_first_query(animals: Path) -> None:
    idx("build", animals, "--name", "zoo")
    alone = found("zoo", "whale")
    assert [passage["id"] for passage in alone] == ["b", "c"]
    reranked = found("zoo", "whale", "ship", "--rerank", "primary", "--rerank-depth", 2)
    assert [passage["id"] for passage in found("zoo", "whale", "ship", "--merge", "sum")] == ["c", "b"]
    assert [(passage["id"], passage["score"]) for passage in reranked] == [(passage["id"], passage["score"]) for passage in alone]


def test_a_damaged_corpus_is_mended_by_force(animals: Path) -> None:
    idx("build", animals)
    (store_path("animals") / "text_keys.u64").write_bytes(b"")
    assert "run 'idx build animals --force'" in error("search", "animals", "fox")
    assert "text_keys.u64 has 0 bytes" in idx("check", "animals", status=1).out
    idx("build", "animals", "--force")
    assert found("animals", "fox")[0]["id"] == "a"
    assert idx("check", "animals").out.splitlines() == ["passages: as built", "bm25: as built"]


def test_a_damaged_index_is_built_again_without_the_store(animals: Path) -> None:
    idx("build", animals, "--limit", 2)
    before = (store_path("animals@2") / "manifest.json").read_bytes()
    (index_ref("animals@2", "bm25").path / "lengths").write_bytes(b"")
    assert "run 'idx build animals@2 --bm25 --force'" in error("search", "animals@2", "fox")
    animals.unlink()  # the index needs the store, not its source
    idx("build", "animals@2", "--bm25", "--force")
    assert found("animals@2", "fox")[0]["id"] == "a"
    assert (store_path("animals@2") / "manifest.json").read_bytes() == before
    assert f"was built from {animals}, which is not there any more: name its source: idx build FILE" in error(
        "build", "animals@2", "--force"
    )


def test_what_an_interrupted_removal_left_is_no_corpus_and_can_be_removed(animals: Path) -> None:
    idx("build", animals)
    folder = store_path("animals").parent
    folder.rename(folder.with_name(".animals.old"))
    (folder.with_name("Strange folder") / "passages").mkdir(parents=True)
    (folder.with_name("Strange folder") / "passages" / "manifest.json").write_text("{}")
    assert "animals" not in idx("list").out
    idx("remove", "animals", "--yes")
    assert not folder.with_name(".animals.old").exists()


def test_nothing_is_removed_while_it_is_built(animals: Path) -> None:
    idx("build", animals)
    with lock(store_path("animals")):
        assert "is being worked on by process" in error("remove", "animals", "--yes")
    assert found("animals", "fox")[0]["id"] == "a"


def test_a_corpus_on_another_disk_behind_a_link_is_removed_whole(animals: Path, tmp_path: Path) -> None:
    idx("build", animals)
    folder = store_path("animals").parent
    folder.rename(tmp_path / "big disk")
    folder.symlink_to(tmp_path / "big disk")
    assert found("animals", "fox")[0]["id"] == "a"
    idx("remove", "animals", "--yes")
    assert not folder.is_symlink()
    assert not (tmp_path / "big disk").exists()


def test_strange_characters_in_ids_and_file_names_do_no_harm(tmp_path: Path) -> None:
    strange = tmp_path / os.fsdecode(b"new\nline \xff.jsonl")
    strange.write_text('{"id": "a\\nb", "text": "good"}\n{"id": "a\\nb", "text": "again"}\n')
    ran = idx("build", strange, "--name", "strange", "--on-error", "skip")
    assert "skipped: 1 record, listed in" in ran.err
    assert "passages (1 row), bm25 (1 row)" in idx("build", "strange", "--bm25").out
    assert [bad.line for bad in skipped_records("strange")] == [2]
    assert "give one with --name" in error("build", strange.rename(tmp_path / "日本.jsonl"))


def test_a_dry_run_says_what_the_build_would_say(animals: Path, tmp_path: Path) -> None:
    idx("build", animals, "--name", "zoo")
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "z", "text": "other"}\n')
    assert "was built from animals.jsonl" in error("build", other, "--name", "zoo", "--dry-run")
    needs = json.loads(idx("build", other, "--name", "zoo", "--bm25", "--force", "--dry-run", "--json").out)["estimates"]
    assert [need["step"] for need in needs] == ["passages", "bm25"]


def test_a_copied_corpus_can_be_searched_but_does_not_know_its_source(animals: Path) -> None:
    idx("build", "sample")
    shutil.copytree(store_path("sample").parent, store_path("copied").parent)
    assert found("copied", "liquid metal", "-k", 1)[0]["title"] == "Mercury (element)"
    assert "does not say which file it was built from" in error("build", "copied", "--bm25")


def test_remove_asks_on_standard_error(animals: Path) -> None:
    idx("build", animals)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run([*IDX, "remove", "animals", "--json"], input="y\n", capture_output=True, text=True, env=environment, check=True)
    assert json.loads(ran.stdout)["deleted"] == [str(store_path("animals").parent)]


@pytest.mark.parametrize("is_folder", [False, True])
def test_check_finds_an_index_without_its_manifest(animals: Path, is_folder: bool) -> None:
    idx("build", animals)
    index = index_ref("animals", "bm25").path
    (index / "manifest.json").unlink()
    if is_folder:
        (index / "manifest.json").mkdir()
    expected = f"{index} has no file manifest.json: run 'idx build animals --bm25'"
    assert idx("check", "animals", status=1).out.splitlines() == ["passages: as built", f"bm25: {expected}"]
    assert expected in error("search", "animals", "cat")
    idx("build", "animals")
    assert idx("check", "animals").out.splitlines() == ["passages: as built", "bm25: as built"]


def test_check_finds_a_flipped_bit_and_exits_with_1(animals: Path) -> None:
    idx("build", animals)
    file = store_path("animals") / "passages.lmdb"
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)
    ran = idx("check", "animals", "--json", status=1)
    problems = json.loads(ran.out)["problems"]
    assert "passages.lmdb is corrupt" in problems["passages"][0]
    assert problems["bm25"] == []


def test_a_damaged_corpus_does_not_break_the_list(animals: Path) -> None:
    idx("build", animals)
    (store_path("animals") / "text_keys.u64").write_bytes(b"")
    assert "text_keys.u64 has 0 bytes instead of 24" in idx("list").out
