"""Kernels of the sums of pages, which ``checked_files`` compares. numba takes half a second to import: they have a module of their own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wikidx.base.compiled import kernel

_PRIME = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplication modulo 2**64 is invertible


@kernel
def pages_match(
    content: NDArray[np.uint8],
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    sums: NDArray[np.uint64],
    is_checked: NDArray[np.bool_],
    page_bytes: int,
) -> bool:
    """Return whether the pages of the byte ranges match their checksums. Pages in ``is_checked`` are skipped."""
    for i in range(len(starts)):
        if starts[i] < stops[i]:
            for page in range(starts[i] // page_bytes, (stops[i] - 1) // page_bytes + 1):
                if not is_checked[page]:
                    if _page_sum(content[page * page_bytes : (page + 1) * page_bytes]) != sums[page]:
                        return False
                    is_checked[page] = True
    return True


@kernel
def page_sums(content: NDArray[np.uint8], page_bytes: int) -> NDArray[np.uint64]:
    """Return the checksum of every page."""
    sums = np.empty((len(content) + page_bytes - 1) // page_bytes, dtype=np.uint64)
    for page in range(len(sums)):
        sums[page] = _page_sum(content[page * page_bytes : (page + 1) * page_bytes])
    return sums


@kernel
def _page_sum(data: NDArray[np.uint8]) -> np.uint64:
    """Return a checksum that detects every change of a single 8-byte word, because each step is invertible. It is not cryptographic."""
    n_words = len(data) // 8
    words = data[: 8 * n_words].view(np.uint64)
    total = np.uint64(len(data))
    first, second, third, fourth = total, total, total, total  # four independent sums, which a CPU computes in parallel
    n_fours = n_words // 4
    for number in range(0, 4 * n_fours, 4):
        first = _mix(first, words[number])
        second = _mix(second, words[number + 1])
        third = _mix(third, words[number + 2])
        fourth = _mix(fourth, words[number + 3])
    for part in (first, second, third, fourth):
        total = _mix(total, part)
    for word in words[4 * n_fours :]:
        total = _mix(total, word)
    for byte in data[8 * n_words :]:
        total = _mix(total, np.uint64(byte))
    return total


@kernel
def _mix(total: np.uint64, word: np.uint64) -> np.uint64:
    product = (total ^ word) * _PRIME
    return product ^ (product >> np.uint64(32))
