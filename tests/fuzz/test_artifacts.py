"""Manifests and frames of any bytes are read or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.conftest import corpus_of
from tests.fuzz.mutating import examples, mutations, read_or_refuse
from tests.runtimes.questions.test_corrupt import change_one_value
from wikidx.base.artifacts.manifest import MANIFEST, manifest_from_json
from wikidx.corpora.build import StoreOptions, build_store, open_store, store_manifest, store_path
from wikidx.corpora.passage import Passage
from wikidx.runtimes.cli.listing import _describe_origin, _list_artifacts

PASSAGES = [Passage("1", "Title", "text")]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a corpus."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IDX_HOME", str(home))
        build_store(corpus_of(PASSAGES), StoreOptions())
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
@example(content=b"null")
@example(content=b"[]")
@example(content=b'{"recipe": {}}')
@example(content=b"[" * 100_000)
@example(content=b'{"a":' * 100_000)
@example(content=b"9" * 5_000)
def test_manifests_of_any_bytes(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        manifest_from_json(content)
