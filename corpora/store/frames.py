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
from typing import NamedTuple

import numpy as np
import zstandard
from numpy.typing import NDArray

from wikidx.base.compiled import interpreted, kernel
from wikidx.corpora.passage import Passage

_LONGEST = 16
_N_SLOTS = 1 << 18
_MOST_PHRASES = 65_534
_RAW, _ZSTD = 0xFFFE, 0xFFFF  # instead of the first phrase's number
_ANOTHER = -1

_PRIME = np.uint64(0x9E3779B97F4A7C15)  # 2 ** 64 divided by the golden ratio; its multiples spread well (Knuth)
_SECOND_PRIME = np.uint64(0xC2B2AE3D27D4EB4F)
_FREE_PAIR = np.uint64(0xFFFFFFFFFFFFFFFF)
_PAIR_BITS = 22
_MOST_PROBES = 64
_SHIFT = np.uint64(29)
_EIGHT = np.uint64(8)
_ONE = np.uint64(1)

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


class _Phrases(NamedTuple):
    """The phrases of a vocabulary, and a hash table that finds them.

    Attributes:
        words: uint64 (65536, 2), the bytes of each phrase, zeros at the end.
        lengths: uint8 (65536,), 0 for a number without a phrase.
        slots: int32, the number of a phrase, or -1.
        longest: uint8 (65536,), the length of the longest phrase that begins with two given bytes.
    """

    words: NDArray[np.uint64]
    lengths: NDArray[np.uint8]
    slots: NDArray[np.int32]
    longest: NDArray[np.uint8]


@kernel
def _first_slot(low: np.uint64, high: np.uint64, length: int) -> np.uint64:
    mixed = low * _PRIME ^ (high + np.uint64(length)) * _SECOND_PRIME
    mixed = (mixed ^ mixed >> _SHIFT) * _PRIME
    return mixed >> np.uint64(46)  # _N_SLOTS values


@kernel
def _find(phrases: _Phrases, low: np.uint64, high: np.uint64, length: int) -> int:
    """Return the number of a phrase, or -1."""
    slot = _first_slot(low, high, length)
    while phrases.slots[slot] >= 0:
        number = phrases.slots[slot]
        if phrases.lengths[number] == length and phrases.words[number, 0] == low and phrases.words[number, 1] == high:
            return int(number)
        slot = (slot + _ONE) & np.uint64(_N_SLOTS - 1)
    return -1


@kernel
def _insert(phrases: _Phrases, number: int) -> None:
    """Insert the phrase ``number`` into the hash table."""
    low, high, length = phrases.words[number, 0], phrases.words[number, 1], int(phrases.lengths[number])
    slot = _first_slot(low, high, length)
    while phrases.slots[slot] >= 0:
        slot = (slot + _ONE) & np.uint64(_N_SLOTS - 1)
    phrases.slots[slot] = number
    if length > 1:
        pair = np.int64(low & np.uint64(0xFFFF))
        phrases.longest[pair] = max(phrases.longest[pair], length)


@kernel
def _insert_all(phrases: _Phrases, n_phrases: int) -> None:
    """Insert all phrases into the hash table."""
    for number in range(n_phrases):
        _insert(phrases, number)


@kernel
def _cut(word: np.uint64, n_bytes: int) -> np.uint64:
    """Return the first bytes of a word, from none to all eight."""
    if n_bytes <= 0:
        return np.uint64(0)
    return word if n_bytes >= 8 else word & ((_ONE << (_EIGHT * np.uint64(n_bytes))) - _ONE)


@kernel
def _longest_phrase(phrases: _Phrases, text: Bytes, start: int, end: int) -> int:
    """Return the number of the longest phrase at ``start``."""
    low, high = text.words[start], text.words[start + 8]
    length = 1
    if end - start > 1:
        length = max(1, min(end - start, int(phrases.longest[text.shorts[start]])))
    while length > 1:
        number = _find(phrases, _cut(low, length), _cut(high, length - 8), length)
        if number >= 0:
            return int(number)
        length -= 1
    single: int = text.each[start]
    return single


@kernel
def _train(phrases: _Phrases, text: Bytes, ends: NDArray[np.int64], n_frequent: int) -> int:
    """Add frequent phrases to a vocabulary that has the single bytes, and return the number of all phrases.

    Two adjacent phrases become one as soon as they have been seen together ``n_frequent`` times.

    Args:
        phrases: the vocabulary.
        text: the samples, one after the other, and at least 16 bytes more.
        ends: the end of each sample.
        n_frequent: the number of times.
    """
    pairs, counts = np.full(1 << _PAIR_BITS, _FREE_PAIR), np.zeros(1 << _PAIR_BITS, np.int32)
    n, start = 256, 0
    for end in ends:
        before = -1
        while start < end and n < _MOST_PHRASES:
            number = _longest_phrase(phrases, text, start, end)
            length = int(phrases.lengths[number])
            if before >= 0 and phrases.lengths[before] + length <= _LONGEST and _count(pairs, counts, before, number) == n_frequent:
                first = start - int(phrases.lengths[before])
                whole = start + length - first
                low, high = _cut(text.words[first], whole), _cut(text.words[first + 8], whole - 8)
                if _find(phrases, low, high, whole) < 0:
                    phrases.words[n, 0], phrases.words[n, 1], phrases.lengths[n] = low, high, whole
                    _insert(phrases, n)
                    number = n
                    n += 1
            before = number
            start += length
        start = end
    return n


@kernel
def _count(pairs: NDArray[np.uint64], counts: NDArray[np.int32], first: int, second: int) -> int:
    """Count a pair of phrases, and return how often it has been seen; 0 if the table is too full."""
    key = np.uint64(first) << np.uint64(16) | np.uint64(second)
    slot = np.int64((key * _PRIME) >> np.uint64(64 - _PAIR_BITS))
    for _ in range(_MOST_PROBES):
        if pairs[slot] == key or pairs[slot] == _FREE_PAIR:
            pairs[slot] = key
            counts[slot] += 1
            return int(counts[slot])
        slot = (slot + 1) & ((1 << _PAIR_BITS) - 1)
    return 0


@kernel
def _encode(phrases: _Phrases, text: Bytes, ends: NDArray[np.int64], numbers: NDArray[np.uint16], number_ends: NDArray[np.int64]) -> None:
    """Write texts, one after the other, followed by at least 16 bytes, as numbers of phrases; ``number_ends`` has the end of each."""
    n, start = 0, 0
    for i in range(len(ends)):
        while start < ends[i]:
            number = _longest_phrase(phrases, text, start, ends[i])
            numbers[n] = number
            start += int(phrases.lengths[number])
            n += 1
        number_ends[i] = n


@kernel
def _decode(  # noqa: PLR0913
    content: Bytes,
    frames: NDArray[np.int64],
    words: NDArray[np.uint64],
    lengths: NDArray[np.uint8],
    out: Bytes,
    fields: NDArray[np.int64],
) -> int:
    """Write the passages of frames one after the other, and return the number of their bytes.

    Args:
        content: the batches.
        frames: start and end of each frame, (n, 2).
        words: the phrases.
        lengths: their lengths.
        out: room for 16 bytes a number, and 16 more.
        fields: (n, 4): where the id, the title and the text start and where the text ends; the end is _ANOTHER if there are no phrases.
    """
    position = 0
    for i in range(len(frames)):
        start, end = frames[i]
        if content.shorts[start] >= _MOST_PHRASES:
            fields[i, 3] = _ANOTHER
        else:
            first = position
            for p in range(start, end, 2):
                number = content.shorts[p]
                out.words[position] = words[number, 0]
                out.words[position + 8] = words[number, 1]
                position += int(lengths[number])
            n_id, at = _read_length(out.each, first, position)
            n_title, at = _read_length(out.each, at, position)
            fields[i, 0], fields[i, 1], fields[i, 2], fields[i, 3] = at, at + n_id, at + n_id + n_title, position
    return position


@kernel
def _read_length(out: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, the lowest first, and where the next begins."""
    value, shift = 0, 0
    while at < end:
        byte = int(out[at])
        value |= (byte & 127) << shift
        at += 1
        shift += 7
        if byte < 128:
            break
    return value, at


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
        saved: what ``save`` returned; without phrases, passages are stored as they are.

    Raises:
        ValueError: ``saved`` is corrupt.
    """

    def __init__(self, saved: bytes) -> None:
        self._saved = saved
        self._n_phrases = n = int.from_bytes(saved[:4], "little")
        lengths, phrases = np.frombuffer(saved[4 : 4 + n], np.uint8), np.frombuffer(saved[4 + n :], np.uint8)
        within = np.arange(16) < lengths[:, None]
        if len(saved) < 4 or len(lengths) != n or n > _MOST_PHRASES or within.sum() != len(phrases):
            raise ValueError(f"a vocabulary of {n:,} phrases does not have {len(saved):,} bytes")
        self._lengths, self._words = np.zeros(1 << 16, dtype=np.uint8), np.zeros((1 << 16, 2), dtype="<u8")
        self._lengths[:n] = lengths
        self._words.view(np.uint8)[:n][within] = phrases
        self._phrases: object = None
        self._local = threading.local()

    def save(self) -> bytes:
        """Return the vocabulary as bytes: the number of phrases (u32, little-endian), the length of each (u8), and all their bytes."""
        return self._saved

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
        if self._phrases is None:
            self._phrases = _index(self._words, self._lengths)
        text, ends = _join(streams)
        numbers, number_ends = np.empty(int(ends[-1]) + 8, dtype=np.uint16), np.empty(len(ends), dtype=np.int64)
        _encode(self._phrases, bytes_of(text), ends, numbers, number_ends)
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
        n_bytes = int((frames[:, 1] - frames[:, 0]).sum())
        out, fields = self._room(8 * n_bytes + 16), np.empty((len(frames), 4), dtype=np.int64)
        if len(frames) >= _WORTH_LOADING:
            self._read_into_caches(content, frames)
        with interpreted(n_bytes):
            n_written = _decode(content, frames, self._words, self._lengths, out, fields)
        text, new = out.each[:n_written].tobytes(), tuple.__new__  # which avoids the Python call in Passage(*fields)
        return [
            new(Passage, (text[start:title_start].decode(), text[title_start:text_start].decode(), text[text_start:end].decode()))
            if end != _ANOTHER
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
    for number in np.flatnonzero(content.shorts[frames[:, 0]] >= _MOST_PHRASES):
        kind, stream = _split(content.each.data[slice(*frames[number])])
        estimates[number] = zstandard.frame_content_size(stream) if kind == _ZSTD else len(stream)
    return estimates


def train(streams: Sequence[bytes], least_bytes: int = _LEAST_BYTES) -> Vocabulary:
    """Return a vocabulary of phrases that are frequent in the samples; without phrases if the samples have fewer bytes."""
    text, ends = _join(streams)
    ends = ends[ends <= _SAMPLE_BYTES]
    if not len(ends) or ends[-1] < least_bytes:
        return Vocabulary(bytes(4))
    words, lengths = np.zeros((1 << 16, 2), dtype="<u8"), np.zeros(1 << 16, dtype=np.uint8)
    words[:256, 0], lengths[:256] = np.arange(256), 1
    n_phrases = _train(_index(words, lengths), bytes_of(text), ends, _FREQUENT)
    within = np.arange(16) < lengths[:, None]
    return Vocabulary(n_phrases.to_bytes(4, "little") + lengths[:n_phrases].tobytes() + words.view(np.uint8)[within].tobytes())


def _index(words: NDArray[np.uint64], lengths: NDArray[np.uint8]) -> object:
    """Return the phrases with a hash table that finds them."""
    slots, longest = np.full(_N_SLOTS, -1, dtype=np.int32), np.zeros(1 << 16, dtype=np.uint8)
    phrases = _Phrases(words, lengths, slots, longest)
    _insert_all(phrases, np.count_nonzero(lengths))
    return phrases


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
        n_id, at = _read_length.py_func(stream, 0, len(stream))
        n_title, at = _read_length.py_func(stream, at, len(stream))
    title_start, text_start = at + n_id, at + n_id + n_title
    return tuple.__new__(Passage, (stream[at:title_start].decode(), stream[title_start:text_start].decode(), stream[text_start:].decode()))


def _split(frame: memoryview) -> tuple[int, bytes]:
    return _KIND.unpack_from(frame)[0], bytes(frame[_KIND.size :])
