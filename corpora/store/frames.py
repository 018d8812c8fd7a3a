"""Frames: each is one passage, written with the frequent phrases of its corpus or, if that is shorter, by zstd.

A vocabulary has up to 65,534 phrases of 1 to 16 bytes, among them every single byte. A text is written as the numbers of phrases, from left
to right the longest that fits. Numbers are little-endian. A frame is one of

    the number of each phrase (u16)
    u16 65535, then a frame of zstd
    u16 65534, then the bytes as they are, in a small corpus

Its bytes are the lengths of id and title (seven bits a byte, the lowest first), then id, title and text in UTF-8.

Why not zstd with a trained dictionary alone: of 40,000 passages of wiki_intro, 677 bytes each, phrases leave 221 bytes. zstd leaves 282
with a dictionary of 110 kB at level 3, 258 with one of 1 MB, and 233 with that at level 9, which takes 2.6 times as long to write. Its
frames take 1.6 to 2.4 times as long to read, and a BM25 search for ten results then a tenth longer (2026-11-28).
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence

import numpy as np
import zstandard
from numpy.typing import NDArray

from wikidx.corpora.passage import Passage

from .layout import MOST_PHRASES, Bytes, bytes_of

_RAW, _ZSTD = 0xFFFE, 0xFFFF  # instead of the first phrase's number
_KIND = struct.Struct("<H")
_PADDING = bytes(16)
_COMPRESSION_LEVEL = 3
_SAMPLE_BYTES = 16 << 20
_LEAST_BYTES = 1 << 20  # a corpus with fewer has no phrases, and is stored as it is
_FREQUENT = 5  # of 16,384 passages of wiki_intro: 252 bytes a passage; with 8, 267
_GOOD_RATIO = 2  # a passage written in less than half of its bytes is not compared with zstd
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
    """The phrases of a store; safe for threads. Without phrases, passages are stored as they are.

    Args:
        saved: the number of phrases (u32, little-endian), the length of each (u8), and all their bytes; also an attribute.

    Raises:
        ValueError: ``saved`` is corrupt.
    """

    def __init__(self, saved: bytes) -> None:
        self.saved = saved
        self._n_phrases = n = int.from_bytes(saved[:4], "little")
        lengths, phrases = np.frombuffer(saved[4 : 4 + n], np.uint8), np.frombuffer(saved[4 + n :], np.uint8)
        within = np.arange(16) < lengths[:, None]
        if len(saved) < 4 or len(lengths) != n or n > MOST_PHRASES or within.sum() != len(phrases):
            raise ValueError(f"a vocabulary of {n:,} phrases does not have {len(saved):,} bytes")
        self._lengths, self._words = np.zeros(1 << 16, dtype=np.uint8), np.zeros((1 << 16, 2), dtype="<u8")
        self._lengths[:n] = lengths
        self._words.view(np.uint8)[:n][within] = phrases
        self._phrases: object = None
        self._local = threading.local()

    def encode(self, streams: Sequence[bytes]) -> list[bytes]:
        """Return the frames of streams."""
        if not self._n_phrases:
            return [_KIND.pack(_RAW) + stream for stream in streams]
        compress = zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL).compress
        frames = []
        for stream, frame in zip(streams, self._write(streams), strict=True):
            is_long = _GOOD_RATIO * len(frame) > len(stream)
            frames.append(min(frame, _KIND.pack(_ZSTD) + compress(stream), key=len) if is_long else frame)
        return frames

    def _write(self, streams: Sequence[bytes]) -> list[bytes]:
        """Return the frames with phrases."""
        from .phrases import encode_phrases, index_phrases  # which import numba

        if self._phrases is None:
            self._phrases = index_phrases(self._words, self._lengths)
        text, ends = _join(streams)
        numbers, number_ends = np.empty(int(ends[-1]) + 8, dtype=np.uint16), np.empty(len(ends), dtype=np.int64)
        encode_phrases(self._phrases, bytes_of(text), ends, numbers, number_ends)
        stops, content = (2 * number_ends).tolist(), numbers.tobytes()
        return [content[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]

    def decode(self, content: Bytes, frames: NDArray[np.int64]) -> list[Passage]:
        """Return the passages of frames.

        Args:
            content: bytes that contain the frames.
            frames: the start and the end of each frame in it, (n, 2).
        """
        if not self._n_phrases:
            view = content.each.data  # its parts are made faster than those of an array
            return [_without_phrases(view[start:end]) for start, end in frames.tolist()]
        if not len(frames):
            return []
        from wikidx.base.compiled import interpreted

        from .phrases import ANOTHER, decode_frames

        n_bytes = int((frames[:, 1] - frames[:, 0]).sum())
        out, fields = self._room(8 * n_bytes + 16), np.empty((len(frames), 4), dtype=np.int64)
        if len(frames) >= _WORTH_LOADING:
            self._read_into_caches(content, frames)
        with interpreted(n_bytes):
            n_written = decode_frames(content, frames, self._words, self._lengths, out, fields)
        text, new = out.each[:n_written].tobytes(), tuple.__new__  # which avoids the Python call in Passage(*fields)
        return [
            new(Passage, (text[start:title_start].decode(), text[title_start:text_start].decode(), text[text_start:end].decode()))
            if end != ANOTHER
            else _without_phrases(content.each.data[slice(*frames[number])])
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
    """Return how many bytes the passage of each frame has at most."""
    estimates = _BYTES_PER_BYTE * (frames[:, 1] - frames[:, 0])
    for number in np.flatnonzero(content.shorts[frames[:, 0]] >= MOST_PHRASES):
        kind, stream = _split(content.each.data[slice(*frames[number])])
        estimates[number] = zstandard.frame_content_size(stream) if kind == _ZSTD else len(stream)
    return estimates


def train(streams: Sequence[bytes], least_bytes: int = _LEAST_BYTES) -> Vocabulary:
    """Return a vocabulary of phrases that are frequent in the samples; without phrases if the samples have fewer bytes."""
    from .phrases import index_phrases, train_phrases

    text, ends = _join(streams)
    ends = ends[ends <= _SAMPLE_BYTES]
    if not len(ends) or ends[-1] < least_bytes:
        return Vocabulary(bytes(4))
    words, lengths = np.zeros((1 << 16, 2), dtype="<u8"), np.zeros(1 << 16, dtype=np.uint8)
    words[:256, 0], lengths[:256] = np.arange(256), 1
    n_phrases = train_phrases(index_phrases(words, lengths), bytes_of(text), ends, _FREQUENT)
    within = np.arange(16) < lengths[:, None]
    return Vocabulary(n_phrases.to_bytes(4, "little") + lengths[:n_phrases].tobytes() + words.view(np.uint8)[within].tobytes())


def _join(streams: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the streams one after the other, with room to read beyond the last, and the end of each."""
    text = np.frombuffer(bytearray(b"".join([*streams, _PADDING])), dtype=np.uint8)
    return text, np.cumsum([len(stream) for stream in streams], dtype=np.int64)


def _without_phrases(frame: memoryview) -> Passage:
    """Return the passage in a frame without phrases."""
    kind, stream = _split(frame)
    if kind == _ZSTD:
        stream = zstandard.decompress(stream)
    if len(stream) > 1 and stream[0] < 128 and stream[1] < 128:  # nearly all
        n_id, n_title, at = stream[0], stream[1], 2
    else:
        from .phrases import read_length

        n_id, at = read_length.py_func(stream, 0, len(stream))
        n_title, at = read_length.py_func(stream, at, len(stream))
    title_start, text_start = at + n_id, at + n_id + n_title
    return tuple.__new__(Passage, (stream[at:title_start].decode(), stream[title_start:text_start].decode(), stream[text_start:].decode()))


def _split(frame: memoryview) -> tuple[int, bytes]:
    return _KIND.unpack_from(frame)[0], bytes(frame[_KIND.size :])
