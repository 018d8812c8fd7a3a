"""Yes/no by probability mass: tokens of an answer in any spelling, and white space before it, at endpoints."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.runtimes.llms.calling import TURNS, opened, result_of
from tests.runtimes.llms.fake_server import Answer, chat
from wikidx.runtimes.llms.base import AskYesNo, YesNo
from wikidx.runtimes.llms.openai_model import OpenAIHttp
from wikidx.runtimes.llms.prompts import Prompt
from wikidx.runtimes.llms.text import answer_pattern, is_blank


@pytest.mark.parametrize("token", ["yes", "Yes", "YES", " yes", "  Yes", "\nyes", "▁Yes", "ĠYES", "Yes,", "yes."])
def test_an_answer_has_many_spellings(token: str) -> None:
    assert answer_pattern(("yes",)).match(token)


@pytest.mark.parametrize("token", ["not", "Norway", "know", "", " ", "n", "no1", "unknown"])
def test_another_word_is_no_answer(token: str) -> None:
    assert not answer_pattern(("no",)).match(token)


@pytest.mark.parametrize(("token", "blank"), [(" ", True), ("\n\n", True), ("▁", True), ("ĠĊ", True), ("", False), (" a", False)])
def test_white_space_is_seen_in_any_vocabulary(token: str, *, blank: bool) -> None:
    assert is_blank(token) is blank


def position(generated: str, **likeliest: float) -> dict[str, Any]:
    """Return a position of a chat's logprobs; in names of tokens, "_" is a space and "N" a line break."""
    tops = [{"token": name.replace("_", " ").replace("N", "\n"), "logprob": math.log(p)} for name, p in likeliest.items()]
    own = next(top["logprob"] for top in tops if top["token"] == generated)
    return {"token": generated, "logprob": own, "top_logprobs": tops}


def masses(model: OpenAIHttp, prompt: Prompt) -> list[float]:
    found = result_of(model.run([AskYesNo(prompt=prompt)])[0], YesNo)
    return [found.p_positive, found.p_negative]


def test_an_answer_after_white_space_is_read_and_the_run_remembers() -> None:
    positions = [position("\n", N=0.7, yes=0.1), position(" yes", _yes=0.8, **{"no,": 0.1}), position("x", x=1.0)]

    def complete(path: str, body: dict[str, Any]) -> Answer:
        return chat("…", logprobs={"content": positions[: body["max_tokens"]]})

    with opened(complete) as (model, server):
        for _ in range(2):
            assert masses(model, TURNS) == pytest.approx([0.1 + 0.7 * 0.8, 0.7 * 0.1])
    assert [body["max_tokens"] for body in server.bodies] == [1, 3, 3]


def test_completions_of_the_old_api_are_read_past_white_space() -> None:
    logprobs = {
        "tokens": ["\n", "Yes"],
        "token_logprobs": [math.log(0.5), math.log(0.9)],
        "top_logprobs": [{"\n": math.log(0.5), "no": math.log(0.2)}, {"Yes": math.log(0.9)}],
    }
    with opened((200, {"choices": [{"text": "…", "logprobs": logprobs}]})) as (model, _):
        assert masses(model, "Is it?") == pytest.approx([0.45, 0.2])
