"""The plainest methods, request by request."""

from __future__ import annotations

from tests.runtimes.methods.driving import drive, passages
from wikidx.runtimes.llms.base import Generate, Message
from wikidx.runtimes.methods.direct import DirectOptions, direct
from wikidx.runtimes.methods.rag import RagOptions, rag


def test_direct_asks_once_and_retrieves_nothing() -> None:
    driven = drive(direct("Who?", DirectOptions()), [" Ada \n"])
    assert driven.outline == [["answer"]]
    assert driven.prompts("answer")[0].endswith("Question: Who?\nAnswer:")
    assert driven.answer == ("Ada", (), {"parse_ok": True})


def test_demonstrations_are_earlier_turns() -> None:
    driven = drive(direct("Who?", DirectOptions(shots=2)), ["Ada"])
    (call,) = driven.requests
    assert isinstance(call, Generate)
    assert isinstance(call.prompt, tuple)
    roles = [message.role for message in call.prompt if isinstance(message, Message)]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]


def test_rag_reads_what_the_question_finds() -> None:
    found = passages("first", "second")
    driven = drive(rag("Who?", RagOptions(k=2)), [found, "Ada"])
    assert driven.outline == [["retrieve"], ["answer"]]
    assert driven.queries == [("Who?",)]
    assert "[1] T1\nfirst\n\n[2] T2\nsecond\n\nQuestion: Who?" in driven.prompts("answer")[0]
    assert driven.answer == ("Ada", tuple(found), {"parse_ok": True})


def test_an_empty_retrieval_leaves_the_question() -> None:
    driven = drive(rag("Who?", RagOptions()), [[], "Ada"])
    assert driven.prompts("answer")[0].endswith("think right.\n\nQuestion: Who?\nAnswer:")
    assert driven.answer.passages == ()
