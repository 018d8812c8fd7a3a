from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import lmdb
import numpy as np
import pytest

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


def test_lmdb_reads_the_batches_where_the_store_finds_them(large: list[Passage]) -> None:
    file = store_path("made") / "passages.lmdb"
    content, places = file.read_bytes(), np.fromfile(file.with_name("places.i64"), dtype="<i8").reshape(-1, 3)
    with lmdb.open(str(file), subdir=False, readonly=True, lock=False) as environment, environment.begin() as transaction:
        batches = dict(transaction.cursor())
    assert [(int.from_bytes(row, "big"), batch.rstrip(b"\0")) for row, batch in batches.items()] == [
        (row, content[start:end].rstrip(b"\0")) for row, start, end in places.tolist()
    ]


def test_a_small_store_has_its_batch_on_pages_of_its_own(build: Build) -> None:
    passages = [Passage(str(n), "title", "some words") for n in range(20)]
    assert build(passages).get_many(range(20)) == passages
    (place,) = np.fromfile(store_path("made") / "places.i64", dtype="<i8").reshape(-1, 3).tolist()
    assert place[2] - place[1] < 4096
