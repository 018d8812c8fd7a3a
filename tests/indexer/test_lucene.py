"""An imported Lucene index, searched by Pyserini; and what is said where Pyserini or its Java is missing."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT, corpus_of
from tests.lucene.jvm import require_java
from tests.lucene.oracle import index_passages
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


def opened(store: PassageStore) -> LuceneIndex:
    index = open_index("made", "lucene", store)
    assert isinstance(index, LuceneIndex)
    return index


@pytest.fixture(scope="module")
def imported(made_passages: list[Passage], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with passages and an index over them."""
    home = tmp_path_factory.mktemp("imported") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(home))
        build_store(corpus_of(made_passages, "made"), StoreOptions())
        import_lucene("made", index_passages(made_passages, home / "source", own_ids=True), open_store("made"))
    return home


@pytest.fixture
def copied(imported: Path, home: Path) -> PassageStore:
    """The corpus and the index in the home of this test."""
    shutil.copytree(imported, home)
    return open_store("made")


def test_none_is_built(copied: PassageStore) -> None:
    for force in (False, True):
        with pytest.raises(InputError, match="idx builds no Lucene index: 'idx import lucene PATH --corpus NAME' imports one"):
            build_index("made", "lucene", copied, force=force)
    assert len(opened(copied)) == len(copied)


def test_files_that_lucene_cannot_read_are_corruption(copied: PassageStore) -> None:
    (file,) = (index_ref("made", "lucene").path / "index").glob("*.tim")
    whole = file.read_bytes()
    file.write_bytes(whole[:200] + b"\xff" * (len(whole) - 400) + whole[-200:])
    with pytest.raises(ArtifactCorrupt, match="Lucene cannot read .*'idx check' says which files are corrupt"):
        opened(copied).search([str(number) for number in range(2_900)], 10)
    file.write_bytes(whole[:-5])
    with pytest.raises(ArtifactCorrupt, match=r"has [\d,]+ bytes instead of"):
        opened(copied)


def test_memory_that_runs_out_is_not_called_corruption(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="OutOfMemoryError") as raised, lucene_errors(tmp_path):
        call_in_java(lambda _: sys.modules["jnius"].autoclass("java.util.ArrayList")(2_000_000_000))
    assert "\n" not in str(raised.value)


def test_rows_of_another_order_are_corruption(copied: PassageStore) -> None:
    file = index_ref("made", "lucene").path / "rows.i32"
    np.roll(np.fromfile(file, dtype="<i4"), 1).tofile(file)
    with pytest.raises(ArtifactCorrupt, match=r"rows\.i32 or its checksums in sums are corrupt"):
        opened(copied)


def test_an_unused_index_lets_go_of_its_files(copied: PassageStore, home: Path) -> None:
    def n_maps() -> int:
        call_in_java(lambda _: None)  # after whatever is being closed
        return sum(str(home) in line for line in Path("/proc/self/maps").read_text().splitlines())

    counts = list[int]()
    for _ in range(6):
        index = opened(copied)
        assert (index.search(["passage"], 5).rows >= 0).all()
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
def test_an_unusable_java_is_told_in_one_line(java: str | None, message: str, tmp_path: Path) -> None:
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
