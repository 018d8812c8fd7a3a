"""A build resumed over pieces that were corrupted meanwhile, and one whose input is corrupt while its pieces are intact."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.conftest import corpus_of
from wikidx.corpora.artifacts.building import staging_path
from wikidx.corpora.build import StoreOptions, build_store, open_store, store_path
from wikidx.corpora.errors import ArtifactDamaged
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
    ("name", "damage"), [("passages.lmdb", cut), ("passages.lmdb", scramble), ("text_keys.u64", cut), ("text_keys.u64", os.unlink)]
)
def test_a_store_begins_again_over_damaged_pieces(
    home: Path, name: str, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikidx.corpora.store.writer._BATCH_PASSAGES", 100)
    with pytest.raises(KeyboardInterrupt):
        build_store(corpus_of(PASSAGES), StoreOptions(), storing=stop)
    damage(staging_path(store_path("made")) / name)
    build_store(corpus_of(PASSAGES), StoreOptions())
    assert list(open_store("made").read()) == PASSAGES


@pytest.fixture
def store_of_three_pieces(home: Path) -> PassageStore:
    passages = [Passage(str(n), "", f"text {n % 997} {n}") for n in range(2 * BLOCK_ROWS + 100)]
    build_store(corpus_of(passages), StoreOptions())
    return open_store("made")


def stop_after_two(done: int, total: int | None) -> None:
    if done > BLOCK_ROWS:
        raise KeyboardInterrupt


@pytest.mark.slow  # half a minute
@pytest.mark.parametrize(("name", "damage"), [("00001.rows.npz", cut), ("00000.postings.npy", cut), ("00001.terms.npy", scramble)])
def test_bm25_begins_again_over_damaged_pieces(store_of_three_pieces: PassageStore, name: str, damage: Callable[[Path], None]) -> None:
    undisturbed = build_index("made", "bm25", store_of_three_pieces, force=True)
    with pytest.raises(KeyboardInterrupt):
        build_index("made", "bm25", store_of_three_pieces, force=True, progress=stop_after_two)
    damage(staging_path(index_ref("made", "bm25").path) / "pieces" / name)
    assert build_index("made", "bm25", store_of_three_pieces, force=True).files == undisturbed.files


def test_a_damaged_store_costs_an_index_none_of_its_pieces(store_of_three_pieces: PassageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        build_index("made", "bm25", store_of_three_pieces, force=True, progress=stop_after_two)
    pieces = staging_path(index_ref("made", "bm25").path) / "pieces"
    finished = sorted(path.name for path in pieces.iterdir())
    assert len(finished) == 6  # three files each

    def damaged(rows: Sequence[int]) -> list[Passage]:
        raise ArtifactDamaged("the store is damaged")

    monkeypatch.setattr(store_of_three_pieces, "get_many", damaged)
    with pytest.raises(ArtifactDamaged, match="the store is damaged"):
        build_index("made", "bm25", store_of_three_pieces, force=True)
    assert sorted(path.name for path in pieces.iterdir()) == finished
