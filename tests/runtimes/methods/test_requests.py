"""Generators side by side and named."""

from __future__ import annotations

import pytest

from tests.runtimes.methods.driving import drive, passages
from wikidx.runtimes.methods.base import Answer
from wikidx.runtimes.methods.requests import Run, ask_yes_no, gather, generate, label_trace, note, retrieve, truncate


def test_together_asks_for_everything_at_once_and_keeps_the_order() -> None:
    def run() -> Run[Answer]:
        scores = yield from gather(ask_yes_no(text, role="relevance") for text in "abc")
        return Answer(" ".join(f"{score.score:.1f}" for score in scores))

    driven = drive(run(), [0.1, 0.2, 0.3])
    assert driven.outline == [["relevance?", "relevance?", "relevance?"]]
    assert driven.answer.text == "0.1 0.2 0.3"


def test_together_advances_runs_of_unequal_length_level_by_level() -> None:
    def chain(name: str, length: int) -> Run[str]:
        text = name
        for _ in range(length):
            yield from note(f"{name} goes on")
            text += (yield from generate(text, role=name)).text
        return text

    def run() -> Run[Answer]:
        texts = yield from gather([chain("a", 1), chain("b", 3), chain("c", 0), together_twice()])
        return Answer("|".join(texts))

    def together_twice() -> Run[str]:
        inner = yield from gather([chain("d", 1), chain("e", 2)])
        return "+".join(inner)

    driven = drive(run(), lambda request: "x")
    assert driven.outline == [["a", "b", "d", "e"], ["b", "e"], ["b"]]
    assert driven.answer.text == "ax|bxxx|c|dx+exx"
    assert [said.text for said in driven.notes].count("b goes on") == 3


def test_together_of_nothing_asks_nothing() -> None:
    def run() -> Run[Answer]:
        nothing: list[str] = yield from gather([])
        return Answer(str(nothing))

    assert drive(run(), []).answer.text == "[]"


def test_named_says_where_a_request_stands_without_changing_it() -> None:
    def inner() -> Run[str]:
        yield from retrieve(["q", "r"], 2)
        yield from note("found")
        return (yield from label_trace("deeper", generate("p"))).text

    def run() -> Run[Answer]:
        return Answer((yield from label_trace("outer", inner())))

    driven = drive(run(), [passages("a"), "text"])
    assert [request.path for request in driven.requests] == [("outer",), ("outer", "deeper")]
    assert driven.notes[0].path == ("outer",)
    assert driven.requests[1] == next(generate("p"))


def test_a_search_needs_a_query() -> None:
    with pytest.raises(ValueError, match="there is no query to search with"):
        next(retrieve([], 5))


def test_cutting_a_text_takes_no_step() -> None:
    def run() -> Run[Answer]:
        texts = yield from gather([truncate("a b c", 2), truncate("a b c", 2, keep="end")])
        return Answer("|".join(texts))

    driven = drive(run(), [])
    assert (driven.levels, driven.answer.text) == ([], "a b|b c")
