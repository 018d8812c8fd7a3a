"""From Python values to rankings: what is built, under which name, and how long it stays."""

from __future__ import annotations

import gc
import gzip
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow
import pytest

import wikidx as idx
from tests.conftest import ROOT, read_rows
from wikidx.base import errors, progress_display
from wikidx.base.artifacts.building import lock
from wikidx.base.artifacts.home import corpus_names
from wikidx.base.errors import ArtifactMismatch, InputError
from wikidx.corpora.build import open_store
from wikidx.corpora.known.python_values import GivenPassage
from wikidx.corpora.passage import Passage
from wikidx.corpora.resolving import built_names, resolve
from wikidx.indexer.build_spec import BuildSpec
from wikidx.indexer.planning import Build

CAPITALS = ["Thimphu is the capital of Bhutan.", "Lima is the capital of Peru."]


def names(home: Path) -> set[str]:
    """The names of everything in the home, and of the locks of corpora without a name."""
    return {path.name for path in home.iterdir()} - {".locks"} | {path.name for path in (home / ".locks").glob("unnamed-*")}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"id": "a", "title": "Lima", "text": "Capital of Peru."}, Passage("a", "Lima", "Capital of Peru.")),
        ({"id": 7, "text": "Capital of Peru.", "url": "unused"}, Passage("7", "", "Capital of Peru.")),
        ({"text": "Capital of Peru."}, Passage("0", "", "Capital of Peru.")),
        ({"title": "Peru", "section": "Capital", "text": "Lima."}, Passage("0", "Peru: Capital", "Lima.")),
        ({"_id": "b", "text": "Capital of Peru.", "docid": "whole"}, Passage("b", "", "Capital of Peru.")),
        ({"id": np.int64(7), "title": float("nan"), "section": np.float32("nan"), "text": "Lima."}, Passage("7", "", "Lima.")),
        ({"id": "c", "contents": '"Lima"\nCapital of Peru.'}, Passage("c", "Lima", "Capital of Peru.")),
        ({"text": "Capital of Peru.", "Doc_ID": 7}, Passage("7", "", "Capital of Peru.")),
        ({"body": "Capital of Peru.", "ID": "d1", "headline": "Lima"}, Passage("d1", "Lima", "Capital of Peru.")),
        (Passage("d", "Lima", "Capital of Peru."), Passage("d", "Lima", "Capital of Peru.")),
    ],
    ids=str,
)
def test_a_record_may_have_the_fields_of_any_json_format(given: Mapping[str, object] | Passage, expected: Passage) -> None:
    with idx.build(iter([given])) as searcher:
        assert searcher.passage(expected.id) == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "there are no passages: give at least one"),
        ({"a": "Lima."}, "the passages are a dictionary: give a list of texts or records"),
        ([{"id": "a"}], "passage 0: has the fields id; needed are id, title, text"),
        (["Lima.", {"text": 5}], "passage 1: the field 'text' is a number, not a string"),
        ([{"id": np.float32(3), "text": "Lima."}], "passage 0: the field 'id' is a float32, not a string"),
        (["Lima.", {"docno": "d1", "pid": "d2", "text": "Lima."}], "passage 1: the fields 'docno' and 'pid' may hold the id"),
        (5, "the passages are 5: give a list"),
        (["Lima.", 5], "passage 1 is a int: give a text, or a record"),
        ([{"id": "a", "text": "1"}, {"id": "a", "text": "2"}], "passage 1 has the id 'a', which is already that of passage 0"),
    ],
    ids=str,
)
def test_a_passage_that_cannot_be_used_is_named(source: list[GivenPassage], message: str, home: Path) -> None:
    with pytest.raises(InputError, match=message):
        idx.build(source)
    assert names(home) == set()


@pytest.mark.parametrize(("arguments", "error", "message"), read_rows("retrievers/wrong_arguments.jsonl"))
def test_a_wrong_argument_is_named(arguments: dict[str, str], error: str, message: str) -> None:
    with pytest.raises(getattr(errors, error), match=message):
        idx.build(**{"source": CAPITALS, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize("retriever", [["bm25", "minilm"], ("bm25", "minilm"), Path("bm25"), None, 5])
def test_a_name_is_a_text(retriever: Any) -> None:  # noqa: ANN401
    for call in (idx.build, idx.open_searcher):
        with pytest.raises(idx.IdxError, match=r"is named by a text, such as 'sample' or 'bm25\+minilm', not by ") as raised:
            call("sample", retriever)
        assert isinstance(raised.value, TypeError)
    with pytest.raises(idx.IdxError, match=r"not by PosixPath\('sample'\)"):
        idx.open_searcher(Path("sample"))  # type: ignore[arg-type]


class FilePath(os.PathLike[str]):
    """A path of a library of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "notes.jsonl").write_text('{"id": "a", "text": "Lima is the capital of Peru."}\n')
    return tmp_path / "notes.jsonl"


def test_any_path_names_a_file_which_is_built_as_by_the_command(file: Path) -> None:
    for path in (file, FilePath(file)):
        with idx.build(path) as searcher:
            assert searcher.search(["Lima"], k=1)[0][0].id == "a"
    assert len(open_store("notes")) == 1


def test_a_file_is_read_in_a_format_and_without_unusable_records_if_so_requested(file: Path) -> None:
    with file.open("a") as appended:
        appended.write('{"id": "b"}\n{"id": "c", "text": "Quito is the capital of Ecuador."}\n')
    with pytest.raises(InputError, match="notes.jsonl, line 2: the field 'text' is missing"):
        idx.build(file, file_format="jsonl")
    with idx.build(file, file_format="jsonl", on_error="skip") as searcher:
        assert searcher.search(["capital"], k=5).ids.tolist() == [["a", "c"]]


@pytest.mark.parametrize("opened", [Path.open, lambda path: path.open("rb"), gzip.open, lambda path: io.StringIO(path.read_text())])
def test_an_open_file_is_given_by_its_path(opened: Callable[[Path], IO[str]], file: Path, home: Path) -> None:
    for name in (None, "mine"):
        with opened(file) as lines, pytest.raises(InputError, match="the passages are an open file: give its path"):
            idx.build(lines, name=name)
    assert names(home) == set()
    with opened(file) as lines, idx.build(CAPITALS) as searcher:
        with pytest.raises(InputError, match=r"the queries are an open file: give file.read\(\).splitlines\(\)"):
            searcher.search(lines)  # type: ignore[arg-type]


def test_a_table_is_given_by_its_rows() -> None:
    pandas = pytest.importorskip("pandas", reason="needs the extra 'pandas'")
    frame = pandas.DataFrame({"id": [7, 8], "title": [None, pandas.NA], "section": [pandas.NA, pandas.NaT], "text": CAPITALS})
    for table in (frame.to_dict("records"), pyarrow.table({"docid": [7, 8], "passage": CAPITALS})):
        assert idx.build(table).passage("8") == Passage("8", "", CAPITALS[1])
    searcher = idx.build(frame)
    assert searcher.passage("8") == Passage("8", "", CAPITALS[1])
    named = idx.build(frame, id_field="text", text_field="text")
    assert named.passage(CAPITALS[1]) == Passage(CAPITALS[1], "", CAPITALS[1])
    for queries, remedy in ((frame, r"a data frame: give frame\['query'\]"), ({"q1": "Bhutan"}, "a dictionary: give list")):
        with pytest.raises(InputError, match=f"the queries are {remedy}"):
            searcher.search(queries)  # type: ignore[arg-type]


def test_fields_that_passages_do_not_keep_are_logged_once(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    given: list[GivenPassage] = [
        {"text": CAPITALS[0], "url": "https://example.org", "section": "Asia", "tags": []},
        {"_id": "b", "text": CAPITALS[1], "vector": np.ones(2), "url": "https://example.com"},
    ]
    note = "fields that are not kept: url, vector (a passage has an id, a title and a text)"
    for _ in range(2):
        idx.build(given, name="mine").close()
    file.write_text('{"id": "1", "text": "Lima", "url": "https://example.org"}\n')
    idx.build(file).close()
    others: list[GivenPassage] = [*CAPITALS, Passage("c", "Lima", "Capital of Peru.")]
    idx.build(others).close()
    warnings = [record.getMessage() for record in caplog.records if record.name == "wikidx.indexer.planning"]
    assert warnings == [note, note.replace(", vector", "")]


def test_passages_with_a_name_are_kept_and_reused_and_replaced_only_on_request(home: Path) -> None:
    manifest = home / "mine" / "passages" / "manifest.json"
    idx.build(CAPITALS, name="mine").close()
    written = os.stat(manifest).st_mtime_ns
    idx.build(CAPITALS, name="mine").close()
    assert os.stat(manifest).st_mtime_ns == written
    with pytest.raises(ArtifactMismatch, match=r"'mine' was built with sha256 \w{16}, not sha256 .*replace=True"):
        idx.build([*CAPITALS, "Nile"], name="mine")
    assert idx.open_searcher("mine").search(["Bhutan"])[0][0].text == CAPITALS[0]
    assert idx.build([*CAPITALS, "Nile"], name="mine", replace=True).search(["nile"])[0][0].id == "2"


def test_an_index_is_added_to_named_passages_without_them() -> None:
    idx.build(CAPITALS, name="mine").close()
    Build(BuildSpec(resolve("mine"), ("bm25-1.2-0.75",))).run()
    assert idx.open_searcher("mine", "bm25-1.2-0.75").search(["Bhutan"])[0]


def test_long_texts_are_split() -> None:
    with idx.build([" ".join(f"w{n}" for n in range(250))], split="words") as searcher:
        assert len(searcher) == 3
        assert searcher.search(["w249"])[0][0].id == "0#2"


@pytest.mark.parametrize("is_shown", [True, False])
def test_progress_is_shown_unless_it_is_unwanted(
    is_shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_display, "_LOG_EVERY_S", 0.0)
    idx.build(CAPITALS, show_progress=is_shown).close()
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines if line.startswith("passages")] == ["passages"] * is_shown


def test_passages_without_a_name_are_deleted_with_the_searcher(home: Path) -> None:
    with idx.build(CAPITALS) as searcher, idx.build(CAPITALS, name="mine"):
        assert len(list(home.glob("unnamed-*"))) == 1
        assert corpus_names() == built_names() == ["mine"]  # no list shows them
    assert names(home) == {"mine"}
    with pytest.raises(ValueError, match="the searcher is closed"):
        searcher.search(["Bhutan"])
    searcher = idx.build(CAPITALS)
    assert searcher.search(["Bhutan"])[0]
    del searcher
    gc.collect()
    assert names(home) == {"mine"}


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_leaves_them_to_its_parent(home: Path) -> None:
    searcher = idx.build(CAPITALS)
    if not (child := os.fork()):
        try:
            searcher.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    (name,) = (path.name for path in home.glob("unnamed-*"))
    assert open_store(name).get_many([0]) == [searcher.passage("0")]


def test_those_of_a_killed_process_are_deleted_by_the_next_one(home: Path) -> None:
    code = f"import os, signal, wikidx\nsearcher = wikidx.build({CAPITALS})\nos.kill(os.getpid(), signal.SIGKILL)"
    killed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(home.glob("unnamed-*"))) == 1
    (home / "unnamed-of-mine").mkdir()  # a user's
    with lock(home / "unnamed-of-mine"):
        pass
    with lock(home / "unnamed-01234567"):  # in use
        idx.build(CAPITALS).close()
        assert names(home) == {"unnamed-of-mine", "unnamed-01234567"}
    idx.build(CAPITALS).close()
    assert names(home) == {"unnamed-of-mine"}


def test_a_process_that_ends_deletes_them(home: Path) -> None:
    code = f"import wikidx\nsearcher = wikidx.build({CAPITALS})\nprint(searcher.search(['Bhutan'])[0][0].id)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("0\n", "")
    assert names(home) == set()
