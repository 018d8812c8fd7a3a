"""An imported Lucene index, searched by Pyserini; and what is said where Pyserini or its Java is missing."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.conftest import ROOT, corpus_of, with_checksum
from tests.indexer.real_collections import dpr_union
from tests.lucene.jvm import require_java
from tests.lucene.oracle import Oracle, index_passages
from wikidx.base.errors import ArtifactCorrupt, InputError, MissingExtraError
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.build import build_index, open_index
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.indexes.lucene.index import LuceneIndex, lucene_errors
from wikidx.indexer.indexes.lucene.library import JavaError, call_in_java
from wikidx.indexer.published.lucene import import_lucene

pytestmark = pytest.mark.slow  # Java, and Pyserini's import: a minute

require_java()


class Imported(NamedTuple):
    """An index over real passages, questions for it, what Lucene itself finds, and its home."""

    passages: list[Passage]
    questions: list[str]
    lucene: LuceneIndex
    oracle: Oracle
    home: Path


def opened(store: PassageStore) -> LuceneIndex:
    index = open_index("made", "lucene", store)
    assert isinstance(index, LuceneIndex)
    return index


@pytest.fixture(scope="module")
def union(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    """The first 2,000 passages of dpr_union, every tenth of them a second time under another id."""
    collection = dpr_union(shared_data)
    passages = collection.passages[:2000]
    passages += [passage._replace(id=f"copy of {passage.id}") for passage in passages[::10]]
    folder = tmp_path_factory.mktemp("union")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(folder / "home"))
        build_store(corpus_of(passages, "made"), StoreOptions())
        import_lucene("made", index_passages(passages, folder / "source", own_ids=True), open_store("made"))
        oracle = Oracle(index_passages(passages, folder / "oracle"))
        return Imported(passages, [*collection.queries.values()], opened(open_store("made")), oracle, folder / "home")


@pytest.fixture
def copied(union: Imported, home: Path) -> PassageStore:
    """The corpus and index of ``union`` in the home of this test."""
    shutil.copytree(union.home, home)
    return open_store("made")


@pytest.mark.parametrize("k", [1, 10, 100, 3000])
def test_results_are_lucenes_up_to_the_rounding_of_pyserini(union: Imported, k: int) -> None:
    queries = [
        *union.questions[::60],
        "river river of the rivers",
        "the",
        "",
        "film",
        "\ud800",
        "river\0bank",
        " ".join(union.questions * 2),
    ]
    found, expected = union.lucene.search(queries, k), union.oracle.search(queries, k)
    assert ((found.rows < 0) == (expected.rows < 0)).all()
    known = expected.rows >= 0
    np.testing.assert_allclose(found.scores[known], expected.scores[known], rtol=1e-6, atol=1e-4 + 1e-6 * k)
    assert (np.diff(found.scores[np.isfinite(found.scores).all(axis=1)], axis=1) <= 0).all()
    for line, mine in enumerate(found.rows):
        inside = {row for row, score in zip(expected.rows[line], expected.scores[line], strict=True) if score > expected.scores[line, -1]}
        assert inside <= set(mine.tolist())
        assert len({row for row in mine.tolist() if row >= 0}) == (mine >= 0).sum()


def test_none_is_built(union: Imported, copied: PassageStore) -> None:
    for force in (False, True):
        with pytest.raises(InputError, match="idx builds no Lucene index: 'idx import lucene PATH --corpus NAME' imports one"):
            build_index("made", "lucene", copied, force=force)
    assert len(opened(copied)) == len(union.passages)


def test_files_that_lucene_cannot_read_are_corruption(copied: PassageStore, union: Imported) -> None:
    (file,) = (index_ref("made", "lucene").path / "index").glob("*.tim")
    whole = file.read_bytes()
    file.write_bytes(whole[:200] + b"\xff" * (len(whole) - 400) + whole[-200:])
    with pytest.raises(ArtifactCorrupt, match="Lucene cannot read .*'idx check' says which files are corrupt"):
        opened(copied).search(union.questions[:100], 10)
    file.write_bytes(whole[:-5])
    with pytest.raises(ArtifactCorrupt, match=r"has [\d,]+ bytes instead of"):
        opened(copied)


def test_memory_that_runs_out_is_not_called_corruption(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="OutOfMemoryError") as raised, lucene_errors(tmp_path):
        call_in_java(lambda _: sys.modules["jnius"].autoclass("java.util.ArrayList")(2_000_000_000))
    assert "\n" not in str(raised.value)


def test_rows_and_counts_that_are_not_the_corpuss_are_corruption(copied: PassageStore) -> None:
    folder = index_ref("made", "lucene").path
    rows = np.fromfile(folder / "rows.i32", dtype="<i4")
    for wrong in (-2, 2200):
        np.where(np.arange(len(rows)) == 7, wrong, rows).astype("<i4").tofile(folder / "rows.i32")
        with pytest.raises(ArtifactCorrupt, match="has rows outside the corpus"):
            opened(copied)
    rows.tofile(folder / "rows.i32")
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["sha256"]
    manifest["counts"]["documents"] -= 1
    (folder / "manifest.json").write_text(with_checksum(manifest))
    with pytest.raises(ArtifactCorrupt, match="holds 2200 documents and 2200 rows"):
        opened(copied)


def test_an_index_that_is_no_longer_used_lets_go_of_its_files(union: Imported, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDX_HOME", str(union.home))

    def n_maps() -> int:
        call_in_java(lambda _: None)  # after whatever is being closed
        return sum(str(union.home) in line for line in Path("/proc/self/maps").read_text().splitlines())

    store, counts = open_store("made"), list[int]()
    for _ in range(6):
        index = opened(store)
        assert index.search(["france"], 5).rows.tolist() == union.lucene.search(["france"], 5).rows.tolist()
        del index
        gc.collect()
        counts.append(n_maps())
    assert counts[0] == counts[-1] > 0


def python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, which has no Java yet."""
    inherited = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    path = os.pathsep.join(filter(None, [environment.pop("FIRST", ""), str(ROOT), inherited.get("PYTHONPATH", "")]))
    command, variables = [sys.executable, "-W", "ignore", "-c", script], {**inherited, **environment, "PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=variables, check=False, timeout=240)


LOADING = """
from wikidx.base.errors import IdxError
from wikidx.indexer.indexes.lucene.library import call_in_java
try:
    call_in_java(lambda pyserini: None)
except IdxError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("java", "message"),
    [
        (None, "none was found ("),
        ("echo 'openjdk version \"17.0.15\"'", "/java is version 17: install one and set JAVA_HOME"),
        ("echo Module jdk.incubator.vector not found; exit 1", "/java says: Module jdk.incubator.vector not found: install one"),
    ],
)
def test_a_java_that_pyserini_cannot_use_is_told_in_one_line(java: str | None, message: str, tmp_path: Path) -> None:
    if java is not None:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").write_text(f"#!/bin/sh\n{java}\n")
        (tmp_path / "bin" / "java").chmod(0o755)
    ran = python(LOADING, JAVA_HOME=str(tmp_path))
    (line,) = ran.stdout.splitlines()
    assert line.startswith("Pyserini needs Java 21 or newer, with the module jdk.incubator.vector; ")
    assert message in line
    assert ran.stderr == ""


def test_a_pyserini_that_cannot_be_imported_is_told_in_one_line(tmp_path: Path) -> None:
    """Version 2 fetches tables when it is imported."""
    (tmp_path / "pyserini").mkdir()
    (tmp_path / "pyserini" / "__init__.py").write_text("raise OSError('no table at https://there:\\nit is not reached')")
    ran = python(LOADING, FIRST=str(tmp_path))
    assert (ran.stdout, ran.stderr) == ("Pyserini cannot be loaded: OSError: no table at https://there:\n", "")


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyserini", None)
    with pytest.raises(MissingExtraError, match=r"Lucene needs the extra 'lucene': pip install .*\[lucene\]'"):
        call_in_java(lambda _: None)


AFTER_LOADING = """
import os, signal, sys, time
before = dict(os.environ)
from wikidx.base.errors import IdxError
from wikidx.indexer.indexes.lucene.library import call_in_java
call_in_java(lambda pyserini: print(pyserini.__name__, flush=True))
print(before == dict(os.environ), flush=True)
if os.fork() == 0:
    try:
        call_in_java(lambda pyserini: None)
    except IdxError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_the_process_with_java_stays_pythons() -> None:
    """No key is left in the environment, a forked child is told and does not wait, Ctrl-C is Python's."""
    lines = python(AFTER_LOADING).stdout.splitlines()
    assert [*lines[:2], lines[-1]] == ["pyserini.search.lucene", "True", "interrupted"]
    assert "does not outlive the fork" in lines[2]
    assert "'spawn'" in lines[2]
