"""Conversion of terms from UTF-16 to UTF-8. Lucene's length limit and stemmer count UTF-16 units; stored terms are UTF-8."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wikidx.indexer.machine.compiled import kernel

Units = NDArray[np.uint16]

FIRST_NOT_ASCII = 0x80
FIRST_OF_TWO_UNITS = 0x10000
HIGH_SURROGATES, LOW_SURROGATES = 0xD800, 0xDC00
_AFTER_SURROGATES = 0xE000
_FIRST_OF_THREE_BYTES = 0x800


@kernel
def write_utf8(units: Units, n: int, pool: NDArray[np.uint8], position: int) -> int:
    """Write ``units[:n]`` as UTF-8 to ``pool`` from ``position`` on; return the end position. Surrogates must be paired."""
    i = 0
    while i < n:
        point = np.int64(units[i])
        i += 1
        if point < FIRST_NOT_ASCII:
            pool[position] = point
            position += 1
            continue
        if point < _FIRST_OF_THREE_BYTES:
            pool[position] = 0xC0 | point >> 6
        else:
            if point < HIGH_SURROGATES or point >= _AFTER_SURROGATES:
                pool[position] = 0xE0 | point >> 12
            else:
                point = FIRST_OF_TWO_UNITS + (point - HIGH_SURROGATES << 10) + (np.int64(units[i]) - LOW_SURROGATES)
                i += 1
                pool[position] = 0xF0 | point >> 18
                position += 1
                pool[position] = 0x80 | point >> 12 & 0x3F
            position += 1
            pool[position] = 0x80 | point >> 6 & 0x3F
        position += 1
        pool[position] = 0x80 | point & 0x3F
        position += 1
    return position
