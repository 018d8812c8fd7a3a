"""Servers and their dialects: fakes of each kind of server, and what is sent to them, read from them and learned of them."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.runtimes.llms.calling import FAST, TURNS, gens
from tests.runtimes.llms.fake_server import Answer, FakeServer, chat, fake_serving, refusal
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.rehearsal import StandInSearcher, stand_in_passages
from wikidx.runtimes.llms.base import Choice, Decoding, Gen, Generate, JsonSchema, Message, Regex, Reply, Schema
from wikidx.runtimes.llms.dialects import LLAMA_CPP as LLAMA_CPP_DIALECT
from wikidx.runtimes.llms.dialects import recognize
from wikidx.runtimes.llms.openai_connection import Connection
from wikidx.runtimes.llms.openai_model import OpenAIHttp
from wikidx.runtimes.llms.openai_requests import BEGINS_ANEW, OWN_SAMPLING
from wikidx.runtimes.llms.options import ConnectionOptions
from wikidx.runtimes.llms.text import FREE_TEXT
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.questions import Question

Pages = Mapping[str, Mapping[str, Any]]

ONE = {"data": [{"id": "fake", "owned_by": "somebody"}]}
LLAMA_CPP: Pages = {
    "/v1/models": {"data": [{"id": "fake.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": 2048, "n_ctx_train": 8192}}]},
    "/props": {"default_generation_settings": {"n_ctx": 2048}, "total_slots": 4},
}
OLLAMA: Pages = {
    "/v1/models": {"data": [{"id": "fake:latest", "owned_by": "library"}]},
    "/api/version": {"version": "0.12.11"},
    "/api/ps": {"models": [{"name": "fake:latest", "context_length": 100}]},
}
LM_STUDIO: Pages = {
    "/v1/models": {"data": [{"id": "fake", "owned_by": "organization_owner"}]},
    "/api/v0/models": {"data": [{"id": "fake", "loaded_context_length": 4096, "max_context_length": 32768}]},
}
VLLM: Pages = {"/v1/models": {"data": [{"id": "fake", "owned_by": "vllm", "max_model_len": 4096}]}}
SGLANG: Pages = {"/v1/models": {"data": [{"id": "fake", "owned_by": "sglang", "max_model_len": 4096}]}}
TGI: Pages = {"/v1/models": ONE, "/info": {"model_id": "fake", "max_total_tokens": 2048, "max_concurrent_requests": 128}}
UNKNOWN: Pages = {"/v1/models": ONE}

DRAW = Decoding(max_tokens=8, temperature=1.0, seed=5)
BEGINNING = (Message("user", "Which metal?"), Message("assistant", "Thought 1:\nIt is "))


@contextmanager
def opened(pages: Pages, answer: Callable[[str, dict[str, Any]], Answer], **options: Any) -> Iterator[tuple[OpenAIHttp, FakeServer]]:  # noqa: ANN401
    server = FakeServer(answer, pages)
    with fake_serving(server) as url:
        model = OpenAIHttp("fake", url, options=dataclasses.replace(FAST, **options))
        yield model, server
        model.close()


def says(text: str) -> Callable[[str, dict[str, Any]], Answer]:
    return lambda path, body: chat(text)


def one(model: OpenAIHttp, call: Generate) -> Gen:
    return gens(model.run([call])[0])[0]


@pytest.mark.parametrize(
    ("pages", "name", "context", "slots"),
    [
        (VLLM, "vLLM", 4096, None),
        ({"/v1/models": ONE, "/version": {"version": "0.33.0"}}, "vLLM", None, None),
        (SGLANG, "SGLang", 4096, None),
        ({"/v1/models": ONE, "/get_model_info": {"model_path": "x"}}, "SGLang", None, None),
        (LLAMA_CPP, "llama.cpp", 2048, 4),
        ({"/v1/models": {"data": [{"id": "fake", "owned_by": "openai"}]}, "/props": LLAMA_CPP["/props"]}, "llama.cpp", 2048, 4),
        (OLLAMA, "Ollama", 100, None),
        ({"/v1/models": ONE, "/api/version": {"version": "0.12.11"}}, "Ollama", None, None),
        (LM_STUDIO, "LM Studio", 4096, None),
        (TGI, "text-generation-inference", 2048, 128),
        ({"/v1/models": ONE, "/v1/internal/model/info": {"model_name": "x"}}, "text-generation-webui", None, None),
        ({"/v1/models": {"data": [{"id": "gpt", "owned_by": "openai"}]}}, "OpenAI", None, None),
        (UNKNOWN, "unknown", None, None),
        ({"/v1/models": {"data": "none"}, "/props": {}, "/version": {"other": 1}}, "unknown", None, None),
        ({"/v1/models": {"data": [{"id": 5, "owned_by": ["vllm"], "meta": "n_ctx"}]}}, "unknown", None, None),
    ],
)
def test_a_server_is_recognised_by_its_models_or_its_pages(pages: Pages, name: str, context: int | None, slots: int | None) -> None:
    with fake_serving(FakeServer(says(""), pages)) as url:
        connection = Connection("fake", url, FAST)
        server = recognize(connection, "fake", is_cloud=False)
        connection.close()
    assert (server.dialect.name, server.context, server.slots) == (name, context, slots)


@pytest.mark.parametrize(
    ("pages", "fields"),
    [
        (VLLM, {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "chat_template_kwargs": {"enable_thinking": False}}),
        (SGLANG, {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "chat_template_kwargs": {"enable_thinking": False}}),
        (LLAMA_CPP, {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0, "chat_template_kwargs": {"enable_thinking": False}}),
        (OLLAMA, {"reasoning_effort": "none"}),
        (LM_STUDIO, {"top_k": 0, "repeat_penalty": 1.0}),
        (UNKNOWN, {}),
    ],
)
def test_a_server_gets_its_own_words_for_neutral_sampling_and_no_thinking(pages: Pages, fields: dict[str, Any]) -> None:
    with opened(pages, says("a")) as (model, server):
        drawn = one(model, Generate(prompt=TURNS, decoding=DRAW))
    standard = {"model", "messages", "max_tokens", "temperature", "top_p", "seed", "stream", "stream_options"}
    assert {name: value for name, value in server.bodies[0].items() if name not in standard} == fields
    assert (OWN_SAMPLING in drawn.degraded) == ("top_k" not in fields)


@pytest.mark.parametrize(
    ("pages", "schema", "fields"),
    [
        (VLLM, Choice(("yes", "no")), {"structured_outputs": {"choice": ["yes", "no"]}}),
        (SGLANG, Choice(("yes.", "no")), {"regex": r"(yes\.|no)"}),
        (SGLANG, Regex("a+"), {"regex": "a+"}),
        (LLAMA_CPP, Choice(("yes", 'n"o')), {"grammar": r'root ::= "yes" | "n\"o"'}),
        (LLAMA_CPP, Regex("a+"), None),
        (OLLAMA, Choice(("yes", "no")), None),
        (
            LM_STUDIO,
            JsonSchema("{}"),
            {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {}, "strict": True}}},
        ),
    ],
)
def test_a_constraint_is_expressed_in_the_server_s_way_or_the_text_is_free(
    pages: Pages, schema: Schema, fields: dict[str, Any] | None
) -> None:
    with opened(pages, says("yes")) as (model, server):
        gen = one(model, Generate(prompt=TURNS, schema=schema, decoding=Decoding(max_tokens=8)))
    assert (FREE_TEXT in gen.degraded) == (fields is None)
    assert (fields or {}).items() <= server.bodies[0].items()


def test_a_beginning_that_llama_cpp_repeats_is_taken_away_before_stop_texts_are_looked_for() -> None:
    with opened(LLAMA_CPP, says("Thought 1:\nIt is mercury.\nObservation: no")) as (model, server):
        gen = one(model, Generate(prompt=BEGINNING, decoding=Decoding(stop=("\n",))))
        stripped = one(model, Generate(prompt=(*BEGINNING[:1], Message("assistant", " Thought 1: ")), decoding=Decoding(stop=("\n",))))
    assert (gen.text, gen.degraded) == ("mercury.", ())
    assert (stripped.text, stripped.degraded) == ("", ())
    assert "continue_final_message" not in server.bodies[0]


@pytest.mark.parametrize(("text", "degraded"), [("Thought 1:\nIt is mercury", ()), ("mercury", (BEGINS_ANEW,))])
def test_an_unknown_server_is_seen_to_continue_a_beginning_only_if_it_repeats_it(text: str, degraded: tuple[str, ...]) -> None:
    with opened(UNKNOWN, says(text)) as (model, _):
        gen = one(model, Generate(prompt=BEGINNING))
    assert (gen.text, gen.degraded) == ("mercury", degraded)


def test_react_gets_on_with_a_server_that_repeats_the_beginning() -> None:
    """A fake of llama.cpp with a model that answers in its second step."""

    def complete(path: str, body: dict[str, Any]) -> Answer:
        beginning = body["messages"][-1]["content"] if body["messages"][-1]["role"] == "assistant" else ""
        is_second = "Thought 2" in beginning
        number = 2 if is_second else 1
        written = f"I know.\nAction {number}: {'Finish[mercury]' if is_second else 'Search[metal]'}"
        return chat(f"{beginning}{'' if beginning.endswith(' ') else ' '}{written}" if beginning else f"Thought {number}: {written}")

    method = find_method("react")
    with opened(LLAMA_CPP, complete) as (model, server):
        services = Services(llms=dict.fromkeys(method.roles, model), searcher=StandInSearcher(), look_up_title=stand_in_passages)
        (prediction,) = execute(lambda text: method.run(text, method.options()), [Question("1", "Which metal is liquid?")], services)
    assert prediction.answer == "mercury"
    assert len(server.bodies) <= 4


def test_no_more_requests_are_sent_at_once_than_a_server_has_slots() -> None:
    arrived = threading.Condition()
    n_arrived = n_answered = most = 0

    def complete(path: str, body: dict[str, Any]) -> Answer:
        """Answer once as many requests as expected have come in, so that they are all in progress at once."""
        nonlocal n_arrived, n_answered
        with arrived:
            n_arrived += 1
            excess.append(n_arrived - n_answered > most)
            last_of_batch = -(-n_arrived // most) * most
            arrived.notify_all()
            assert arrived.wait_for(lambda: n_arrived >= last_of_batch, timeout=30)
        time.sleep(0.02)  # time in which one request too many would arrive
        with arrived:
            n_answered += 1
        return chat("a")

    calls = [Generate(prompt=f"{number}") for number in range(24)]
    for concurrency, n_slots in ((None, 4), (8, 8)):
        n_arrived, n_answered, most = 0, 0, n_slots
        excess: list[bool] = []
        with opened(LLAMA_CPP, complete, concurrency=concurrency) as (model, _):
            model.run(calls)
        assert excess == [False] * 24


def at_most_four(path: str, body: dict[str, Any]) -> Answer:
    """Refuse more than four texts, in llama.cpp's words."""
    if body.get("n", 1) > 4:
        return refusal("Field 'n': Value must be between 1 <= value <= 4, got 10")
    choice = chat("a")[1]["choices"][0]
    return 200, {"choices": [choice] * body.get("n", 1)}


def test_too_many_texts_for_one_request_are_requested_one_by_one_and_fewer_still_together() -> None:
    with opened(LLAMA_CPP, at_most_four) as (model, server):
        ten, three = (gens(model.run([Generate(prompt=TURNS, decoding=DRAW, n=n)])[0]) for n in (10, 3))
        again = gens(model.run([Generate(prompt=TURNS, decoding=DRAW, n=10)])[0])
    assert [len(texts) for texts in (ten, three, again)] == [10, 3, 10]
    assert [body.get("n") for body in server.bodies] == [10, *[None] * 10, 3, *[None] * 10]
    assert sorted(body["seed"] for body in server.bodies[1:11]) == list(range(5, 15))


def test_a_server_of_one_text_is_asked_for_no_more() -> None:
    with opened(OLLAMA, says("a")) as (model, server):
        assert len(gens(model.run([Generate(prompt=TURNS, decoding=DRAW, n=3)])[0])) == 3
        assert not model.capabilities.n
    assert [body.get("n") for body in server.bodies] == [None] * 3


def passages(n_characters: int) -> Generate:
    text = ("The mountain is high. " * n_characters)[:n_characters].strip()
    return Generate(prompt=(Message("user", f"{text}\n\nQuestion: who?", ((0, len(text)),)),), decoding=Decoding(max_tokens=10))


def test_one_refusal_with_numbers_teaches_the_context_for_the_run() -> None:
    """Of a fake in llama.cpp's words, whose tokens are three characters; the estimate is four."""

    def complete(path: str, body: dict[str, Any]) -> Answer:
        n_tokens = len(body["messages"][0]["content"]) // 3
        if n_tokens < 200:
            return chat("a")
        said = "the request exceeds the available context size, try increasing it"
        return 400, {
            "error": {"code": 400, "message": said, "type": "exceed_context_size_error", "n_prompt_tokens": n_tokens, "n_ctx": 200}
        }

    with opened(UNKNOWN, complete) as (model, server):
        first, second = one(model, passages(2000)), one(model, passages(3000))
        assert model.capabilities.context == 200
    assert len(server.bodies) == 3  # one refusal in all
    assert first.degraded[0].startswith("prompt cut: ")
    assert second.degraded[0].startswith("prompt cut: ")
    assert all(len(body["messages"][0]["content"]) > 500 for body in server.bodies)  # of 570 that fit


@pytest.mark.parametrize(
    ("said", "n_sent", "is_tight"),
    [
        ("This model's maximum context length is 200 tokens. However, you requested 660 tokens (650 in the messages, 10 in it).", 2, True),
        ("This model's maximum context length is 200 tokens. However, your messages resulted in 650 tokens.", 2, True),
        ("Trying to keep the first 650 tokens when the model is loaded with context length of only 200 tokens.", 2, True),
        ("The prompt exceeds the context window of 200 tokens.", 4, False),
        ("The prompt is too long.", 6, False),
    ],
)
def test_others_refusals_are_read_for_their_numbers(said: str, n_sent: int, is_tight: bool) -> None:
    """vLLM's, OpenAI's, LM Studio's, one without the prompt's length, and one without numbers, after which a quarter is cut each time."""

    def complete(path: str, body: dict[str, Any]) -> Answer:
        return chat("a") if len(body["messages"][0]["content"]) < 570 else refusal(said)

    with opened(UNKNOWN, complete) as (model, server):
        one(model, passages(1950))
    assert len(server.bodies) <= n_sent
    assert (len(server.bodies[-1]["messages"][0]["content"]) > 500) or not is_tight


def test_a_server_s_tokenizer_counts_and_cuts() -> None:
    """In the fake, tokens are two characters."""

    def complete(path: str, body: dict[str, Any]) -> Answer:
        if path == "/tokenize":
            return 200, {"tokens": [ord(a) * 1000 + ord(b) for a, b in zip(body["content"][::2], body["content"][1::2], strict=False)]}
        if path == "/detokenize":
            return 200, {"content": "".join(chr(token // 1000) + chr(token % 1000) for token in body["tokens"])}
        return chat("a")

    with opened(LLAMA_CPP, complete) as (model, server):
        assert model.count_tokens("abcdefgh") == 4
        assert (model.truncate("abcdefgh", 3), model.truncate("abcdefgh", 3, keep="end")) == ("abcdef", "cdefgh")
        one(model, passages(6000))  # 1,500 tokens by estimate, 3,000 by the tokenizer, of 2,048
    assert len(server.bodies) == 1
    assert 3500 < len(server.bodies[0]["messages"][0]["content"]) <= 2 * 2038


def test_without_a_tokenizer_tokens_are_estimated() -> None:
    with opened(LLAMA_CPP, lambda path, body: refusal("no such page", 404)) as (model, server):
        assert (model.count_tokens("abcdefgh"), model.count_tokens("abcdefgh")) == (2, 2)
        assert model.truncate("abcd efgh", 1) == "abcd"
    assert server.asked.count("/tokenize") == 1


def test_ollama_s_context_is_known_once_it_has_loaded_the_model() -> None:
    """Ollama cuts longer prompts silently, from their beginning."""
    pages: dict[str, Mapping[str, Any]] = {**OLLAMA, "/api/ps": {"models": []}}
    with opened(pages, says("a")) as (model, server):
        one(model, passages(40))
        assert model.capabilities.context is None
    pages["/api/ps"] = {"models": []}

    def load(path: str, body: dict[str, Any]) -> Answer:
        pages["/api/ps"] = OLLAMA["/api/ps"]
        return chat("a")

    with opened(pages, load) as (model, server):
        one(model, passages(40))
        cut = one(model, passages(1000))
    assert cut.degraded[0].startswith("prompt cut: ")
    assert len(server.bodies[-1]["messages"][0]["content"]) <= 360


def test_options_of_the_user_come_before_the_server_s() -> None:
    with opened(LLAMA_CPP, says("a"), context=77) as (model, _):
        assert model.capabilities.context == 77
    assert ConnectionOptions().concurrency is None


def of_gpt_5(path: str, body: dict[str, Any]) -> Answer:
    """Refuse in the words of OpenAI's cloud what its reasoning models do not take; each reply thinks unseen for 40 tokens."""
    for name, said in (
        ("max_tokens", "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."),
        ("temperature", "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is supported."),
        ("top_p", "Unsupported parameter: 'top_p' is not supported with this model."),
        ("stop", "Unsupported parameter: 'stop' is not supported with this model."),
    ):
        if name in body:
            return refusal(said)
    if body["reasoning_effort"] == "minimal":
        return refusal(
            "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model. Supported values are: 'none', 'low'."
        )
    _, said_so = chat("Mercury\nIron") if body["max_completion_tokens"] > 40 else chat("", finish="length")
    return 200, {**said_so, "usage": {"completion_tokens_details": {"reasoning_tokens": 40}}}


def test_gpt_5_s_refusals_are_learned_once_and_its_thoughts_get_room() -> None:
    pages = {"/v1/models": {"data": [{"id": "fake", "owned_by": "openai"}]}}
    call = Generate(prompt=TURNS, decoding=Decoding(max_tokens=8, stop=("\n",)))
    with opened(pages, of_gpt_5) as (model, server):
        texts = [one(model, call).text for _ in range(2)]
    assert texts == ["Mercury", "Mercury"]
    assert len(server.bodies) == 8  # five refusals, a reply without room, and two with it
    assert {body.get("reasoning_effort") for body in server.bodies[5:]} == {"none"}


def test_the_model_that_answers_to_another_name_is_recorded() -> None:
    """llama.cpp answers under any name."""
    with opened(LLAMA_CPP, lambda path, body: (200, {**chat("a")[1], "model": "fake.gguf"})) as (model, server):
        (reply,) = model.run([Generate(prompt=TURNS)])
    assert isinstance(reply, Reply)
    assert (server.bodies[0]["model"], reply.model) == ("fake", "fake.gguf")


def test_a_base_model_s_answer_ends_where_it_makes_up_another_question() -> None:
    """A server of a model without a chat template has plain completions alone."""
    written = " Mercury\n\nQuestion: What is the capital of France?\nAnswer: Paris"

    def complete(path: str, body: dict[str, Any]) -> Answer:
        if "messages" in body:
            return refusal("the model has no chat template", 400)
        return 200, {"choices": [{"text": written, "finish_reason": "length"}]}

    asked = (Message("system", "Answer briefly."), Message("user", "Question: Which metal is liquid?\nAnswer:"))
    with opened(UNKNOWN, complete) as (model, server):
        gen = one(model, Generate(prompt=asked))
    assert (gen.text.strip(), gen.finish) == ("Mercury", "stop")
    assert "\nQuestion:" in server.bodies[-1]["stop"]


def test_a_known_dialect_is_not_looked_for() -> None:
    with opened(UNKNOWN, says("a"), dialect=LLAMA_CPP_DIALECT, name="llamacpp:mine") as (model, server):
        one(model, Generate(prompt=TURNS))
    assert model.name == "llamacpp:mine"
    assert server.bodies[0]["repeat_penalty"] == 1.0
    assert "/version" not in server.asked
