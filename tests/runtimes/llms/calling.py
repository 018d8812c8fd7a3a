"""Models at fake servers, calls to them, and readers of their replies."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from tests.runtimes.llms.fake_server import UNKNOWN, Answer, FakeServer, Pages, Raw, Stream, chat, fake_serving
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.llms.base import LLM, Gen, Generate, Reply
from wikidx.runtimes.llms.openai_model import OpenAIHttp
from wikidx.runtimes.llms.options import ConnectionOptions
from wikidx.runtimes.llms.prompts import Decoding, Message

_Result = TypeVar("_Result")
Given = Callable[[str, dict[str, Any]], Answer | Raw | Stream] | Answer | Raw | str
"""What a server answers: by a function, always the same, or always a text."""

FAST = ConnectionOptions(retries=2, first_pause=0.01, timeout=10.0)
TURNS = (Message("system", "Yes or No."), Message("user", "The river"))
SHORT, DRAW = Decoding(max_tokens=8), Decoding(max_tokens=8, temperature=1.0, seed=5)
ASK = Generate(prompt=TURNS, decoding=SHORT)


@contextmanager
def opened(answer: Given, pages: Pages = UNKNOWN, *, model: str = "fake", **options: Any) -> Iterator[tuple[OpenAIHttp, FakeServer]]:  # noqa: ANN401
    """Open a model at a fake server; ``options`` are those of the connection."""

    def always(path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401 - as ``FakeServer`` takes it
        return chat(answer) if isinstance(answer, str) else answer

    server = FakeServer(answer if callable(answer) else always, pages)
    with fake_serving(server) as url, closing(OpenAIHttp(model, url, options=dataclasses.replace(FAST, **options))) as llm:
        yield llm, server


def one(llm: LLM, call: Generate = ASK) -> Gen:
    """Return the text that a model writes."""
    (gen,) = gens(llm.run([call])[0])
    return gen


def gens(reply: Reply | LLMError) -> tuple[Gen, ...]:
    """Return the texts of a reply."""
    return result_of(reply, tuple)


def result_of(reply: Reply | LLMError, kind: type[_Result]) -> _Result:
    """Return the result in a reply, of a kind."""
    assert isinstance(reply, Reply), reply
    assert isinstance(reply.result, kind)
    return reply.result


def error_of(reply: Reply | LLMError) -> str:
    """Return the message of a failure."""
    assert isinstance(reply, LLMError), reply
    return str(reply)


def wait_until(is_so: Callable[[], object]) -> None:
    """Wait for what another thread does, at most for half a minute."""
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Clock:
    """A clock that a server moves, in place of ``time`` in a client's module; slow machines do not matter to it.

    Attributes:
        now: the time in seconds.
        noted: function that returns the time of the latest token that the client has noted.
    """

    def __init__(self) -> None:
        self.now, self._sent = 1000.0, 0.0
        self.noted: Callable[[], float] = lambda: math.inf

    def monotonic(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        """Move the clock, once the client has noted the latest token."""
        wait_until(lambda: self.noted() >= self._sent)
        self.now += seconds

    def send(self, token: bytes, *, after_s: float) -> bytes:
        """Return a token that is sent some seconds after the one before."""
        self.move(after_s)
        self._sent = self.now
        return token
