"""Files that users name, at every door: byte order marks, other encodings, pipes, devices, pointers, sizes, names."""

from __future__ import annotations

import gzip
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import wikidx.runtimes.experiments
import wikidx.runtimes.methods
from tests.conftest import ROOT
from wikidx.base.artifacts.home import utf8_path
from wikidx.base.errors import InputError, UnknownNameError
from wikidx.corpora.reading.compression import read_bytes
from wikidx.indexer.networks.checkpoints import locate, required_files
from wikidx.indexer.published.arrays import read_lines
from wikidx.indexer.published.formats import find_embeddings
from wikidx.retrievers.pipelines.saved import read_pipeline
from wikidx.runtimes.evaluation.prediction_files import read_prediction_records
from wikidx.runtimes.evaluation.retrieval.query_groups import read_groups
from wikidx.runtimes.evaluation.retrieval.trec import read_qrels, read_run
from wikidx.runtimes.execution.identity import model_identity
from wikidx.runtimes.experiments.files import read_experiment
from wikidx.runtimes.llms.base import Generate
from wikidx.runtimes.llms.gguf_files import find_gguf
from wikidx.runtimes.llms.naming import parse_spec
from wikidx.runtimes.llms.scripted import read_script
from wikidx.runtimes.methods.prompt_sets import read_prompt_set
from wikidx.runtimes.questions import find_questions, read_questions
from wikidx.runtimes.questions.queries import read_queries

Read = Callable[[Path], object]

_EXPERIMENT = (resources.files(wikidx.runtimes.experiments) / "refeed" / "table1.toml").read_text(encoding="utf-8")
_PROMPT = (resources.files(wikidx.runtimes.methods) / "prompts" / "rag" / "answer.txt").read_text(encoding="utf-8")

DOORS: list[tuple[Read, str]] = [
    (read_queries, "ocean\nwater\n"),
    (read_queries, '\n{"question": "ocean"}\nwater\n'),
    (read_queries, '\n[\n{"question": "ocean"}]\n'),
    (read_queries, "<top>\n<num> Number: 1\n<title> ocean\n</top>\n"),
    (read_queries, "1\tocean\n"),
    (read_questions, '{"q1": "ocean"}'),
    (read_questions, '"what is ""x"""\t[\'a\']\n'),
    (read_qrels, "q 0 a 1\n"),
    (read_qrels, "#\nq 0 a 1\n"),
    (read_qrels, '{"q": {"a": 1}}'),
    (read_run, "q Q0 a 1 2.5 t\n"),
    (read_groups, '{"id": "q", "queries": ["a"]}\n'),
    (lambda path: list(read_prediction_records(path)), '{"id": "1", "answer": "a"}\n{"id": "2", "answer": "b"}\n'),
    (lambda path: list(read_lines(io.BytesIO(path.read_bytes()), "ids")), "a\nb\n"),
    (lambda path: read_script(path)(Generate(prompt="?")), '{"text": "a"}\n'),
    (read_pipeline, 'pipeline = "bm25"\n'),
    (lambda path: read_experiment(str(path)), _EXPERIMENT),
    (lambda path: read_prompt_set("rag", str(path.parent)), _PROMPT),
]
TOML: list[Read] = [read_pipeline, lambda path: read_experiment(str(path))]


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """Stop a test that hangs."""
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


def test_a_byte_order_mark_changes_nothing(tmp_path: Path) -> None:
    """Editors on Windows write it."""
    file = tmp_path / "answer.txt"
    for read, content in DOORS:
        file.write_text(content, encoding="utf-8")
        expected = read(file)
        file.write_text("\ufeff" + content, encoding="utf-8")
        assert read(file) == expected, content


@pytest.mark.parametrize("read", [read_queries, read_questions, read_qrels, read_run, read_groups])
def test_utf_16_is_refused(tmp_path: Path, read: Read) -> None:
    for encoded in ("ocean 0 a 1\n".encode("utf-16"), gzip.compress('{"id": "1", "query": "ocean"}\n'.encode("utf-16"))):
        (tmp_path / "file").write_bytes(encoded)
        with pytest.raises(InputError, match="line 1: .*UTF-8"):
            read(tmp_path / "file")


@pytest.mark.parametrize("read", [*TOML, read_script, lambda path: model_identity(parse_spec(f"scripted:{path}"), "cpu")])
def test_pipes_and_devices_are_refused(read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the paths of tests may be longer than what a message shows
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "device.toml").symlink_to("/dev/zero")
    for name in ("pipe.toml", "device.toml"):
        with pytest.raises((InputError, UnknownNameError), match=name):
            read(Path(name))


@pytest.mark.parametrize("read", TOML)
def test_a_file_in_toml_has_a_limit(read: Read, tmp_path: Path) -> None:
    for content, reason in (
        ("#" * 1_000_001, "has more than 1,000,000 bytes"),
        ("a" + ".a" * 20_000 + " = 1", "a name of more than 100 parts"),
        ("a = " + "[" * 20_000, "is not TOML"),
    ):
        (tmp_path / "some.toml").write_text(content)
        with pytest.raises(InputError, match=reason):
            read(tmp_path / "some.toml")


@pytest.mark.parametrize("read", [read_queries, lambda path: find_questions(str(path))])
def test_a_file_without_a_size_is_not_read(read: Read) -> None:
    """Some of them wait for ever, as the kernel's log does."""
    with pytest.raises(InputError, match="/proc/version is empty"):
        read(Path("/proc/version"))


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
def test_a_pointer_of_git_lfs_is_named(name: str, open_path: Read, tmp_path: Path) -> None:
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
