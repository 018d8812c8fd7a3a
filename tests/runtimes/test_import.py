from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import corpus_of
from tests.lucene.jvm import java_class, require_java
from tests.lucene.oracle import index_passages
from wikidx.base.artifacts.manifest import read_manifest
from wikidx.base.errors import ArtifactMismatch, InputError
from wikidx.corpora.build import StoreOptions, build_store, open_store, store_path
from wikidx.corpora.passage import Passage
from wikidx.indexer.build import build_index, open_index
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.indexes.bm25 import BM25Index
from wikidx.indexer.indexes.lucene.index import LuceneIndex
from wikidx.indexer.published import lucene as lucene_import
from wikidx.runtimes.cli import main

pytestmark = pytest.mark.slow  # Java: half a minute

require_java()

BLANK = Passage("blank", "", " ")
STOPPED = Passage("stopped", "The", "of and a")


def idx(monkeypatch: pytest.MonkeyPatch, *arguments: object, status: int = 0) -> None:
    """Run the command line in this process, which has its Java already."""
    monkeypatch.setattr(sys, "argv", ["idx", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == status


def opened(corpus: str) -> LuceneIndex:
    index = open_index(corpus, "lucene", open_store(corpus))
    assert isinstance(index, LuceneIndex)
    return index


def anserini(passages: Sequence[Passage], folder: Path, *options: str, threads: int = 1) -> Path:
    """Index passages as a user of Pyserini would, and return the folder of the index."""
    folder.mkdir(exist_ok=True)
    quoted = [passage._replace(title=f'"{passage.title}"') for passage in passages]
    return index_passages(quoted, folder / "index", *(options or ["-storeRaw"]), threads=threads, own_ids=True)


@pytest.fixture(scope="module")
def passages(shared_data: Path) -> list[Passage]:
    """1,500 real passages, of which some hundred have the text of another one, one without a character and one without a term."""
    with gzip.open(shared_data / "dpr_union" / "passages.jsonl.gz", "rt", encoding="utf-8") as file:
        records = [json.loads(line) for line, _ in zip(file, range(1400), strict=False)]
    real = [Passage(record["id"], record["title"], record["text"]) for record in records]
    return [*real, *(passage._replace(id=f"copy of {passage.id}") for passage in real[::15]), BLANK, STOPPED]


@pytest.fixture(scope="module")
def pyserinis(passages: list[Passage], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of the passages in random order, by two threads, with all that Anserini can store besides."""
    shuffled = [passages[n] for n in np.random.default_rng(5).permutation(len(passages)).tolist()]
    return anserini(shuffled, tmp_path_factory.mktemp("pyserini"), "-storeRaw", "-storePositions", "-storeDocvectors", threads=2)


@pytest.fixture
def corpus(home: Path, passages: list[Passage]) -> str:
    build_store(corpus_of(passages, "made"), StoreOptions())
    return "made"


@pytest.fixture
def refused(corpus: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[Path], str]:
    """Import an index that is refused, and return the error."""

    def run(index: Path) -> str:
        idx(monkeypatch, "import", "lucene", index, "--corpus", corpus, status=2)
        assert not index_ref(corpus, "lucene").path.parent.exists()  # nothing is left
        *_, last = capsys.readouterr().err.splitlines()
        return last.removeprefix("error: ")

    return run


def test_an_imported_index_answers_as_bm25(
    corpus: str, passages: list[Passage], pyserinis: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    queries = [" ".join(passage.text.split()[:n]) for n, passage in enumerate(passages[:1400:50], 1)] + ["film", "born", "the", ""]
    idx(monkeypatch, "import", "lucene", pyserinis, "--corpus", corpus)
    assert capsys.readouterr().out == f"imported 'lucene' into 'made': {len(passages):,} documents of {len(passages):,} passages\n"
    assert (np.diff(np.fromfile(index_ref(corpus, "lucene").path / "rows.i32", dtype="<i4")) < 0).any()
    store = open_store(corpus)
    build_index(corpus, "bm25", store)
    bm25 = open_index(corpus, "bm25", store)
    assert isinstance(bm25, BM25Index)
    found, expected = opened(corpus).search(queries, 2000), bm25.search(queries, 2000)
    known = expected.rows >= 0
    assert ((found.rows >= 0) == known).all()
    np.testing.assert_allclose(found.scores[known], expected.scores[known], rtol=1e-6, atol=3e-3)
    assert [set(rows.tolist()) for rows in found.rows] == [set(rows.tolist()) for rows in expected.rows]


def test_the_files_are_linked_and_the_source_stays(
    corpus: str, passages: list[Passage], pyserinis: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {file.name: file.stat().st_size for file in pyserinis.iterdir()}
    idx(monkeypatch, "import", "lucene", pyserinis, "--corpus", corpus, "--json")
    assert {file.name: file.stat().st_size for file in pyserinis.iterdir()} == before
    adopted = index_ref(corpus, "lucene").path / "index"
    assert {file.name for file in adopted.iterdir()} == before.keys() - {"write.lock"}
    assert all(os.path.samefile(file, pyserinis / file.name) for file in adopted.iterdir())
    manifest = read_manifest(index_ref(corpus, "lucene").path, "lucene", 1, "")
    assert manifest.recipe.parameters["origin"] == "imported"
    assert manifest.sources["index"] == str(pyserinis)


def test_without_links_the_files_are_copied(
    corpus: str, pyserinis: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    idx(monkeypatch, "import", "lucene", pyserinis, "--corpus", corpus, "--json")
    copied = [file for file in (index_ref(corpus, "lucene").path / "index").iterdir() if not os.path.samefile(file, pyserinis / file.name)]
    assert len(copied) > 5
    idx(monkeypatch, "check", corpus)


def test_the_commands_know_an_imported_index(
    corpus: str, pyserinis: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    idx(monkeypatch, "import", "lucene", pyserinis, "--corpus", corpus, "--json")
    n_rows = len(open_store(corpus))
    imported = json.loads(capsys.readouterr().out)
    assert imported == {"corpus": "made", "imported": {"lucene": {"rows": n_rows, "documents": n_rows, "searchable": n_rows - 2}}}
    idx(monkeypatch, "import", "lucene", pyserinis, "--corpus", corpus)  # the same again is there already
    capsys.readouterr()
    idx(monkeypatch, "list", "--json")
    listed = {entry["name"]: entry["built"] for entry in json.loads(capsys.readouterr().out)["corpora"]}
    assert [(part["name"], part["rows"]) for part in listed["made"]] == [("passages", n_rows), ("lucene", n_rows)]
    idx(monkeypatch, "check", corpus)
    assert capsys.readouterr().out.splitlines() == ["passages: as built", "lucene: as built"]
    idx(monkeypatch, "search", corpus, "river", "--retriever", "lucene", "-k", "3", "--json")
    assert [hit["provenance"][0]["retriever"] for hit in json.loads(capsys.readouterr().out)["passages"]] == ["lucene"] * 3
    idx(monkeypatch, "remove", corpus, "--index", "lucene", "--yes")
    assert not index_ref(corpus, "lucene").path.exists()
    assert any(pyserinis.iterdir())


def test_another_lucene_index_is_replaced_only_by_force(corpus: str, passages: list[Passage], pyserinis: Path, tmp_path: Path) -> None:
    store = open_store(corpus)
    lucene_import.import_lucene(corpus, anserini(passages, tmp_path), store)
    with pytest.raises(ArtifactMismatch, match="holds another Lucene index .*: --force replaces it"):
        lucene_import.import_lucene(corpus, pyserinis, store)
    assert lucene_import.import_lucene(corpus, pyserinis, store, force=True).sources["index"] == str(pyserinis)


@pytest.mark.parametrize("folder", ["missing", "empty", "file"])
def test_what_is_no_lucene_index_is_refused(refused: Callable[[Path], str], tmp_path: Path, folder: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no index")
    assert refused(tmp_path / folder) == f"{tmp_path / folder} is no Lucene index: it is no folder with a file segments_N"


def test_a_damaged_index_is_refused(refused: Callable[[Path], str], pyserinis: Path, tmp_path: Path) -> None:
    shutil.copytree(pyserinis, tmp_path / "copy")
    (segments,) = (tmp_path / "copy").glob("segments_*")
    segments.write_bytes(segments.read_bytes()[:-1])
    assert "cannot be read: org.apache.lucene.index.CorruptIndexException" in refused(tmp_path / "copy")


def test_an_index_of_another_version_is_refused(refused: Callable[[Path], str], tmp_path: Path) -> None:
    (tmp_path / "segments_1").write_bytes(b"\x3f\xd7\x6c\x17\x08segments\x00\x00\x00\x05" + bytes(40))
    assert "cannot be read: org.apache.lucene.index.IndexFormatTooOldException" in refused(tmp_path)


def test_ids_that_are_not_in_the_corpus_are_refused(refused: Callable[[Path], str], passages: list[Passage], tmp_path: Path) -> None:
    strange = [Passage(f"strange {n}", "a", "b") for n in range(5)]
    assert "has 5 documents that are not in the corpus, such as 'strange 0', 'strange 1', 'strange 2'" in refused(
        anserini([*passages[:20], *strange], tmp_path)
    )


def test_a_passage_that_is_there_twice_is_refused(refused: Callable[[Path], str], passages: list[Passage], tmp_path: Path) -> None:
    index = anserini([*passages, passages[7], passages[7], passages[9]], tmp_path)
    assert f"has 2 passages more than once, such as '{passages[7].id}', '{passages[9].id}'" in refused(index)


def test_missing_passages_are_refused_but_for_those_without_terms(
    refused: Callable[[Path], str], corpus: str, passages: list[Passage], tmp_path: Path
) -> None:
    without_terms = [passage for passage in passages if passage not in (BLANK, STOPPED)]
    lacking = anserini(without_terms[2:], tmp_path / "lacking")
    message = refused(lacking)
    assert f"lacks 4 of the corpus's {len(passages):,} passages, such as '{passages[0].id}', '{passages[1].id}'" in message
    manifest = lucene_import.import_lucene(corpus, anserini(without_terms, tmp_path / "whole"), open_store(corpus))
    assert dict(manifest.counts) == {"rows": len(passages), "documents": len(passages) - 2, "searchable": len(passages) - 2}


def test_the_index_of_a_corpus_with_the_same_ids_is_refused(
    refused: Callable[[Path], str], passages: list[Passage], tmp_path: Path
) -> None:
    others = [passage._replace(text=f"{passage.text[:100]} and so on") for passage in passages]
    assert "has other texts or another analysis than the corpus: of 200 documents" in refused(anserini(others, tmp_path))


def test_an_index_without_frequencies_or_fields_is_refused(refused: Callable[[Path], str], tmp_path: Path) -> None:
    lucene = "org.apache.lucene"
    directory = java_class(f"{lucene}.store.FSDirectory").open(java_class("java.nio.file.Paths").get(str(tmp_path / "odd")))
    writer = java_class(f"{lucene}.index.IndexWriter")(directory, java_class(f"{lucene}.index.IndexWriterConfig")())
    store = java_class(f"{lucene}.document.Field$Store").YES
    for field, options in (("docid", "none"), ("contents", "DOCS")):
        document = java_class(f"{lucene}.document.Document")()
        document.add(java_class(f"{lucene}.document.StringField")(field, "1", store))
        writer.addDocument(document)
        writer.commit()
        assert f"needs the field 'contents' with frequencies; it has {options}" in refused(tmp_path / "odd")
    writer.close()


def test_deleted_documents_are_refused(refused: Callable[[Path], str], passages: list[Passage], tmp_path: Path) -> None:
    index = anserini([*passages[:300], passages[0]], tmp_path, "-uniqueDocid")
    assert "has 1 deleted documents, which still count in the scores" in refused(index)


def test_a_corpus_that_is_not_built_is_named(monkeypatch: pytest.MonkeyPatch, pyserinis: Path, capsys: pytest.CaptureFixture[str]) -> None:
    idx(monkeypatch, "import", "lucene", pyserinis, "--corpus", "sample", status=2)
    assert "the corpus 'sample' is not built: run 'idx build sample'" in capsys.readouterr().err


def test_a_build_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for options in ([], ["--dry-run"]):
        idx(monkeypatch, "build", "sample", "--index", "lucene", *options, status=2)
        *_, last = capsys.readouterr().err.splitlines()
        assert last.startswith("error: idx builds no Lucene index: 'idx import lucene PATH --corpus NAME' imports one")
    assert not store_path("sample").exists()


def test_a_refusal_is_an_input_error(corpus: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no Lucene index"):
        lucene_import.import_lucene(corpus, tmp_path, open_store(corpus))
