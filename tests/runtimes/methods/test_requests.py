"""Branches side by side, and labels."""

from __future__ import annotations

import asyncio

import pytest

from tests.runtimes.methods.driving import drive, passages
from wikidx.runtimes.llms.base import Generate
from wikidx.runtimes.llms.prompts import GREEDY
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.requests import ask_yes_no, gather, generate, label, labelled, note, retrieve, truncate


def test_together_asks_for_everything_at_once_and_keeps_the_order() -> None:
    async def run() -> Answer:
        scores = await gather(*(ask_yes_no(text, role="relevance") for text in "abc"))
        return Answer(" ".join(f"{score.score:.1f}" for score in scores))

    driven = drive(run(), [0.1, 0.2, 0.3])
    assert driven.outline == [["relevance?", "relevance?", "relevance?"]]
    assert driven.answer.text == "0.1 0.2 0.3"


def test_together_advances_runs_of_unequal_length_level_by_level() -> None:
    async def chain(name: str, length: int) -> str:
        text = name
        for _ in range(length):
            await note(f"{name} goes on")
            text += (await generate(text, role=name)).text
        return text

    async def run() -> Answer:
        texts = await gather(chain("a", 1), chain("b", 3), chain("c", 0), together_twice())
        return Answer("|".join(texts))

    async def together_twice() -> str:
        inner = await gather(chain("d", 1), chain("e", 2))
        return "+".join(inner)

    driven = drive(run(), lambda request: "x")
    assert driven.outline == [["a", "b", "d", "e"], ["b", "e"], ["b"]]
    assert driven.answer.text == "ax|bxxx|c|dx+exx"
    assert [said.text for said in driven.notes].count("b goes on") == 3


def test_together_of_nothing_asks_nothing() -> None:
    async def run() -> Answer:
        nothing: list[str] = await gather()
        return Answer(str(nothing))

    assert drive(run(), []).answer.text == "[]"


def test_named_says_where_a_request_stands_without_changing_it() -> None:
    async def inner() -> str:
        await retrieve(["q", "r"], 2)
        await note("found")
        return (await labelled("deeper", generate("p"))).text

    async def run() -> Answer:
        with label("outer"):
            return Answer(await inner())

    driven = drive(run(), [passages("a"), "text"])
    assert [request.path for request in driven.requests] == [("outer",), ("outer", "deeper")]
    assert driven.notes[0].path == ("outer",)
    assert driven.requests[1] == Generate(prompt="p", role="answer", decoding=GREEDY)


def test_a_search_needs_a_query() -> None:
    with pytest.raises(ValueError, match="there is no query to search with"):
        asyncio.run(retrieve([], 5))


def test_cutting_a_text_takes_no_step() -> None:
    async def run() -> Answer:
        texts = await gather(truncate("a b c", 2), truncate("a b c", 2, keep="end"))
        return Answer("|".join(texts))

    driven = drive(run(), [])
    assert (driven.levels, driven.answer.text) == ([], "a b|b c")
