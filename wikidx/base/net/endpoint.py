"""Requests to a model's HTTP endpoint: connections with time limits, keys, proxies, and retries.

A request is retried after a connection error, a time-out, or a status of 408, 409, 425, 429 or 5xx except 501; at most
``UNUSABLE_RETRIES`` times after an answer that is no JSON. The pause before a retry is ``Retry-After``, at most five minutes. Without this
header, the pause is ``first_pause_s``, doubled for each further retry up to 30 seconds, and shortened at random by up to half.

A redirect of status 307 or 308 to the same scheme, host and port is followed. All others are refused: they would take the key elsewhere, or
lose the request's body.
"""

from __future__ import annotations

import email.utils
import html
import json
import os
import random
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson
import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError, TimeoutError
from urllib3.util import parse_url

from wikidx.base.artifacts.durable import parse_json
from wikidx.base.errors import IdxError, InputError
from wikidx.base.machine.failures import first_line
from wikidx.base.progress import format_bytes

from .timed_http import TIMED_POOLS, PerProcess

Pool = PerProcess[urllib3.PoolManager]

N_CONNECTIONS = 16  # connections of an ``Endpoint`` that are kept open
UNUSABLE_RETRIES = 2
"""Maximum number of retries after answers that are complete and of status 200, but something else than was asked for. Some pass, such as a
proxy's page while its server starts; most are the fault of an address or a setting, which no retry mends."""

MAX_PAGE_BYTES = 4_000_000
"""Maximum size of a description, such as a list of models: that of a large cloud has almost 1 MB."""

_RETRIED_STATUSES = frozenset({408, 409, 425, 429})
_LONGEST_PAUSE_S = 30.0
_LONGEST_RETRY_AFTER_S = 300.0
_OWN_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})  # a proxy elsewhere cannot reach them
_MAX_ANSWER_BYTES = 64_000_000
_READ_BYTES = 1 << 16
_MAX_MESSAGE = 500
_MAX_REDIRECTS = 3
_HTML = "HTML, not JSON: "
_PAGE = re.compile(r"\s*<(?:!doctype html|html|head|body)\b(?:.*?<title[^>]*>\s*(\S[^<]*))?", re.IGNORECASE | re.DOTALL)


class EndpointError(IdxError):
    """An endpoint refuses a request, or gives no usable answer.

    Attributes:
        status: the HTTP status, 200 if the answer cannot be used; 0 without an answer.
        is_final: whether a retry is pointless.
        retry_after_s: the pause that the endpoint requests, in seconds, or None.
    """

    def __init__(self, message: str, *, status: int = 0, is_final: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status, self.is_final, self.retry_after_s = status, is_final, retry_after_s


class Endpoint:
    """A client of an endpoint that takes and returns JSON; thread-safe.

    Args:
        name: the endpoint's name, for messages.
        url: the address, usually ending in ``/v1``.
        key: the API key; None: the environment's OPENAI_API_KEY, or else a placeholder, which local servers accept.
        timeout_s: maximum time until an answer is complete, in seconds, for each attempt.
        retries: maximum number of retries of a request.
        first_pause_s: maximum pause before the first retry, in seconds.

    Attributes:
        url: the address without a slash at its end.

    Raises:
        InputError: the address or the key is invalid.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        key: str | None = None,
        timeout_s: float = 120.0,
        retries: int = 5,
        first_pause_s: float = 0.5,
    ) -> None:
        self._name, self.url = name, url.rstrip("/")
        self._timeout_s, self._retries, self._first_pause_s = timeout_s, retries, first_pause_s
        self._pool, self._closed = open_pool(url, key, N_CONNECTIONS), threading.Event()

    def post(self, path: str, body: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON
        """Send JSON to a path below the address, with retries, and return the JSON of the answer.

        Raises:
            EndpointError: the endpoint refuses the request, or all attempts failed.
        """
        return self._send("POST", path, orjson.dumps(body))

    def get(self, path: str) -> Any:  # noqa: ANN401 - any JSON
        """Return the JSON at a path below the address; raises as ``post`` does."""
        return self._send("GET", path, None)

    def close(self) -> None:
        """End pending retries and close idle connections."""
        self._closed.set()
        self._pool.get().clear()

    def _send(self, method: str, path: str, content: bytes | None) -> Any:  # noqa: ANN401 - any JSON
        attempt, spare = 0, UNUSABLE_RETRIES
        while True:
            try:
                return self._send_once(method, locate(self.url, path), content)
            except EndpointError as error:
                pause_s = retry_pause_s(attempt, self._first_pause_s) if error.retry_after_s is None else error.retry_after_s
                spare -= error.status == 200
                if error.is_final or attempt >= self._retries or spare < 0 or self._closed.wait(pause_s):
                    error.args = (f"{error} ({attempt + 1} tries)" if attempt else str(error),)
                    raise
            attempt += 1

    def _send_once(self, method: str, url: str, content: bytes | None) -> Any:  # noqa: ANN401 - any JSON
        try:
            response, answer = read_answer(self._pool, method, url, self._timeout_s, content)
            if response.status < 300:
                return parse_answer(answer, url)
        except NewConnectionError as error:
            raise EndpointError(f"nobody listens at {self.url} ({_cause(error)}): start the server, or correct the address") from error
        except TimeoutError as error:
            raise EndpointError(f"{self._name} has not answered within {self._timeout_s:g} s") from error
        except HTTPError as error:
            raise EndpointError(f"the connection to {self._name} broke: {_cause(error)}") from error
        except ValueError as error:
            raise EndpointError(f"{self._name} gives no usable answer: {first_line(error)}", status=200) from error
        advice = ": set OPENAI_API_KEY" if response.status in (401, 403) else ""
        raise EndpointError(
            f"{self._name} answers {response.status}: {error_message(read_error(response, answer, url))}{advice}",
            status=response.status,
            is_final=not is_transient(response.status),
            retry_after_s=retry_after_s(response),
        )


def locate(url: str, path: str, *, beside: str = "") -> str:
    """Return the address of a path below an endpoint's, or in place of its ending ``beside``; a query, such as Azure's, stays behind."""
    return urlsplit(url)._replace(path=urlsplit(url).path.rstrip("/").removesuffix(beside) + path).geturl()


def open_pool(url: str, key: str | None, n_connections: int) -> Pool:
    """Return the connections to an endpoint, through the environment's proxy; raises ``InputError`` as ``Endpoint`` does."""
    try:
        scheme, _, host, *_ = parse_url(url)
    except HTTPError:
        scheme = host = None
    if scheme not in ("http", "https") or not host:
        raise InputError(f"{url!r} is no address of an endpoint: give one like http://127.0.0.1:8000/v1")
    key = key or os.environ.get("OPENAI_API_KEY") or "none"
    if not (key.isascii() and key.isprintable()):
        raise InputError("an API key has printable ASCII characters only")
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "User-Agent": "idx"}
    is_direct = host in _OWN_HOSTS or proxy_bypass(host)
    manager = partial(urllib3.ProxyManager, proxy) if (proxy := getproxies().get(scheme)) and not is_direct else urllib3.PoolManager

    def make() -> urllib3.PoolManager:
        pool = manager(headers=headers, maxsize=n_connections)
        pool.pool_classes_by_scheme = TIMED_POOLS
        return pool

    return PerProcess(make)


@contextmanager
def answering(
    pool: Pool, method: str, url: str, timeout: urllib3.Timeout, body: bytes | None = None, max_bytes: int | None = None
) -> Iterator[tuple[urllib3.BaseHTTPResponse, Iterator[bytes]]]:
    """Send a request, following redirects on its server, and yield the answer, and its content in parts as they arrive.

    The connection is closed unless all are read.

    Raises:
        HTTPError: the connection fails, or the time limit is reached.
        ValueError: the answer is larger than ``max_bytes``; by default 64 MB, and 4 MB without a ``body``.
    """
    for n_left in reversed(range(_MAX_REDIRECTS + 1)):
        with closing(pool.get().request(method, url, body=body, timeout=timeout, retries=False, preload_content=False)) as response:
            target = urljoin(url, response.headers.get("Location", "nowhere:")) if n_left and response.status in (307, 308) else ""
            if urlsplit(target)[:2] != urlsplit(url)[:2]:
                yield response, _read_parts(response, max_bytes or (_MAX_ANSWER_BYTES if body else MAX_PAGE_BYTES))
                return
        url = target


def _read_parts(response: urllib3.BaseHTTPResponse, max_bytes: int) -> Iterator[bytes]:
    n_bytes = 0
    while part := response.read1(_READ_BYTES):
        n_bytes += len(part)
        if n_bytes > max_bytes:
            raise ValueError(f"it has more than {format_bytes(max_bytes)}")
        yield part


def read_answer(
    pool: Pool, method: str, url: str, timeout_s: float, body: bytes | None = None, max_bytes: int | None = None
) -> tuple[urllib3.BaseHTTPResponse, bytes]:
    """Send a request once, and return the answer and its content. Raises as ``answering``, after ``timeout_s``."""
    with answering(pool, method, url, urllib3.Timeout(total=timeout_s), body, max_bytes) as (response, parts):
        return response, b"".join(parts)


def parse_answer(content: bytes, url: str) -> Any:  # noqa: ANN401 - JSON
    """Parse an answer of a URL as JSON; raises ``ValueError`` with what it is instead."""
    try:
        return parse_json(content)
    except ValueError as error:
        text = _plain_text(content) or "it is empty"
        said = f"{text}, at {url}: an API's address usually ends in /v1" if text.startswith(_HTML) else f"{first_line(error)}: {text:.100}"
        raise ValueError(said) from error


def read_error(response: urllib3.BaseHTTPResponse, content: bytes, url: str) -> Any:  # noqa: ANN401 - JSON
    """Return the content of an answer of status 300 or more, as JSON or as a text on one line, or where it redirects to."""
    try:
        if response.status < 400 and (target := response.headers.get("Location")):
            return f"it redirects to {urljoin(url, target)}: give the address of that server, if it is the one that you mean"
        return parse_json(content)
    except ValueError:
        return _plain_text(content) or response.reason


def is_transient(status: int) -> bool:
    """Return whether a request that is answered with this status may succeed later."""
    return status in _RETRIED_STATUSES or (status >= 500 and status != 501)


def retry_after_s(response: urllib3.BaseHTTPResponse) -> float | None:
    """Return the pause that the header ``Retry-After`` requests, in seconds, at most five minutes; None without the header."""
    value = response.headers.get("Retry-After")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER_S) if seconds == seconds else None


def retry_pause_s(attempt: int, first_pause_s: float) -> float:
    """Return the pause before the retry after attempt 0, 1, …, in seconds."""
    return min(first_pause_s * 2.0**attempt, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)


def error_message(body: object) -> str:
    """Return the message of an error as JSON on one line: of OpenAI, FastAPI and their like, or the whole error."""
    for _ in range(3):  # {"error": {"error": {"message": …}}}
        if isinstance(body, Mapping):
            body = next((body[name] for name in ("message", "detail", "msg", "error") if body.get(name)), body)
    text = body if isinstance(body, str) else json.dumps(body, default=str)
    return " ".join(text.split())[:_MAX_MESSAGE] or "no reason given"


def _plain_text(content: bytes) -> str:
    """Return the beginning of a text that is no JSON on one line; of a page in HTML, the title or the words."""
    text = content[:_READ_BYTES].decode(errors="replace")
    if page := _PAGE.match(text):
        text = f"{_HTML}{html.unescape((page[1] or re.sub('<[^>]*>', ' ', text))[: 2 * _MAX_MESSAGE])}"
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:_MAX_MESSAGE]


def _cause(error: HTTPError) -> str:
    return first_line(error.__cause__ or error)
