from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from corpora.errors import ArtifactDamaged, IdxError
from corpora.passage import Passage
from corpora.store import PassageStore
from indexer import embed
from indexer.base import Vectors


class FakeHashEncoder:
    """Turns a text into the bits of its hash; counts the passages it was given."""

    dim = 16

    def __init__(self) -> None:
        self.n_passages = 0

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        bits = [np.unpackbits(np.frombuffer(hashlib.sha256(query.encode()).digest()[:2], dtype=np.uint8)) for query in queries]
        return np.array(bits, dtype=np.float32).reshape(len(queries), self.dim)

    def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
        self.n_passages += len(passages)
        return self.encode_queries([passage.text for passage in passages])


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed, "SHARD_ROWS", 1000)


def shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.usefixtures("small_shards")
def test_shards_hold_every_rows_vector(build: Callable[..., PassageStore], made_passages: list[Passage], tmp_path: Path) -> None:
    embed.write_shards(build(made_passages), FakeHashEncoder(), tmp_path, lambda done, total: None)
    written = np.concatenate([np.load(path) for path in sorted(tmp_path.glob("shard-*.npy"))])
    np.testing.assert_array_equal(written, FakeHashEncoder().encode_passages(made_passages))


@pytest.mark.usefixtures("small_shards")
def test_an_interrupted_run_encodes_no_finished_shard_again(
    build: Callable[..., PassageStore], made_passages: list[Passage], tmp_path: Path
) -> None:
    store = build(made_passages)
    for folder in ("whole", "resumed"):
        (tmp_path / folder).mkdir()
    embed.write_shards(store, FakeHashEncoder(), tmp_path / "whole", lambda done, total: None)

    def interrupt(done: int, total: int | None) -> None:
        if done >= 1500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed.write_shards(store, FakeHashEncoder(), tmp_path / "resumed", interrupt)
    encoder = FakeHashEncoder()
    embed.write_shards(store, encoder, tmp_path / "resumed", lambda done, total: None)
    assert encoder.n_passages == 2000
    assert shards(tmp_path / "resumed") == shards(tmp_path / "whole")


def test_a_vector_that_is_not_finite_stops_the_build_with_its_row(
    build: Callable[..., PassageStore], made_passages: list[Passage], tmp_path: Path
) -> None:
    class FakeBrokenEncoder(FakeHashEncoder):
        def encode_passages(self, passages: Sequence[Passage]) -> Vectors:
            vectors = super().encode_passages(passages)
            vectors[[n for n, passage in enumerate(passages) if passage.id == "1235"], 3] = np.nan
            return vectors

    with pytest.raises(IdxError, match="not finite for row 1234"):
        embed.write_shards(build(made_passages), FakeBrokenEncoder(), tmp_path, lambda done, total: None)
    assert list(tmp_path.glob("shard-*")) == []


def test_a_shard_of_another_shape_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "shard-00000.npy", np.zeros((3, 4), dtype=np.float32))
    with pytest.raises(ArtifactDamaged, match=r"holds float32 \(3, 4\) instead of float32 \(3, 5\)"):
        embed._map_shard(tmp_path / "shard-00000.npy", (3, 5))
    (tmp_path / "shard-00001.npy").write_bytes(b"not an array")
    with pytest.raises(ArtifactDamaged, match="cannot be read"):
        embed._map_shard(tmp_path / "shard-00001.npy", (3, 5))
