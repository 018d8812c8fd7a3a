"""Next tokens and control tokens as endpoints tell them: means of distributions, ends, and refusals where nothing is told."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.runtimes.llms.calling import error_of, opened
from wikidx.runtimes.llms.base import Control, Generate, Mix
from wikidx.runtimes.llms.mixing import Mixture
from wikidx.runtimes.llms.openai_answers import parse_gen
from wikidx.runtimes.llms.prompts import Decoding, Message
from wikidx.runtimes.llms.text import NO_CONTROL, NO_MIX

PROMPTS = ("one", (Message("user", "two"),))


def mixing(**decoding: Any) -> Mixture:  # noqa: ANN401
    return Mixture(Mix(prompts=PROMPTS, weights=(0.75, 0.25), decoding=Decoding(**decoding)))


def told(finish: str = "length", **ps: float) -> dict[str, Any]:
    """Return an answer of one token, the likeliest, with the probabilities of tokens; "_" stands for a space."""
    top = [{"token": token.replace("_", " "), "logprob": math.log(p)} for token, p in ps.items()]
    return {"finish_reason": finish, "logprobs": {"content": [{**top[0], "top_logprobs": top}]}}


def test_the_likeliest_token_of_the_mean_is_appended_to_every_prompt() -> None:
    mixture = mixing(max_tokens=2)
    assert mixture.append([told(a=0.5, b=0.4), told(b=0.8, c=0.2)])  # a: 0.375, b: 0.3 + 0.2
    assert mixture.prompts() == ["oneb", (*PROMPTS[1], Message("assistant", "b"))]
    assert mixture.finish is None
    assert mixture.append([told(_c=0.6), told(d=1.0)])
    gen = mixture.gen()
    assert (gen.text, gen.finish) == ("b c", "length")
    assert gen.logprobs == pytest.approx((math.log(0.5), math.log(0.45)))


def test_a_begun_answer_is_continued() -> None:
    begun = (Message("user", "two"), Message("assistant", "It is"))
    mixture = Mixture(Mix(prompts=(begun,), weights=(1.0,), decoding=Decoding()))
    assert mixture.append([told(_a=0.5)])
    assert mixture.prompts() == [(begun[0], Message("assistant", "It is a"))]


def test_a_text_ends_with_an_end_token_or_before_a_stop_text() -> None:
    mixture = mixing()
    mixture.append([told("stop", END=0.9), told("stop", END=0.6, a=0.1)])
    assert (mixture.gen().text, mixture.finish) == ("", "stop")
    mixture = mixing(stop=("b",))
    mixture.append([told(a=1.0), told(a=1.0)])
    mixture.append([told(_bc=1.0), told(a=1.0)])
    assert (mixture.gen().text, mixture.finish) == ("a ", "stop")


def test_a_prompt_of_which_nothing_is_told_is_left_out_of_a_token_and_nothing_at_all_ends_or_refuses() -> None:
    mixture = mixing()
    assert mixture.append([{"finish_reason": "length"}, told(a=0.5)])
    assert mixture.gen().logprobs == pytest.approx((math.log(0.5),))
    assert mixture.append([{}, told("length", **{"\ufffd": 0.9})])
    assert (mixture.gen().text, mixture.finish) == ("a", "length")
    assert not mixing().append([{}, {}])


def test_control_tokens_of_an_endpoint_have_their_places() -> None:
    call = Generate(prompt="x", control=("[R]", "[U]"))
    logprobs = {
        "tokens": ["[R]", "so", "[U]"],
        "token_logprobs": [-0.1, -0.2, -0.3],
        "top_logprobs": [{"[R]": -0.1, "a": -3.0}, {"so": -0.2}, {"[R]": -2.0}],
    }
    gen = parse_gen({"text": "[R]so[U]", "finish_reason": "stop", "logprobs": logprobs}, call, ())
    assert gen.control == (Control(0, (-0.1, -1e4)), Control(5, (-2.0, -0.3)))


def test_endpoints_without_logprobs_refuse_in_one_line() -> None:
    with opened("Paris") as (llm, server):
        mixed, controlled = llm.run([Mix(prompts=PROMPTS, weights=(0.5, 0.5)), Generate(prompt="x", control=("[R]",))])
    assert error_of(mixed).endswith(NO_MIX)
    assert error_of(controlled).endswith(NO_CONTROL)
    assert any(body.get("skip_special_tokens") is False for body in server.bodies)
