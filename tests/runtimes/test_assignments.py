"""``NAME=VALUE`` -> options of methods and searches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wikidx.base.validation import options
from wikidx.retrievers.options import SearchOptions
from wikidx.runtimes.assignments import parse_assignments
from wikidx.runtimes.cli.ask import format_value
from wikidx.runtimes.methods import METHODS, find_method
from wikidx.runtimes.methods.base import list_options, option


@options
class MadeOptions:
    k: int = option(5, "paper", "a whole number")
    share: float = option(0.5, "paper", "a number")
    on: bool = option(True, "paper", "a truth")
    form: Literal["a", "b"] = option("a", "paper", "one of two")
    free: str = option("", "paper", "any text")
    several: tuple[str, ...] = option((), "paper", "texts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loose:
    maybe: int | None = None


def made(*assignments: str) -> MadeOptions:
    return parse_assignments(MadeOptions, assignments, noun="option")


def test_values_have_the_types_of_their_fields() -> None:
    assert made() == MadeOptions()
    assert made("k=7", "share=1e-1", "on=False", "form=b", "free=a=b c") == MadeOptions(k=7, share=0.1, on=False, form="b", free="a=b c")
    assert made('several=["a", "é"]') == MadeOptions(several=("a", "é"))
    assert made("several=one, two", "on=on") == MadeOptions(several=("one, two",))
    assert [parse_assignments(Loose, [f"maybe={text}"], noun="field") for text in ("3", "none")] == [Loose(maybe=3), Loose()]
    assert made("several=") == MadeOptions()


def test_every_switch_can_be_set_to_what_it_is_shown_as() -> None:
    for name in METHODS:
        type_ = find_method(name).options
        listed = list_options(type_())
        shown = [f"{one.name}={format_value(one.default)}" for one in listed]
        assert parse_assignments(type_, shown, noun="option") == type_()
        for field, choice in ((one.name, choice) for one in listed for choice in one.choices):
            assert getattr(parse_assignments(type_, [f"{field}={format_value(choice)}"], noun="option"), field) == choice


def test_search_options_over_a_presets() -> None:
    base = {"depth": 7, "rerank": "primary"}
    options = parse_assignments(
        SearchOptions, ["fuse=weighted", 'weights={"bm25": 0.5}', "depth=9", "nprobe=3"], noun="search option", base=base, excluded=("k",)
    )
    assert options == SearchOptions(depth=9, rerank="primary", fuse="weighted", weights={"bm25": 0.5}, nprobe=3)
