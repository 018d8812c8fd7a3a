"""Analyzers in files of the user: names, manifests, builds and errors; contracts/test_lexical_index has what their indexes find."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import read_rows
from tests.contracts.test_lexical_index import PASSAGES, QUERIES
from tests.indexer.analyzers import ENGLISH_IN_PYTHON, REFERENCES
from tests.runtimes.command_line import Command
from wikidx.base.artifacts.building import staging_path
from wikidx.base.errors import InputError, PlugInMismatch, UnknownNameError
from wikidx.base.plugins import VARIABLE, plug
from wikidx.corpora.build import StoreOptions, open_store
from wikidx.corpora.passage import Passage
from wikidx.corpora.resolving import resolve
from wikidx.corpora.store import PassageStore
from wikidx.indexer.analysis import Analyzer, recorded_analyzer
from wikidx.indexer.analysis.analyzer import MAX_TERM_BYTES
from wikidx.indexer.analysis.dictionary import Dictionary
from wikidx.indexer.analysis.english import ANALYZER, TermNumbers
from wikidx.indexer.build import build_index, open_lexical_index
from wikidx.indexer.build_spec import BuildSpec
from wikidx.indexer.catalog import built_indexes, foreign_folders, index_ref, possible_indexes
from wikidx.indexer.indexes.postings import inversion
from wikidx.indexer.indexes.postings.files import BLOCK_ROWS
from wikidx.indexer.naming import is_index_name, parse_index_name
from wikidx.indexer.planning import Build
from wikidx.retrievers.highlight import analyzer_of, find_highlights
from wikidx.retrievers.opening import open_searcher

GERMAN = """
import re
from wikidx.indexer.analysis import Analyzer

def stem(text):
    return [re.sub(r"(?<=\\w\\w)(ern|en|er|e|n|s)$", "", word) for word in re.findall(r"\\w+", text.lower())]

GERMAN = Analyzer(name="german", terms=stem)
"""
ROWS = [
    Passage("1", "Flüsse", "Die Elbe fließt durch Hamburg."),
    Passage("2", "Häuser", "Alte Häuser stehen in Lübeck."),
    Passage("3", "Fluss", "Ein Kind spielt mit Kindern."),
]


@pytest.fixture(autouse=True)
def no_plug_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")


@pytest.fixture
def german(tmp_path: Path) -> Path:
    file = tmp_path / "german.py"
    file.write_text(GERMAN)
    return file


@pytest.fixture
def given(german: Path) -> Path:
    plug(f"{german}:GERMAN")
    return german


@pytest.fixture
def idx(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def corpus_file(folder: Path) -> Path:
    file = folder / "made.jsonl"
    file.write_text("".join(json.dumps(row._asdict()) + "\n" for row in ROWS))
    return file


@pytest.mark.parametrize(
    ("name", "analyzer", "numbers"),
    [
        ("bm25-german", "german", ()),
        ("bm25-german-1.2-0.75", "german", ("1.2", "0.75")),
        ("bm25-tri-grams", "tri-grams", ()),
        ("bm25-tri-grams-2-0", "tri-grams", ("2", "0")),
    ],
)
def test_names_of_indexes_have_an_analyzer(
    given: Path, monkeypatch: pytest.MonkeyPatch, name: str, analyzer: str, numbers: tuple[str, ...]
) -> None:
    monkeypatch.setenv(VARIABLE, f"{given}:GERMAN,{REFERENCES}")
    for parsed in (parse_index_name(name), pickle.loads(pickle.dumps(parse_index_name(name)))):
        assert (parsed, parsed.encoder, parsed.kind, parsed.analyzer, parsed.numbers) == (name, "", "bm25", analyzer, numbers)


@pytest.mark.parametrize(("name", "message"), read_rows("indexer/refused_names.jsonl"))
@pytest.mark.usefixtures("given")
def test_names_that_no_index_can_have_are_told(name: str, message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        parse_index_name(name)
    assert not is_index_name(name)


@pytest.mark.parametrize("name", ["", "German", "1-gram", "n-3", "german-", "deutsch sprache", "x" * 200 + "-1"])
def test_names_that_read_as_something_else_are_no_analyzer_s(name: str) -> None:
    with pytest.raises(InputError, match="cannot be the name of an analyzer: use lower-case letters") as told:
        Analyzer(name=name, terms=str.split)
    assert len(str(told.value)) < 300


def described(arrays: Iterable[NDArray[Any]]) -> list[tuple[str, list[int]]]:
    return [(array.dtype.name, array.tolist()) for array in arrays]


def test_numbers_in_python_are_those_of_the_kernel() -> None:
    texts = [f"{passage.title}\n{passage.text}" for passage in PASSAGES] + QUERIES[:-1] + ["Ähre 𝒳 \ud800 naïve", ""]
    compiled, in_python = TermNumbers(), ENGLISH_IN_PYTHON.new_numbering()
    for part in (texts[:100], texts[100:], []):
        assert described(in_python.add(part)) == described(compiled.add(part))
    assert described(in_python.table()) == described(compiled.table())
    assert len(in_python) == len(compiled) == len(in_python.table().terms())
    surrogates = Analyzer(name="letters", terms=list).new_numbering()
    assert surrogates.add(["a\ud800a"])[0].tolist() == [0, 1, 0]
    assert surrogates.table().terms() == ["a", "\ud800"]


def test_an_index_of_the_same_terms_has_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is built while the passages are stored, and from them."""
    monkeypatch.setenv(VARIABLE, REFERENCES)
    file = tmp_path / "made.jsonl"
    file.write_text("".join(json.dumps(row._asdict()) + "\n" for row in PASSAGES))
    source = resolve(str(file), name="made", options=StoreOptions())
    with monkeypatch.context() as patched:
        patched.setattr(PassageStore, "read_batches", None)  # the passages are read once
        followed = Build(BuildSpec(source, ("bm25-as-english",))).run()["bm25-as-english"]
    store = open_store("made")
    assert followed.files == build_index("made", "bm25", store).files == build_index("made", "bm25-as-english", store, force=True).files


def test_an_analyzer_that_fails_costs_only_the_blocks_that_it_has_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: Callable[..., PassageStore]
) -> None:
    file = tmp_path / "failing.py"
    file.write_text(
        "import os\nfrom wikidx.indexer.analysis import Analyzer\n"
        "def terms(text):\n    if 'last' in text and os.environ.get('FAILS'):\n        raise KeyError('last')\n    return text.split()\n"
        "FAILING = Analyzer(name='failing', terms=terms)\n"
    )
    plug(f"{file}:FAILING")
    store = build([Passage(str(n), "", f"w{n % 9}") for n in range(BLOCK_ROWS)] + [Passage("last", "The last", "one " * 90)])
    monkeypatch.setenv("FAILS", "1")
    with pytest.raises(InputError) as told:
        build_index("made", "bm25-failing", store)
    assert str(told.value) == (
        "passage 'last': the analyzer 'failing' fails for the text 'The last\\none one one one one one one one'…: KeyError: 'last'; "
        "correct it, then run the same command again"
    )
    monkeypatch.delenv("FAILS")
    finished = staging_path(index_ref("made", "bm25-failing").path) / "intermediate" / "00000.postings.npy"
    assert finished.exists()
    written, write = list[int](), inversion._write_block

    def counted(folder: Path, n: int, block: inversion.InvertedBlock, dictionary: Dictionary) -> None:
        written.append(n)
        write(folder, n, block, dictionary)

    monkeypatch.setattr(inversion, "_write_block", counted)
    resumed = build_index("made", "bm25-failing", store)
    assert written == [1]
    assert build_index("made", "bm25-failing", store, force=True).files == resumed.files
    assert open_lexical_index("made", "bm25-failing", store).search(["one"], 1).rows.tolist() == [[BLOCK_ROWS]]


def test_queries_that_an_analyzer_fails_for_cost_no_others(tmp_path: Path, build: Callable[..., PassageStore]) -> None:
    file = tmp_path / "numberless.py"
    file.write_text(
        "from wikidx.indexer.analysis import Analyzer\n"
        "def terms(text):\n    assert not any(map(str.isdigit, text)), 'a number'\n    return text.split()\n"
        "NUMBERLESS = Analyzer(name='numberless', terms=terms)\n"
    )
    plug(f"{file}:NUMBERLESS")
    build_index("made", "bm25-numberless", build([Passage("a", "", "some rivers"), Passage("b", "", "a metal")]))
    searcher = open_searcher("made", "bm25-numberless")
    rankings = searcher.search(["metal", "metal 1", "rivers", "rivers 2"], k=1)
    assert [[hit.id for hit in ranking] for ranking in rankings] == [["b"], [], ["a"], []]
    assert {position: error[:61] for position, error in rankings.errors.items()} == {
        1: "the analyzer 'numberless' fails for the text 'metal 1': Asser",
        3: "the analyzer 'numberless' fails for the text 'rivers 2': Asse",
    }
    with pytest.raises(InputError, match="fails for the text 'metal 1': AssertionError: a number"):
        searcher.search(["metal 1"], k=1)


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (lambda text: [""], "ValueError: '' is no term: a term is a text of at least one character"),
        (lambda text: ["a", 3], "ValueError: 3 is no term"),
        (lambda text: ["a", True], "ValueError: True is no term"),
        (lambda text: [None], "ValueError: None is no term"),
        (lambda text: [["a"]], "TypeError: "),
        (lambda text: text, "TypeError: its terms are a 'str', not a list"),
        (lambda text: None, "TypeError: its terms are a 'NoneType', not a list"),
        (lambda text: ["ä" * (MAX_TERM_BYTES // 2), "ä" * (MAX_TERM_BYTES // 2) + "x"], "has 32,767 bytes, 32,766 are possible"),
        (lambda text: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda: [], r"TypeError: .*takes 0 positional arguments"),
    ],
)
def test_what_is_no_list_of_terms_is_told_with_analyzer_and_text(terms: Callable[..., list[str]], message: str) -> None:
    numbering = Analyzer(name="mine", terms=terms).new_numbering()
    with pytest.raises(InputError, match=rf"^the analyzer 'mine' fails for the text 'some \\n text': .*{message}.*; correct it, then run"):
        numbering.add(["some \n text"])
    with pytest.raises(InputError, match="for the text 'x{40}'…: "):
        Analyzer(name="mine", terms=terms).new_numbering().add(["x" * 41])


@pytest.mark.usefixtures("given")
def test_it_finds_other_words_than_english_does(build: Callable[..., PassageStore]) -> None:
    store = build(ROWS)
    for name in ("bm25", "bm25-german"):
        build_index("made", name, store)
    found = {
        name: open_lexical_index("made", name, store).search(["Haus und Kinder", "Häusern an Flüssen"], 3)
        for name in ("bm25", "bm25-german")
    }
    assert np.sort(found["bm25-german"].rows).tolist() == [[-1, -1, 2], [-1, 0, 1]]
    assert np.sort(found["bm25"].rows).tolist() == [[-1, -1, -1], [-1, -1, -1]]
    ranking = open_searcher("made", "bm25-german").search(["Kinder"], k=1)[0]
    text = ranking[0].passage.text
    for analyzer, words in ((analyzer_of(ranking), ["Kind", "Kindern"]), (ANALYZER, [])):
        (spans,) = find_highlights([text], ["Kinder"], analyzer)
        assert [text[start:stop] for start, stop in spans] == words


def test_a_manifest_records_the_analyzer_and_its_checksum(
    given: Path, build: Callable[..., PassageStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = build(ROWS)
    parameters = build_index("made", "bm25-german", store).recipe.parameters
    assert parameters == {"analyzer": "german", "analyzer_sha256": plug(f"{given}:GERMAN").sha256, "k1": 0.9, "b": 0.4}
    assert build_index("made", "bm25", store).recipe.parameters == {"analyzer": "lucene-english", "k1": 0.9, "b": 0.4}
    assert recorded_analyzer(parameters, given) is plug(f"{given}:GERMAN").value
    other = given.with_name("other.py")
    other.write_text(GERMAN + "\n")
    monkeypatch.setenv(VARIABLE, f"{other}:GERMAN")
    for read in (open_lexical_index, build_index):
        with pytest.raises(PlugInMismatch, match=r"made with another version of the analyzer 'german' .* than .*other\.py:GERMAN.*--force"):
            read("made", "bm25-german", store)
    assert build_index("made", "bm25-german", store, force=True).recipe.parameters != parameters


@pytest.mark.usefixtures("given")
def test_without_its_plug_in_an_index_is_listed_checked_and_removed_but_not_read(
    tmp_path: Path, idx: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = corpus_file(tmp_path)
    for name in ("bm25-german", "bm25-german-1.2-0.75"):
        idx("build", file, "--index", name)
    assert "Kindern" in idx("search", "made", "Kinder", "--retriever", "bm25-german", "--json")
    monkeypatch.setenv(VARIABLE, "")
    assert built_indexes("made") == ["bm25-german", "bm25-german-1.2-0.75"]
    assert (foreign_folders("made"), is_index_name("bm25-german")) == ({}, False)
    assert index_ref("made", possible_indexes("made")[-1]).numbers == pytest.approx({"k1": 1.2, "b": 0.75})
    (made,) = (corpus for corpus in json.loads(idx("list", "--json"))["corpora"] if corpus["name"] == "made")
    listed = {entry["name"]: entry["problem"] for entry in made["built"]}
    assert listed == {"passages": None, "bm25-german": None, "bm25-german-1.2-0.75": None}
    assert "bm25-german: as built" in idx("check", "made")
    with pytest.raises(PlugInMismatch, match=r"the analyzer 'german', a plug-in: name its file again, as --plugin FILE\.py:NAME"):
        open_lexical_index("made", "bm25-german", open_store("made"))
    says = "'bm25-german' has an analyzer that is a plug-in: name its file again, as --plugin FILE.py:NAME"
    assert says in idx("search", "made", "Kinder", "--retriever", "bm25-german", status=2)
    assert "named with --plugin FILE.py:NAME" in idx("build", file, "--index", "bm25-german", status=2)
    idx("remove", "made", "--index", "bm25-german", "--yes")
    assert built_indexes("made") == ["bm25-german-1.2-0.75"]
    damaged = index_ref("made", "bm25-german-1.2-0.75").path / "lengths"
    damaged.write_bytes(bytes(byte ^ 1 for byte in damaged.read_bytes()))
    assert "'made' is corrupt" in idx("check", "made", status=1)


@pytest.mark.usefixtures("given")
def test_an_unfinished_build_is_listed_without_its_plug_in(build: Callable[..., PassageStore], monkeypatch: pytest.MonkeyPatch) -> None:
    store = build(ROWS)
    with monkeypatch.context() as patched:
        patched.setattr("wikidx.indexer.indexes.bm25.index.write_index", None)
        with pytest.raises(TypeError):
            build_index("made", "bm25-german", store)
    monkeypatch.setenv(VARIABLE, "")
    assert possible_indexes("made")[-1] == "bm25-german"
    assert built_indexes("made") == []
