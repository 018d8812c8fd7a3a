"""The retries of requests: which failures are waited for, how long, and how often.

    failure                                                         retries at most
    a refusal: any other status than those below                    none
    no connection, a broken one, status 408, 409, 425, 429, 5xx     as the client is told
    a complete answer of status 200 that is no answer               ``UNUSABLE``: some pass, such as a proxy's page while its server
                                                                    starts; most are the fault of an address, which no retry mends
    no answer in time, where the server has stopped its work        ``LATE``

Status 501 is a refusal, too. The pause before a retry is ``Retry-After``, at most five minutes. Without this header, the pause is
``first_pause_s``, doubled for each further retry up to 30 seconds, and shortened at random by up to half.
"""

from __future__ import annotations

import email.utils
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from wikidx.base.errors import IdxError

Result = TypeVar("Result")

FINAL, LATE, UNUSABLE, TRANSIENT = 0, 1, 2, math.inf
"""Kinds of failures, as the maximum number of retries after failures of that kind."""

_RETRIED_STATUSES = frozenset({408, 409, 425, 429})
_LONGEST_PAUSE_S = 30.0
_LONGEST_RETRY_AFTER_S = 300.0
_LOGGED_PAUSE_S = 10.0

logger = logging.getLogger(__name__)


class Verdict(NamedTuple):
    """The kind of a failure, and the pause that the server asks for, in seconds, or None."""

    kind: float
    pause_s: float | None = None


class Retries(NamedTuple):
    """Limits on the retries of a client.

    Attributes:
        n: maximum number of retries of a request.
        first_pause_s: maximum pause before the first retry, in seconds.
        judge: function that returns the kind of a failure.
        wait: function that waits for some seconds, and returns whether to give up.
        left_s: function that returns the seconds that are left for all tries.
    """

    n: int
    first_pause_s: float
    judge: Callable[[IdxError], Verdict]
    wait: Callable[[float], bool]
    left_s: Callable[[], float] = lambda: math.inf

    def send(self, send: Callable[[], Result]) -> Result:
        """Call a function until it succeeds; raises its last error, with the number of tries."""
        failures, attempt = Counter[float](), 0
        while True:
            try:
                return send()
            except IdxError as error:
                verdict = self.judge(error)
                failures[verdict.kind] += 1
                pause_s = self._pause_s(attempt) if verdict.pause_s is None else verdict.pause_s
                is_last = attempt >= self.n or failures[verdict.kind] > verdict.kind or pause_s > self.left_s()
                if not is_last and pause_s >= _LOGGED_PAUSE_S:
                    logger.warning("retry in %.0f s: %s", pause_s, error)
                if is_last or self.wait(pause_s):
                    if attempt:
                        error.args = (f"{error} ({attempt + 1} tries)",)
                    raise
                attempt += 1

    def _pause_s(self, attempt: int) -> float:
        return min(self.first_pause_s * 2.0**attempt, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.0)


def is_transient(status: int) -> bool:
    """Return whether a request that is answered with this status may succeed later."""
    return status in _RETRIED_STATUSES or (status >= 500 and status != 501)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the pause that the header ``Retry-After`` requests, in seconds, at most five minutes; None without the header."""
    value = headers.get("Retry-After")
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
