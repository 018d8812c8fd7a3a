from __future__ import annotations

import numpy as np
import pytest

from wikidx.indexer.networks import batching
from wikidx.indexer.networks.batching import batches, tokenizing_chunks


def made(n: int) -> np.typing.NDArray[np.int64]:
    return np.random.default_rng(2).integers(1, 300, size=n)


@pytest.mark.parametrize("n", [0, 1, 7, 1000])
@pytest.mark.parametrize("budget", [1, 299, 4096])
def test_every_text_is_in_one_batch_and_no_batch_is_over_budget(n: int, budget: int) -> None:
    lengths = made(n)
    found = list(batches(lengths, budget))
    assert sorted(np.concatenate([np.empty(0, dtype=np.int64), *found]).tolist()) == list(range(n))
    assert all(len(which) == 1 or len(which) * lengths[which].max() <= budget for which in found)


def test_batches_are_full_and_longest_first() -> None:
    lengths = made(1000)
    found = list(batches(lengths, 4096))
    longest = [int(lengths[which].max()) for which in found]
    assert longest == sorted(longest, reverse=True)
    # One more text would be over budget, or there is none.
    assert all((len(which) + 1) * length > 4096 for which, length in zip(found[:-1], longest[:-1], strict=True))
    padding = sum(len(which) * length for which, length in zip(found, longest, strict=True)) / lengths.sum() - 1
    assert padding < 0.05  # in any order it would be about 1


def test_texts_without_tokens_and_equal_lengths_keep_their_order() -> None:
    assert [which.tolist() for which in batches(np.array([2, 0, 2, 0, 2]), 4)] == [[0, 2], [4, 1], [3]]


def test_chunks_are_the_rows_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "CHUNK_ROWS", 5)
    assert list(tokenizing_chunks(range(10, 22))) == [range(10, 15), range(15, 20), range(20, 22)]
    assert list(tokenizing_chunks(range(0))) == []
