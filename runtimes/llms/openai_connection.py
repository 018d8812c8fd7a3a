"""A connection to an OpenAI-compatible endpoint: bodies out, answers in, tried again where that can help.

Tried again: nobody listens, the connection breaks or the answer breaks off, no answer in time, 408, 409, 429 and 5xx, and answers that are
no JSON or have no choices. Between tries it waits ``first_pause``, then twice as long each time, less up to half by chance; or as long as
the endpoint says in ``Retry-After``. A spent quota and all other refusals are final.
"""

from __future__ import annotations

import email.utils
import os
import random
import threading
import time
from typing import Any

import openai

from corpora.errors import InputError
from corpora.json_value import json_value
from indexer.encoders.failures import first_line
from runtimes.errors import LLMError
from runtimes.execution.json_shape import misfit

from .openai_bodies import Body, Refusal, refusal
from .options import ConnectionOptions

_AGAIN = frozenset({408, 409, 425, 429})
_LONGEST_PAUSE_S = 30.0
_LONGEST_RETRY_AFTER_S = 300.0
_PROBE_S = 5.0


class Refused(LLMError):
    """The endpoint refuses a request for good; ``refusal`` is what it says."""

    def __init__(self, message: str, refusal: Refusal) -> None:
        super().__init__(message)
        self.refusal = refusal


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
"""What is read of an answer, chat's or completions'."""


class Unreachable(LLMError):
    """Nobody listens at the endpoint."""


class Connection:
    """Sends bodies to an endpoint; may be used by several threads at once; close it.

    Args:
        name: how the model is named in messages.
        url: the endpoint, usually ending in ``/v1``.
        options: how it is used.

    Raises:
        InputError: the URL cannot be one.
    """

    def __init__(self, name: str, url: str, options: ConnectionOptions) -> None:
        self._name, self._url, self._options = name, url, options
        if not url.startswith(("http://", "https://")):
            raise InputError(f"{url!r} is no address of an endpoint: give one like http://127.0.0.1:8000/v1")
        self._client = _client(url, options)
        self._closed, self._random = threading.Event(), random.Random()

    def post(self, path: str, body: Body) -> dict[str, Any]:
        """Send a body and return the answer, which has at least one choice.

        Raises:
            Refused: the endpoint refuses the request.
            Unreachable: nobody listens.
            LLMError: there was no usable answer in any of the tries.
        """
        for attempt in range(self._options.retries + 1):
            last = attempt == self._options.retries
            try:
                answer = self._client.post(path, cast_to=object, body=body)
                return _checked(answer)
            except openai.APITimeoutError as error:
                failure, pause = LLMError(f"{self._name} has not answered within {self._options.timeout:g} s"), None
                cause: Exception = error
            except openai.APIConnectionError as error:
                failure, pause, cause = self._broken(error), None, error
            except openai.APIStatusError as error:
                failure, pause, cause = self._status(error), _retry_after(error), error
            except (ValueError, RecursionError) as error:  # what JSON that is none raises
                failure, pause, cause = LLMError(f"{self._name} gives no usable answer: {first_line(error)}"), None, error
            if last or isinstance(failure, Refused) or self._closed.wait(self._pause(attempt) if pause is None else pause):
                raise _with_tries(failure, attempt + 1) from cause
        raise LLMError(f"{self._name} was not asked: retries is {self._options.retries}")

    def models(self) -> list[dict[str, Any]]:
        """Return what the endpoint says of its models; nothing if it does not say."""
        try:
            answer = self._client.get("/models", cast_to=object, options={"timeout": _PROBE_S})
        except (openai.APIError, ValueError, RecursionError):
            return []
        data = answer.get("data") if isinstance(answer, dict) else None
        return [model for model in data if isinstance(model, dict)] if isinstance(data, list) else []

    def close(self) -> None:
        """End what is waiting for its next try, and let go of the connections."""
        self._closed.set()
        self._client.close()

    def _pause(self, attempt: int) -> float:
        longest = min(self._options.first_pause * 2.0**attempt, _LONGEST_PAUSE_S)
        return longest * self._random.uniform(0.5, 1.0)

    def _broken(self, error: openai.APIConnectionError) -> LLMError:
        cause = error.__cause__ or error
        if type(cause).__name__ == "ConnectError":  # httpx's; which httpx it is depends on the package's version
            return Unreachable(f"nobody listens at {self._url} ({first_line(cause)}): start the server, or mend the address after @")
        return LLMError(f"the connection to {self._name} broke: {first_line(cause)}")

    def _status(self, error: openai.APIStatusError) -> LLMError:
        said = refusal(error.status_code, error.body if error.body is not None else error.message)
        if error.status_code in (401, 403):
            return Refused(f"{self._name} refuses the key ({error.status_code}: {said.message}): set OPENAI_API_KEY", said)
        is_spent = said.code == "insufficient_quota"
        if (error.status_code in _AGAIN or error.status_code >= 500) and error.status_code != 501 and not is_spent:
            return LLMError(f"{self._name} answers {error.status_code}: {said.message}")
        return Refused(f"{self._name} refuses the request ({error.status_code}: {said.message})", said)


def _client(url: str, options: ConnectionOptions) -> openai.OpenAI:
    key = options.api_key or os.environ.get("OPENAI_API_KEY") or "none"
    try:
        return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=options.timeout)
    except (openai.OpenAIError, ValueError) as error:
        raise InputError(f"{url!r} cannot be used as an endpoint: {first_line(error)}") from error


def _checked(answer: object) -> dict[str, Any]:
    """Return an answer that has choices.

    Raises:
        ValueError: it has none.
    """
    answer = json_value(answer) if isinstance(answer, str) else answer  # servers that do not say that it is JSON
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise ValueError(f"no choices in {answer!r:.80}")
    if not choices:
        raise ValueError("its list of choices is empty")
    if wrong := misfit(answer, _ANSWER, "it"):
        raise ValueError(wrong)
    return answer


def _retry_after(error: openai.APIStatusError) -> float | None:
    """Return how many seconds the endpoint asks to wait; None if it does not."""
    said = error.response.headers.get("retry-after")
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


def _with_tries(failure: LLMError, tries: int) -> LLMError:
    if tries > 1:
        failure.args = (f"{failure} ({tries} tries)",)
    return failure
