"""A connection to an OpenAI-compatible endpoint, with retries.

Retried are refused and broken connections, truncated answers, time-outs, statuses 408, 409, 425, 429 and 5xx, and answers that are no JSON,
have no choices or exceed 64 MB. The pause is ``first_pause``, doubled each time, less a random share of up to half; or that of the
endpoint's ``Retry-After``, up to five minutes. An exhausted quota and all other refusals are final.
"""

from __future__ import annotations

import email.utils
import json
import logging
import os
import random
import threading
import time
from contextlib import closing
from functools import partial
from typing import Any
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError, TimeoutError
from urllib3.util import parse_url

from wikidx.corpora.artifacts.durable import json_value
from wikidx.corpora.errors import InputError
from wikidx.corpora.progress import amount
from wikidx.indexer.machine.failures import first_line
from wikidx.runtimes.errors import LLMError

from .json_shape import misfit
from .openai_bodies import Body, Refusal, refusal
from .options import ConnectionOptions

_AGAIN = frozenset({408, 409, 425, 429})
_LONGEST_PAUSE_S = 30.0
_LONGEST_RETRY_AFTER_S = 300.0
_TOLD_PAUSE_S = 10.0
_PROBE_S = 5.0
_MAX_ANSWER_BYTES = 64_000_000
_READ_BYTES = 1 << 16

logger = logging.getLogger(__name__)


class Refused(LLMError):
    """The endpoint refuses a request for good; ``refusal`` is its answer."""

    def __init__(self, message: str, refusal: Refusal) -> None:
        super().__init__(message)
        self.refusal = refusal


class Overloaded(LLMError):
    """The endpoint cannot answer now; ``retry_after_s`` is the pause that it requests in seconds, None if it names none."""

    def __init__(self, message: str, retry_after_s: float | None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unreachable(LLMError):
    """The endpoint accepts no connection."""


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
"""Shape of an answer, of chat or completions, as far as it is read."""


class Connection:
    """A client of an endpoint. Thread-safe; must be closed.

    Args:
        name: of the model, for messages.
        url: the endpoint, usually ending in ``/v1``.
        options: of the connection.

    Raises:
        InputError: the URL or the key is invalid.
    """

    def __init__(self, name: str, url: str, options: ConnectionOptions) -> None:
        self._name, self._url, self._options = name, url.rstrip("/"), options
        self._pool = _pool(url, options)
        self._closed, self._random = threading.Event(), random.Random()

    def post(self, path: str, body: Body) -> dict[str, Any]:
        """Send a body and return the answer, which has at least one choice.

        Raises:
            Refused: the endpoint refuses the request.
            Unreachable: the endpoint accepts no connection.
            LLMError: no attempt had a usable answer.
        """
        content = json.dumps(body).encode()
        for attempt in range(self._options.retries + 1):
            try:
                return self._post_once(path, content)
            except LLMError as failure:
                pause = failure.retry_after_s if isinstance(failure, Overloaded) else None
                is_last = attempt == self._options.retries or isinstance(failure, Refused)
                if not is_last and pause is not None and pause >= _TOLD_PAUSE_S:
                    logger.warning("asked again in %.0f s: %s", pause, failure)
                if is_last or self._closed.wait(self._pause(attempt) if pause is None else pause):
                    if attempt:
                        failure.args = (f"{failure} ({attempt + 1} tries)",)
                    raise
        raise LLMError(f"{self._name} was not asked: retries is {self._options.retries}")

    def models(self) -> list[dict[str, Any]]:
        """Return the endpoint's description of its models; empty if it has none."""
        try:
            answer = json_value(self._request("GET", "/models", _PROBE_S)[1])
        except (HTTPError, ValueError):
            return []
        data = answer.get("data") if isinstance(answer, dict) else None
        return [model for model in data if isinstance(model, dict)] if isinstance(data, list) else []

    def close(self) -> None:
        """End pending retries and close the connections."""
        self._closed.set()
        self._pool.clear()

    def _request(self, method: str, path: str, timeout_s: float, body: bytes | None = None) -> tuple[urllib3.BaseHTTPResponse, bytes]:
        """Return an answer and its content.

        Raises:
            HTTPError: there is no answer, or it is incomplete at the time-out.
            ValueError: it is too long.
        """
        deadline, content = time.monotonic() + timeout_s, bytearray()
        with closing(
            self._pool.request(method, self._url + path, body=body, timeout=timeout_s, retries=False, preload_content=False)
        ) as response:
            while some := response.read1(_READ_BYTES):
                content += some
                if time.monotonic() > deadline:
                    raise TimeoutError
                if len(content) > _MAX_ANSWER_BYTES:
                    raise ValueError(f"it has more than {amount(_MAX_ANSWER_BYTES)}")
        return response, bytes(content)

    def _post_once(self, path: str, content: bytes) -> dict[str, Any]:
        try:
            response, answer = self._request("POST", path, self._options.timeout, content)
            if response.status < 300:
                return _checked(json_value(answer))
        except NewConnectionError as error:
            cause = first_line(error.__cause__ or error)
            raise Unreachable(f"nobody listens at {self._url} ({cause}): start the server, or mend the address after @") from error
        except TimeoutError as error:
            raise LLMError(f"{self._name} has not answered within {self._options.timeout:g} s") from error
        except HTTPError as error:
            raise LLMError(f"the connection to {self._name} broke: {first_line(error.__cause__ or error)}") from error
        except ValueError as error:
            raise LLMError(f"{self._name} gives no usable answer: {first_line(error)}") from error
        raise self._failure(response, answer)

    def _failure(self, response: urllib3.BaseHTTPResponse, answer: bytes) -> LLMError:
        """Return (not raise) the error for an answer with a status of 300 or more."""
        try:
            said = refusal(response.status, json_value(answer))
        except ValueError:
            text = answer.decode(errors="replace")
            said = refusal(response.status, text or response.headers.get("Location") or response.reason)
        if said.status in (401, 403):
            return Refused(f"{self._name} refuses the key ({said.status}: {said.message}): set OPENAI_API_KEY", said)
        is_spent = said.code == "insufficient_quota"
        if (said.status in _AGAIN or said.status >= 500) and said.status != 501 and not is_spent:
            return Overloaded(f"{self._name} answers {said.status}: {said.message}", _retry_after(response))
        return Refused(f"{self._name} refuses the request ({said.status}: {said.message})", said)

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
    opened = partial(urllib3.ProxyManager, proxy) if (proxy := getproxies().get(scheme)) and not proxy_bypass(host) else urllib3.PoolManager
    return opened(headers=headers, maxsize=options.concurrency)


def _checked(answer: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
    """Check that an answer has choices, and return it.

    Raises:
        ValueError: it has no choices.
    """
    if wrong := misfit(answer, _ANSWER, "it"):
        raise ValueError(wrong)
    if not answer.get("choices"):
        raise ValueError("its list of choices is empty" if "choices" in answer else f"no choices in {answer!r:.80}")
    return dict(answer)


def _retry_after(response: urllib3.BaseHTTPResponse) -> float | None:
    """Return the pause that the endpoint requests, in seconds; None if it names none."""
    said = response.headers.get("Retry-After")
    if said is None:
        return None
    try:
        seconds = float(said)
    except ValueError:
        date = email.utils.parsedate_tz(said)
        if date is None:
            return None
        seconds = email.utils.mktime_tz(date) - time.time()
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER_S) if seconds == seconds else None
