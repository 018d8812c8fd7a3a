from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from wikidx.base.artifacts.home import home as data_home
from wikidx.base.artifacts.manifest import Manifest, read_manifest
from wikidx.base.errors import IdxError, InputError, MissingExtraError, StorageError
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.build import build_index, open_index
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.indexes.kinds import Size
from wikidx.indexer.indexes.lucene import build as lucene_build
from wikidx.indexer.indexes.lucene.build import estimate
from wikidx.indexer.indexes.lucene.index import LuceneIndex

pytestmark = pytest.mark.slow  # Java: half a minute

if importlib.util.find_spec("pyserini") is None and not os.environ.get("CI"):
    pytest.skip("needs the extra 'lucene'", allow_module_level=True)

Build = Callable[..., PassageStore]


def built(store: PassageStore, *, force: bool = False) -> LuceneIndex:
    build_index("made", "lucene", store, force=force)
    index = open_index("made", "lucene", store)
    assert isinstance(index, LuceneIndex)
    return index


def manifest() -> Manifest:
    return read_manifest(index_ref("made", "lucene").path, "lucene", 1, "")


def test_strange_ids_keep_their_rows(build: Build) -> None:
    ids = ["a b", "ü–“x”", "nul\0id", "q\"uo'te", "back\\slash", "new\nline", "tab\t", "x" * 500, "😀", " lead", '{"a": 1}', "\x7f", "�"]
    store = build([Passage(id_, "", f"river word{n}") for n, id_ in enumerate(ids)])
    hits = built(store).search([f"word{n}" for n in range(len(ids))], 2)
    assert hits.rows.tolist() == [[n, -1] for n in range(len(ids))]


def test_passages_without_terms_are_counted_and_never_found(build: Build) -> None:
    texts = [("", ""), (" \t", "\n\x01 "), ("\xa0", "\u3000"), ("The", "of and a"), ("!!!", "..."), ("Rivers", ""), ("", "a river")]
    index = built(build([Passage(str(n), *pair) for n, pair in enumerate(texts)]))
    assert index.search(["river"], 7).rows[0].tolist() == [5, 6, -1, -1, -1, -1, -1]
    assert dict(manifest().counts) == {"rows": 7, "documents": 5, "searchable": 2}


def test_a_corpus_without_any_document_finds_nothing(build: Build) -> None:
    index = built(build([Passage("1", "", " "), Passage("2", "", "")]))
    assert index.search(["anything", ""], 3).rows.tolist() == [[-1, -1, -1]] * 2


def test_a_killed_build_resumes_after_its_finished_files(
    build: Build, made_passages: list[Passage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lucene_build, "PIECE_ROWS", 100)
    store = build(made_passages[:250])
    undisturbed = built(store).search(["number 17 subject"], 300)
    indexed: list[int] = []
    run_anserini = lucene_build._run_anserini

    def interrupted(source: Path, index: Path, n_documents: int) -> None:
        indexed.append(n_documents)
        if indexed == [100, 100]:
            raise KeyboardInterrupt
        run_anserini(source, index, n_documents)

    monkeypatch.setattr(lucene_build, "_run_anserini", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_index("made", "lucene", store, force=True)
    resumed = built(store, force=True)
    assert sorted(indexed) == [50, 100, 100, 100]  # each finished piece once, the interrupted one twice
    hits = resumed.search(["number 17 subject"], 300)
    assert (hits.rows == undisturbed.rows).all()
    assert hits.scores.tobytes() == undisturbed.scores.tobytes()


def test_corrupt_files_are_made_again(build: Build, made_passages: list[Passage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lucene_build, "PIECE_ROWS", 100)
    store = build(made_passages[:150])
    merge = lucene_build._merge
    corrupt: list[Path] = []

    def corrupt_and_merge(pieces: Sequence[Path], target: Path) -> None:
        if not corrupt:
            corrupt.extend(pieces[1].glob("*.doc"))
            corrupt[0].write_bytes(corrupt[0].read_bytes()[:-20] + bytes(20))
        merge(pieces, target)

    monkeypatch.setattr(lucene_build, "_merge", corrupt_and_merge)
    assert len(built(store)) == 150
    assert len(corrupt) == 1


def test_a_passage_too_long_for_the_indexer_is_named(build: Build) -> None:
    store = build([Passage("1", "a", "river"), Passage("whole book", "b", "word " * 4_000_000)])
    with pytest.raises(InputError, match="passage 'whole book' has 20,000,002 characters, .* at most 20,000,000: split it"):
        build_index("made", "lucene", store)


def test_a_program_out_of_memory_says_so(build: Build, made_passages: list[Passage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lucene_build, "PROGRAM_HEAP_BYTES", 6 << 20)
    with pytest.raises(IdxError, match="Lucene could not index the passages: .*OutOfMemoryError"):
        build_index("made", "lucene", build(made_passages))


def test_a_full_disk_says_so(build: Build, made_passages: list[Passage], monkeypatch: pytest.MonkeyPatch) -> None:
    def swallowing(*_: object, on_line: Callable[[str], None], **__: object) -> None:
        on_line("java.io.IOException: No space left on device")  # what Anserini does with it: one line, and exit status 0

    monkeypatch.setattr(lucene_build, "run_java", swallowing)
    with pytest.raises(StorageError, match="No space left on device; finished parts are kept"):
        build_index("made", "lucene", build(made_passages[:10]))


def test_documents_that_get_lost_are_noticed(build: Build, made_passages: list[Passage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lucene_build, "is_blank", lambda passage: passage.id == "3")
    with pytest.raises(IdxError, match="it made 10 documents of 9 passages"):
        build_index("made", "lucene", build(made_passages[:10]))


def test_without_the_extra_the_need_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyserini", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[lucene\]'"):
        estimate(Size(1000, passage_bytes=600))


def test_the_need_covers_what_a_build_takes(build: Build, made_passages: list[Passage]) -> None:
    n_bytes = sum(len(field.encode()) for passage in made_passages for field in passage)
    built(build(made_passages))
    need = estimate(Size(3000, passage_bytes=n_bytes / 3000))
    assert 1.5 * manifest().n_bytes < need.disk_bytes < 20 * manifest().n_bytes


def test_nothing_is_left_beside_a_finished_index(build: Build, made_passages: list[Passage]) -> None:
    built(build(made_passages[:20]))
    folder = data_home() / "made" / "indexes"
    assert [path.name for path in folder.iterdir()] == ["lucene"]
    assert {path.name for path in (folder / "lucene").iterdir()} == {"index", "manifest.json", "rows.i32", "sums"}
    assert "write.lock" not in {path.name for path in (folder / "lucene" / "index").iterdir()}
