"""Manifests and frames of any bytes are read or refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.mutating import examples, mutations, read_or_refuse
from tests.retrievers.retrieving import at_home, build_corpus
from tests.runtimes.questions.test_corrupt import change_one_value
from wikidx.base.artifacts.manifest import MANIFEST, manifest_from_json
from wikidx.corpora.build import open_store, store_manifest, store_path
from wikidx.corpora.passage import Passage
from wikidx.runtimes.cli.listing import _describe_origin, _list_artifacts


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One home with a corpus for all tests of this file."""
    with at_home(tmp_path_factory.mktemp("home")) as home:
        build_corpus("made", [Passage("1", "Title", "text")])
        yield home


def check_changed(content: bytes) -> None:
    """Use all readers of a manifest that was changed: opening, and listing, which shows artefacts that cannot be opened."""
    manifest = store_path("made") / MANIFEST
    whole = manifest.read_bytes()
    manifest.write_bytes(content)
    try:
        found = read_or_refuse(lambda: store_manifest("made"), manifest.parent)
        if found is not None:
            assert manifest_from_json(found.to_json()) == found
            read_or_refuse(lambda: open_store("made"), manifest.parent)
        json.dumps(_list_artifacts("made"))
        _describe_origin("made").encode("utf-8", "surrogatepass")
    finally:
        manifest.write_bytes(whole)


def test_manifests_with_one_part_changed() -> None:
    for changed in change_one_value(json.loads((store_path("made") / MANIFEST).read_bytes())):
        check_changed(json.dumps(changed).encode())


@examples()
@given(data=st.data())
def test_damaged_manifests(data: st.DataObject) -> None:
    check_changed(data.draw(mutations((store_path("made") / MANIFEST).read_bytes())))


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
