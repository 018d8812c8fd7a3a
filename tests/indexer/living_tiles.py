"""Count of the tiles of scores that exact search by torch holds at a time."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from wikidx.indexer.indexes.exact.gpu import DeviceShard


def count_living_tiles(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each tile, when it is computed, adds the number of earlier ones that are still held."""
    compute, n_alive, tiles = DeviceShard._scores, list[int](), weakref.WeakSet[Any]()

    def watch(*arguments: Any) -> Any:  # noqa: ANN401 - torch may be absent
        n_alive.append(len(tiles))
        scores = compute(*arguments)
        tiles.add(scores)
        return scores

    monkeypatch.setattr(DeviceShard, "_scores", watch)
    return n_alive
