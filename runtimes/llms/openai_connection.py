"""A connection to an OpenAI-compatible endpoint, with retries.

A request is retried after a connection error, a time-out, an unusable answer (truncated, not JSON, without choices, or larger than 64 MB),
or a status of 408, 409, 425, 429 or 5xx except 501. An exhausted quota, a chat template's refusal of the turns, and all other refusals are
final.

The pause before a retry is ``Retry-After``, at most five minutes. Without this header, the pause is ``first_pause``, doubled for each
further retry up to 30 seconds, and shortened at random by up to half.
"""

from __future__ import annotations

import email.utils
import json
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError, TimeoutError
from urllib3.util import parse_url

from wikidx.corpora.artifacts.durable import parse_json
from wikidx.corpora.errors import InputError
from wikidx.corpora.progress import format_bytes
from wikidx.indexer.machine.failures import first_line
from wikidx.retrievers.timed_http import TIMED_POOLS
from wikidx.runtimes.errors import LLMError, Unreachable

from .base import Call, Reply
from .json_shape import find_mismatch
from .openai_bodies import Body, Refusal, parse_refusal
from .options import DEFAULT_CONCURRENCY, ConnectionOptions

_RETRIED_STATUSES = frozenset({408, 409, 425, 429})
_LONGEST_PAUSE_S = 30.0
_LONGEST_RETRY_AFTER_S = 300.0
_LOGGED_PAUSE_S = 10.0
_PROBE_S = 5.0
_OWN_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})  # a proxy elsewhere cannot reach them
_MAX_ANSWER_BYTES = 64_000_000
_READ_BYTES = 1 << 16

logger = logging.getLogger(__name__)


class Refused(LLMError):
    """The endpoint refuses a request, which is not retried. ``refusal`` is the endpoint's answer."""

    def __init__(self, message: str, refusal: Refusal) -> None:
        super().__init__(message)
        self.refusal = refusal


class Overloaded(LLMError):
    """The endpoint cannot answer now. ``retry_after_s`` is the pause that the endpoint requests, in seconds, or None."""

    def __init__(self, message: str, retry_after_s: float | None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


def answer_all(pool: ThreadPoolExecutor, answer: Callable[[Call], Reply | LLMError], calls: Sequence[Call]) -> list[Reply | LLMError]:
    """Answer calls concurrently, and return the replies in order. After an error or Ctrl-C, calls that have not started are cancelled."""
    jobs = [pool.submit(answer, call) for call in calls]
    try:
        return [job.result() for job in jobs]
    finally:
        for job in jobs:
            job.cancel()


_LOGPROB = int | float | None
_TOKEN = {"token": str, "logprob": _LOGPROB, "top_logprobs": [{"token": str, "logprob": int | float}]}
_LOGPROBS = {
    "content": [_TOKEN],
    "tokens": [str],
    "token_logprobs": [_LOGPROB],
    "text_offset": [int],
    "top_logprobs": [dict | None],
}
_CHOICE = {"text": str, "message": {"content": str}, "finish_reason": str, "logprobs": _LOGPROBS}
_ANSWER = {"choices": [_CHOICE], "usage": {}}
"""Expected shape of an answer of either API, chat or completions, for the fields that are read."""


class Connection:
    """A client of an endpoint. Thread-safe; must be closed.

    Args:
        name: the model's name, for messages.
        url: the endpoint, usually ending in ``/v1``.
        options: connection options.

    Raises:
        InputError: the URL or the key is invalid.
    """

    def __init__(self, name: str, url: str, options: ConnectionOptions) -> None:
        self._name, self._url, self._options = name, url.rstrip("/"), options
        self._pool = _pool(url, options)
        self._is_silent = False  # does not answer a request for the list of its models
        self._closed, self._random = threading.Event(), random.Random()

    def post(self, path: str, body: Body) -> dict[str, Any]:
        """Send a body. Return the answer, which has at least one choice.

        Raises:
            Refused: the endpoint refuses the request.
            Unreachable: the endpoint accepts no connection.
            LLMError: all attempts failed.
        """
        content = json.dumps(body).encode()
        for attempt in range(self._options.retries + 1):
            try:
                return self._post_once(path, content)
            except LLMError as failure:
                pause = failure.retry_after_s if isinstance(failure, Overloaded) else None
                is_last = attempt == self._options.retries or isinstance(failure, Refused)
                if not is_last and pause is not None and pause >= _LOGGED_PAUSE_S:
                    logger.warning("retry in %.0f s: %s", pause, failure)
                if is_last or self._closed.wait(self._pause(attempt) if pause is None else pause):
                    if attempt:
                        failure.args = (f"{failure} ({attempt + 1} tries)",)
                    raise
        raise LLMError(f"{self._name} was not asked: retries is {self._options.retries}")

    def page(self, path: str, body: Body | None = None) -> dict[str, Any] | None:
        """Return the JSON object at a path beside the API, of a POST if there is a body; None if there is none. Nothing is retried."""
        if self._is_silent:
            return None
        root, content = self._url.removesuffix("/v1"), None if body is None else json.dumps(body).encode()
        try:
            response, answer = self._request("GET" if body is None else "POST", path, _PROBE_S, content, root=root)
            page = parse_json(answer) if response.status < 300 else None
        except (HTTPError, ValueError):
            return None
        return page if isinstance(page, dict) else None

    def models(self) -> list[dict[str, Any]]:
        """Return the endpoint's list of its models; empty if the list is unavailable."""
        try:
            answer = parse_json(self._request("GET", "/models", _PROBE_S)[1])
        except HTTPError:
            self._is_silent = True
            return []
        except ValueError:
            return []
        data = answer.get("data") if isinstance(answer, dict) else None
        return [model for model in data if isinstance(model, dict)] if isinstance(data, list) else []

    def close(self) -> None:
        """End pending retries and close the connections."""
        self._closed.set()
        self._pool.clear()

    def _request(
        self, method: str, path: str, timeout_s: float, body: bytes | None = None, *, root: str | None = None
    ) -> tuple[urllib3.BaseHTTPResponse, bytes]:
        """Return an answer and its content; ``root`` replaces the endpoint's URL.

        Raises:
            HTTPError: the connection fails, or the answer is incomplete after ``timeout_s``.
            ValueError: the answer is larger than 64 MB.
        """
        timeout, content = urllib3.Timeout(total=timeout_s), bytearray()
        with closing(
            self._pool.request(method, (root or self._url) + path, body=body, timeout=timeout, retries=False, preload_content=False)
        ) as response:
            while chunk := response.read1(_READ_BYTES):
                content += chunk
                if len(content) > _MAX_ANSWER_BYTES:
                    raise ValueError(f"it has more than {format_bytes(_MAX_ANSWER_BYTES)}")
        return response, bytes(content)

    def _post_once(self, path: str, content: bytes) -> dict[str, Any]:
        try:
            response, answer = self._request("POST", path, self._options.timeout, content)
            if response.status < 300:
                return _validate(parse_json(answer))
        except NewConnectionError as error:
            cause = first_line(error.__cause__ or error)
            raise Unreachable(f"nobody listens at {self._url} ({cause}): start the server, or correct the address after @") from error
        except TimeoutError as error:
            raise LLMError(f"{self._name} has not answered within {self._options.timeout:g} s") from error
        except HTTPError as error:
            raise LLMError(f"the connection to {self._name} broke: {first_line(error.__cause__ or error)}") from error
        except ValueError as error:
            raise LLMError(f"{self._name} gives no usable answer: {first_line(error)}") from error
        raise self._failure(response, answer)

    def _failure(self, response: urllib3.BaseHTTPResponse, answer: bytes) -> LLMError:
        """Return the error for an answer with a status of 300 or more."""
        try:
            refusal = parse_refusal(response.status, parse_json(answer))
        except ValueError:
            text = answer.decode(errors="replace")
            refusal = parse_refusal(response.status, text or response.headers.get("Location") or response.reason)
        if refusal.status in (401, 403):
            return Refused(f"{self._name} refuses the key ({refusal.status}: {refusal.message}): set OPENAI_API_KEY", refusal)
        is_final = refusal.code == "insufficient_quota" or refusal.status == 501 or (refusal.status == 500 and refusal.refused_turns)
        if (refusal.status in _RETRIED_STATUSES or refusal.status >= 500) and not is_final:
            return Overloaded(f"{self._name} answers {refusal.status}: {refusal.message}", _retry_after(response))
        return Refused(f"{self._name} refuses the request ({refusal.status}: {refusal.message})", refusal)

    def _pause(self, attempt: int) -> float:
        longest = min(self._options.first_pause * 2.0**attempt, _LONGEST_PAUSE_S)
        return longest * self._random.uniform(0.5, 1.0)


def _pool(url: str, options: ConnectionOptions) -> urllib3.PoolManager:
    try:
        scheme, _, host, *_ = parse_url(url)
    except HTTPError:
        scheme = host = None
    if scheme not in ("http", "https") or not host:
        raise InputError(f"{url!r} is no address of an endpoint: give one like http://127.0.0.1:8000/v1")
    key = options.api_key or os.environ.get("OPENAI_API_KEY") or "none"
    if not (key.isascii() and key.isprintable()):
        raise InputError("an API key has printable ASCII characters only")
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "User-Agent": "idx"}
    is_direct = host in _OWN_HOSTS or proxy_bypass(host)
    manager = partial(urllib3.ProxyManager, proxy) if (proxy := getproxies().get(scheme)) and not is_direct else urllib3.PoolManager
    pool = manager(headers=headers, maxsize=options.concurrency or DEFAULT_CONCURRENCY)
    pool.pool_classes_by_scheme = TIMED_POOLS
    return pool


def _validate(answer: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
    """Check that an answer has the expected shape and at least one choice, and return it.

    Raises:
        ValueError: a field has a wrong type, or there is no choice.
    """
    if wrong := find_mismatch(answer, _ANSWER, "it"):
        raise ValueError(wrong)
    if not answer.get("choices"):
        raise ValueError("its list of choices is empty" if "choices" in answer else f"no choices in {answer!r:.80}")
    return dict(answer)


def _retry_after(response: urllib3.BaseHTTPResponse) -> float | None:
    """Return the pause that the header ``Retry-After`` requests, in seconds, at most five minutes; None without the header."""
    value = response.headers.get("Retry-After")
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        date = email.utils.parsedate_tz(value)
        if date is None:
            return None
        seconds = email.utils.mktime_tz(date) - time.time()
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER_S) if seconds == seconds else None
