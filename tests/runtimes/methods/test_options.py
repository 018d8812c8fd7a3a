"""Invalid options of a method are refused before any call, whatever their origin."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import pytest

from wikidx.base.errors import OptionError
from wikidx.base.validation import options
from wikidx.runtimes.methods import METHODS, find_method
from wikidx.runtimes.methods.base import list_options, option


@options
class MadeOptions:
    truth: bool = option(True, "paper", "a truth value")
    count: int = option(5, "paper", "a whole number", minimum=1)
    share: float = option(0.5, "ours", "a number")
    part: float = option(0.5, "ours", "a number between bounds", minimum=0.1, maximum=1)
    word: Literal["each", "joint", "off"] = option("each", "paper", "one of three")
    text: str = option("", "ours", "any text")
    texts: tuple[str, ...] = option((), "ours", "several texts")
    limit: int | None = option(None, "ours", "a whole number or nothing")


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"truth": False, "count": 1, "share": 0.0, "word": "off", "text": "Żuławski", "texts": ("a", "b"), "limit": 3},
        {"share": 1},
        {"part": 1},
    ],
)
def test_what_an_option_may_be_is_let_through(values: dict[str, Any]) -> None:
    made = MadeOptions(**values)
    assert {name: getattr(made, name) for name in values} == values


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"word": "joitn"}, "word is 'joitn': did you mean 'joint'? it should be 'each', 'joint' or 'off'"),
        ({"word": ""}, "word is '': it should be 'each', 'joint' or 'off'"),
        ({"word": None}, "word is None: it should be 'each', 'joint' or 'off'"),
        ({"text": 3}, "text is 3: it should be a valid string"),
        ({"truth": "false"}, "truth is 'false': it should be a valid boolean"),
        ({"truth": 1}, "truth is 1: it should be a valid boolean"),
        ({"count": "5"}, "count is '5': it should be a valid integer"),
        ({"count": True}, "count is True: it should be a valid integer"),
        ({"count": 2.0}, "count is 2.0: it should be a valid integer"),
        ({"count": 0}, "count is 0: it should be greater than or equal to 1"),
        ({"share": "0.5"}, "share is '0.5': it should be a valid number"),
        ({"share": -0.5}, "share is -0.5: it should be greater than or equal to 0"),
        ({"share": float("nan")}, "share is nan: it should be a finite number"),
        ({"share": float("inf")}, "share is inf: it should be a finite number"),
        ({"part": 0.05}, "part is 0.05: it should be greater than or equal to 0.1"),
        ({"part": 1.5}, "part is 1.5: it should be less than or equal to 1"),
        ({"texts": "a"}, "texts is 'a': it should be a valid tuple"),
        ({"texts": ("a", 1)}, "texts.1 is 1: it should be a valid string"),
        ({"limit": "3"}, "limit is '3': it should be a valid integer"),
        ({"cuont": 3}, "unknown field 'cuont': did you mean 'count'? known: count, limit, part, share, text, texts, truth, word"),
    ],
)
def test_what_it_may_not_be_is_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        MadeOptions(**values)
    assert str(refused.value) == message


def test_all_that_is_known_of_options_is_listed() -> None:
    word, part = (next(one for one in list_options(MadeOptions(part=1)) if one.name == name) for name in ("word", "part"))
    assert word == ("word", "each", "each", "paper", "one of three", ("each", "joint", "off"), None, None)
    assert part == ("part", 1, 0.5, "ours", "a number between bounds", (), 0.1, 1)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_refuses_what_no_model_or_searcher_takes(name: str) -> None:
    method = find_method(name)
    fields = {one.name for one in list_options(method.options())}
    sizes = fields & {"k", "documents", "samples"} | {one for one in fields if one == "max_tokens" or one.endswith("_tokens")}
    for size in sizes - {"max_query_tokens"}:
        with pytest.raises(OptionError, match=f"{size} is 0: it should be greater than or equal to 1"):
            method.options(**{size: 0})
    for one in fields & {"temperature", "top_p", "monitor_temperature"}:
        with pytest.raises(OptionError, match=f"{one} is 101: it should be less than or equal to"):
            method.options(**{one: 101})
    if name == "refeed":  # which draws several texts at once
        with pytest.raises(OptionError, match="temperature is 0: it should be greater than or equal to 0.01"):
            method.options(temperature=0)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_refuses_a_mistyped_choice_and_accepts_its_defaults(name: str) -> None:
    method = find_method(name)
    for one in list_options(method.options()):
        if one.choices:
            with pytest.raises(OptionError, match=f"{one.name} is 'no such choice': .*it should be '{one.choices[0]}'"):
                dataclasses.replace(method.options(), **{one.name: "no such choice"})
