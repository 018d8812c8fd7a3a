"""Bytes as numbers of several sizes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Bytes(NamedTuple):
    """Bytes, and the little-endian numbers that begin at each of them."""

    each: NDArray[np.uint8]
    shorts: NDArray[np.uint16]
    offsets: NDArray[np.uint32]
    words: NDArray[np.uint64]


def bytes_of(content: NDArray[np.uint8]) -> Bytes:
    """Return the numbers that begin at each byte of an array, which must stay as it is: they are views of it."""
    views = [np.ndarray(max(0, len(content) - size + 1), f"<u{size}", content.data, strides=(1,)) for size in (2, 4, 8)]
    return Bytes(content, *views)
