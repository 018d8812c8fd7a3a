"""Requests to an endpoint: the fields of its dialect, which is recognised by the server's pages, and those of the user."""

from __future__ import annotations

import dataclasses
import threading
import time
from contextlib import closing
from typing import Any

import pytest

from tests.runtimes.llms.calling import ASK, DRAW, FAST, SHORT, TURNS, gens, one, opened, result_of
from tests.runtimes.llms.fake_server import (
    LLAMA_CPP,
    LM_STUDIO,
    OLLAMA,
    ONE,
    OPENAI,
    SGLANG,
    TGI,
    UNKNOWN,
    VLLM,
    Answer,
    FakeServer,
    Pages,
    chat,
    fake_serving,
    refusal,
)
from wikidx.base.errors import InputError
from wikidx.runtimes.llms.base import Generate, MeanNll, Nll, Reply
from wikidx.runtimes.llms.dialects import LLAMA_CPP as LLAMA_CPP_DIALECT
from wikidx.runtimes.llms.dialects import recognize
from wikidx.runtimes.llms.openai_connection import Connection
from wikidx.runtimes.llms.openai_requests import BEGINS_ANEW, OWN_SAMPLING
from wikidx.runtimes.llms.options import parse_extra_body, parse_thinking
from wikidx.runtimes.llms.prompts import Choice, Decoding, JsonSchema, Message, Schema, Thinking
from wikidx.runtimes.llms.prompts import Regex as Pattern
from wikidx.runtimes.llms.text import FREE_TEXT
from wikidx.runtimes.llms.thinking import ROOM

BEGUN = (*TURNS, Message("assistant", "Thought 1:\nIt is "))
WEB_UI: Pages = {"/v1/models": ONE, "/v1/internal/model/info": {"model_name": "x"}}


@pytest.mark.parametrize(
    ("pages", "name", "context", "slots"),
    [
        (VLLM, "vLLM", 4096, None),
        ({"/v1/models": ONE, "/version": {"version": "0.33.0"}}, "vLLM", None, None),
        (SGLANG, "SGLang", 4096, None),
        ({"/v1/models": ONE, "/get_model_info": {"model_path": "x"}}, "SGLang", None, None),
        (LLAMA_CPP, "llama.cpp", 2048, 4),
        ({**OPENAI, "/props": LLAMA_CPP["/props"]}, "llama.cpp", 2048, 4),
        (OLLAMA, "Ollama", 100, None),
        ({"/v1/models": ONE, "/api/version": {"version": "0.12.11"}}, "Ollama", None, None),
        (LM_STUDIO, "LM Studio", 4096, None),
        (TGI, "text-generation-inference", 2048, 128),
        (WEB_UI, "text-generation-webui", None, None),
        (OPENAI, "OpenAI", None, None),
        (UNKNOWN, "unknown", None, None),
        ({"/v1/models": {"data": "none"}, "/props": {}, "/version": {"other": 1}}, "unknown", None, None),
        ({"/v1/models": {"data": [{"id": 5, "owned_by": ["vllm"], "meta": "n_ctx"}]}}, "unknown", None, None),
    ],
)
def test_a_server_is_recognised(pages: Pages, name: str, context: int | None, slots: int | None) -> None:
    with fake_serving(FakeServer(lambda path, body: refusal("no"), pages)) as url, closing(Connection("fake", url, FAST)) as connection:
        server = recognize(connection, "fake", is_cloud=False)
    assert (server.dialect.name, server.context, server.slots) == (name, context, slots)


STANDARD = {"model", "messages", "max_tokens", "temperature", "top_p", "seed", "stream", "stream_options"}
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
NEUTRAL = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, **OFF}
OF_LLAMA_CPP = {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0, **OFF}
OF_LM_STUDIO = {"top_k": 0, "repeat_penalty": 1.0}
OF_WEB_UI = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "enable_thinking": False}
RESPONSE = {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {}, "strict": True}}}
DRAWN, CONTINUED = Generate(prompt=TURNS, decoding=DRAW), Generate(prompt=BEGUN, decoding=SHORT)


def to(schema: Schema) -> Generate:
    return Generate(prompt=TURNS, schema=schema, decoding=SHORT)


@pytest.mark.parametrize(
    ("pages", "call", "fields", "notes"),
    [
        (VLLM, DRAWN, NEUTRAL, ()),
        (SGLANG, DRAWN, NEUTRAL, ()),
        (LLAMA_CPP, DRAWN, OF_LLAMA_CPP, ()),
        (OLLAMA, DRAWN, {"reasoning_effort": "none"}, (OWN_SAMPLING,)),
        (LM_STUDIO, DRAWN, OF_LM_STUDIO, ()),
        (WEB_UI, DRAWN, OF_WEB_UI, ()),
        (OPENAI, DRAWN, {"reasoning_effort": "minimal"}, ()),
        (UNKNOWN, DRAWN, {}, (OWN_SAMPLING,)),
        (VLLM, to(Choice(("yes", "no"))), {**NEUTRAL, "structured_outputs": {"choice": ["yes", "no"]}}, ()),
        (VLLM, to(Pattern("a+")), {**NEUTRAL, "structured_outputs": {"regex": "a+"}}, ()),
        (SGLANG, to(Choice(("yes.", "no"))), {**NEUTRAL, "regex": r"(yes\.|no)"}, ()),
        (SGLANG, to(Pattern("a+")), {**NEUTRAL, "regex": "a+"}, ()),
        (LLAMA_CPP, to(Choice(("yes", 'n"o'))), {**OF_LLAMA_CPP, "grammar": r'root ::= "yes" | "n\"o"'}, ()),
        (LLAMA_CPP, to(Pattern("a+")), OF_LLAMA_CPP, (FREE_TEXT,)),
        (OLLAMA, to(Choice(("yes", "no"))), {"reasoning_effort": "none"}, (FREE_TEXT,)),
        (LM_STUDIO, to(JsonSchema("{}")), {**OF_LM_STUDIO, **RESPONSE}, ()),
        (WEB_UI, to(JsonSchema("{}")), OF_WEB_UI, (FREE_TEXT,)),
        (UNKNOWN, to(Pattern("a+")), {}, (FREE_TEXT,)),
        (VLLM, CONTINUED, {**NEUTRAL, "add_generation_prompt": False, "continue_final_message": True}, ()),
        (SGLANG, CONTINUED, {**NEUTRAL, "continue_final_message": True}, ()),
        (LLAMA_CPP, CONTINUED, OF_LLAMA_CPP, ()),
        (UNKNOWN, CONTINUED, {}, (BEGINS_ANEW,)),
    ],
)
def test_a_request_has_the_server_s_own_fields(pages: Pages, call: Generate, fields: dict[str, Any], notes: tuple[str, ...]) -> None:
    with opened("yes", pages) as (model, server):
        assert one(model, call).degraded == notes
    assert {name: value for name, value in server.bodies[0].items() if name not in STANDARD} == fields


@pytest.mark.parametrize(
    ("thinking", "fields", "max_tokens"),
    [
        ("off", {"chat_template_kwargs": {"enable_thinking": False}}, 8),
        ("on", {"chat_template_kwargs": {"enable_thinking": True}}, 8 + ROOM // 4),  # a quarter of a context of 4,096
        (50, {"chat_template_kwargs": {"enable_thinking": True}, "thinking_token_budget": 50}, 58),
    ],
)
def test_thinking_is_a_field_of_the_request_and_a_setting_of_the_run(thinking: Thinking, fields: dict[str, Any], max_tokens: int) -> None:
    asked = Generate(prompt=TURNS, decoding=dataclasses.replace(SHORT, thinking=thinking))
    by_setting: dict[str, Any] = {"thinking": thinking}
    for call, options in ((asked, dict[str, Any]()), (ASK, by_setting)):
        with opened("Rome", VLLM, **options) as (model, server):
            one(model, call)
        assert fields.items() <= server.bodies[0].items()
        assert server.bodies[0]["max_tokens"] == max_tokens


@pytest.mark.parametrize(("name", "asked"), [("Qwen3-8B", True), ("qwen3:8b", True), ("Qwen3-4B-Instruct-2507", False), ("Qwen2.5", False)])
def test_qwen3_at_a_server_without_a_field_is_asked_in_its_own_words(name: str, *, asked: bool) -> None:
    with opened("Rome", model=name) as (model, server):
        model.run([Generate(prompt=TURNS), Generate(prompt=TURNS, decoding=Decoding(thinking="on"))])
    ends = sorted(body["messages"][-1]["content"].endswith(" /no_think") for body in server.bodies)
    assert ends == [False, asked]


def test_fields_of_the_user_are_sent_and_merged_and_a_refusal_of_them_is_final() -> None:
    extra = parse_extra_body(['chat_template_kwargs={"thinking": false}', "reasoning_effort=low", "top_k=7"])
    with opened("Rome", VLLM, extra_body=extra) as (model, server):
        one(model)
    sent = {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}, "reasoning_effort": "low", "top_k": 7}
    assert sent.items() <= server.bodies[0].items()
    with opened(refusal("Unrecognized request argument supplied: 'reasoning_effort'"), extra_body=extra) as (model, server):
        assert "reasoning_effort" in str(model.run([ASK])[0])
    assert len(server.bodies) == 1
    for assignment in ("a", "=1", "messages=[]", "n=2"):
        with pytest.raises(InputError, match="field|--extra-body"):
            parse_extra_body([assignment])


def test_ways_of_thinking_are_parsed() -> None:
    assert [parse_thinking(text) for text in ("off", "on", "300")] == ["off", "on", 300]
    for text in ("", "0", "-1", "maybe"):
        with pytest.raises(InputError, match="give off, on, or"):
            parse_thinking(text)


def test_a_known_dialect_is_not_looked_for_and_may_leave_streaming_out() -> None:
    plain = dataclasses.replace(LLAMA_CPP_DIALECT, streams=False)
    with opened((200, {**chat("a")[1], "model": "fake.gguf"}), dialect=plain, name="llamacpp:mine", context=77) as (model, server):
        (reply,) = model.run([ASK])
        assert (model.name, model.capabilities.context) == ("llamacpp:mine", 77)
    assert isinstance(reply, Reply)
    assert (server.bodies[0]["model"], reply.model) == ("fake", "fake.gguf")  # llama.cpp answers under any name
    assert server.bodies[0]["repeat_penalty"] == 1.0
    assert not {"stream", "stream_options"} & set(server.bodies[0])
    assert "/version" not in server.asked


@pytest.mark.parametrize("prompt", [TURNS, BEGUN])
def test_ids_of_a_chat_are_asked_for_as_its_answer_is(prompt: Any) -> None:  # noqa: ANN401 - a prompt
    """vLLM scores the ids of a prompt and of the text after it."""
    tokenized = list[dict[str, Any]]()

    def answer(path: str, body: dict[str, Any]) -> Answer:
        if path == "/tokenize":
            tokenized.append(body)
            return 200, {"tokens": [8, 9] if "prompt" in body else [1, 2, 3]}
        scored = {"8": {"logprob": -0.5}, "9": {"logprob": -0.25}, "5": {"logprob": -0.01}}
        return 200, {
            "choices": [{"text": "z", "prompt_logprobs": [None, {}, {}, scored, scored]}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 1},
        }

    with opened(answer, VLLM) as (model, server):
        (reply,) = model.run([MeanNll(prompt=prompt, continuation=" yes")])
    assert result_of(reply, Nll) == Nll(total=0.75, n_tokens=2)
    (body,) = server.bodies
    assert (body["prompt"], body["prompt_logprobs"], body["max_tokens"]) == ([1, 2, 3, 8, 9], 0, 1)
    continues = prompt == BEGUN
    flags = {"add_generation_prompt": not continues, "continue_final_message": continues, **OFF}
    assert tokenized[0] | flags == tokenized[0]
    assert tokenized[1]["add_special_tokens"] is False


@pytest.mark.parametrize(("concurrency", "n_slots"), [(None, 4), (8, 8)])
def test_no_more_requests_are_sent_at_once_than_a_server_has_slots(concurrency: int | None, n_slots: int) -> None:
    """The server answers once as many have come as are expected."""
    full, lock, n_open, most = threading.Barrier(n_slots), threading.Lock(), 0, 0

    def complete(path: str, body: dict[str, Any]) -> Answer:
        nonlocal n_open, most
        with lock:
            n_open += 1
            most = max(most, n_open)
        full.wait(30)
        time.sleep(0.02)  # time in which one request too many would arrive
        with lock:
            n_open -= 1
        return chat("a")

    with opened(complete, LLAMA_CPP, concurrency=concurrency, retries=0) as (model, _):
        assert [gens(reply)[0].text for reply in model.run([ASK] * 24)] == ["a"] * 24
    assert most == n_slots
