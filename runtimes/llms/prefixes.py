"""Keys and values of the beginnings of prompts, kept in blocks of 32 tokens between batches.

A block belongs to the exact tokens from the start of a prompt to the block's end. The blocks that were used longest ago are dropped.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

BLOCK = 32  # tokens


@dataclass(slots=True, eq=False)
class Block:
    """Keys and values of 32 tokens in all layers, (layers, heads, 32, width); None while the pass that computes them runs.

    Attributes:
        start: place of the first token in that pass.
    """

    keys: torch.Tensor | None = None
    values: torch.Tensor | None = None
    start: int = 0

    @property
    def n_bytes(self) -> int:
        """Memory of the keys and values."""
        return sum(tensor.nbytes for tensor in (self.keys, self.values) if tensor is not None)


class Prefixes:
    """Blocks of recent prompts.

    Args:
        max_bytes: memory for the blocks.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._blocks = OrderedDict[bytes, Block]()

    def match(self, ids: Sequence[int], n_reusable: int) -> tuple[list[Block], int]:
        """Return the blocks of a prompt, and how many of them, from the start, are known. The others are to be filled by the caller.

        Args:
            ids: the prompt.
            n_reusable: maximum number of tokens of the known blocks.
        """
        keys, blocks, n_known, key = list[bytes](), list[Block](), 0, b""
        for number in range(len(ids) // BLOCK):
            stop = (number + 1) * BLOCK
            key = hashlib.sha256(key + array("q", ids[stop - BLOCK : stop]).tobytes()).digest()
            block = self._blocks.get(key)
            if block is not None and n_known == number and stop <= n_reusable:
                n_known += 1
            else:
                block = Block()
                self._blocks.setdefault(key, block)
            keys.append(key)
            blocks.append(block)
        for key in reversed(keys):  # the first block is dropped last
            self._blocks.move_to_end(key)
        return blocks, n_known

    def trim(self) -> None:
        """Drop blocks beyond the memory limit."""
        n_bytes = sum(block.n_bytes for block in self._blocks.values())
        while n_bytes > self._max_bytes:
            n_bytes -= self._blocks.popitem(last=False)[1].n_bytes

    def clear(self) -> None:
        """Drop all blocks."""
        self._blocks.clear()
