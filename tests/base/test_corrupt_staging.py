"""A build resumed over files that were corrupted meanwhile, and one whose input is corrupt while its files are intact."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.conftest import corpus_of
from wikidx.base.artifacts.building import staging_path
from wikidx.base.errors import ArtifactCorrupt
from wikidx.corpora.build import StoreOptions, build_store, open_store, store_path
from wikidx.corpora.passage import Passage
from wikidx.corpora.store import PassageStore
from wikidx.indexer.build import build_index
from wikidx.indexer.catalog import index_ref
from wikidx.indexer.indexes.bm25.files import BLOCK_ROWS

PASSAGES = [Passage(str(n), f"T{n // 4}", f"text of passage {n} " * 5) for n in range(600)]


def stop(done: int, total: int | None) -> None:
    if done >= 300:
        raise KeyboardInterrupt


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def scramble(path: Path) -> None:
    path.write_bytes(b"\xa5" * path.stat().st_size)


@pytest.mark.parametrize(
    ("name", "corrupt"), [("passages.lmdb", cut), ("passages.lmdb", scramble), ("text_keys.u64", cut), ("text_keys.u64", os.unlink)]
)
def test_a_store_is_rebuilt_over_corrupt_files(
    home: Path, name: str, corrupt: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikidx.corpora.store.writer._BATCH_PASSAGES", 100)
    with pytest.raises(KeyboardInterrupt):
        build_store(corpus_of(PASSAGES), StoreOptions(), storing=stop)
    corrupt(staging_path(store_path("made")) / name)
    build_store(corpus_of(PASSAGES), StoreOptions())
    assert list(open_store("made").read()) == PASSAGES


@pytest.fixture
def store_of_four_blocks(home: Path, monkeypatch: pytest.MonkeyPatch) -> PassageStore:
    """A store whose blocks are inverted one at a time, and another one while that is written."""
    monkeypatch.setattr("wikidx.indexer.indexes.bm25.inversion.n_threads", lambda: 1)
    passages = [Passage(str(n), "", f"text {n % 997} {n}") for n in range(3 * BLOCK_ROWS + 100)]
    build_store(corpus_of(passages), StoreOptions())
    return open_store("made")


def stop_after_two(done: int, total: int | None) -> None:
    if done > BLOCK_ROWS:
        raise KeyboardInterrupt


@pytest.mark.slow  # half a minute
@pytest.mark.parametrize(("name", "corrupt"), [("00001.rows.npz", cut), ("00000.postings.npy", cut), ("00001.terms.npy", scramble)])
def test_bm25_is_rebuilt_over_corrupt_files(store_of_four_blocks: PassageStore, name: str, corrupt: Callable[[Path], None]) -> None:
    undisturbed = build_index("made", "bm25", store_of_four_blocks, force=True)
    with pytest.raises(KeyboardInterrupt):
        build_index("made", "bm25", store_of_four_blocks, force=True, progress=stop_after_two)
    corrupt(staging_path(index_ref("made", "bm25").path) / "intermediate" / name)
    assert build_index("made", "bm25", store_of_four_blocks, force=True).files == undisturbed.files


def test_a_corrupt_store_costs_an_index_none_of_its_files(store_of_four_blocks: PassageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        build_index("made", "bm25", store_of_four_blocks, force=True, progress=stop_after_two)
    intermediate = staging_path(index_ref("made", "bm25").path) / "intermediate"
    finished = sorted(path.name for path in intermediate.iterdir())
    assert len(finished) == 9  # three files each; the third block was being inverted

    def corrupt(rows: Sequence[int]) -> list[Passage]:
        raise ArtifactCorrupt("the store is corrupt")

    monkeypatch.setattr(store_of_four_blocks, "get_many", corrupt)
    with pytest.raises(ArtifactCorrupt, match="the store is corrupt"):
        build_index("made", "bm25", store_of_four_blocks, force=True)
    assert sorted(path.name for path in intermediate.iterdir()) == finished
