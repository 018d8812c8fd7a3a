"""Division of a stream into batches of limited length and size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def in_batches(items: Iterable[Item], size_of: Callable[[Item], int], most_items: int, most_size: int) -> Iterator[list[Item]]:
    """Yield the items in lists, each ended by its ``most_items``-th, or by that with which their sizes reach ``most_size``."""
    batch, size = list[Item](), 0
    for item in items:
        batch.append(item)
        size += size_of(item)
        if len(batch) == most_items or size >= most_size:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
