"""The HTTP backend against a server over the tiny Llama: the same answers as the engine itself, and every bad behaviour."""

from __future__ import annotations

import email.utils
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.runtimes.llms.calling import ASK, FAST, SHORT, TURNS, Open, error_of, gens
from tests.runtimes.llms.endpoint import Endpoint, serving
from wikidx.base.errors import InputError
from wikidx.runtimes.errors import PromptTooLong
from wikidx.runtimes.llms.base import (
    AskYesNo,
    Choice,
    Decoding,
    Generate,
    JsonSchema,
    MeanNll,
    Message,
    Nll,
    Regex,
    Reply,
    TokenIds,
    YesNo,
)
from wikidx.runtimes.llms.openai_answers import parse_gen
from wikidx.runtimes.llms.openai_model import OpenAIHttp
from wikidx.runtimes.llms.options import ConnectionOptions
from wikidx.runtimes.llms.scripted import ScriptedLLM
from wikidx.runtimes.llms.text import BY_WORD
from wikidx.runtimes.llms.thinking import NO_ROOM, NO_THINKING
from wikidx.runtimes.llms.transformers_engine import TransformersEngine


def test_texts_logprobs_and_costs_are_the_engine_s(opened: Open, tiny: TransformersEngine) -> None:
    drawn = Decoding(max_tokens=6, temperature=1.0, top_p=0.9, seed=3)
    calls = [
        Generate(prompt=TURNS, decoding=SHORT, logprobs=True),
        Generate(prompt="The river", decoding=SHORT, logprobs=True),
        Generate(prompt=TokenIds((0, 300, 301)), decoding=SHORT),
        Generate(prompt=(*TURNS, Message("assistant", "no, ")), decoding=SHORT),
        Generate(prompt=TURNS, decoding=drawn, n=3),
        Generate(prompt=TURNS, decoding=SHORT, schema=Choice(("relevant", "irrelevant"))),
    ]
    for here, there in zip(tiny.run(calls), opened().run(calls), strict=True):
        assert [(gen.text, gen.finish) for gen in gens(there)] == [(gen.text, gen.finish) for gen in gens(here)]
        for one, other in zip(gens(there), gens(here), strict=True):
            assert one.logprobs == (None if other.logprobs is None else pytest.approx(other.logprobs, abs=1e-5))
            assert one.degraded == ()
        assert isinstance(here, Reply)
        assert isinstance(there, Reply)
        assert there[1:4] == here[1:4]
        assert (there.seconds or 0) > 0


@pytest.mark.parametrize("prompt", [TURNS, "The river"])
def test_yes_no_is_summed_over_the_likeliest_tokens(opened: Open, endpoint: Endpoint, prompt: str | tuple[Message, ...]) -> None:
    assert endpoint.alternatives is not None
    likeliest = endpoint.alternatives(prompt, 20)
    words = [token.strip() for token, _ in likeliest if token.strip().isalpha()][:2]
    (reply,) = opened().run([AskYesNo(prompt=prompt, positive=(words[0],), negative=(words[1],))])
    assert isinstance(reply, Reply)
    assert isinstance(reply.result, YesNo)
    sides = [sum(2.718281828459045**p for token, p in likeliest if token in {w, " " + w, w.capitalize(), w.upper()}) for w in words]
    assert reply.result.p_positive == pytest.approx(sides[0])
    assert reply.result.p_negative == pytest.approx(sides[1])
    assert reply.result.degraded == ()
    (unseen,) = opened().run([AskYesNo(prompt=prompt, positive=("neverseen",), negative=("northis",))])
    assert isinstance(unseen, Reply)
    assert isinstance(unseen.result, YesNo)
    assert (unseen.result.missing, unseen.result.score) == (True, None)


def test_nll_of_a_given_text_where_the_prompt_is_one_text(opened: Open, tiny: TransformersEngine) -> None:
    call = MeanNll(prompt="The river", continuation=" flows through the country.")
    (here,), (there, chat) = tiny.run([call]), opened().run([call, MeanNll(prompt=TURNS, continuation=" flows")])
    for reply in (here, there, chat):
        assert isinstance(reply, Reply)
        assert isinstance(reply.result, Nll)
    assert isinstance(here, Reply)
    assert isinstance(there, Reply)
    assert isinstance(chat, Reply)
    assert there.result.n_tokens == here.result.n_tokens  # type: ignore[union-attr]
    assert there.result.total == pytest.approx(here.result.total, rel=1e-5)  # type: ignore[union-attr]
    assert (chat.result.mean, len(chat.result.degraded)) == (None, 1)  # type: ignore[union-attr]


def test_everything_is_said_to_a_vllm_server_and_only_the_standard_to_others(opened: Open, endpoint: Endpoint) -> None:
    opened().run([ASK])
    assert endpoint.bodies[0]["top_k"] == -1
    assert endpoint.bodies[0]["chat_template_kwargs"] == {"enable_thinking": False}
    endpoint.owner = "somebody"
    (choice,) = opened().run([Generate(prompt=TURNS, decoding=SHORT, schema=Regex("a+"))])
    assert set(endpoint.bodies[1]) == {"model", "messages", "max_tokens", "temperature", "top_p", "stream", "stream_options"}
    assert gens(choice)[0].degraded == ("no structured output: the text is unconstrained",)


@pytest.mark.parametrize("fault", ["500", "502", "429", "408", "cut", "empty", "no choices", "html", "half"])
def test_what_passes_is_tried_again(opened: Open, endpoint: Endpoint, fault: str) -> None:
    endpoint.faults.extend([fault, fault])
    wanted = gens(endpoint.llm.run([ASK])[0])[0].text
    assert gens(opened().run([ASK])[0])[0].text == wanted
    assert len(endpoint.bodies) == 3


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("500", "answers 500: made to fail (3 tries)"),
        ("429", "answers 429: made to fail (3 tries)"),
        ("cut", "the connection to openai:tiny@"),
        ("empty", "gives no usable answer: no choices in {'id': 'made', "),
        ("html", "/v1/chat/completions: an API's address usually ends in /v1 (3 tries)"),
        ("slow", "has not answered within 0.8 s: lower --concurrency if requests wait there, or raise --timeout (2 tries)"),
    ],
)
def test_what_does_not_pass_costs_that_call_only(opened: Open, endpoint: Endpoint, fault: str, message: str) -> None:
    endpoint.faults.extend([fault] * 3)
    options = ConnectionOptions(retries=2, first_pause=0.01, timeout=0.8 if fault == "slow" else 10.0, concurrency=1)
    failed, went = opened(options).run([ASK, ASK])
    assert message in error_of(failed)
    assert gens(went)


def test_retry_after_is_waited_for(opened: Open, endpoint: Endpoint) -> None:
    endpoint.faults.extend(["429 0.4", "503 0.2"])
    opened().run([ASK])
    pauses = [later - earlier for earlier, later in zip(endpoint.times, endpoint.times[1:], strict=False)]
    assert pauses[0] >= 0.4
    assert pauses[1] >= 0.2


@pytest.mark.parametrize(
    ("fault", "message"), [("401", "set OPENAI_API_KEY"), ("403", "set OPENAI_API_KEY"), ("400", "refuses the request (400")]
)
def test_refusals_are_final(opened: Open, endpoint: Endpoint, fault: str, message: str) -> None:
    endpoint.faults.append(fault)
    assert message in error_of(opened().run([ASK])[0])
    assert len(endpoint.bodies) == 1


def test_an_unknown_model_is_named(opened: Open) -> None:
    assert "The model `other` does not exist.): it serves tiny" in error_of(opened(model="other").run([ASK])[0])


def test_nobody_listens(opened: Open) -> None:
    """The calls that are still waiting fail at once."""
    model = OpenAIHttp("tiny", "http://127.0.0.1:9/v1", options=ConnectionOptions(retries=1, first_pause=0.2, concurrency=2))
    replies = model.run([ASK] * 50)
    model.close()
    assert sum("was not called" in error_of(reply) for reply in replies) >= 46  # two at a time, twice
    assert "nobody listens at http://127.0.0.1:9/v1" in error_of(replies[0])
    assert "was not called: other calls could not connect" in error_of(replies[-1])


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="is no address of an endpoint"):
        OpenAIHttp("tiny", "127.0.0.1:8000")


@pytest.mark.parametrize(
    ("part", "call", "said"),
    [
        (
            "seed",
            Generate(prompt=TURNS, decoding=Decoding(max_tokens=4, temperature=1.0, seed=1)),
            ("no seed: sampling cannot be repeated",),
        ),
        ("logprobs", Generate(prompt=TURNS, decoding=SHORT, logprobs=True), ("no logprobs",)),
        (
            "response_format",
            Generate(prompt=TURNS, decoding=SHORT, schema=JsonSchema.of({})),
            ("no structured output: the text is unconstrained",),
        ),
        ("temperature", ASK, ("the endpoint sets the temperature",)),
        ("top_k", ASK, ()),
        ("max_tokens", ASK, ()),
    ],
)
def test_a_refused_part_is_left_out_from_then_on_and_the_result_says_so(
    opened: Open, endpoint: Endpoint, part: str, call: Generate, said: tuple[str, ...]
) -> None:
    endpoint.refuses.add(part)
    model = opened()
    (first,), (second,) = model.run([call]), model.run([call])
    assert (gens(first)[0].degraded, gens(second)[0].degraded) == (said, said)
    assert [part in body for body in endpoint.bodies] == [True, False, False]
    assert ("max_completion_tokens" in endpoint.bodies[-1]) == (part == "max_tokens")


def test_fewer_alternatives_are_asked_for_where_twenty_are_too_many(opened: Open, endpoint: Endpoint) -> None:
    endpoint.top = 5
    model = opened()
    model.run([AskYesNo(prompt=TURNS), AskYesNo(prompt="The river")])
    assert endpoint.bodies[-1].get("top_logprobs", endpoint.bodies[-1]["logprobs"]) == 5
    assert model.capabilities.top_logprobs == 5


@pytest.mark.parametrize("refuses", [True, False])
def test_without_logprobs_yes_no_is_a_word(tiny: TransformersEngine, refuses: bool) -> None:
    answers = {"a": "Yes, it is.", "b": '"No"', "c": "Perhaps."}
    endpoint = Endpoint(ScriptedLLM(lambda call: answers[call.prompt[0].content]))  # type: ignore[union-attr]
    if refuses:
        endpoint.refuses.add("logprobs")
    with serving(endpoint) as url:
        model = OpenAIHttp("tiny", url, options=FAST)
        replies = model.run([AskYesNo(prompt=(Message("user", letter),)) for letter in "abc"])
        sent = len(endpoint.bodies)
        again = model.run([AskYesNo(prompt=(Message("user", "a"),))])
        assert not model.capabilities.logprobs
        model.close()
    scores = []
    for reply in replies:
        assert isinstance(reply, Reply)
        assert isinstance(reply.result, YesNo)
        scores.append(reply.result.score)
        assert "no logprobs: the first generated word decides yes or no, with probability 1 or 0" in reply.result.degraded
    assert scores == [1.0, 0.0, None]
    assert len(endpoint.bodies) == sent + 1  # it is not asked for logprobs again
    assert isinstance(again[0], Reply)


def test_an_answer_that_is_withheld_does_not_tell_that_there_are_no_logprobs(opened: Open, endpoint: Endpoint) -> None:
    """Its text and logprobs are null; the next call still requests logprobs."""
    endpoint.faults.extend(["null", "null"])
    model = opened(ConnectionOptions(concurrency=1))
    silent, asked, again = model.run(
        [Generate(prompt=TURNS, decoding=SHORT, logprobs=True), AskYesNo(prompt=TURNS), AskYesNo(prompt=TURNS)]
    )
    assert "no logprobs" in gens(silent)[0].degraded
    assert isinstance(asked, Reply)
    assert isinstance(again, Reply)
    assert BY_WORD in asked.result.degraded  # type: ignore[union-attr]
    assert again.result.degraded == ()  # type: ignore[union-attr]
    assert model.capabilities.logprobs


def test_a_text_that_cannot_be_scored_does_not_tell_that_none_can(opened: Open, endpoint: Endpoint) -> None:
    """Neither one that is too long, nor one that is empty."""
    calls = [MeanNll(prompt=before, continuation=after) for before, after in (("The river " * 300, " a"), ("The", ""), ("The", " river"))]
    refused, empty, scored = opened(ConnectionOptions(concurrency=1)).run(calls)
    assert isinstance(refused, PromptTooLong)
    assert isinstance(empty, Reply)
    assert isinstance(scored, Reply)
    assert empty.result == Nll(total=0.0, n_tokens=0)
    assert scored.result.mean is not None  # type: ignore[union-attr]


def test_texts_that_do_not_come_together_are_asked_for_one_by_one(opened: Open, endpoint: Endpoint) -> None:
    endpoint.one_choice = True
    call = Generate(prompt=TURNS, decoding=Decoding(max_tokens=6, temperature=1.0, seed=5), n=3)
    texts = gens(opened().run([call])[0])
    assert len({gen.text for gen in texts}) == 3
    assert sorted(body["seed"] for body in endpoint.bodies) == [5, 6, 7]
    assert [len(gen.degraded) for gen in texts] == [0, 1, 1]


def test_a_model_without_chat_gets_one_text_and_one_without_completions_a_turn(opened: Open, endpoint: Endpoint) -> None:
    endpoint.paths.discard("/v1/chat/completions")
    (flat,) = opened().run([ASK])
    assert endpoint.bodies[-1]["prompt"] == "Yes or No.\n\nThe river\nReply:"
    assert gens(flat)[0].degraded == ("no chat template: the turns are joined into one text",)
    endpoint.paths = {"/v1/chat/completions"}
    turned, ids = opened().run([Generate(prompt="The river", decoding=SHORT), Generate(prompt=TokenIds((0, 5)), decoding=SHORT)])
    assert gens(turned)[0].degraded == ("no plain completions: the prompt is sent as a user turn",)
    assert "refuses the request (404" in error_of(ids)


@pytest.mark.parametrize("says", [True, False])
def test_a_prompt_longer_than_the_context_loses_passages_or_is_refused(opened: Open, endpoint: Endpoint, says: bool) -> None:
    """The endpoint may or may not report its context length; if not, its refusals reveal it."""
    endpoint.context = endpoint.llm.capabilities.context if says else None  # type: ignore[assignment]
    passages = "\n\n".join(f"[{number}] The mountain is high. " + "It is. " * 60 for number in range(1, 6))
    long = Generate(prompt=(Message("user", f"{passages}\n\nQuestion: who?", ((0, len(passages)),)),), decoding=SHORT)
    endless = Generate(prompt=(Message("user", passages * 3),), decoding=SHORT)
    fits, refused = opened().run([long, endless])
    assert gens(fits)[0].degraded[0].startswith("prompt cut: ")
    assert endpoint.bodies[-1]["messages"][0]["content"] != ""
    kept = [body["messages"][0]["content"] for body in endpoint.bodies if body["messages"][0]["content"].endswith("\n\nQuestion: who?")]
    assert kept
    assert all(content.startswith("[1] The mountain is high.") for content in kept)
    assert isinstance(refused, PromptTooLong)


def test_odd_answers(opened: Open, endpoint: Endpoint) -> None:
    endpoint.faults.extend(["null", "surrogate", "text/plain"])
    silent, torn, plain = (opened(ConnectionOptions(concurrency=1)).run([ASK])[0] for _ in range(3))
    assert (gens(silent)[0].text, gens(silent)[0].degraded) == ("", ("the endpoint gives no text: content_filter",))
    assert gens(torn)[0].text == "café \ufffd!"
    assert gens(plain)[0].degraded == ()


def test_one_reply_without_logprobs_does_not_end_them(opened: Open, endpoint: Endpoint) -> None:
    call = AskYesNo(prompt=TURNS)
    model = opened(ConnectionOptions(concurrency=1))
    replies = []
    for fault in ([], ["no logprobs"], []):
        endpoint.faults.extend(fault)
        (reply,) = model.run([call])
        assert isinstance(reply, Reply)
        replies.append(reply.result)
    before, without_logprobs, after = replies
    assert isinstance(without_logprobs, YesNo)
    assert BY_WORD in without_logprobs.degraded
    assert before == after
    assert model.capabilities.logprobs


def test_thinking_is_no_answer(opened: Open, endpoint: Endpoint) -> None:
    endpoint.faults.extend(["thinking", "thinking on", "endless thinking"])
    endpoint.context = endpoint.llm.capabilities.context  # type: ignore[assignment]
    model = opened(ConnectionOptions(concurrency=1))
    (said,), (on,), (cut,) = (gens(model.run([ASK])[0]) for _ in range(3))
    assert (said.text, on.text, cut.text, cut.finish) == ("Rome", "Rome", "", "length")
    assert (said.reasoning, on.reasoning, cut.reasoning) == ("Paris? No.", "Paris? No.", "Paris? No.")
    assert said.degraded == on.degraded == (NO_THINKING,)
    assert cut.degraded == (NO_THINKING, NO_ROOM)


def test_retry_after_can_be_a_date(opened: Open, endpoint: Endpoint) -> None:
    endpoint.faults.append(f"429 {email.utils.formatdate(time.time() + 2, usegmt=True)}")
    opened().run([ASK])
    assert endpoint.times[1] - endpoint.times[0] >= 0.9  # dates have whole seconds


def test_closing_ends_what_waits_for_its_next_try(opened: Open, endpoint: Endpoint) -> None:
    endpoint.faults.append("429 100")
    model = opened()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(model.run, [ASK])
        while not endpoint.bodies:
            time.sleep(0.01)
        time.sleep(1)  # until the refusal has arrived
        started = time.monotonic()
        model.close()
        assert "answers 429" in error_of(waiting.result()[0])
    assert time.monotonic() - started < 50


def test_concurrency_is_used_and_bounded(opened: Open, endpoint: Endpoint) -> None:
    endpoint.seconds = 0.3
    opened(ConnectionOptions(concurrency=8)).run([Generate(prompt="The river", decoding=Decoding(max_tokens=n)) for n in range(1, 25)])
    assert endpoint.busiest == 8


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
