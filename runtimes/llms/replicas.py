"""Replicas: several endpoints of one model that share its calls.

The replica with the fewest open calls takes the next; among equals, prompts with the same beginning go to the same one, whose server may
have it in its cache. A replica that fails is left out for a while, and its calls go to the others.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
import zlib
from collections.abc import Sequence

from wikidx.base.errors import InputError
from wikidx.base.net.request_threads import RequestThreads
from wikidx.runtimes.errors import LLMError, PromptTooLong

from .base import LLM, Call, Capabilities, Deliver, Reply
from .openai_connection import Refused, TimedOut, Unusable, answer_all
from .options import DEFAULT_CONCURRENCY, ConnectionOptions
from .prompts import End, prompt_text

_BEGINNING = 1_000  # characters of a prompt that decide among equally busy replicas
_LEFT_OUT_S = (30.0, 600.0)  # the first time, and at most; doubled for each further failure in a row
_LONGEST_PAUSE_S = 30.0

logger = logging.getLogger(__name__)


class _Replica:
    """A replica and its state.

    Attributes:
        n_open: number of its open calls.
        n_failures: number of its failures since its last answer.
        out_until: time until which it is left out.
    """

    def __init__(self, llm: LLM) -> None:
        self.llm = llm
        self.n_open = self.n_failures = 0
        self.out_until = 0.0


class Replicas:
    """A model at several endpoints; must be closed.

    Args:
        name: the model as named by the user.
        llms: the endpoints, at least one; they become parts of this model, and are closed with it.
        options: options of the connections; a call is repeated as often if all replicas fail.
    """

    def __init__(self, name: str, llms: Sequence[LLM], options: ConnectionOptions) -> None:
        self.name = name
        self._replicas = list(map(_Replica, llms))
        self._options = options
        self._lock, self._closed = threading.Lock(), threading.Event()
        n_threads = len(self._replicas) * (options.concurrency or DEFAULT_CONCURRENCY)
        self._pool = RequestThreads(n_threads, "replicas")

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the first replica that is not left out, with the concurrency of all."""
        concurrency = sum(replica.llm.capabilities.concurrency or 1 for replica in self._replicas)
        return dataclasses.replace(self._first().capabilities, concurrency=concurrency)

    def run(self, calls: Sequence[Call], deliver: Deliver | None = None) -> list[Reply | LLMError]:
        """Answer calls concurrently. A call has an error in place of a reply if all replicas fail, or one refuses the call."""
        return answer_all(self._pool, self._answer, calls, deliver)

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, as the first replica that is not left out counts."""
        return self._first().count_tokens(text)

    def truncate(self, text: str, max_tokens: int, *, keep: End = "start") -> str:
        """Return the first or last ``max_tokens`` tokens of a text, as the first replica that is not left out counts."""
        return self._first().truncate(text, max_tokens, keep=keep)

    def close(self) -> None:
        """Close the connections. Pending repetitions end with their last error."""
        self._closed.set()
        for replica in self._replicas:
            replica.llm.close()
        self._pool.shutdown()

    def _first(self) -> LLM:
        return min(self._replicas, key=lambda replica: replica.out_until > time.monotonic()).llm

    def _answer(self, call: Call) -> Reply | LLMError:
        reply: Reply | LLMError = LLMError(f"{self.name} was not called: it is closed")
        n_given_up = 0
        for attempt in range(len(self._replicas) + self._options.retries):
            if attempt and self._are_all_out() and self._closed.wait(self._pause(attempt)):
                break
            replica = self._take(call)
            try:
                (reply,) = replica.llm.run([call])
            finally:
                with self._lock:
                    replica.n_open -= 1
            if not _is_failure(reply):
                self._confirm(replica)
                break
            self._leave_out(replica, reply)
            n_given_up += isinstance(reply, TimedOut | Unusable)
            if n_given_up == len(self._replicas):
                break  # they may still work on the call, or are no models
        return reply

    def _are_all_out(self) -> bool:
        now = time.monotonic()
        return all(replica.out_until > now for replica in self._replicas)

    def _pause(self, attempt: int) -> float:
        n_rounds = max(0, attempt - len(self._replicas))
        return min(_LONGEST_PAUSE_S, self._options.first_pause * 2.0**n_rounds)

    def _take(self, call: Call) -> _Replica:
        """Return a replica for a call, after counting the call; if all are left out, the one whose time ends first."""
        beginning = zlib.crc32(prompt_text(call.prompt)[:_BEGINNING].encode(errors="replace"))
        ring = [self._replicas[(beginning + step) % len(self._replicas)] for step in range(len(self._replicas))]
        with self._lock:
            now = time.monotonic()
            replica = min(ring, key=lambda replica: (max(0.0, replica.out_until - now), replica.n_open))
            replica.n_open += 1
        return replica

    def _confirm(self, replica: _Replica) -> None:
        """Forget earlier failures after an answer, unless the replica has failed meanwhile."""
        with self._lock:
            if replica.out_until <= time.monotonic():
                replica.n_failures = 0

    def _leave_out(self, replica: _Replica, failure: Reply | LLMError) -> None:
        """Leave a replica out, once for all calls that fail at the same time, and say so."""
        with self._lock:
            if replica.out_until > time.monotonic():
                return
            shortest, longest = _LEFT_OUT_S
            seconds = min(longest, shortest * 2.0**replica.n_failures)
            replica.n_failures += 1
            replica.out_until = time.monotonic() + seconds
        logger.warning("%s is left out for %.0f s, and the other replicas get its calls: %s", replica.llm.name, seconds, failure)


def _is_failure(reply: Reply | LLMError) -> bool:
    """Return whether a replica itself has failed, so that another one may answer the call."""
    if isinstance(reply, Refused):
        return reply.refusal.status in (401, 403) or reply.refusal.means("no_model")
    return isinstance(reply, LLMError) and not isinstance(reply, PromptTooLong)


def split_urls(urls: str) -> list[str]:
    """Split the URLs of a model, which commas separate.

    Raises:
        InputError: a URL is given twice.
    """
    split = [part if number == 0 else f"http{part}" for number, part in enumerate(urls.split(",http"))]
    doubled = next((url for url in split if split.count(url) > 1), None)
    if doubled is not None:
        raise InputError(f"the address {doubled} is given twice: name each replica once")
    return split
