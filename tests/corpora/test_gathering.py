"""Folders, patterns, archives and several files are one corpus, whose ids are paths; what is left out is counted."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import wikidx as idx
from tests.corpora.made_documents import WRITERS, make_tree, text_of
from wikidx.base.artifacts.home import home
from wikidx.base.errors import ArtifactMismatch, InputError
from wikidx.corpora import unpacking
from wikidx.corpora.build import StoreOptions, build_store, open_store, skipped_records, store_manifest
from wikidx.corpora.passage import LocatedPassage, OnBad
from wikidx.corpora.resolving import resolve

N = 28


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    make_tree(tmp_path / "tree", N)
    return tmp_path / "tree"


def ids(name: str) -> list[str]:
    return [passage.id for passage in open_store(name).get_many(range(len(open_store(name))))]


def build(*sources: Path | str, name: str | None = None, options: StoreOptions = StoreOptions()) -> str:  # noqa: B008
    given = str(sources[0]) if len(sources) == 1 else [*map(str, sources)]
    resolved = resolve(given, name=name, options=options)
    build_store(resolved.corpus, resolved.options)
    return resolved.name


def test_a_tree_of_fourteen_formats_is_built_and_found(tree: Path, home: Path) -> None:
    with idx.build(tree, show_progress=False) as searcher:
        for n in range(N):
            found = searcher.search([f"token{n}"], k=3)[0]
            assert {text_of(n) in " ".join(hit.text.split()) for hit in found} == {True}
            suffix = list(WRITERS)[n % len(WRITERS)]
            expected = {"": f"w{n}#0", **dict.fromkeys(("csv", "tsv", "json", "jsonl", "parquet", "feather"), f"{n}-0")}
            assert found[0].id == expected.get(suffix, f"part{n % 3}/d{n}.{suffix}#0")
    manifest = store_manifest("tree")
    assert list(manifest.recipe.inputs) == [f"{N} files"]
    assert manifest.sources == {"source 1": str(tree)}
    listed = [json.loads(line)["file"] for line in (home / "tree" / "passages" / "files.jsonl").read_text().splitlines()]
    assert sorted(listed) == sorted(os.path.relpath(path, tree) for path in tree.rglob("*") if path.is_file())


def test_the_same_folder_gives_the_same_store_and_another_is_refused(tree: Path) -> None:
    build(tree)
    first, before = store_manifest("tree"), ids("tree")
    build(tree)
    assert store_manifest("tree") == first
    build(tree, options=StoreOptions(rebuild=True))
    assert (store_manifest("tree").fingerprint, ids("tree")) == (first.fingerprint, before)
    build("tree")
    (tree / "part0" / "new.txt").write_text("more")
    with pytest.raises(ArtifactMismatch, match=r"'tree' was built from 28 files .sha256 .*, not from 29 files"):
        build(tree)
    idx.build("tree", show_progress=False).close()  # by its name it is used as it is
    build(tree, options=StoreOptions(replace=True))
    assert set(ids("tree")) - set(before) == {"part0/new.txt#0"}


def test_what_is_left_out_is_named_and_counted(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("secret words")
    (tree / "link.txt").symlink_to(tmp_path / "outside.txt")
    (tree / "inner.md").symlink_to(next(tree.rglob("*.md")))
    (tree / "up").symlink_to(tmp_path, target_is_directory=True)
    (tree / ".git").mkdir()
    (tree / ".git" / "x.txt").write_text("hidden")
    for name in ("a.py", "config.json", "b.bin"):
        (tree / name).write_text('{"a": 1}')
    (tree / "empty.txt").touch()
    os.mkfifo(tree / "pipe.txt")
    corpus = resolve(str(tree)).corpus
    assert {"link.txt", ".git/x.txt", "up/outside.txt", "a.py"}.isdisjoint(corpus.paths)
    assert "inner.md" in corpus.paths
    for part in (
        "1 hidden (.git)",
        "1 links out of the folder (link.txt)",
        "1 links to folders (up)",
        "1 empty (empty.txt)",
        "1 that are no files (pipe.txt)",
        "3 of other kinds (a.py, b.bin, config.json)",
    ):
        assert part in corpus.summary


def test_a_file_that_cannot_be_read_stops_the_build_or_is_counted(tree: Path) -> None:
    (tree / "bad.pdf").write_bytes(b"%PDF-1.4 no more")
    (tree / "bad.txt").write_bytes(b"text\0")
    with pytest.raises(InputError, match=r"bad.pdf is no PDF .*; or leave out what cannot be read, with --on-error skip$"):
        build(tree)
    build(tree, options=StoreOptions(skip_bad=True))
    assert [(Path(one.file).name, one.line) for one in skipped_records("tree")] == [("bad.pdf", 0), ("bad.txt", 0)]
    assert store_manifest("tree").counts["skipped"] == 2


def test_names_of_fields_are_those_of_every_table_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "rooms").mkdir()
    (tmp_path / "rooms" / "rooms.csv").write_text("room;description\nA1;A quiet room\nB2;The hall\n")
    (tmp_path / "rooms" / "notes.md").write_text("# Notes\n\nThe key is with the porter.\n")
    with idx.build(tmp_path / "rooms", title_field="room", text_field="description", show_progress=False) as searcher:
        (best,) = searcher.search(["hall"], k=1)[0]
        assert (best.id, best.title, best.text) == ("rooms.csv:3", "B2", "The hall")
        assert searcher.search(["porter"], k=1)[0][0].id.startswith("notes.md")


def test_several_sources_and_patterns(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "one.md").write_text("# One\n\nword")
    build(f"{tree}/**/*.md", tmp_path / "one.md", name="two")
    assert ids("two") == ["tree/part0/d15.md#0", "tree/part1/d1.md#0", "one.md#0"]
    with idx.build([tree, tmp_path / "one.md"], name="all", show_progress=False) as searcher:
        assert searcher.search(["token3"], k=1)[0][0].id == "tree/part0/d3.html#0"
    with pytest.raises(InputError, match="2 sources, .* and others: give the corpus a name with --name"):
        build(tree, tmp_path / "one.md")
    with pytest.raises(InputError, match=r"no file matches .*\*.doc"):
        build(f"{tree}/*.doc")
    with pytest.raises(InputError, match="there is no file"):
        build(tree, tmp_path / "none.md", name="three")
    (tmp_path / "void").mkdir()
    with pytest.raises(InputError, match="void: no file there can be read"):
        build(tmp_path / "void")


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_an_archive_is_its_files(tree: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"packed.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(tree.rglob("*.*")):
                archive.write(file, file.relative_to(tree))
    else:
        with tarfile.open(path, "w:gz" if "gz" in kind else "w") as tar:
            tar.add(tree, ".")
    name = build(path)
    assert name == "packed"
    build(path)
    expected = build(tree, name="expected")
    assert set(ids(name)) == set(ids(expected)) - ({f"w{n}#0" for n in (13, 27)} if kind == "zip" else set())


@pytest.mark.parametrize("member", ["../out.txt", "/abs.txt", "a/../../out.txt", "..\\out.txt"])
def test_no_member_leaves_the_folder(tmp_path: Path, member: str) -> None:
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr(member, "text")
    with pytest.raises(InputError, match="bad.zip has a member .*, which would leave its folder"):
        build(tmp_path / "bad.zip")
    with tarfile.open(tmp_path / "bad.tar", "w") as tar:
        info = tarfile.TarInfo("link.txt")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(InputError, match="no file there can be read"):
        build(tmp_path / "bad.tar")
    assert not [path for path in (home() / "downloads").rglob("*") if path.is_file()]
    assert not (tmp_path / "out.txt").exists()


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "_FREE_BYTES", 1 << 20)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", bytes(20 << 20))
    with pytest.raises(InputError, match="bomb.zip expands to over 200 times its size"):
        build(tmp_path / "bomb.zip")
    (tmp_path / "cut.zip").write_bytes((tmp_path / "bomb.zip").read_bytes()[:-30])
    with pytest.raises(InputError, match="cut.zip cannot be unpacked"):
        build(tmp_path / "cut.zip")


def test_a_file_that_changes_while_it_is_read_is_refused_also_if_bad_ones_are_skipped(tree: Path) -> None:
    resolved = resolve(str(tree), options=StoreOptions(skip_bad=True))
    read = resolved.corpus.read
    last = list(resolved.corpus.paths.values())[-1]

    def changing(files: Sequence[Path], on_bad: OnBad) -> Iterator[LocatedPassage]:
        last.write_bytes(last.read_bytes() + b" ")
        yield from read(files, on_bad)

    object.__setattr__(resolved.corpus, "read", changing)
    with pytest.raises(InputError, match="has changed while it was read"):
        build_store(resolved.corpus, resolved.options)


@pytest.mark.slow
def test_a_build_of_300_documents_that_is_killed_at_random_moments_is_resumed(tmp_path: Path, home: Path) -> None:
    make_tree(tmp_path / "tree", 300)
    build(tmp_path / "tree", name="expected")
    draw = random.Random(7)
    command = [sys.executable, "-c", "from wikidx.runtimes.cli import main; main()", "build", str(tmp_path / "tree")]
    for _ in range(8):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={**os.environ, "IDX_HOME": str(home)})
        time.sleep(draw.uniform(1, 6))
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "IDX_HOME": str(home)})
    assert store_manifest("tree").fingerprint == store_manifest("expected").fingerprint
    assert ids("tree") == ids("expected")
