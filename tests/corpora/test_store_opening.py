from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

from wikidx.base.errors import ArtifactCorrupt
from wikidx.corpora.build import open_store, store_path
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore

Build = Callable[..., PassageStore]


@pytest.fixture
def large(build: Build) -> list[Passage]:
    """Passages of megabytes in all, which no phrase makes shorter."""
    rng = np.random.default_rng(5)
    passages = [Passage(str(n), f"title {n}", rng.bytes(3000).hex()) for n in range(3000)]
    build(passages)
    return passages


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs the list of mapped files that Linux has")
def test_opening_a_store_does_not_read_its_passages(large: list[Passage]) -> None:
    file = store_path("made") / "passages.lmdb"

    def kilobytes_in_memory() -> int:
        maps = re.findall(r"^[0-9a-f]+-.* (\S+)\n(?:[A-Z].*\n)*?Rss: +(\d+) kB", Path("/proc/self/smaps").read_text(), re.MULTILINE)
        return sum(int(resident) for path, resident in maps if path == str(file.resolve()))

    store = open_store("made")
    assert file.stat().st_size > 8 << 20
    opened = kilobytes_in_memory()
    assert opened < 1024
    assert store.get_many(range(3000)) == large
    assert kilobytes_in_memory() > opened + 4096


def test_a_moved_store_gives_its_own_passages_while_another_is_built_in_its_place(build: Build, home: Path) -> None:
    first, second = ([Passage(str(n), "", f"{word} {n:04}") for n in range(100)] for word in ("first", "other"))
    store = build(first)
    shutil.move(home / "made", home / "moved")
    assert build(second).get_many(range(100)) == second
    moved = open_store("moved")
    assert moved.get_many(range(100)) == store.get_many(range(100)) == first


def test_no_byte_that_lmdb_interprets_may_differ(build: Build) -> None:
    build([Passage(str(n), "title", "some words") for n in range(20)])
    file = store_path("made") / "passages.lmdb"
    content, places = bytearray(file.read_bytes()), json.loads((store_path("made") / "checks.json").read_bytes())["batches"]
    assert places[0][2] - places[0][1] < 4096  # LMDB keeps so small a batch on a page of its tree
    for place in range(0, len(content), 61):
        content[place] ^= 1
        file.write_bytes(content)
        with pytest.raises(ArtifactCorrupt):
            open_store("made")
        content[place] ^= 1
    file.write_bytes(content)
    assert len(open_store("made").get_many(range(20))) == 20


def test_a_store_that_is_replaced_while_it_is_opened_is_an_error(large: list[Passage], monkeypatch: pytest.MonkeyPatch) -> None:
    file, open_lmdb = store_path("made") / "passages.lmdb", lmdb.open

    def replaced(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        shutil.copy(file, file.with_suffix(".other"))
        file.with_suffix(".other").replace(file)
        return open_lmdb(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(lmdb, "open", replaced)
        with pytest.raises(ArtifactCorrupt, match="was replaced while it was opened: run the command again"):
            open_store("made")
    assert open_store("made").get_many(range(3000)) == large
