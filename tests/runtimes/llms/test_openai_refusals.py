"""Lessons from an endpoint's refusals, for as long as the model is open: fields, texts at a time, turns, contexts, APIs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from tests.runtimes.llms.calling import ASK, DRAW, SHORT, TURNS, error_of, gens, one, opened, result_of
from tests.runtimes.llms.fake_server import LLAMA_CPP, LM_STUDIO, OLLAMA, OPENAI, VLLM, Answer, Pages, chat, event, refusal
from wikidx.runtimes.errors import PromptTooLong
from wikidx.runtimes.llms.base import AskYesNo, Generate, MeanNll, Nll, YesNo
from wikidx.runtimes.llms.openai_refusals import parse_refusal
from wikidx.runtimes.llms.prompts import Decoding, JsonSchema, Message, TokenIds
from wikidx.runtimes.llms.text import BY_WORD
from wikidx.runtimes.llms.turns import NO_BEGINNING, NO_SYSTEM_TURN

YES = {"content": [{"token": "Yes", "logprob": -0.1, "top_logprobs": [{"token": "Yes", "logprob": -0.1}]}]}
LOGPROBS = Generate(prompt=TURNS, decoding=SHORT, logprobs=True)


def answer(body: Mapping[str, Any], text: str = "Yes") -> Answer:
    """Answer a body with a text, and with its log-probability if that is asked for."""
    return chat(text, logprobs=YES if body.get("logprobs") else None)


@pytest.mark.parametrize(
    ("part", "call", "notes"),
    [
        ("seed", Generate(prompt=TURNS, decoding=DRAW), ("no seed: sampling cannot be repeated",)),
        ("logprobs", LOGPROBS, ("no logprobs",)),
        ("response_format", Generate(prompt=TURNS, schema=JsonSchema.of({})), ("no structured output: the text is unconstrained",)),
        ("temperature", ASK, ("the endpoint sets the temperature",)),
        ("top_k", ASK, ()),
        ("max_tokens", ASK, ()),
    ],
)
def test_a_refused_part_is_left_out_from_then_on_and_the_result_says_so(part: str, call: Generate, notes: tuple[str, ...]) -> None:
    def refuse(path: str, body: dict[str, Any]) -> Answer:
        return refusal(f"Unrecognized request argument supplied: '{part}'") if part in body else answer(body)

    with opened(refuse, VLLM) as (model, server):
        assert [one(model, call).degraded for _ in range(2)] == [notes, notes]
    assert [part in body for body in server.bodies] == [True, False, False]
    assert ("max_completion_tokens" in server.bodies[-1]) == (part == "max_tokens")


def test_an_endpoint_without_any_limit_of_tokens_sets_its_own() -> None:
    def refuse(path: str, body: dict[str, Any]) -> Answer:
        name = next((name for name in ("max_tokens", "max_completion_tokens") if name in body), None)
        return answer(body) if name is None else refusal(f"Unknown parameter: '{name}'.")

    with opened(refuse, VLLM) as (model, server):
        assert [one(model, ASK).text for _ in range(2)] == ["Yes", "Yes"]
    assert len(server.bodies) == 4


@pytest.mark.parametrize(
    ("message", "name"),
    [("seed is not supported", "seed"), ("n must be 1", "n"), ("parameter: stop", "stop"), ("the upstream must stop", None)],
)
def test_a_field_is_told_from_the_same_word(message: str, name: str | None) -> None:
    assert parse_refusal(400, {"error": message}).refused_parameter({"model", "seed", "n", "stop", "stream"}) == name


@pytest.mark.parametrize("said", ["Unrecognized argument: 'stream'", "Streaming is not supported.", "stream is not supported"])
def test_a_server_that_does_not_stream_is_asked_without(said: str) -> None:
    with opened(lambda path, body: refusal(said) if "stream" in body else chat("a")) as (model, server):
        assert [one(model).text, one(model).text] == ["a", "a"]
    assert [("stream" in body, "stream_options" in body) for body in server.bodies] == [(True, True), (False, False), (False, False)]


def test_a_server_that_counts_no_tokens_in_streams_is_asked_without() -> None:
    uncounted = event(choices=[{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}])
    with opened(lambda path, body: iter([uncounted]) if "stream" in body else chat("a")) as (model, server):
        assert [one(model).text, one(model).text] == ["a", "a"]
    assert ["stream" in body for body in server.bodies] == [True, False]


def test_fewer_alternatives_are_asked_for_where_twenty_are_too_many() -> None:
    def at_most_five(path: str, body: dict[str, Any]) -> Answer:
        return refusal("top_logprobs must be at most 5") if body["top_logprobs"] > 5 else answer(body)

    with opened(at_most_five) as (model, server):
        model.run([AskYesNo(prompt=TURNS)])
        assert model.capabilities.top_logprobs == 5
    assert [body["top_logprobs"] for body in server.bodies] == [20, 5]


@pytest.mark.parametrize("refuses", [True, False])
def test_without_logprobs_yes_no_is_a_word(refuses: bool) -> None:
    texts = {"a": "Yes, it is.", "b": '"No"', "c": "Perhaps."}

    def say(path: str, body: dict[str, Any]) -> Answer:
        return refusal("logprobs are not supported") if refuses and "logprobs" in body else chat(texts[body["messages"][0]["content"]])

    with opened(say, concurrency=1) as (model, server):
        calls = [AskYesNo(prompt=(Message("user", letter),)) for letter in "abca"]
        found = [result_of(reply, YesNo) for reply in model.run(calls)]
        assert not model.capabilities.logprobs
    assert [yes_no.score for yes_no in found] == [1.0, 0.0, None, 1.0]
    assert all(BY_WORD in yes_no.degraded for yes_no in found)
    assert ["logprobs" in body for body in server.bodies[-4:]] == [False] * 4  # of which each call needs one


@pytest.mark.parametrize(
    "withheld",
    [
        chat(None, finish="content_filter"),
        chat(None, refusal="I cannot."),
    ],
)
def test_an_answer_that_is_withheld_does_not_tell_that_there_are_no_logprobs(withheld: Answer) -> None:
    answers = [withheld, withheld]
    with opened(lambda path, body: answers.pop() if answers else answer(body), concurrency=1) as (model, _):
        silent, asked, again = model.run([LOGPROBS, AskYesNo(prompt=TURNS), AskYesNo(prompt=TURNS)])
        assert model.capabilities.logprobs
    assert "no logprobs" in gens(silent)[0].degraded
    assert (BY_WORD in result_of(asked, YesNo).degraded, result_of(again, YesNo).degraded) == (True, ())


def test_one_reply_without_logprobs_does_not_end_them() -> None:
    answers = [answer({"logprobs": True}), chat("Yes"), chat("Yes")]
    with opened(lambda path, body: answers.pop(0) if answers else answer(body), concurrency=1) as (model, _):
        found = [result_of(reply, YesNo) for reply in model.run([AskYesNo(prompt=TURNS)] * 3)]
        assert model.capabilities.logprobs
    assert [yes_no.p_positive for yes_no in found] == [pytest.approx(math.exp(-0.1)), 1.0, pytest.approx(math.exp(-0.1))]


def test_a_text_that_cannot_be_scored_does_not_tell_that_none_can() -> None:
    """Neither one that is too long, nor one that is empty."""
    scored = {"tokens": ["The", " river"], "token_logprobs": [None, -1.5], "text_offset": [0, 3]}

    def score(path: str, body: dict[str, Any]) -> Answer:
        return refusal("the prompt is too long") if len(body["prompt"]) > 99 else (200, {"choices": [{"text": "x", "logprobs": scored}]})

    calls = [MeanNll(prompt=before, continuation=after) for before, after in (("The river " * 10, " a"), ("The", ""), ("The", " river"))]
    with opened(score, concurrency=1) as (model, server):
        refused, empty, found = model.run(calls)
        unknown, without = model.run([MeanNll(prompt=TURNS, continuation=" a"), MeanNll(prompt=TokenIds((1,)), continuation=" a")])
    assert isinstance(refused, PromptTooLong)
    assert (result_of(empty, Nll).total, result_of(found, Nll).total) == (0.0, 1.5)
    assert (result_of(unknown, Nll).mean, result_of(without, Nll).mean) == (None, None)  # only the endpoint knows their texts
    assert len(server.bodies) == 2


def at_most_four(path: str, body: dict[str, Any]) -> Answer:
    """Refuse more than four texts, in llama.cpp's words."""
    if body.get("n", 1) > 4:
        return refusal("Field 'n': Value must be between 1 <= value <= 4, got 10")
    return 200, {"choices": [chat("a")[1]["choices"][0]] * body.get("n", 1)}


@pytest.mark.parametrize(
    ("pages", "said", "n_texts", "asked"),
    [
        (LLAMA_CPP, at_most_four, [10, 3, 10], [10, *[None] * 10, 3, *[None] * 10]),
        (OLLAMA, at_most_four, [3], [None] * 3),  # it is known to write one text
        (VLLM, "a", [3], [3, None, None]),
    ],
)
def test_texts_that_do_not_come_together_are_asked_for_one_by_one(
    pages: Pages,
    said: Any,  # noqa: ANN401 - as ``opened`` takes it
    n_texts: list[int],
    asked: list[int | None],
) -> None:
    with opened(said, pages) as (model, server):
        found = [gens(model.run([Generate(prompt=TURNS, decoding=DRAW, n=n)])[0]) for n in n_texts]
    assert [len(texts) for texts in found] == n_texts
    assert [body.get("n") for body in server.bodies] == asked
    alone = [body["seed"] for body in server.bodies if "n" not in body][: n_texts[0]]
    assert sorted(alone) == list(range(5 + n_texts[0] - len(alone), 5 + n_texts[0]))
    assert any("requested one by one" in note for note in found[0][-1].degraded)


def test_a_model_without_chat_gets_one_text_and_one_without_completions_a_turn() -> None:
    for missing, calls in (("messages", [ASK]), ("prompt", [Generate(prompt="The river"), Generate(prompt=TokenIds((0, 5)))])):

        def answer(path: str, body: dict[str, Any], missing: str = missing) -> Answer:
            return (
                refusal("Not Found", 404)
                if missing in body
                else (200, {"choices": [{"text": "a"} if "prompt" in body else {"message": {"content": "a"}}]})
            )

        with opened(answer) as (model, server):
            replies = model.run(calls)
        if missing == "messages":
            assert server.bodies[-1]["prompt"] == "Yes or No.\n\nThe river\nReply:"
            assert "no chat template: the turns are joined into one text" in gens(replies[0])[0].degraded
        else:
            assert "no plain completions: the prompt is sent as a user turn" in gens(replies[0])[0].degraded
            assert "refuses the request (404" in error_of(replies[1])


def passages(n_characters: int) -> Generate:
    text = ("The mountain is high. " * n_characters)[:n_characters].strip()
    return Generate(prompt=(Message("user", f"{text}\n\nQuestion: who?", ((0, len(text)),)),), decoding=Decoding(max_tokens=10))


def asked(body: Mapping[str, Any]) -> str:
    return str(body["messages"][0]["content"])


def test_one_refusal_with_numbers_teaches_the_context_for_the_run() -> None:
    """Of a fake in llama.cpp's words, whose tokens are three characters; the estimate is four."""

    def complete(path: str, body: dict[str, Any]) -> Answer:
        n_tokens = len(asked(body)) // 3
        if n_tokens < 200:
            return chat("a")
        error = {"code": 400, "message": "the request exceeds the available context size", "n_prompt_tokens": n_tokens, "n_ctx": 200}
        return 400, {"error": {"type": "exceed_context_size_error", **error}}

    with opened(complete) as (model, server):
        first, second = one(model, passages(2000)), one(model, passages(3000))
        assert model.capabilities.context == 200
    assert len(server.bodies) == 3  # one refusal in all
    for gen in (first, second):
        assert gen.degraded[0].startswith("prompt cut: ")
    assert all(asked(body).startswith("The mountain is high.") and len(asked(body)) > 500 for body in server.bodies)  # of 570 that fit


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
    with opened(lambda path, body: chat("a") if len(asked(body)) < 570 else refusal(said)) as (model, server):
        one(model, passages(1950))
        n_tried, last = len(server.bodies), asked(server.bodies[-1])
        assert isinstance(model.run([Generate(prompt=(Message("user", "high " * 500),))])[0], PromptTooLong)  # of which nothing can be cut
    assert n_tried <= n_sent
    assert len(last) > 500 or not is_tight
    assert len(server.bodies) <= n_tried + 1


def test_a_prompt_too_long_may_be_refused_in_a_stream() -> None:
    refused = event(error={"message": "This model's maximum context length is 20 tokens."})
    with opened(lambda path, body: iter([refused]), LM_STUDIO) as (model, _):
        assert isinstance(model.run([ASK])[0], PromptTooLong)


def test_a_server_s_tokenizer_counts_and_cuts_and_without_it_tokens_are_estimated() -> None:
    """In the fake, tokens are two characters."""

    def complete(path: str, body: dict[str, Any]) -> Answer:
        if path == "/tokenize":
            return 200, {"tokens": [ord(a) * 1000 + ord(b) for a, b in zip(body["content"][::2], body["content"][1::2], strict=False)]}
        if path == "/detokenize":
            return 200, {"content": "".join(chr(token // 1000) + chr(token % 1000) for token in body["tokens"])}
        return chat("a")

    with opened(complete, LLAMA_CPP) as (model, server):
        assert model.count_tokens("abcdefgh") == 4
        assert (model.truncate("abcdefgh", 3), model.truncate("abcdefgh", 3, keep="end")) == ("abcdef", "cdefgh")
        one(model, passages(6000))  # 1,500 tokens by estimate, 3,000 by the tokenizer, of 2,048
    assert len(server.bodies) == 1
    assert 3500 < len(asked(server.bodies[0])) <= 2 * 2038
    with opened(refusal("no such page", 404), LLAMA_CPP) as (model, server):
        assert (model.count_tokens("abcdefgh"), model.count_tokens("abcdefgh")) == (2, 2)
        assert model.truncate("abcd efgh", 1) == "abcd"
    assert server.asked.count("/tokenize") == 1


def test_ollama_s_context_is_known_once_it_has_loaded_the_model() -> None:
    """Ollama cuts longer prompts silently, from their beginning."""
    pages: dict[str, Mapping[str, Any]] = {**OLLAMA, "/api/ps": {"models": []}}
    with opened("a", pages) as (model, _):
        one(model, passages(40))
        assert model.capabilities.context is None

    def load(path: str, body: dict[str, Any]) -> Answer:
        pages["/api/ps"] = OLLAMA["/api/ps"]
        return chat("a")

    with opened(load, pages) as (model, server):
        one(model, passages(40))
        cut = one(model, passages(1000))
    assert cut.degraded[0].startswith("prompt cut: ")
    assert len(asked(server.bodies[-1])) <= 360


def of_gpt_5(path: str, body: dict[str, Any]) -> Answer:
    """Refuse in the words of OpenAI's cloud what its reasoning models do not take; each reply thinks unseen for 40 tokens."""
    for name in ("max_tokens", "temperature", "top_p", "stop"):
        if name in body:
            instead = "Use 'max_completion_tokens' instead." if name == "max_tokens" else ""
            return refusal(f"Unsupported parameter: '{name}' is not supported with this model. {instead}")
    if body["reasoning_effort"] == "minimal":
        return refusal("Unsupported value: 'reasoning_effort' does not support 'minimal'. Supported values are: 'none', 'low'.")
    _, said = chat("Mercury\nIron") if body["max_completion_tokens"] > 40 else chat("", finish="length")
    return 200, {**said, "usage": {"completion_tokens_details": {"reasoning_tokens": 40}}}


def test_gpt_5_s_refusals_are_learned_once_and_its_thoughts_get_room() -> None:
    call = Generate(prompt=TURNS, decoding=Decoding(max_tokens=8, stop=("\n",)))
    with opened(of_gpt_5, OPENAI) as (model, server):
        texts = [one(model, call).text for _ in range(2)]
    assert texts == ["Mercury", "Mercury"]
    assert len(server.bodies) == 8  # five refusals, a reply without room, and two with it
    assert {body.get("reasoning_effort") for body in server.bodies[5:]} == {"none"}


CONTINUED = Generate(prompt=(*TURNS, Message("assistant", "It flows")), decoding=SHORT)
STRICT, JINJA = (
    "Conversation roles must alternate user/assistant/...",
    'Error with jinja template: "Only user and assistant roles are supported!"',
)
NOT_LAST, PREFILL = "Expected last role User or Tool but got assistant", "Assistant response prefill is incompatible with enable_thinking."


@pytest.mark.parametrize(
    ("system", "last", "status", "notes", "n_requests"),
    [
        ("System role not supported", None, 400, (NO_SYSTEM_TURN,), 2),
        (STRICT, None, 500, (NO_SYSTEM_TURN,), 2),
        (None, NOT_LAST, 400, (NO_BEGINNING,), 2),
        (None, PREFILL, 400, (NO_BEGINNING,), 2),
        (JINJA, NOT_LAST, 400, (NO_SYSTEM_TURN, NO_BEGINNING), 3),
    ],
)
def test_an_endpoint_whose_template_refuses_turns(
    system: str | None, last: str | None, status: int, notes: tuple[str, ...], n_requests: int
) -> None:
    """In the words of Gemma, old versions of llama.cpp, Mistral, llama.cpp and LM Studio."""

    def answer(path: str, body: dict[str, Any]) -> Answer:
        roles = [turn["role"] for turn in body["messages"]]
        said = (system if "system" in roles else None) or (last if roles[-1] == "assistant" else None)
        return refusal(said, status) if said else chat("a")

    with opened(answer, VLLM) as (model, server):
        assert [one(model, CONTINUED).degraded for _ in range(2)] == [notes, notes]
    assert len(server.bodies) == n_requests + 1  # the second call knows what the first one learned
    assert "\n\n".join(turn["content"] for turn in server.bodies[-1]["messages"]) == "Yes or No.\n\nThe river\n\nIt flows"


def test_an_endpoint_that_refuses_all_turns_costs_that_call_only() -> None:
    answers = [refusal("unknown role")] * 3
    with opened(lambda path, body: answers.pop() if answers else chat("a"), VLLM) as (model, _):
        assert "refuses the request (400: unknown role)" in error_of(model.run([CONTINUED])[0])
        assert answers == []
        assert one(model, CONTINUED).degraded == ()  # nothing was learned from what did not help
