"""Requests and answers that are compressed, and bodies that are no JSON."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import zstandard

from tests.retrievers.server.serving import ask, send_raw
from wikidx.retrievers.server.bodies import start_compression

READERS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(31),
    "zstd": lambda: zstandard.ZstdDecompressor().decompressobj(),
}
COMPRESS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}
LONG = {"queries": ["fox", "whale ocean"] * 10, "k": 100}
ZEROS = bytes(20 << 20)


@pytest.mark.parametrize("coding", READERS)
@pytest.mark.parametrize("body", [LONG, {"groups": [[f"fox number {n}" for n in range(1_000)]], "k": 100}])
def test_long_answers_are_compressed_as_asked(url: str, coding: str, body: dict[str, Any]) -> None:
    plain = ask(url, "/v1/search", body)
    packed = ask(
        url,
        "/v1/search",
        COMPRESS[coding](json.dumps(body).encode()),
        headers={"Accept-Encoding": f"br, {coding};q=0.5", "Content-Encoding": coding},
    )
    assert (packed.headers["content-encoding"], packed.headers["vary"]) == (coding, "Accept-Encoding")
    assert READERS[coding]().decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body) / 2
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize("coding", READERS)
def test_each_piece_of_a_stream_can_be_read_before_the_next(coding: str) -> None:
    scope = {"headers": [(b"accept-encoding", coding.encode())], "http_version": "1.1"}
    compress, reader = start_compression(scope, {"status": 200, "headers": []}), READERS[coding]()
    assert compress is not None
    for piece in (b"one\n", b"", b"two\n"):
        assert reader.decompress(compress({"body": piece, "more_body": True})) == piece
    reader.decompress(compress({"body": b""}))
    assert reader.eof


@pytest.mark.parametrize("accepted", ["gzip;q=0", "identity, zstd;q=0.5, gzip;q=0.9", "br", "*", ""])
def test_other_answers_stay_as_they_are(url: str, accepted: str) -> None:
    assert "content-encoding" not in ask(url, "/v1/search", LONG, headers={"Accept-Encoding": accepted}).headers
    for path, body in (("/retrieve", {"queries": ["fox"]}), ("/page/style.css", None), ("/v1/search", {"k": 3})):
        assert "content-encoding" not in ask(url, path, body, headers={"Accept-Encoding": "gzip, zstd"}).headers
    content = json.dumps(LONG).encode()
    head = b"POST /v1/search HTTP/1.0\r\naccept-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(content)
    assert json.loads(send_raw(url, head + content).partition(b"\r\n\r\n")[2])["rankings"]


@pytest.mark.parametrize(
    ("header", "body", "status", "message"),
    [
        ("Content-Encoding: br", b"x", 415, "Content-Encoding 'br' is not read: send gzip or zstd"),
        ("Content-Encoding: gzip, zstd", b"x", 415, "Content-Encoding 'gzip, zstd' is not read"),
        ("Accept: */*", gzip.compress(b"{}")[:-1], 400, "the body is not gzip: Compressed file ended"),
        ("Content-Encoding: gzip", b"{}", 400, "the body is not gzip: Not a gzipped file"),
        ("Content-Encoding: gzip", gzip.compress(b"{}")[:-1], 400, "the body is not gzip: Compressed file ended"),
        ("Content-Encoding: zstd", b"{}", 400, "the body is not zstd: "),
        ("Content-Encoding: gzip", gzip.compress(ZEROS), 413, "the body has more than 1,048,576 bytes when it is decompressed"),
        ("Content-Encoding: zstd", COMPRESS["zstd"](ZEROS), 413, "more than 1,048,576 bytes"),
        ("Content-Type: application/msgpack", b"\x81\xa7queries\x90", 415, "the body is 'application/msgpack': send JSON"),
        ("Content-Type: application/x-www-form-urlencoded", b"queries=fox", 415, "send JSON, as application/json"),
        ("Accept: */*", '{"queries": ["Häuser"]}'.encode("latin-1"), 400, "the body is not UTF-8: 'utf-8' codec can't decode byte 0xe4"),
    ],
)
def test_what_is_not_read_is_named(url: str, header: str, body: bytes, status: int, message: str) -> None:
    name, _, value = header.partition(": ")
    told = {"Content-Encoding": {"accept-encoding": "gzip, zstd"}, "Content-Type": {"accept": "application/json"}}
    for path in ("/retrieve", "/v1/search"):
        refused = ask(url, path, body, headers={name: value})
        assert (refused.status, message in refused.json["error"]) == (status, True), refused
        assert {key: refused.headers[key] for key in refused.headers if "accept" in key} == (told[name] if status == 415 else {})


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain;charset=UTF-8", "application/vnd.api+json"])
def test_json_is_read_whatever_it_is_called(url: str, kind: str) -> None:
    assert ask(url, "/retrieve", {"queries": ["fox"]}, headers={"Content-Type": kind, "Accept": "application/msgpack"}).json["result"][0]
