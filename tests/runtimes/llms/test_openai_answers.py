"""Answers of endpoints as they are read, whole and streamed: texts in all their forms, log-probabilities, thoughts, numbers of tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.runtimes.llms.calling import ASK, SHORT, TURNS, gens, one, opened
from tests.runtimes.llms.fake_server import LLAMA_CPP, WIRES, Answer, Raw, streamed
from wikidx.runtimes.llms.base import Generate, Reply
from wikidx.runtimes.llms.openai_answers import ESTIMATED, parse_gen
from wikidx.runtimes.llms.openai_answers import Answer as Parsed
from wikidx.runtimes.llms.openai_requests import BEGINS_ANEW
from wikidx.runtimes.llms.prompts import Decoding, Message
from wikidx.runtimes.llms.streams import ReportedError, StreamedAnswer
from wikidx.runtimes.llms.thinking import NO_THINKING

USAGE = {"prompt_tokens": 1, "completion_tokens": 1}


def choice(**fields: Any) -> Answer:  # noqa: ANN401 - JSON
    return 200, {"choices": [{"finish_reason": "stop", **fields}], "usage": USAGE}


def events(*parts: dict[str, Any], finish: str = "stop", name: str = "delta", kind: str = "text/event-stream") -> Raw:
    choices = [{name: part, "finish_reason": finish if part is parts[-1] else None} for part in parts]
    lines = [json.dumps({"choices": [choice], "usage": USAGE}) for choice in choices]
    return 200, "".join(f"data: {line}\n\n" for line in lines).encode(), kind


CURY, IMAGE = {"type": "text", "text": "cury"}, {"type": "image_url", "image_url": {}}
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
REFUSES = "the model refuses to answer"
LEFT_OUT, NO_TEXT = "parts of the answer that are no text are left out: ", "the endpoint gives no text: "


@pytest.mark.parametrize(
    ("answer", "text", "notes"),
    [
        (choice(message={"content": ["Mer", CURY]}), "Mercury", ()),
        (choice(message={"content": [IMAGE, "Mercury", {"type": "text", "text": {}}]}), "Mercury", (f"{LEFT_OUT}image_url, text",)),
        (choice(message={"content": [THOUGHT, "Mercury"]}), "Mercury", (NO_THINKING,)),
        (events({"content": ["Mer"]}, {"content": [CURY, IMAGE]}), "Mercury", (f"{LEFT_OUT}image_url",)),
        (choice(message={"content": ""}, finish_reason="content_filter"), "", (f"{NO_TEXT}content_filter",)),
        (events({"content": ""}, {}, finish="content_filter"), "", (f"{NO_TEXT}content_filter",)),
        (events({"content": None}, {}), "", ()),
        (choice(message={"content": "Mer"}, finish_reason="content_filter"), "Mer", ("the endpoint ends the text: content_filter",)),
        (events({"content": "Mer"}, finish="SAFETY"), "Mer", ("the endpoint ends the text: safety",)),
        (events({"content": "Mer"}, finish="network_error"), "Mer", ("the endpoint ends the text: network_error",)),
        (events({"content": "Mer"}, finish="tool_calls"), "Mer", ()),
        (choice(message={"content": "Mercury"}, finish_reason="COMPLETE"), "Mercury", ()),
        (choice(message={"content": None, "refusal": "I cannot."}), "I cannot.", (REFUSES,)),
        (events({"content": ""}, {"refusal": "I can"}, {"refusal": "not."}), "I cannot.", (REFUSES,)),
        (choice(message={"content": ["Mercury"], "refusal": {"why": 5}}), "Mercury", ()),
        (choice(message={"content": None, "refusal": True}), "", (f"{NO_TEXT}stop",)),
        (choice(message=None, text="Mercury"), "Mercury", ()),
        (choice(delta={"content": "Mercury"}), "Mercury", ()),
        (events({"content": "Mer"}, {"content": "cury"}, name="message"), "Mercury", ()),
        (events({"content": "Mercury", "reasoning": {"summary": "hm"}}), "Mercury", ()),
        (events({"content": "Mercury"}, kind="application/octet-stream"), "Mercury", ()),
        ((200, json.dumps(choice(text="Mercury")[1], indent=1).encode(), "text/event-stream"), "Mercury", ()),
        (choice(text="Mercury", finish_reason={}, logprobs=[-0.1]), "Mercury", ("no logprobs",)),
        (choice(message={"content": "caf\u00e9 \ud83d!"}), "café \ufffd!", ()),
        (choice(message={"content": "<think>\nhm</think>\n\nRome"}), "Rome", (NO_THINKING,)),
        (choice(message={"content": "hm</think>\n\nRome"}), "Rome", (NO_THINKING,)),  # begun by the template
    ],
)
def test_the_text_of_an_answer_is_found_in_all_its_forms(answer: Answer | Raw, text: str, notes: tuple[str, ...]) -> None:
    with opened(answer) as (model, server):
        gen = one(model, Generate(prompt=TURNS, decoding=SHORT, logprobs="no logprobs" in notes))
    assert (gen.text, gen.degraded, gen.reasoning) == (text, notes, "hm" if NO_THINKING in notes else None)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (None, (6, 2)),
        ([1], (6, 2)),
        ({"prompt_tokens": 9, "completion_tokens": None}, (9, 2)),
        ({"prompt_tokens": -1, "completion_tokens": 0}, (6, 0)),
        (USAGE, (1, 1)),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_numbers_of_tokens_that_the_endpoint_does_not_give_are_estimated(usage: Any, counted: tuple[int, int], is_streamed: bool) -> None:  # noqa: ANN401 - JSON
    said = {"choices": [{"finish_reason": "stop", "delta" if is_streamed else "message": {"content": "Mercury"}}], "usage": usage}
    answer: Any = (200, f"data: {json.dumps(said)}\n\n".encode(), "text/event-stream") if is_streamed else (200, said)
    with opened(answer) as (model, _):
        (reply,) = model.run([ASK])
    assert isinstance(reply, Reply)
    assert (reply.prompt_tokens, reply.completion_tokens) == counted
    assert gens(reply)[0].degraded == (() if usage is USAGE else (ESTIMATED,))


@pytest.mark.parametrize("finish", ["length", "MAX_TOKENS", "model_context_window_exceeded"])
def test_a_text_that_the_server_cuts_is_cut_whatever_its_word_for_it(finish: str) -> None:
    with opened(events({"content": "Mer"}, finish=finish)) as (model, _):
        gen = one(model)
    assert (gen.finish, gen.degraded) == ("length", ())


@pytest.mark.parametrize(("n_read", "n_written", "counted"), [(-5, 10**400, (0, 0)), (10**9, 10**9 + 1, (10**9, 0)), (True, 1.5, (1, 0))])
def test_impossible_numbers_of_tokens_are_taken_as_absent(n_read: object, n_written: object, counted: tuple[int, int]) -> None:
    usage = {"prompt_tokens": n_read, "completion_tokens": n_written, "completion_tokens_details": {"reasoning_tokens": n_written}}
    answer = Parsed({"usage": usage}, ())
    assert (*answer.tokens, answer.hidden_tokens) == (*counted, 0)


_EMOJI = [{"token": "\ufffd", "bytes": [0xF0, 0x9F]}, {"token": "\ufffd", "bytes": [0x98, 0x80]}, {"token": "!", "bytes": [33]}]


@pytest.mark.parametrize(
    ("message", "tokens", "stop", "text", "kept"),
    [
        ({"content": "Rome"}, ["Ro", "me", "<|im_end|>"], (), "Rome", [0, 1, 2]),  # the end of text counts, if it is returned
        ({"content": "Rome"}, ["Ro", "me", "\n", "Q:"], ("\nQ:",), "Rome", [0, 1]),  # the server cuts the text alone
        ({"content": "Rome\nQ: x"}, ["Ro", "me", "\n", "Q:", " x"], ("\nQ:",), "Rome", [0, 1]),  # the client cuts
        ({"content": "Rome"}, [" Rome", "!"], ("!",), "Rome", [0]),
        ({"content": "Rome "}, ["Ro", "me"], ("Q:",), "Rome ", [0, 1]),  # llama.cpp cuts the token " Q:" as well
        ({"content": "a", "reasoning": "b a"}, ["b", " a", "</think>", "a", ""], (), "a", [3, 4]),
        ({"content": "<think>a</think>a\n"}, ["<think>", "a", "</think>", "a", "\n"], (), "a\n", [3, 4]),
        ({"content": "\U0001f600!"}, _EMOJI, ("!",), "\U0001f600", [0, 1]),
        ({"content": "\U0001f600!"}, ["\ufffd", "\ufffd", "!"], (), "\U0001f600!", [0, 1, 2]),  # nothing is cut
        ({"content": "\U0001f600!"}, ["\ufffd", "\ufffd", "!"], ("!",), "\U0001f600", None),  # unknown which
        ({"content": "\U0001f600", "reasoning": "so"}, ["so", "\ufffd", "\ufffd"], (), "\U0001f600", None),
    ],
)
def test_log_probabilities_are_those_of_the_text(
    message: dict[str, Any], tokens: list[Any], stop: tuple[str, ...], text: str, kept: list[int] | None
) -> None:
    content = [{**({"token": each} if isinstance(each, str) else each), "logprob": -float(n)} for n, each in enumerate(tokens)]
    choice = {"message": message, "finish_reason": "stop", "logprobs": {"content": content}}
    gen = parse_gen(choice, Generate(prompt=TURNS, decoding=Decoding(stop=stop), logprobs=True), ())
    assert (gen.text, gen.logprobs) == (text, None if kept is None else tuple(-float(n) for n in kept))


CONTENT = ["Mer", "cury", " is ", "a métal", " 水", "."]
LOGPROBS = [
    {"token": token, "logprob": -0.5 * place, "top_logprobs": [{"token": "x", "logprob": -3.0}]} for place, token in enumerate(CONTENT)
]


def chat_answer(*, logprobs: bool = False, thoughts: str | None = None, texts: int = 1, finish: str = "stop") -> dict[str, Any]:
    """Return an answer of the chat API without streaming."""
    message = {"role": "assistant", "content": "".join(CONTENT), "left_out": []} | ({"reasoning_content": thoughts} if thoughts else {})
    choice = {"finish_reason": finish, "message": message, "logprobs": {"content": LOGPROBS} if logprobs else None}
    usage = {"prompt_tokens": 11, "completion_tokens": texts * len(CONTENT)}
    return {"id": "1", "model": "fake.gguf", "choices": [{"index": index, **choice} for index in range(texts)], "usage": usage}


def completion_answer() -> dict[str, Any]:
    """Return an answer of the completions API without streaming."""
    places = range(len(CONTENT))
    offsets = [sum(map(len, CONTENT[:place])) for place in places]
    logprobs = {
        "tokens": CONTENT,
        "token_logprobs": [-float(place) for place in places],
        "top_logprobs": [{"x": -1.0}] * len(CONTENT),
        "text_offset": offsets,
    }
    choice = {"index": 0, "finish_reason": "length", "text": "".join(CONTENT), "logprobs": logprobs}
    return {"id": "1", "model": "fake.gguf", "choices": [choice], "usage": {"prompt_tokens": 4, "completion_tokens": len(CONTENT)}}


ANSWERS = [
    chat_answer(),
    chat_answer(logprobs=True, finish="length"),
    chat_answer(thoughts="it is liquid "),
    chat_answer(logprobs=True, texts=3),
    completion_answer(),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=["chat", "logprobs", "thoughts", "texts", "completion"])
@pytest.mark.parametrize("wire", WIRES)
def test_a_streamed_answer_is_the_one_without_streaming(wire: str, answer: dict[str, Any]) -> None:
    content = b"".join(streamed(answer, WIRES[wire]))
    for size in (1, 7, len(content)):
        together = StreamedAnswer()
        for start in range(0, len(content), size):
            together.add(content[start : start + size])
        found = together.finish()
        assert {name: found[name] for name in answer} == answer


def test_what_is_no_stream_of_an_answer() -> None:
    for content in (
        b'data: {"choices": 1}\n',
        b"data: {\n\n",
        b"data: {\ndata: ]\n\n",
        b'data: {"choices": [{"delta": {"content": 1}}]}\n',
    ):
        with pytest.raises(ValueError, match="."):
            StreamedAnswer().add(content)
    cut = StreamedAnswer()
    cut.add(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n')
    with pytest.raises(EOFError, match="before the last token"):
        cut.finish()
    for content in (b'event: error\ndata: {"error": {"message": "no"}}\n', b'error: {"message": "no"}\n'):
        with pytest.raises(ReportedError):
            StreamedAnswer().add(content)


@pytest.mark.parametrize(("end", "last"), [(b"\n", b""), (b"\n", b"\n\n"), (b"\r\n", b"\r\n\r\n")])
def test_an_event_may_stand_in_several_lines(end: bytes, last: bytes) -> None:
    answer, wires = StreamedAnswer(), [{"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]} for text in ("a {", "b")]
    assert answer.add(b"data: " + json.dumps(wires[0]).encode() + end + end)
    lines = json.dumps(wires[1], indent=1).encode().replace(b"\n", end + b"data: ")
    assert answer.add(b": alive" + end + b"data: " + lines + last) == bool(last)
    assert (answer.whole(), answer.finish()["choices"][0]["message"]["content"]) == (None, "a {b")


BEGINNING = (Message("user", "Which metal?"), Message("assistant", "Thought 1:\nIt is "))


def test_a_beginning_that_llama_cpp_repeats_is_taken_away_before_stop_texts_are_looked_for() -> None:
    stop = Decoding(stop=("\n",))
    with opened("Thought 1:\nIt is mercury.\nObservation: no", LLAMA_CPP) as (model, _):
        gen = one(model, Generate(prompt=BEGINNING, decoding=stop))
        stripped = one(model, Generate(prompt=(*BEGINNING[:1], Message("assistant", " Thought 1: ")), decoding=stop))
    assert (gen.text, gen.degraded) == ("mercury.", ())
    assert (stripped.text, stripped.degraded) == ("", ())


@pytest.mark.parametrize(("text", "degraded"), [("Thought 1:\nIt is mercury", ()), ("mercury", (BEGINS_ANEW,))])
def test_an_unknown_server_is_seen_to_continue_a_beginning_only_if_it_repeats_it(text: str, degraded: tuple[str, ...]) -> None:
    with opened(text) as (model, _):
        gen = one(model, Generate(prompt=BEGINNING))
    assert (gen.text, gen.degraded) == ("mercury", degraded)
