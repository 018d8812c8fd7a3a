"""Commands whose options are the fields of dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from wikidx.base.errors import OptionError
from wikidx.base.validation import options
from wikidx.runtimes.cli.option_groups import flatten


@options
class Ways:
    k: Annotated[int, Field(ge=1, description="How many. The best ones.")] = 10
    rule: Annotated[Literal["one", "two"], Field(description="One of two.")] = "one"
    most_of: Annotated[int | None, Field(ge=1, description="At most.")] = None
    is_on: Annotated[bool, Field(description="On.")] = False
    by_name: Annotated[dict[str, int] | None, Field(description="By name.")] = None


@dataclass(frozen=True, kw_only=True)
class Plain:
    name: Annotated[str, typer.Option("--called", help="Its name.")]
    size: Annotated[int, typer.Option(min=1)] = 3


def read(values: list[str] | None) -> dict[str, int]:
    return {name: int(number) for name, _, number in (one.partition("=") for one in values or ())}


made: list[Any] = []


@flatten(by_name=Annotated[list[str] | None, typer.Option("--each"), read])
def command(word: str, *, ways: Ways, plain: Plain, last: bool = False) -> None:
    """Do it."""
    made[:] = [word, ways, plain, last]


app = typer.Typer(rich_markup_mode=None)
app.command()(command)


def test_the_command_gets_what_the_options_make() -> None:
    line = ["w", "-k", "2", "--rule", "two", "--most-of", "4", "--is-on", "--each", "a=1", "--each", "b=2", "--called", "c", "--last"]
    assert CliRunner().invoke(app, line, catch_exceptions=False).exit_code == 0
    assert made == ["w", Ways(k=2, rule="two", most_of=4, is_on=True, by_name={"a": 1, "b": 2}), Plain(name="c"), True]


def test_each_field_has_a_line_of_help() -> None:
    shown = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output.split())
    assert "Do it." in shown
    for line in (
        "How many. [default: 10; x>=1]",
        "--rule",
        "[default: one]",
        "--most-of N At most.",
        "--is-on On.",
        "--called",
        "Its name.",
    ):
        assert line in shown
    assert "The best ones" not in shown


def test_what_the_class_refuses_is_its_error() -> None:
    with pytest.raises(OptionError, match="rule is 'three': "):
        CliRunner().invoke(app, ["w", "--called", "c", "--rule", "three"], catch_exceptions=False)
