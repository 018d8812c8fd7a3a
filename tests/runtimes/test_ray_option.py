"""``--ray`` with an address and without one, wherever it stands."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from wikidx.runtimes.cli.ray_option import EncoderCpus, RayAddress, RayCommand

app = typer.Typer(rich_markup_mode=None)


@app.command(cls=RayCommand)
def command(corpus: str, ray: RayAddress = None, ray_cpus: EncoderCpus = None) -> None:
    typer.echo(f"{corpus} {ray} {ray_cpus}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x"], "x None None"),
        (["x", "--ray"], "x local None"),
        (["x", "--ray", "auto"], "x auto None"),
        (["x", "--ray=10.0.0.1:6379"], "x 10.0.0.1:6379 None"),
        (["--ray", "auto", "x", "--ray-cpus", "2"], "x auto 2"),
        (["x", "--ray", "--ray-cpus", "2"], "x local 2"),
        (["x", "--ray-cpus", "2", "--ray"], "x local 2"),
    ],
)
def test_an_address_may_be_left_out(arguments: list[str], said: str) -> None:
    ran = CliRunner().invoke(app, arguments)
    assert ran.output == said + "\n"


def test_a_command_may_have_no_arguments() -> None:
    ran = CliRunner().invoke(app, [])
    assert isinstance(ran.exception, SystemExit), ran.exception
    assert (ran.exit_code, "Missing argument" in ran.output) == (2, True)
