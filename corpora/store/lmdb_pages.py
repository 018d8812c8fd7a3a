"""Which pages of an LMDB file its tables are on: what ``pages`` has checksums of. LMDB itself does not tell.

LMDB's pages on little-endian machines of 64 bits: a head of 16 bytes, which says where the table of nodes ends; that table, the offset of
each node; and the nodes, each of 8 bytes (in a branch the number of a page, in a leaf the length of the data and flags), key and data. A
table is a tree, and so are the tables by their names, and the values of one key if they are many.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_TREE = struct.Struct("<IHH32xQ")  # MDB_db: bytes of a page, flags, depth, (counts), number of the root
_FREE_TREE, _MAIN_TREE, _TRANSACTION = 40, 88, 144  # where they are on the first two pages, of which the later transaction's counts
_META_BYTES = 152
_HEAD_BYTES, _NODES_END = 16, 12
_NODE = struct.Struct("<IHH")  # length of the data, flags, length of the key
_IS_LONG, _HAS_TREE = 0x01, 0x02  # flags: the data are the number of the first of the pages that hold it; they are a tree

Pages = NDArray[np.uint8]


class TablePages(NamedTuple):
    """Numbers of pages: those that lead to others, with the table ``about``; the leaves of ids and titles; those of passages."""

    leading: list[int]
    named: list[int]
    passages: list[int]


def page_bytes_of(raw: bytes) -> int:
    """Return the size of a page, from the first bytes of a file."""
    found: int = _TREE.unpack_from(raw, _FREE_TREE)[0]
    return found


def table_pages(pages: Pages) -> TablePages:
    """Return the pages of the tables of a store, from all pages, shape (n, bytes of a page)."""
    _, main = max((int.from_bytes(raw[_TRANSACTION:_META_BYTES], "little"), raw) for raw in (page.tobytes() for page in pages[:2]))
    branches, leaves = _tree(pages, *_root(main, _MAIN_TREE))
    leading, tables = [0, 1, *branches, *leaves], dict[bytes, list[int]]()
    for name, (branches, of_table) in _trees(pages, leaves):
        leading += branches
        tables[name] = of_table
    leading += [*tables[b"about"], *_continuations(pages, tables[b"about"])]
    many = [number for _, of_values in _trees(pages, tables[b"titles"]) for numbers in of_values for number in numbers]
    return TablePages(leading, [*tables[b"ids"], *tables[b"titles"], *many], tables[b"passages"])


def first_row(leaf: Pages) -> int:
    """Return the first key of a leaf of passages."""
    raw = leaf.tobytes()
    key = _nodes(raw)[0] + _NODE.size
    return int.from_bytes(raw[key : key + 4], "big")


def _root(raw: bytes, place: int) -> tuple[int, int]:
    """Return the number of the root of the tree that stands somewhere, and the tree's depth."""
    _, _, depth, root = _TREE.unpack_from(raw, place)
    return root, depth


def _tree(pages: Pages, root: int, depth: int) -> tuple[list[int], list[int]]:
    """Return the numbers of the branches and of the leaves of a tree."""
    branches, level = list[int](), [root] if depth else []
    for _ in range(depth - 1):
        branches += level
        raws = (pages[number].tobytes() for number in level)
        level = [int.from_bytes(raw[node : node + 6], "little") for raw in raws for node in _nodes(raw)]
    return branches, level


def _trees(pages: Pages, leaves: list[int]) -> Iterator[tuple[bytes, tuple[list[int], list[int]]]]:
    """Yield the key, and the branches and leaves, of each tree that is the data of a node."""
    for raw in (pages[number].tobytes() for number in leaves):
        for node in _nodes(raw):
            _, flags, key_bytes = _NODE.unpack_from(raw, node)
            data = node + _NODE.size + key_bytes
            if flags & _HAS_TREE:
                yield raw[node + _NODE.size : data], _tree(pages, *_root(raw, data))


def _continuations(pages: Pages, leaves: list[int]) -> Iterator[int]:
    """Yield the numbers of the pages with data that are too long for a leaf."""
    for raw in (pages[number].tobytes() for number in leaves):
        for node in _nodes(raw):
            n_bytes, flags, key_bytes = _NODE.unpack_from(raw, node)
            if flags & _IS_LONG:
                first = int.from_bytes(raw[(data := node + _NODE.size + key_bytes) : data + 8], "little")
                yield from range(first, first + -(-(_HEAD_BYTES + n_bytes) // pages.shape[1]))


def _nodes(raw: bytes) -> tuple[int, ...]:
    """Return where the nodes of a page are."""
    (end,) = struct.unpack_from("<H", raw, _NODES_END)
    return struct.unpack_from(f"<{(end - _HEAD_BYTES) // 2}H", raw, _HEAD_BYTES)
