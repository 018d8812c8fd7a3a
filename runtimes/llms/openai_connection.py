"""A connection to an OpenAI-compatible endpoint, with retries.

A request is also retried after an end before the last token; an unusable answer has no JSON, no choices, more than 64 MB, or an error
without a status. An exhausted quota, a chat template's refusal of the turns, and all other refusals are final.

Time limits concern tokens, not answers: one until the first token, one from each token to the next. As long as the server sends tokens of
any answer, the first limit does not run, because requests may wait for each other there. An answer without streaming counts as one token.
A stream of far more parts than the request has tokens, or of a greedy text that repeats itself, is ended, and counts as cut.
After a time-out the connection is closed; the request is sent again, once, only to a server that then stops its work on it.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from functools import partial
from typing import Any, NamedTuple

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, TimeoutError

from wikidx.base.artifacts.durable import parse_json
from wikidx.base.errors import IdxError
from wikidx.base.machine.failures import first_line
from wikidx.base.net.endpoint import advise, locate, open_pool, parse_answer, read_error
from wikidx.base.net.retrying import FINAL, LATE, TRANSIENT, UNUSABLE, Retries, Verdict, is_transient, retry_after_s
from wikidx.base.net.transport import MAX_PAGE_BYTES, answering, explain, limited, read_answer
from wikidx.runtimes.errors import LLMError, Unreachable

from .base import Call, Deliver, Reply
from .dialects import Body
from .json_shape import find_mismatch, matching
from .openai_answers import has_text
from .openai_refusals import Refusal, parse_refusal, parse_reported_error
from .options import DEFAULT_CONCURRENCY, ConnectionOptions
from .streams import MESSAGE, OPTIONAL, ReportedError, StreamedAnswer, find_error, flatten_parts

_FAILED = ("error", "network_error", "insufficient_system_resource")  # finish reasons
_PROBE_S = 5.0
_PAGE_GROWTH = 16  # bytes of an answer for each byte of a request: the number of a token is longer than the token
_CONNECT_S = 60.0
_PARTS_PER_TOKEN = 8  # of a stream, at most, on average: a proxy may send characters one by one
_LAST_BYTES_S = 1.0  # between a stream's own end and the end of the answer, after which the connection can be used again


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


class Unusable(LLMError):
    """The endpoint answers something else than texts."""


class TimedOut(LLMError):
    """The endpoint has sent no token within the time limit. It may still work on the request."""


def answer_all(
    pool: Executor, answer: Callable[[Call], Reply | LLMError], calls: Sequence[Call], deliver: Deliver | None
) -> list[Reply | LLMError]:
    """Answer calls concurrently, deliver each reply as it comes, and return the replies in order.

    After an error or Ctrl-C, calls that have not started are cancelled.
    """
    jobs = {pool.submit(answer, call): number for number, call in enumerate(calls)}
    try:
        if deliver is not None:
            for job in as_completed(jobs):
                deliver({jobs[job]: job.result()})
        return [job.result() for job in jobs]
    finally:
        for job in jobs:
            job.cancel()


_ANSWER = {"choices": [{"text": str, "message": MESSAGE, "delta": MESSAGE}]}
"""Expected shape of an answer of either API, chat or completions, for the texts."""

_MODEL = {"id": str, "owned_by": str, "meta": {}}
"""Shape of the fields that are read in a list of models."""


class _Limits(NamedTuple):
    """Limits of a stream.

    Attributes:
        most_parts: number of parts that it does not reach unless the server ignores the maximum number of tokens.
        is_greedy: whether nothing is sampled, so that a text that repeats itself goes on so.
    """

    most_parts: float
    is_greedy: bool


class _TokenClock:
    """The time limit of a request: until its first token, then until each further one. Tokens of other answers move the first limit."""

    def __init__(self, connection: Connection, options: ConnectionOptions) -> None:
        self._connection, self._options = connection, options
        self._last, self.has_begun, self.is_done = time.monotonic(), False, False

    def note_token(self) -> None:
        self._last = self._connection.last_token = time.monotonic()
        self.has_begun = True

    def left_s(self) -> float:
        """Return the seconds that are left."""
        last = self._last if self.has_begun else max(self._last, self._connection.last_token)
        limit_s = _LAST_BYTES_S if self.is_done else self._options.token_timeout if self.has_begun else self._options.timeout
        return last + limit_s - time.monotonic()

    def describe(self) -> str:
        """Return the predicate of a message about an exceeded limit, with the remedy."""
        if self.has_begun:
            return f"has sent no further token for {self._options.token_timeout:g} s: raise --token-timeout if it is that slow"
        return f"has not answered within {self._options.timeout:g} s: lower --concurrency if requests wait there, or raise --timeout"


class Connection:
    """A client of an endpoint. Thread-safe; must be closed.

    Args:
        name: the model's name, for messages.
        url: the endpoint, usually ending in ``/v1``.
        options: connection options.

    Attributes:
        last_token: time of the latest token of any answer; 0 before the first.

    Raises:
        InputError: the URL or the key is invalid.
    """

    def __init__(self, name: str, url: str, options: ConnectionOptions) -> None:
        self.last_token = 0.0
        self._name, self._url, self._options = name, url.rstrip("/"), options
        self._pool = open_pool(url, options.api_key, options.concurrency or DEFAULT_CONCURRENCY)
        self._is_silent = False  # does not answer a request for the list of its models
        self._closed = threading.Event()

    def post(self, path: str, body: Body, *, cancels: bool = False) -> dict[str, Any]:
        """Send a body. Return the answer, which has at least one choice, in the form that it has without streaming.

        Args:
            path: path below the endpoint's URL.
            body: the request.
            cancels: whether the server stops its work on a request when the connection is closed.

        Raises:
            Refused: the endpoint refuses the request.
            TimedOut: the endpoint has sent no token within the time limit.
            Unreachable: the endpoint accepts no connection.
            LLMError: all attempts failed.
        """
        content, limits = json.dumps(body).encode(), _Limits(_most_parts(body), body.get("temperature") == 0)
        judge = partial(_judge, cancels=cancels)
        retries = Retries(self._options.retries, self._options.first_pause, judge, self._closed.wait)
        return retries.send(lambda: self._post_once(path, content, limits))

    def page(self, path: str, body: Body | None = None, *, beside: str = "/v1") -> dict[str, Any] | None:
        """Return the JSON object at a path beside the API, of a POST if there is a body; None if there is none. Nothing is retried.

        After a page that has not come in time, no further one is asked for.
        """
        if self._is_silent:
            return None
        url, content = locate(self._url, path, beside=beside), None if body is None else json.dumps(body).encode()
        try:
            method, max_bytes = "GET" if body is None else "POST", MAX_PAGE_BYTES + _PAGE_GROWTH * len(content or b"")
            response, answer = read_answer(self._pool, method, url, min(_PROBE_S, self._options.timeout), content, max_bytes)
            page = parse_json(answer) if response.status < 300 else None
        except (HTTPError, ValueError) as error:
            self._is_silent = body is None and isinstance(error, TimeoutError | NewConnectionError)
            return None
        return page if isinstance(page, dict) else None

    def models(self) -> list[dict[str, Any]]:
        """Return the endpoint's list of its models; empty if the list is unavailable."""
        data = (self.page("/models", beside="") or {}).get("data")
        return [matching(model, _MODEL) for model in data if isinstance(model, dict)] if isinstance(data, list) else []

    def close(self) -> None:
        """End pending retries and close the connections."""
        self._closed.set()
        self._pool.get().clear()

    def _post_once(self, path: str, content: bytes, limits: _Limits) -> dict[str, Any]:
        url, clock = locate(self._url, path), _TokenClock(self, self._options)
        timeout = urllib3.Timeout(connect=min(_CONNECT_S, self._options.timeout), read=self._options.timeout)
        try:
            with limited(clock.left_s), answering(self._pool, "POST", url, timeout, content) as (response, parts):
                if response.status < 300:
                    return _validate(_read_texts(parts, clock, url, limits))
                answer = b"".join(parts)
        except (NewConnectionError, ConnectTimeoutError) as error:
            raise Unreachable(
                f"nobody listens at {self._url} ({explain(error)[1]}): start the server, or correct the address after @"
            ) from error
        except TimeoutError as error:
            raise TimedOut(f"{self._name} {clock.describe()}") from error
        except (HTTPError, EOFError) as error:
            cause = explain(error)[1] if isinstance(error, HTTPError) else first_line(error)
            raise LLMError(f"the connection to {self._name} broke: {cause}") from error
        except ReportedError as error:
            raise self._failure(parse_reported_error(error.body), None) from error
        except ValueError as error:
            raise Unusable(f"{self._name} gives no usable answer: {first_line(error)}") from error
        raise self._failure(parse_refusal(response.status, read_error(response, answer, url)), retry_after_s(response.headers))

    def _failure(self, refusal: Refusal, pause: float | None) -> LLMError:
        """Return the error for a refusal; ``pause`` is the pause in seconds that the endpoint requests, or None."""
        if refusal.status < 300:
            return Unusable(f"{self._name} answers an error: {refusal.message}")
        is_final = refusal.code == "insufficient_quota" or (refusal.status == 500 and (refusal.turns or refusal.means("too_long")))
        if is_transient(refusal.status) and not is_final:
            return Overloaded(f"{self._name} answers {refusal.status}: {refusal.message}", pause)
        advice = "" if refusal.means("no_model") else advise(self._url, refusal.status)
        return Refused(f"{self._name} refuses the request ({refusal.status}: {refusal.message}){advice}", refusal)


def _judge(failure: IdxError, *, cancels: bool) -> Verdict:
    """Return how a failure is retried; a request in time-out is sent again only to a server that has stopped its work on the other."""
    if isinstance(failure, Refused):
        return Verdict(FINAL)
    if isinstance(failure, TimedOut):
        return Verdict(LATE if cancels else FINAL)
    return Verdict(UNUSABLE if isinstance(failure, Unusable) else TRANSIENT, getattr(failure, "retry_after_s", None))


def _most_parts(body: Body) -> float:
    """Return a number of parts that a stream does not reach unless the server ignores the maximum number of tokens."""
    numbers = body.get("max_completion_tokens", body.get("max_tokens")), body.get("n", 1)
    return _PARTS_PER_TOKEN * (8 + math.prod(numbers)) if all(isinstance(number, int) for number in numbers) else math.inf


def _read_texts(parts: Iterable[bytes], clock: _TokenClock, url: str, limits: _Limits) -> Any:  # noqa: ANN401 - any JSON value
    """Read an answer to its end, or to its limits.

    Raises as ``StreamedAnswer`` and ``parse_answer``, and ``TimeoutError`` by the clock.
    """
    answer = StreamedAnswer()
    try:
        for part in parts:
            if answer.add(part):
                clock.note_token()
            clock.is_done = answer.is_done
            if answer.n_parts > limits.most_parts or (limits.is_greedy and answer.is_endless()):
                answer.cut()
                break
    except TimeoutError:
        if not answer.is_done:
            raise
    clock.note_token()
    return answer.finish() if (content := answer.whole()) is None else parse_answer(content, url)


def _validate(answer: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
    """Check that an answer has the expected shape and at least one choice, and return it with messages of one form.

    Raises:
        ReportedError: the answer, or a choice, is an error, or a choice has ended by one before its text.
        ValueError: a field has a wrong type, or there is no choice.
    """
    if wrong := find_mismatch(answer, _ANSWER, "it"):
        raise ValueError(wrong)
    choices = [_settle(choice) for choice in answer.get("choices") or []]
    if error := find_error(answer) or next(filter(None, map(_failed_ending, choices)), None):
        raise ReportedError({"error": error})
    if not choices:
        raise ValueError(f"no choices in {answer!r:.80}")
    return {**matching(answer, OPTIONAL), "choices": choices}


def _settle(choice: dict[str, Any]) -> dict[str, Any]:
    """Return a choice with its message, if it has one, in the common form, and without fields of a wrong type."""
    message = choice.get("message") or choice.get("delta")
    return {**matching(choice, OPTIONAL), **({"message": flatten_parts(message)} if message else {})}


def _failed_ending(choice: Mapping[str, Any]) -> str | None:
    """Return the finish reason of a choice whose server has failed before the first word; None of any other."""
    finish: str | None = choice.get("finish_reason")
    return finish if finish and finish.casefold() in _FAILED and not has_text(choice) else None
