"""Models without a chat template: the turns are one text, a reply ends where another turn would begin, and what runs on is no answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.runtimes.llms.calling import FAST
from tests.runtimes.llms.endpoint import Endpoint, serving
from tests.runtimes.methods.driving import drive, passages
from wikidx.runtimes.llms.base import Gen, Generate, MeanNll, Reply
from wikidx.runtimes.llms.openai_model import OpenAIHttp
from wikidx.runtimes.llms.prompts import Chat, Decoding, Message
from wikidx.runtimes.llms.scripted import ScriptedLLM
from wikidx.runtimes.llms.turns import adapt_to_text, as_text, end_turn, reply_end
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.methods.templates import format_passages, load_template

Q = "Which metal is liquid?"
PASSAGES = passages("Mercury is liquid.\nNote: it is a metal.")
FOUND = format_passages(PASSAGES)
TWO_LINES = (Message("user", "a\nAnswer:"), Message("assistant", "b\n\nc"), Message("user", "Hm: d\nAnswer:"))
BEGUN = Message("assistant", "Thought 1:")


def shots(method: str, name: str, n: int, **fields: Any) -> Chat:  # noqa: ANN401 - texts or blocks
    return load_template(method, name)(shots=n, question=Q, **fields)


@pytest.mark.parametrize(
    ("prompt", "ending", "stop", "end"),
    [
        (shots("direct", "answer", 0), f"\n\nQuestion: {Q}\nAnswer:", ("\nQuestion:",), "\n"),
        (shots("direct", "answer", 1), f"\nAnswer: no\n\nQuestion: {Q}\nAnswer:", ("\nQuestion:",), "\n"),
        (shots("rag", "answer", 0, passages=FOUND), f"\n\nQuestion: {Q}\nAnswer:", ("\nPassages:", "\nQuestion:"), "\n"),
        (shots("cot", "answer", 1), f"\nAnswer: no\n\nQuestion: {Q}\nReasoning:", ("\nQuestion:",), "\n\n"),
        (shots("ircot", "cot", 0, passages=FOUND), f"\n\nQuestion: {Q}\nReasoning:", ("\nPassages:", "\nQuestion:"), "\n\n"),
        (
            shots("ra_isf", "know", 1),
            f"?\nReply: yes\n\nQuestion: {Q}\nCan you answer it from memory, yes or no?\nReply:",
            ("\nQuestion:",),
            "\n\n",
        ),
        ((*shots("react", "solve", 1), BEGUN), f"Finish[the Black Sea]\n\nQuestion: {Q}\nThought 1:", ("\nQuestion:",), "\n\n"),
        (
            shots("self_reasoning", "answer", 1, passages=FOUND, fields="{}"),
            f"\n\nQuestion: {Q}\nReply:",
            ("\nPassages:", "\nQuestion:"),
            "\n\n",
        ),
        (TWO_LINES, "\n\nHm: d\nAnswer:", ("\nHm:",), ""),
    ],
)
def test_a_conversation_as_one_text_and_its_ends(prompt: Chat, ending: str, stop: tuple[str, ...], end: str) -> None:
    assert as_text(prompt)[-len(ending) :] == ending
    assert adapt_to_text(Generate(prompt=prompt), prompt).decoding.stop == stop
    own = Generate(prompt=prompt, decoding=Decoding(stop=("\nObservation", *stop[:1])))
    assert adapt_to_text(own, prompt).decoding.stop == ("\nObservation", *stop)
    assert reply_end(prompt) == end


@pytest.mark.parametrize(
    ("text", "kept", "finish"),
    [
        (" Ada\nHe", " Ada", "stop"),
        ("\n\n Ada\nHe", "\n\n Ada", "stop"),
        ("\nAda", "\nAda", "length"),
        ("\n", "\n", "length"),
        ("", "", "length"),
    ],
)
def test_a_reply_of_one_line_ends_after_its_first_word(text: str, kept: str, finish: str) -> None:
    """Some models begin with a line break."""
    prompt = shots("direct", "answer", 0)
    gen = Gen(text=text, finish="length", degraded=("no chat template: the turns are joined into one text",))
    assert (end_turn(gen, prompt).text, end_turn(gen, prompt).finish) == (kept, finish)
    assert end_turn(gen, "Answer:") is gen
    assert end_turn(Gen(text=text), prompt).text == text  # it went through a template


def test_a_text_that_is_scored_begins_with_a_space() -> None:
    prompt = shots("direct", "answer", 0)
    assert [adapt_to_text(MeanNll(prompt=prompt, continuation=text), prompt).continuation for text in ("Ada", " Ada", "")] == [
        " Ada",
        " Ada",
        "",
    ]


RUNS_ON = "\nMercury\n\nQuestion: What is the capital of France?\nAnswer: Paris"
REASONS_ON = " It is.\nAnswer: Mercury\n\nQuestion: What is the capital of France?\nReasoning: Easy.\nAnswer: Paris"


@pytest.fixture
def fake_base_model() -> Callable[[str], Endpoint]:
    """A fake of an endpoint with a base model: plain completions that run on into another question, whatever the stop texts are."""

    def open_fake(text: str) -> Endpoint:
        endpoint = Endpoint(ScriptedLLM(lambda call: text))
        endpoint.paths.discard("/v1/chat/completions")
        return endpoint

    return open_fake


@pytest.mark.parametrize(("method", "text"), [("direct", RUNS_ON), ("cot", REASONS_ON)])
def test_a_base_model_at_an_endpoint_is_cut_at_its_answer(fake_base_model: Callable[[str], Endpoint], method: str, text: str) -> None:
    endpoint = fake_base_model(text)
    with serving(endpoint) as url:
        model = OpenAIHttp("tiny", url, options=FAST)

        def answer(request: Any) -> Any:  # noqa: ANN401 - any request and its result
            (reply,) = model.run([request])
            assert isinstance(reply, Reply)
            return reply.result

        driven = drive(find_method(method).run(Q, find_method(method).options()), answer)
        model.close()
    assert driven.answer.text == "Mercury"
    assert endpoint.bodies[-1]["stop"] == ["\nQuestion:"]
