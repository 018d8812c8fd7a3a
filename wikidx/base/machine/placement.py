"""Placement of vectors and networks on GPUs by the memory that they need: arithmetic only, no device is asked.

Vectors may be divided among several GPUs, in equal parts. A network (encoder, reranker) is on one GPU. A language model takes a share of
the memory of each of its GPUs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

LARGEST_SHARE = 0.92  # of a GPU's memory for a language model: vLLM's default
SMALLEST_SHARE = 0.02
CUDA_BYTES = 1 << 30  # of each process on a GPU: modules of kernels, workspaces of matrix products, rounding of allocations; not measured


class Placement(NamedTuple):
    """Devices of vectors, and of networks that are opened beside them.

    Attributes:
        devices: torch's names of the devices that hold the vectors.
        reason: the reason for this choice, as a message of one line.
        networks: name and device of each network that has been considered.
    """

    devices: tuple[str, ...]
    reason: str
    networks: tuple[tuple[str, str], ...] = ()


ON_CPU = Placement(("cpu",), "exact search on the CPU")


class Card(NamedTuple):
    """A GPU with its free and its total memory in bytes."""

    number: int
    free: int
    total: int = 0


class Demand(NamedTuple):
    """Memory that a network, or vectors, need on GPUs.

    Attributes:
        name: name of the part, for messages.
        n_bytes: memory on the GPU of a network, or on each GPU that holds vectors.
        divided_bytes: vectors, which several GPUs divide equally.
    """

    name: str
    n_bytes: float
    divided_bytes: float = 0

    def on_each(self, n_gpus: int) -> int:
        """Return the bytes on each of several GPUs."""
        return math.ceil(self.divided_bytes / n_gpus + self.n_bytes)


class Allocation(NamedTuple):
    """Numbers of the GPUs that hold the vectors, ascending or as named, and the number of the GPU of each network."""

    vectors: tuple[int, ...]
    networks: tuple[int, ...] = ()


def place(vectors: Demand | None, networks: Sequence[Demand], cards: Sequence[Card], *, on_all: bool = False) -> Allocation | None:
    """Return the GPUs of vectors and networks that uses the fewest GPUs, of these the emptiest; None if no allocation fits.

    Args:
        vectors: memory of the vectors; None: networks only.
        networks: memory of each network.
        cards: the GPUs.
        on_all: divide the vectors among all GPUs, in their order, instead of the fewest.
    """
    numbers, free = [card.number for card in cards], [card.free for card in cards]
    sizes = [0] if vectors is None else [len(cards)] if on_all else range(1, len(cards) + 1)
    best: tuple[tuple[float, ...], Allocation] | None = None
    for places in itertools.product(range(len(cards)), repeat=len(networks)):
        rest = list(free)
        for network, place_ in zip(networks, places, strict=True):
            rest[place_] -= math.ceil(network.n_bytes)
        for n_gpus in sizes:
            each = vectors.on_each(n_gpus) if vectors is not None else 0
            by_room = sorted(range(len(cards)), key=lambda place_: (place_ not in places, -rest[place_], place_))
            chosen = sorted([place_ for place_ in by_room if rest[place_] >= each][:n_gpus])
            left = [rest[place_] - each * (place_ in chosen) for place_ in {*chosen, *places}]
            if len(chosen) < n_gpus or min(left, default=-1) < 0:
                continue
            rank = (len(left), n_gpus, *(-n_bytes for n_bytes in sorted(left)), *chosen, *places)
            if best is None or rank < best[0]:
                best = rank, Allocation(tuple(numbers[place_] for place_ in chosen), tuple(numbers[place_] for place_ in places))
    return None if best is None else best[1]


def place_processes(n_processes: int, vectors: Sequence[Demand], networks: Sequence[Demand], cards: Sequence[Card]) -> list[int] | None:
    """Return the number of the GPU of each of several processes, every one with all vectors and networks; None if they do not fit.

    Each process takes the emptiest GPU in turn.
    """
    needed = sum(math.ceil(demand.n_bytes + demand.divided_bytes) for demand in (*vectors, *networks))
    free, chosen = {card.number: card.free for card in cards}, list[int]()
    for _ in range(n_processes):
        number = max(free, key=lambda number: (free[number], -number), default=None)
        if number is None or free[number] < needed:
            return None
        free[number] -= needed
        chosen.append(number)
    return chosen


def largest_share(card: Card, others: Demand, promised: float, n_sharing: int) -> float:
    """Return the share of a GPU's memory for one of several language models, in whole percent.

    Args:
        card: the GPU.
        others: memory to leave free.
        promised: shares of models that are started later, as a fraction of the GPU's memory.
        n_sharing: number of models that divide the rest.
    """
    share = (card.free - others.n_bytes - promised * card.total) / card.total / n_sharing
    return math.floor(100 * min(LARGEST_SHARE, share)) / 100
