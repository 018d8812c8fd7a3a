from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from corpora.build import store_path
from tests.conftest import ROOT

IDX = [sys.executable, "-c", "from runtimes.cli import main; main()"]


def idx(*arguments: object, status: int = 0, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own; a traceback is never acceptable."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    ran = subprocess.run([*IDX, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, env=environment, check=False)
    assert "Traceback" not in ran.stderr
    assert ran.returncode == status, ran.stderr
    return ran


def error(*arguments: object, cwd: Path = ROOT) -> str:
    """Run what must fail with exit status 2, and return the error, which is one line."""
    *_, last = idx(*arguments, status=2, cwd=cwd).stderr.splitlines()
    assert last.startswith("error: ")
    return last.removeprefix("error: ")


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
    passages: list[dict[str, Any]] = json.loads(idx("search", *arguments, "--json").stdout)["passages"]
    return passages


def test_help_answers_at_once() -> None:
    assert "search" in idx("--help").stdout
    started = time.perf_counter()
    idx("--help")
    assert time.perf_counter() - started < 3  # a gross bound; the figure is measured in benchmarks
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, runtimes.cli; print(' '.join(sys.modules))"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert {"numpy", "numba", "torch", "lmdb", "rich.progress"} & set(loaded.stdout.split()) == set()


def test_a_file_becomes_a_corpus_that_is_listed_searched_checked_and_removed(animals: Path) -> None:
    assert "built 'animals': passages (3 rows), bm25 (3 rows)" in idx("build", animals).stdout
    listed = {entry["name"]: entry["built"] for entry in json.loads(idx("list", "--json").stdout)["corpora"]}
    assert [(part["name"], part["rows"]) for part in listed["animals"]] == [("passages", 3), ("bm25", 3)]
    assert listed["wiki2018"] == []
    assert "Fox  [a]" in idx("search", "animals", "red fox").stdout
    assert idx("check", "animals").stdout.splitlines() == ["passages: as built", "bm25: as built"]
    idx("remove", "animals", "--index", "bm25", "--yes")
    assert "idx build animals --bm25" in error("search", "animals", "fox")
    idx("remove", "animals", "--yes")
    assert not store_path("animals").parent.exists()


def test_several_queries_are_one_group(animals: Path) -> None:
    idx("build", animals, "--name", "zoo")
    passages = found("zoo", "den", "ship", "-k", "2")
    assert sorted(passage["id"] for passage in passages) == ["a", "c"]
    assert [list(passage) for passage in passages] == [["rank", "score", "id", "row", "title", "text", "found"]] * 2
    assert {entry["query"] for passage in passages for entry in passage["found"]} == {"den", "ship"}


def test_no_hits_and_empty_queries_find_nothing(animals: Path) -> None:
    idx("build", animals)
    assert idx("search", "animals", "zebra").stdout == "no passage found\n"
    assert found("animals", "") == []


def test_a_dry_run_builds_nothing(animals: Path) -> None:
    planned = idx("build", animals, "--dry-run").stderr
    assert [line.split()[0] for line in planned.splitlines()] == ["corpus", "to", "passages", "bm25"]
    assert not store_path("animals").exists()


def test_an_index_is_added_to_a_built_corpus_by_name(animals: Path) -> None:
    idx("build", animals, "--limit", 2)
    assert "bm25 (2 rows)" in idx("build", "animals@2", "--bm25").stdout


def test_bad_records_are_named_or_left_out(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": "a", "title": "t", "text": "good"}\n{"id": "a", "title": "t", "text": "again"}\n{"id": 3}\n')
    message = error("build", bad)
    assert f"{bad}, line 3: the field 'text' is missing" in message
    assert "--on-error skip" in message
    ran = idx("build", bad, "--on-error", "skip")
    assert "2 records were left out" in ran.stderr
    assert (store_path("bad") / "skipped.tsv").read_text().splitlines() == [
        f"{bad}\t3\tthe field 'text' is missing",
        f"{bad}\t2\tthe id 'a' is already that of record number 1",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "wiki2081"], "unknown corpus (and no file of that name is here) 'wiki2081': did you mean 'wiki2018'"),
        (["build", "nothing/here.jsonl"], "there is no file nothing/here.jsonl"),
        (["build", "{file}", "--name", "../x"], "'../x' cannot be a name"),
        (["build", "{file}", "--name", "passages"], "'passages' is a reserved name"),
        (["build", "{file}", "--name", "sample"], "'sample' is the name of a corpus that idx knows"),
        (["build", "{file}", "--encoder", "minilmm"], "unknown index 'minilmm': did you mean 'minilm'"),
        (["build", "{file}", "--format", "json"], "unknown format 'json': did you mean 'jsonl'"),
        (["build", "{file}", "--split", "word"], "unknown splitting rule 'word': did you mean 'words'"),
        (["build", "{file}", "--words", "0"], "--words 0: a passage needs at least one word"),
        (["build", "{file}", "--limit", "0"], "--limit 0: at least one passage is needed"),
        (["build", "{file}", "--on-error", "ignore"], "--on-error ignore: say fail or skip"),
        (["build", "{file}", "--source", "x"], "--source is for known corpora"),
        (["build", "sample", "--name", "x"], "--name is for corpora from a file"),
        (["build", "sample", "--source", "x"], "the corpus 'sample' ships with idx: --source does not apply"),
        (["build", "wiki2018", "--source", "nowhere.tsv"], "there is no file nowhere.tsv"),
        (["build", "{folder}"], "is a directory: name one file"),
        (["search", "nothing", "x"], "run 'idx build nothing'"),
        (["search", "../x", "x"], "'../x' cannot be a name"),
        (["search", "nothing", "x", "--merge", "mean"], "unknown merge rule 'mean'"),
        (["check", "nothing"], "run 'idx build nothing'"),
        (["remove", "nothing", "--yes"], "unknown corpus"),
        (["remove", "..", "--yes"], "'..' cannot be a name"),
    ],
)
def test_mistakes_are_one_line(animals: Path, arguments: list[str], message: str) -> None:
    assert message in error(*(argument.format(file=animals, folder=animals.parent) for argument in arguments))


def test_a_local_file_called_sample_does_not_hide_the_corpus(tmp_path: Path) -> None:
    (tmp_path / "sample").write_text('{"id": "a", "text": "x"}\n')
    planned = idx("build", "sample", "--dry-run", cwd=tmp_path).stderr
    assert "for the file write ./sample" in planned
    assert "784 passages" in planned
    assert "'sample' is the name of a corpus that idx knows" in error("build", "./sample", cwd=tmp_path)


def test_a_name_already_built_from_another_file_is_kept(animals: Path, tmp_path: Path) -> None:
    idx("build", animals, "--name", "zoo")
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "z", "text": "other"}\n')
    assert "was built from animals.jsonl" in error("build", other, "--name", "zoo")
    assert found("zoo", "fox")[0]["id"] == "a"
    idx("build", other, "--name", "zoo", "--force")
    assert found("zoo", "other")[0]["id"] == "z"


def test_check_finds_a_flipped_bit_and_exits_with_1(animals: Path) -> None:
    idx("build", animals)
    file = store_path("animals") / "passages.lmdb"
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)
    ran = idx("check", "animals", "--json", status=1)
    problems = json.loads(ran.stdout)["problems"]
    assert "passages.lmdb is damaged" in problems["passages"][0]
    assert problems["bm25"] == []


def test_a_damaged_corpus_does_not_break_the_list(animals: Path) -> None:
    idx("build", animals)
    (store_path("animals") / "text_keys.u64").write_bytes(b"")
    assert "text_keys.u64 has 0 bytes instead of 24" in idx("list").stdout
