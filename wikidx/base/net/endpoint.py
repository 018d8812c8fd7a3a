"""Requests to a model's HTTP endpoint: connections with time limits, keys, proxies, and retries after a failed connection, too.

A redirect of status 307 or 308 to the same scheme, host and port is followed. All others are refused: they would take the key elsewhere, or
lose the request's body.
"""

from __future__ import annotations

import html
import json
import os
import re
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson
import urllib3
from urllib3.exceptions import HTTPError
from urllib3.util import parse_url

from wikidx.base.artifacts.durable import parse_json
from wikidx.base.errors import IdxError, InputError
from wikidx.base.machine.failures import first_line

from .retrying import FINAL, TRANSIENT, UNUSABLE, Retries, Verdict, is_transient, retry_after_s
from .transport import TIMED_POOLS, PerProcess, Trouble, explain, read_answer

N_CONNECTIONS = 16  # connections of an ``Endpoint`` that are kept open
_OWN_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})  # a proxy elsewhere cannot reach them
_READ_BYTES = 1 << 16
_MAX_MESSAGE = 500
_HTML = "HTML, not JSON: "
# Servers' words for a text that is too long for the model.
TOO_LONG = re.compile(r"(?i)context[ _](length|size|window)|maximum context|prompt is too long|too many tokens|n_ctx|too large to process")
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
        self._timeout_s = timeout_s
        self._pool, self._closed = open_pool(url, key, N_CONNECTIONS), threading.Event()
        self._retries = Retries(retries, first_pause_s, _judge, self._closed.wait)

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
        return self._retries.send(lambda: self._send_once(method, locate(self.url, path), content))

    def _send_once(self, method: str, url: str, content: bytes | None) -> Any:  # noqa: ANN401 - any JSON
        try:
            response, answer = read_answer(self._pool, method, url, self._timeout_s, content)
            if response.status < 300:
                return parse_answer(answer, url)
        except HTTPError as error:
            raise EndpointError(self._describe(*explain(error))) from error
        except ValueError as error:
            raise EndpointError(f"{self._name} gives no usable answer: {first_line(error)}", status=200) from error
        message = error_message(read_error(response, answer, url)) + advise(self.url, response.status)
        raise EndpointError(
            f"{self._name} answers {response.status}: {message}",
            status=response.status,
            is_final=not is_transient(response.status) or (response.status == 500 and bool(TOO_LONG.search(message))),
            retry_after_s=retry_after_s(response.headers),
        )

    def _describe(self, trouble: Trouble, cause: str) -> str:
        if trouble is Trouble.UNREACHABLE:
            return f"nobody listens at {self.url} ({cause}): start the server, or correct the address"
        if trouble is Trouble.LATE:
            return f"{self._name} has not answered within {self._timeout_s:g} s"
        return f"the connection to {self._name} broke: {cause}"


def _judge(error: IdxError) -> Verdict:
    if not isinstance(error, EndpointError) or error.is_final:
        return Verdict(FINAL)
    return Verdict(UNUSABLE if error.status == 200 else TRANSIENT, error.retry_after_s)


def locate(url: str, path: str, *, beside: str = "") -> str:
    """Return the address of a path below an endpoint's, or in place of its ending ``beside``; a query, such as Azure's, stays behind."""
    return urlsplit(url)._replace(path=urlsplit(url).path.rstrip("/").removesuffix(beside) + path).geturl()


def advise(url: str, status: int) -> str:
    """Return what to try after a refusal with a status, for the end of a message; empty if nothing is known."""
    if status in (404, 405) and not re.search(r"/v\d", urlsplit(url).path):
        return f": the address may have to end in /v1: {locate(url, '/v1')}"
    return ": set OPENAI_API_KEY if it is about the key" if status in (401, 403) else ""


def check_key(key: str) -> str:
    """Return an API key without blanks around it; raise ``InputError`` if it is empty, or if no header can carry it."""
    if not (key := key.strip()):
        raise InputError("the API key is empty: give one, or none")
    if not (key.isascii() and key.isprintable()):
        raise InputError("an API key has printable ASCII characters only")
    return key


def open_pool(url: str, key: str | None, n_connections: int) -> PerProcess[urllib3.PoolManager]:
    """Return the connections to an endpoint, through the environment's proxy; raises ``InputError`` as ``Endpoint`` does."""
    try:
        scheme, _, host, *_ = parse_url(url)
    except HTTPError:
        scheme = host = None
    if scheme not in ("http", "https") or not host:
        raise InputError(f"{url!r} is no address of an endpoint: give one like http://127.0.0.1:8000/v1")
    key = check_key(key or os.environ.get("OPENAI_API_KEY") or "none")
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "User-Agent": "idx"}
    is_direct = host in _OWN_HOSTS or proxy_bypass(host)
    manager = partial(urllib3.ProxyManager, proxy) if (proxy := getproxies().get(scheme)) and not is_direct else urllib3.PoolManager

    def make() -> urllib3.PoolManager:
        pool = manager(headers=headers, maxsize=n_connections)
        pool.pool_classes_by_scheme = TIMED_POOLS
        return pool

    return PerProcess(make)


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
