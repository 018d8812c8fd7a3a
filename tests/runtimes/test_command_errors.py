"""One table of refused commands: each ends with exit status 2 and one line, and changes no file."""

from __future__ import annotations

import gzip
import os
import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.indexer.made_vectors import clustered, put_vectors
from tests.retrievers.retrieving import at_home
from tests.runtimes.command_line import Command
from wikidx.corpora.build import open_store
from wikidx.indexer.build import build_index

FILES = {
    "animals.jsonl": b'{"id": "a", "title": "Fox", "text": "The red fox digs a den."}\n',
    "日本.jsonl": b'{"id": "a", "text": "x"}\n',
    "bad.jsonl": b'{"id": "a", "title": "t", "text": "good"}\n{"id": 3}\n',
    "queries.txt": b"den\n",
    "fields.jsonl": b'{"title": "den"}\n',
    "ids.jsonl": b'{"text": "den", "_id": [1]}\n',
    "answers.jsonl": b'{"answer": "x"}\n',
    "latin.txt": b"caf\xe9\n",
    "numbers.jsonl": b'{"question": 3}\n{"question": null}\n',
    "blank.txt": b"\n\n",
    "cut.gz": gzip.compress(b"one\ntwo\n")[:-9],
    "long.gz": gzip.compress(bytes(65 << 20), 1),
    "script.jsonl": b'{"text": "x"}\n',
    "half.jsonl": b'{"yes": 0.5}\n',
    "predictions.json": b'{"sample-001": "x"}',
    "who.jsonl": b'{"id": "1", "question": "?"}\n',
    "qrels.txt": b"8 0 x 1\n",
    "elsewhere.run": b"sample-001 Q0 nowhere 1 2.0 t\nsample-001 Q0 elsewhere 2 1.0 t\n",
    "others.run": b"x Q0 element-80#0 1 2.0 t\nx Q0 elsewhere 2 1.0 t\n",
    "asked.jsonl": b"".join(b'{"id": "%d", "question": "%s", "golden_answers": ["x"]}\n' % pair for pair in ((1, b"Who?"), (2, b"When?"))),
    "given.jsonl": b'{"id": "1", "question": "Who?", "docs": [{"id": "a", "title": "Carmen", "text": "An opera."}]}\n',
    "twice.jsonl": b"".join(b'{"id": "%d", "question": "Who?", "docs": [{"id": "%d", "text": "t"}]}\n' % (n, n) for n in (1, 2)),
}
TABLE = re.findall(
    r"^\$ idx (.*)\n([Ee]rror: .*)$", (Path(__file__).parent / "command_errors.txt").read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.fixture(scope="module")
def folder(built_sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files, and a home in it; read-only, as a test finds out."""
    folder = tmp_path_factory.mktemp("refused")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    shutil.copytree(built_sample, folder / "home")
    with at_home(folder / "home"):
        store = open_store("sample")
        put_vectors(store, clustered(len(store), 384, 0), corpus="sample")
        build_index("sample", "minilm-int8", store)
    return folder


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """Stop a command that is not refused, such as a server."""
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of every file but locks and what is known of checkpoints."""
    found = ((path, path.stat()) for path in folder.rglob("*") if path.is_file() and path.parent.name not in (".locks", ".checksums"))
    return {str(path): (status.st_size, status.st_mtime_ns) for path, status in found}


@pytest.mark.parametrize(("line", "said"), TABLE, ids=[line for line, _ in TABLE])
def test_a_refusal_is_one_line_and_changes_nothing(
    line: str, said: str, folder: Path, idx: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("IDX_HOME", "home")
    monkeypatch.setenv("IDX_MIRROR", "http://127.0.0.1:9")  # nothing is downloaded
    before = state(folder)
    found = idx(*(os.fsdecode(word.encode().replace(rb"\xe9", b"\xe9")) for word in shlex.split(line.replace("\\", "\\\\"))), status=2)
    assert re.fullmatch(".*".join(map(re.escape, said.split("…"))), found), found
    assert state(folder) == before
