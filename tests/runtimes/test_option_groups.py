"""Commands whose options are the fields of dataclasses, and ``--ray`` with an address and without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import Field
from typer.testing import CliRunner

from wikidx.base.errors import OptionError
from wikidx.base.validation import options
from wikidx.runtimes.cli import option_groups
from wikidx.runtimes.cli.ray_option import EncoderCpus, RayAddress, RayCommand


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


@option_groups.command(by_name=Annotated[list[str] | None, typer.Option("--each"), read])
def command(word: str, *, ways: Ways, plain: Plain, last: bool = False, ray: RayAddress = None, ray_cpus: EncoderCpus = None) -> None:
    """Do it."""
    made[:] = [word, ways, plain, last, ray, ray_cpus]


app = typer.Typer(rich_markup_mode=None)
app.command(cls=RayCommand)(command)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "w -k 2 --rule two --most-of 4 --is-on --each a=1 --each b=2 --last",
            [Ways(k=2, rule="two", most_of=4, is_on=True, by_name={"a": 1, "b": 2}), Plain(name="c"), True, None, None],
        ),
        ("w --ray", [Ways(by_name={}), Plain(name="c"), False, "local", None]),
        ("w --ray=10.0.0.1:6379", [Ways(by_name={}), Plain(name="c"), False, "10.0.0.1:6379", None]),
        ("--ray auto w --ray-cpus 2", [Ways(by_name={}), Plain(name="c"), False, "auto", 2]),
        ("w --ray --ray-cpus 2", [Ways(by_name={}), Plain(name="c"), False, "local", 2]),
        ("w --ray-cpus 2 --ray", [Ways(by_name={}), Plain(name="c"), False, "local", 2]),
    ],
)
def test_the_command_gets_what_the_options_make(line: str, expected: list[object]) -> None:
    assert CliRunner().invoke(app, ["--called", "c", *line.split()], catch_exceptions=False).exit_code == 0
    assert made == ["w", *expected]


def test_a_command_may_have_no_arguments() -> None:
    ran = CliRunner().invoke(app, [])
    assert isinstance(ran.exception, SystemExit), ran.exception
    assert (ran.exit_code, "Missing argument" in ran.output) == (2, True)


def test_each_field_has_a_line_of_help() -> None:
    shown = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output.split())
    for line in ("Do it.", "How many. [default: 10; x>=1]", "[default: one]", "--most-of N At most.", "--is-on On.", "Its name."):
        assert line in shown
    assert "The best ones" not in shown


def test_what_the_class_refuses_is_its_error() -> None:
    with pytest.raises(OptionError, match="rule is 'three': "):
        CliRunner().invoke(app, ["w", "--called", "c", "--rule", "three"], catch_exceptions=False)
