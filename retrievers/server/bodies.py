"""Bodies of requests, decompressed within a limit and checked to be text, and compression of long answers while they are sent."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable
from typing import Any

import zstandard
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message

from wikidx.retrievers.errors import InvalidRequest

_ZSTD_WINDOW_BYTES = 8 << 20  # what a frame may ask of its reader, by RFC 9659
_MIN_BYTES = 16 << 10  # at 1 Gbit/s, less than this is sent in the time that its compression takes


def decode_body(body: bytes, headers: Headers, max_bytes: int) -> bytes:
    """Return a request's body decompressed.

    A wrong content type does not matter if the body looks like JSON, nor a missing content encoding if it looks like gzip.

    Raises:
        InvalidRequest: the body is compressed in another way, is too long, or is no JSON in UTF-8.
    """
    coding = ", ".join(headers.getlist("content-encoding")).lower() or ("gzip" if body.startswith(b"\x1f\x8b") else "")
    if coding not in ("", "identity", "gzip", "x-gzip", "zstd"):
        raise InvalidRequest(f"Content-Encoding {coding!r:.80} is not read: send gzip or zstd", status=415, accept_encoding="gzip, zstd")
    reader: Any = gzip.GzipFile(fileobj=io.BytesIO(body)) if coding.endswith("gzip") else io.BytesIO(body)
    if coding == "zstd":
        reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).stream_reader(reader, read_across_frames=True)
    try:
        body = reader.read(max_bytes + 1)
        if len(body) > max_bytes:
            raise InvalidRequest(f"the body has more than {max_bytes:,} bytes when it is decompressed", status=413)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind and not kind.endswith("json") and body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
            raise InvalidRequest(f"the body is {kind!r:.80}: send JSON, as application/json", status=415, accept="application/json")
        body.isascii() or body.decode()
    except (UnicodeDecodeError, OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise InvalidRequest(f"the body is not {'UTF-8' if isinstance(error, UnicodeError) else coding}: {error}", status=400) from error
    return body


def choose_coding(accepted: str) -> str | None:
    """Return the preferred coding of an ``Accept-Encoding`` header, "zstd" or "gzip"; None: no compression."""
    weights = {name: float(weight or 1) for name, weight in re.findall(r"([\w-]+)(?:\s*;\s*q=([01](?:\.\d{0,3})?))?", accepted.lower())}
    best = max(("zstd", "gzip"), key=lambda coding: weights.get(coding, 0.0))
    return best if weights.get(best, 0.0) > 0 and weights[best] >= weights.get("identity", 0.0) else None


def start_compression(scope: Message, start: Message) -> Callable[[Message], bytes] | None:
    """Return a function that compresses each piece of an answer so that it can be read before the next one, and adapt the headers.

    Return None for an answer that stays as it is: the client does not ask for another form, or speaks HTTP/1.0, which has no chunked
    encoding; or the answer is short, an error, or a file, whose entity tag and ranges are those of the bytes on disk.
    """
    headers = MutableHeaders(scope=start)
    if start["status"] != 200 or "etag" in headers or int(headers.get("content-length", _MIN_BYTES)) < _MIN_BYTES:
        return None
    coding = choose_coding(",".join(Headers(scope=scope).getlist("accept-encoding")))
    if coding is None or scope["http_version"] == "1.0":
        return None
    headers["content-encoding"] = coding
    headers.add_vary_header("Accept-Encoding")
    del headers["content-length"]
    stream: Any = zlib.compressobj(1, wbits=31) if coding == "gzip" else zstandard.ZstdCompressor(level=1).compressobj()
    flush = zlib.Z_SYNC_FLUSH if coding == "gzip" else zstandard.COMPRESSOBJ_FLUSH_BLOCK
    return lambda piece: stream.compress(piece.get("body", b"")) + (stream.flush(flush) if piece.get("more_body") else stream.flush())
