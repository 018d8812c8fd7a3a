"""Files that stand for others, and file names outside the locale's characters, at every door."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from wikidx.base.artifacts.home import utf8_path
from wikidx.base.errors import InputError
from wikidx.corpora.reading.compression import read_bytes
from wikidx.indexer.networks.checkpoints import locate, required_files
from wikidx.indexer.published.formats import find_embeddings
from wikidx.runtimes.llms.gguf_files import find_gguf

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 64559075373\n"


@pytest.mark.parametrize(
    ("name", "open_path"),
    [
        ("corpus.jsonl.gz", read_bytes),  # as all readers of texts
        ("e5_Flat.index", find_embeddings),
        ("folder/wiki_passages_1", lambda path: find_embeddings(path.parent)),
        ("ids.txt", lambda path: find_embeddings(path.parent / "ok.npy", ids=str(path))),
        ("model.safetensors", lambda path: locate(path.parent, "mine", required_files())),
        ("2_Dense/model.safetensors", lambda path: locate(path.parent.parent, "mine", required_files())),
        ("model.gguf", lambda path: find_gguf(str(path))),
        ("llm/model.safetensors", lambda path: find_gguf(str(path.parent))),
    ],
)
def test_a_pointer_of_git_lfs_is_named(name: str, open_path: Callable[[Path], object], tmp_path: Path) -> None:
    np.save(tmp_path / "ok.npy", np.ones((1, 4), dtype=np.float32))
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(POINTER)
    with pytest.raises(InputError, match=rf"{name} is a pointer of git LFS, not the file itself: run 'git lfs pull' there"):
        open_path(path)


_BUILD = """
import numpy, sys
from pathlib import Path
from pyarrow import Table, parquet
from wikidx.runtimes.cli import main
folder = Path(sys.argv[1])
parquet.write_table(Table.from_pydict({"id": ["1", "2"], "v": [[1.0] * 8, [2.0] * 8]}), str(folder.parent / "v.parquet"))
(folder / "v.parquet").write_bytes((folder.parent / "v.parquet").read_bytes())
(folder / "c.jsonl").write_text('{"id": "1", "text": "a river"}\\n{"id": "2", "text": "a lake"}\\n')
for line in ("build {}/c.jsonl --name c --bm25", "import embeddings {}/v.parquet --corpus c --encoder none",
             "build c --encoder none --index hnsw", "build c --encoder none --index ivf", "search c river --retriever bm25"):
    sys.argv = ["idx", *(word.format(folder) for word in line.split())]
    try:
        main()
    except SystemExit as stopped:
        assert not stopped.code, line
"""


def test_file_names_may_have_characters_outside_the_locales(tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="needs the extra 'dense'")
    pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
    (folder := tmp_path / "données").mkdir()
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": str(ROOT), "IDX_HOME": str(folder / "home")}
    ran = subprocess.run([sys.executable, "-c", _BUILD, folder], capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert (ran.returncode, "Traceback" in ran.stderr, "a river" in ran.stdout) == (0, False, True), ran.stderr


def test_a_name_that_is_not_utf8_is_refused_by_libraries_that_need_it() -> None:
    assert utf8_path(Path("données")) == "données"
    with pytest.raises(InputError, match=r"b'a\\xff' is not UTF-8: rename it"):
        utf8_path(Path(os.fsdecode(b"a\xff")))
