"""Fit of vectors and networks on GPUs by the memory that they need: arithmetic only, no device is asked.

Vectors may be divided among several GPUs, in equal parts. A network (encoder, reranker) is on one GPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

CUDA_BYTES = 1 << 30  # of each process on a GPU: modules of kernels, workspaces of matrix products, rounding of allocations; not measured


class Placement(NamedTuple):
    """Devices of vectors.

    Attributes:
        devices: torch's names of the devices that hold the vectors.
        reason: the reason for this choice, as a message of one line.
    """

    devices: tuple[str, ...]
    reason: str


ON_CPU = Placement(("cpu",), "exact search on the CPU")


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


def fit(demand: Demand, free: Mapping[int, int], *, on_all: bool = False) -> tuple[int, ...]:
    """Return the numbers of the fewest GPUs on which a demand fits, of these the emptiest; none if it does not fit.

    Args:
        demand: the memory.
        free: free bytes of each GPU, by its number.
        on_all: divide the vectors among all GPUs, in their order, instead of the fewest.
    """
    emptiest = sorted(free, key=lambda number: (-free[number], number))
    choices = [tuple(free)] if on_all else [tuple(sorted(emptiest[:n])) for n in range(1, len(free) + 1)]
    fitting = (chosen for chosen in choices if chosen and min(free[number] for number in chosen) >= demand.on_each(len(chosen)))
    return next(fitting, ())
