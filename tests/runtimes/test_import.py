"""``idx import lucene``: indexes of Pyserini's users are linked, searched and known; others are refused."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import corpus_of
from tests.lucene.jvm import java_class, require_java
from tests.lucene.oracle import index_passages
from tests.runtimes.command_line import Command
from wikidx.base.artifacts.manifest import read_manifest
from wikidx.base.errors import ArtifactMismatch
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.corpora.passage import Passage
from wikidx.indexer.build import build_index, open_index
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.indexes.bm25 import BM25Index
from wikidx.indexer.indexes.lucene.index import LuceneIndex
from wikidx.indexer.published import lucene as lucene_import

pytestmark = pytest.mark.slow  # Java: half a minute

require_java()

BLANK = Passage("blank", "", " ")
STOPPED = Passage("stopped", "The", "of and a")


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
def refused(corpus: str, idx: Command) -> Callable[[Path], str]:
    """Import an index that is refused, and return the error."""

    def run(index: Path) -> str:
        error = idx("import", "lucene", index, "--corpus", corpus, status=2)
        assert not index_ref(corpus, "lucene").path.parent.exists()  # nothing is left
        return error

    return run


def test_an_imported_index_answers_as_bm25_and_the_commands_know_it(
    corpus: str, passages: list[Passage], pyserinis: Path, idx: Command
) -> None:
    """Its files are linked, and the source stays."""
    before = {file.name: file.stat().st_size for file in pyserinis.iterdir()}
    said, n = idx("import", "lucene", pyserinis, "--corpus", corpus), len(passages)
    assert said == f"imported 'lucene' into 'made': {n:,} documents of {n:,} passages\n"
    imported = idx.json("import", "lucene", pyserinis, "--corpus", corpus)  # the same again is there already
    assert imported == {"corpus": "made", "imported": {"lucene": {"rows": n, "documents": n, "searchable": n - 2}}}
    adopted = index_ref(corpus, "lucene").path
    assert {file.name for file in (adopted / "index").iterdir()} == before.keys() - {"write.lock"}
    assert all(os.path.samefile(file, pyserinis / file.name) for file in (adopted / "index").iterdir())
    manifest = read_manifest(adopted, "lucene", 1, "")
    assert (manifest.recipe.parameters["origin"], manifest.sources["index"]) == ("imported", str(pyserinis))
    assert (np.diff(np.fromfile(adopted / "rows.i32", dtype="<i4")) < 0).any()
    listed = {entry["name"]: entry["built"] for entry in idx.json("list")["corpora"]}
    assert [(part["name"], part["rows"]) for part in listed["made"]] == [("passages", n), ("lucene", n)]
    assert idx("check", corpus).splitlines() == ["passages: as built", "lucene: as built"]
    hits = idx.json("search", corpus, "river", "--retriever", "lucene", "-k", "3")["passages"]
    assert [hit["provenance"][0]["retriever"] for hit in hits] == ["lucene"] * 3

    queries = [" ".join(passage.text.split()[:n]) for n, passage in enumerate(passages[:1400:50], 1)] + ["film", "born", "the", ""]
    store = open_store(corpus)
    build_index(corpus, "bm25", store)
    bm25 = open_index(corpus, "bm25", store)
    assert isinstance(bm25, BM25Index)
    found, expected = opened(corpus).search(queries, 2000), bm25.search(queries, 2000)
    known = expected.rows >= 0
    assert ((found.rows >= 0) == known).all()
    np.testing.assert_allclose(found.scores[known], expected.scores[known], rtol=1e-6, atol=3e-3)
    assert [set(rows.tolist()) for rows in found.rows] == [set(rows.tolist()) for rows in expected.rows]

    idx("remove", corpus, "--index", "lucene", "--yes")
    assert not adopted.exists()
    assert {file.name: file.stat().st_size for file in pyserinis.iterdir()} == before


def test_without_links_the_files_are_copied(corpus: str, pyserinis: Path, idx: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    idx("import", "lucene", pyserinis, "--corpus", corpus)
    copied = [file for file in (index_ref(corpus, "lucene").path / "index").iterdir() if not os.path.samefile(file, pyserinis / file.name)]
    assert len(copied) > 5
    idx("check", corpus)


def test_another_lucene_index_is_replaced_only_by_force(corpus: str, passages: list[Passage], pyserinis: Path, tmp_path: Path) -> None:
    store = open_store(corpus)
    lucene_import.import_lucene(corpus, anserini(passages, tmp_path), store)
    with pytest.raises(ArtifactMismatch, match="holds another Lucene index .*: --force replaces it"):
        lucene_import.import_lucene(corpus, pyserinis, store)
    assert lucene_import.import_lucene(corpus, pyserinis, store, force=True).sources["index"] == str(pyserinis)


def test_a_damaged_index_and_one_of_another_version_are_refused(refused: Callable[[Path], str], pyserinis: Path, tmp_path: Path) -> None:
    shutil.copytree(pyserinis, tmp_path / "copy")
    (segments,) = (tmp_path / "copy").glob("segments_*")
    segments.write_bytes(segments.read_bytes()[:-1])
    assert "cannot be read: org.apache.lucene.index.CorruptIndexException" in refused(tmp_path / "copy")
    (tmp_path / "segments_1").write_bytes(b"\x3f\xd7\x6c\x17\x08segments\x00\x00\x00\x05" + bytes(40))
    assert "cannot be read: org.apache.lucene.index.IndexFormatTooOldException" in refused(tmp_path)


def test_other_passages_are_refused(refused: Callable[[Path], str], passages: list[Passage], tmp_path: Path) -> None:
    strange = [Passage(f"strange {n}", "a", "b") for n in range(5)]
    others = [passage._replace(text=f"{passage.text[:100]} and so on") for passage in passages]
    for name, indexed, message in (
        (
            "strange",
            [*passages[:20], *strange],
            "has 5 documents that are not in the corpus, such as 'strange 0', 'strange 1', 'strange 2'",
        ),
        (
            "twice",
            [*passages, passages[7], passages[7], passages[9]],
            f"has 2 passages more than once, such as '{passages[7].id}', '{passages[9].id}'",
        ),
        ("others", others, "has other texts or another analysis than the corpus: of 200 documents"),
    ):
        assert message in refused(anserini(indexed, tmp_path / name))
    deleted = anserini([*passages[:300], passages[0]], tmp_path / "deleted", "-uniqueDocid")
    assert "has 1 deleted documents, which still count in the scores" in refused(deleted)


def test_missing_passages_are_refused_but_for_those_without_terms(
    refused: Callable[[Path], str], corpus: str, passages: list[Passage], tmp_path: Path
) -> None:
    without_terms = [passage for passage in passages if passage not in (BLANK, STOPPED)]
    lacking = anserini(without_terms[2:], tmp_path / "lacking")
    message = refused(lacking)
    assert f"lacks 4 of the corpus's {len(passages):,} passages, such as '{passages[0].id}', '{passages[1].id}'" in message
    manifest = lucene_import.import_lucene(corpus, anserini(without_terms, tmp_path / "whole"), open_store(corpus))
    assert dict(manifest.counts) == {"rows": len(passages), "documents": len(passages) - 2, "searchable": len(passages) - 2}


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
