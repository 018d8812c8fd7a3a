"""Files of a store, and bytes read as numbers.

    passages.lmdb  LMDB: row of a batch's first passage (u32, big-endian) -> the batch (see ``batches``)
    places.i64     first row, start and end of each batch in that file, little-endian int64, (n, 3)
    vocabulary     frequent phrases, in which passages are written (see ``frames``); none for a tiny corpus
    text_keys.u64  the text key of each row (see ``corpora.passage.text_key``), little-endian uint64
    ids.u64        sorted little-endian uint64 words that find rows by id (see ``names``)
    titles.u64     sorted little-endian uint64 words that find rows by title
    repeated.u32   if any: pairs of record numbers, a record that repeats an id and is left out, and the first record with this id
    columns.arrow  if a passage has a span: the span of each row, an uncompressed file of Arrow (see ``columns``)
    columns.i64    where each batch of rows begins in it, and its footer, little-endian int64
    documents.u32  the first row of each row's document, or its own, little-endian uint32
    sums           checksums of the pages of all of these (see ``base.artifacts.checked_files``)

LMDB makes a build resumable: each batch is one transaction, and one writer appends. At the end the database is copied without its free
pages, so that the bytes of a store depend on its passages alone. A finished store is read at the places of its batches, and LMDB does not
open it. For values of 60 passages, which are large enough not to share a page, LMDB's ``get`` takes 1.3 to 4 µs, where a passage is decoded
in 1.3: 512 questions with ten results each would take 7 ms more, in addition to 38. And a flipped bit in one of its own pages would end the
process.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

KIND = "passages"
FORMAT_VERSION = 6
DATABASE = "passages.lmdb"
PLACES = "places.i64"
VOCABULARY = "vocabulary"
TEXT_KEYS = "text_keys.u64"
IDS = "ids.u64"
TITLES = "titles.u64"
REPEATED = "repeated.u32"
COLUMNS = "columns.arrow"
COLUMN_BATCHES = "columns.i64"
DOCUMENTS = "documents.u32"
MAX_ID_BYTES = 511
MOST_PHRASES = 65_534

_LENGTHS = struct.Struct("<III")


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


def pack(id_: bytes, title: bytes, text: bytes) -> bytes:
    """Return the bytes of one passage: three lengths (u32, little-endian), then id, title and text in UTF-8.

    The fingerprint of a corpus is the sha256 of these bytes, concatenated for all passages in row order.
    """
    return _LENGTHS.pack(len(id_), len(title), len(text)) + id_ + title + text


def key_of(repeated: bytes) -> str:
    """Return a key of the records that are left out because they repeat an id, from ``repeated.u32``; "" if there are none."""
    return hashlib.sha256(repeated).hexdigest() if repeated else ""
