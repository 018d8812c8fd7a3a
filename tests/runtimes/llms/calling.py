"""Calls to the tiny Llama behind an endpoint, and readers of its replies."""

from __future__ import annotations

from collections.abc import Callable

from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.llms.base import Decoding, Gen, Generate, Message, Reply
from wikidx.runtimes.llms.openai_model import OpenAIHttp
from wikidx.runtimes.llms.options import ConnectionOptions

Open = Callable[..., OpenAIHttp]
FAST = ConnectionOptions(retries=2, first_pause=0.01, timeout=10.0)
TURNS = (Message("system", "Yes or No."), Message("user", "The river"))
SHORT = Decoding(max_tokens=8)
ASK = Generate(prompt=TURNS, decoding=SHORT)


def gens(reply: Reply | LLMError) -> tuple[Gen, ...]:
    assert isinstance(reply, Reply), reply
    assert isinstance(reply.result, tuple)
    return reply.result


def error_of(reply: Reply | LLMError) -> str:
    assert isinstance(reply, LLMError), reply
    return str(reply)
