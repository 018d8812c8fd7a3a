"""A file on a server, which answers each request for it as a test says."""

from __future__ import annotations

import random
import re
import socket
import struct
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from wikidx.base.net.download import SourceFile

CONTENT = random.Random(7).randbytes(3_000_000)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The server's behaviour on one request; defaults are correct behaviour."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    n_sent: int | None = None  # close the connection after that many bytes of the body
    resets: bool = False  # ... with a TCP reset
    ignores_range: bool = False
    content_range: str | None = None
    n_declared: int | None = None
    chunked: bool = False


@dataclass
class Site:
    """One file on a server, the answers to the next requests (then ``always``), and the requests received."""

    content: bytes = CONTENT
    etag: str | None = '"v1"'
    answers: list[Answer] = field(default_factory=list)
    always: Answer = Answer()
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/dpr/a.gz"

    def source(self, *, n_bytes: int | None = None, md5: str | None = None, sha256: str | None = None) -> SourceFile:
        return SourceFile(name="a.gz", url=self.url, n_bytes=n_bytes, md5=md5, sha256=sha256)

    def ranges(self) -> list[str | None]:
        return [headers.get("Range") for _, headers in self.requests]


def respond(request: BaseHTTPRequestHandler, site: Site, response: Answer) -> None:
    asked = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
    is_current = request.headers.get("If-Range") in (None, site.etag)
    start = int(asked[1]) if asked and is_current and not response.ignores_range else 0
    status, total = response.status, len(site.content)
    headers = {"ETag": site.etag} if site.etag else {}
    if start >= total:
        status, headers["Content-Range"] = 416, f"bytes */{total}"
    elif start and status == 200:
        status, headers["Content-Range"] = 206, response.content_range or f"bytes {start}-{total - 1}/{total}"
    body = site.content[start:] if status < 400 else b""
    headers |= {"Transfer-Encoding": "chunked"} if response.chunked else {"Content-Length": str(response.n_declared or len(body))}
    request.send_response(status)
    for name, value in (headers | response.headers).items():
        request.send_header(name, value)
    request.end_headers()
    sent = body[: response.n_sent]
    if response.chunked:
        request.wfile.write(f"{len(sent):x}\r\n".encode() + sent + b"\r\n" + (b"0\r\n\r\n" if response.n_sent is None else b""))
    else:
        request.wfile.write(sent)
    if response.resets:
        time.sleep(0.02)  # a reset throws away what the receiver has not read yet
        request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
