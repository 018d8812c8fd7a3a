"""Frames: each is one passage, written with the frequent phrases of its corpus (see ``phrases``) or, if that is shorter, by zstd.

Numbers are little-endian. A frame is one of

    u32 checksum, then the number of each phrase (u16)
    u32 row, u16 65535, then a frame of zstd, which has a checksum of its own
    u32 crc32, u16 65534, then the bytes as they are, in a small corpus

Its bytes are the lengths of id and title (seven bits a byte, the lowest first), then id, title and text in UTF-8. Both checksums cover the
row as well as the content, so that no frame passes for that of another row.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Sequence

import numpy as np
import zstandard
from numpy.typing import NDArray

from wikidx.corpora.passage import Passage

from .views import Bytes, bytes_of

_ROW = struct.Struct("<I")
_HEADER = struct.Struct("<IH")
_PADDING = bytes(16)
_COMPRESSION_LEVEL = 3
_SAMPLE_BYTES = 16 << 20
_RAW, _ZSTD = 0xFFFE, 0xFFFF
_LEAST_BYTES = 1 << 20  # a corpus with fewer has no phrases, and is stored as it is: that needs no compiled loops
_FREQUENT = 5  # of 16,384 passages of wiki_intro: 256 bytes a passage; with 8, 271
_GOOD_RATIO = 2  # a passage written in less than half of its bytes is not compared with zstd
_LARGEST = 1 << 32  # of a corrupt frame, the size may be any number
_WORTH_LOADING = 64  # passages; they have most of the phrases
_MOST_ROOM = 16 << 20  # bytes that a thread keeps
_BYTES_PER_BYTE = 8  # a number of two bytes is that of up to 16


def to_stream(id_: bytes, title: bytes, text: bytes) -> bytes:
    """Return the bytes that a frame holds."""
    return _to_length(len(id_)) + _to_length(len(title)) + id_ + title + text


def _to_length(value: int) -> bytes:
    if value <= 127:  # nearly all, without the loop
        return bytes((value,))
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


class Vocabulary:
    """The phrases of a store; safe for threads.

    Args:
        saved: what ``save`` returned; empty: no phrases, passages are stored as they are.

    Raises:
        struct.error: ``saved`` is corrupt.
    """

    def __init__(self, saved: bytes) -> None:
        self._saved = saved
        self._lengths, self._words = np.zeros(1 << 16, dtype=np.uint8), np.zeros((1 << 16, 2), dtype="<u8")
        if saved:
            (n_phrases,) = _ROW.unpack_from(saved)
            lengths = np.frombuffer(saved[_ROW.size : _ROW.size + n_phrases], np.uint8)
            phrases = np.frombuffer(saved[_ROW.size + n_phrases :], np.uint8)
            within = np.arange(16) < lengths[:, None]
            if len(lengths) != n_phrases or n_phrases > len(self._lengths) or within.sum() != len(phrases):
                raise struct.error(f"a vocabulary of {n_phrases:,} phrases does not have {len(saved):,} bytes")
            self._lengths[:n_phrases] = lengths
            self._words.view(np.uint8)[:n_phrases][within] = phrases
        self._phrases: object = None
        self._local = threading.local()

    def save(self) -> bytes:
        """Return the vocabulary as bytes: the number of phrases (u32, little-endian), the length of each (u8), and all their bytes."""
        return self._saved

    def encode(self, streams: Sequence[bytes], rows: Sequence[int]) -> list[bytes]:
        """Return the frames of the streams of these rows."""
        if not self._saved:
            return [_HEADER.pack(zlib.crc32(stream, row), _RAW) + stream for stream, row in zip(streams, rows, strict=True)]
        compress = zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL, write_checksum=True).compress
        frames = []
        for stream, row, frame in zip(streams, rows, self._write(streams, rows), strict=True):
            is_long = _GOOD_RATIO * len(frame) > len(stream)
            frames.append(min(frame, _HEADER.pack(row, _ZSTD) + compress(stream), key=len) if is_long else frame)
        return frames

    def _write(self, streams: Sequence[bytes], rows: Sequence[int]) -> list[bytes]:
        """Return the frames with phrases."""
        from . import phrases as kernels  # numba takes half a second, which not every command needs

        if self._phrases is None:
            self._phrases = _index(self._words, self._lengths)
        text, ends = _join(streams)
        numbers, number_ends = np.empty(int(ends[-1]) + 8, dtype=np.uint16), np.empty(len(ends), dtype=np.int64)
        kernels.encode(self._phrases, bytes_of(text), ends, numbers, number_ends)
        stops, sums = 2 * number_ends, np.empty(len(ends), dtype=np.uint32)
        starts = np.concatenate([[0], stops[:-1]])
        kernels.checksums(bytes_of(numbers.view(np.uint8)), starts, stops, np.array(rows, dtype=np.int64), sums)
        content = numbers.tobytes()
        return [
            _ROW.pack(sum_) + content[start:stop] for sum_, start, stop in zip(sums.tolist(), starts.tolist(), stops.tolist(), strict=True)
        ]

    def decode(self, content: Bytes, frames: NDArray[np.int64], rows: NDArray[np.int64]) -> list[Passage]:
        """Return the passages of frames.

        Args:
            content: bytes that contain the frames.
            frames: the start and the end of each frame in it, (n, 2); -1 if they are unknown.
            rows: the row of each frame.

        Raises:
            struct.error, UnicodeDecodeError, zstandard.ZstdError: a frame is corrupt.
        """
        if not self._saved:
            view = content.each.data  # its parts are made faster than those of an array
            return [unescape(view[start:end], row) for (start, end), row in zip(frames.tolist(), rows.tolist(), strict=True)]
        if not len(rows):
            return []
        from wikidx.base.compiled import interpreted

        from . import phrases as kernels

        n_bytes = int((frames[:, 1] - frames[:, 0]).sum())
        out, fields = self._room(8 * n_bytes + 16), np.empty((len(rows), 4), dtype=np.int64)
        if len(rows) >= _WORTH_LOADING:
            self._read_into_caches(content, frames)
        with interpreted(n_bytes):
            n_written = kernels.decode(content, frames, rows, self._words, self._lengths, out, fields)
        text, new = out.each[:n_written].tobytes(), tuple.__new__  # which avoids the Python call in Passage(*fields)
        return [
            new(Passage, (text[start:title_start].decode(), text[title_start:text_start].decode(), text[text_start:end].decode()))
            if end >= 0
            else _read_another(content, frames[number], int(rows[number]), is_corrupt=end == kernels.CORRUPT)
            for number, (start, title_start, text_start, end) in enumerate(fields.tolist())
        ]

    def _read_into_caches(self, content: Bytes, frames: NDArray[np.int64]) -> None:
        """Read phrases and frames without waiting for each in turn. A search has driven them from the processor's caches."""
        self._words[::4, 0].max()
        content.each.take(frames[:, 0])

    def _room(self, n_bytes: int) -> Bytes:
        """Return room for decoding. Each thread keeps its own, because new memory takes a quarter of the time until it is mapped."""
        room: Bytes | None = getattr(self._local, "room", None)
        if room is None or len(room.each) < n_bytes:
            room = bytes_of(np.empty(n_bytes, dtype=np.uint8))
            if n_bytes <= _MOST_ROOM:
                self._local.room = room
        return room


def sizes(content: Bytes, frames: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many bytes each frame holds at most; raises as ``Vocabulary.decode`` does."""
    estimates = _BYTES_PER_BYTE * (frames[:, 1] - frames[:, 0])
    for number, (start, end) in enumerate(frames.tolist()):
        head = content.each[start : min(end, start + 32)].tobytes()
        if head[4:6] == b"\xfe\xff":
            estimates[number] = end - start
        elif head[4:6] == b"\xff\xff":
            estimates[number] = min(zstandard.frame_content_size(head[6:]), _LARGEST)
    return estimates


def train(streams: Sequence[bytes], least_bytes: int = _LEAST_BYTES) -> Vocabulary:
    """Return a vocabulary of phrases that are frequent in the samples; without phrases if the samples have fewer bytes."""
    text, ends = _join(streams)
    ends = ends[ends <= _SAMPLE_BYTES]
    if not len(ends) or ends[-1] < least_bytes:
        return Vocabulary(b"")
    from . import phrases as kernels

    words, lengths = np.zeros((1 << 16, 2), dtype="<u8"), np.zeros(1 << 16, dtype=np.uint8)
    words[:256, 0], lengths[:256] = np.arange(256), 1
    n_phrases = kernels.train(_index(words, lengths), bytes_of(text), ends, _FREQUENT)
    within = np.arange(16) < lengths[:, None]
    return Vocabulary(_ROW.pack(n_phrases) + lengths[:n_phrases].tobytes() + words.view(np.uint8)[within].tobytes())


def _index(words: NDArray[np.uint64], lengths: NDArray[np.uint8]) -> object:
    """Return the phrases with a hash table that finds them."""
    from . import phrases as kernels

    slots, longest = np.full(kernels.N_SLOTS, -1, dtype=np.int32), np.zeros(1 << 16, dtype=np.uint8)
    phrases = kernels.Phrases(words, lengths, slots, longest)
    kernels.insert_all(phrases, np.count_nonzero(lengths))
    return phrases


def _join(streams: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the streams one after the other, with room to read beyond the last, and the end of each."""
    text = np.frombuffer(bytearray(b"".join([*streams, _PADDING])), dtype=np.uint8)
    return text, np.cumsum([len(stream) for stream in streams], dtype=np.int64)


def _read_another(content: Bytes, frame: NDArray[np.int64], row: int, *, is_corrupt: bool) -> Passage:
    """Return the passage in a frame that kernels did not decode; raise ``struct.error`` if it is corrupt."""
    if is_corrupt:
        raise struct.error(f"the frame of row {row} does not match its checksum")
    return unescape(content.each.data[slice(*frame)], row)


def unescape(frame: bytes | memoryview, row: int) -> Passage:
    """Return the passage in a frame without phrases.

    Raises:
        struct.error: the frame belongs to another row, or is too short.
        UnicodeDecodeError, zstandard.ZstdError: the frame is corrupt.
    """
    row_or_sum, kind = _HEADER.unpack_from(frame)
    content = bytes(frame[_HEADER.size :])
    if kind == _RAW:
        stream = content
        if row_or_sum != zlib.crc32(stream, row):
            raise struct.error(f"the frame of row {row} does not match its checksum")
    elif row_or_sum != row or zstandard.frame_content_size(content) > _LARGEST:
        raise struct.error(f"row {row_or_sum} is where row {row} should be")
    else:
        stream = zstandard.decompress(content)
    if len(stream) > 1 and stream[0] < 128 and stream[1] < 128:  # nearly all
        n_id, n_title, at = stream[0], stream[1], 2
    else:
        n_id, at = _read_length(stream, 0)
        n_title, at = _read_length(stream, at)
    title_start, text_start = at + n_id, at + n_id + n_title
    return tuple.__new__(Passage, (stream[at:title_start].decode(), stream[title_start:text_start].decode(), stream[text_start:].decode()))


def _read_length(stream: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(stream):
        byte = stream[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte <= 127:
            break
    return value, at
