"""Artefacts with corrupt files yield their original content, or an error that says what to rebuild."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.conftest import corpus_of
from tests.fuzz.mutating import examples, mutations, read_or_refuse
from tests.runtimes.questions.test_corrupt import change_one_value
from wikidx.base.artifacts.manifest import MANIFEST, manifest_from_json
from wikidx.base.errors import IdxError
from wikidx.corpora.build import StoreOptions, build_store, open_store, store_manifest, store_path
from wikidx.corpora.passage import Passage
from wikidx.corpora.store.vocabulary import Vocabulary, to_stream, unescape
from wikidx.indexer.build import build_index, open_index
from wikidx.indexer.catalog import index_ref
from wikidx.runtimes.cli.listing import _describe_origin, _list_artifacts

PASSAGES = [Passage(str(n), f"Title {n}", f"river number {n} and word{n % 7}") for n in range(40)]
QUERIES = ["river number", "word3", "title 5", "nothing"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a corpus and its BM25."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(home))
        build_store(corpus_of(PASSAGES), StoreOptions())
        build_index("made", "bm25", open_store("made"))
    return home


@pytest.fixture
def made(built: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make that home this test's."""
    monkeypatch.setenv("IDX_HOME", str(built))
    return built


def used(manifest: Path) -> None:
    """Use all readers of manifests: opening, and listing, which shows artefacts that cannot be opened."""
    found = read_or_refuse(lambda: store_manifest("made"), manifest.parent)
    if found is not None:
        assert manifest_from_json(found.to_json()) == found
        read_or_refuse(lambda: open_store("made"), manifest.parent)
    json.dumps(_list_artifacts("made"))
    _describe_origin("made").encode("utf-8", "surrogatepass")


def test_manifests_with_one_part_changed(made: Path) -> None:
    manifest = store_path("made") / MANIFEST
    whole = manifest.read_bytes()
    try:
        for changed in change_one_value(json.loads(whole)):
            manifest.write_text(json.dumps(changed))
            used(manifest)
    finally:
        manifest.write_bytes(whole)


@examples()
@given(data=st.data())
def test_damaged_manifests(built: Path, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(built))
        manifest = store_path("made") / MANIFEST
        whole = manifest.read_bytes()
        try:
            manifest.write_bytes(data.draw(mutations(whole)))
            used(manifest)
        finally:
            manifest.write_bytes(whole)


@given(content=st.binary(max_size=20))
@example(content=b"[" * 100_000)
@example(content=b'{"a":' * 100_000)
@example(content=b"9" * 5_000)
def test_manifests_of_any_bytes(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        manifest_from_json(content)


def searched(home: Path) -> list[Any]:
    hits = open_index("made", "bm25", open_store("made")).search(QUERIES, 10)  # type: ignore[arg-type]
    return [hits.rows.tolist(), hits.scores.tolist()]


@examples()
@given(data=st.data())
def test_damaged_postings(built: Path, data: st.DataObject) -> None:
    """With any byte of any BM25 file changed, a search has the same results, or names the index to rebuild."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(built))
        folder = index_ref("made", "bm25").path
        expected = searched(built)
        files = sorted(file for file in folder.iterdir() if file.name != MANIFEST and file.stat().st_size)
        file = data.draw(st.sampled_from(files))
        whole = file.read_bytes()
        at, new = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.binary(min_size=1, max_size=8))
        content = (whole[:at] + new + whole[at + len(new) :])[: len(whole)]
        try:
            file.unlink()  # a mapped file is not written over
            file.write_bytes(content)
            found = read_or_refuse(lambda: searched(built), folder)
        finally:
            file.unlink()
            file.write_bytes(whole)
        assert found is None or found == expected
        assert content == whole or found is None or np.array_equal(found, expected)


@examples()
@given(raw=mutations(Vocabulary(b"").encode([to_stream(b"1", "é".encode(), b"text")], [7])[0]))
def test_passages_of_any_bytes(raw: bytes) -> None:
    from wikidx.corpora.store.layout import corruption_errors

    def read() -> Passage:
        with corruption_errors(Path("made")):
            return unescape(raw, 7)

    found = read_or_refuse(read, "made")
    assert found is None or all(isinstance(part, str) for part in found)


@pytest.mark.parametrize("n_left", [0, 1, 4_096, 8_192, 20_000])
def test_a_store_that_is_cut_off(made: Path, tmp_path: Path, n_left: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(made, tmp_path / "home", symlinks=True)
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "home"))
    database = store_path("made") / "passages.lmdb"
    content = database.read_bytes()[:n_left]
    database.unlink()
    database.write_bytes(content)
    with pytest.raises(IdxError, match="passages.lmdb"):
        open_store("made")
