"""The option ``--ray [ADDRESS]``; its address may be omitted."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

LOCAL = "local"
"""Address that ``--ray`` without a value stands for: a new Ray cluster on this machine alone."""

RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Work on a Ray cluster: HOST:PORT of its head node, or auto for a running one. Without ADDRESS: a new one on this machine.",
    ),
]
EncoderCpus = Annotated[
    int | None,
    typer.Option("--ray-cpus", metavar="N", help="CPUs of each encoder on a cluster without GPUs; default: all CPUs of the smallest node."),
]


class RayCommand(TyperCommand):
    """A command that accepts ``--ray`` without an address, at the end or before another option; typer itself requires a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's context, or typer's copy of it
        """Insert the address ``LOCAL`` after ``--ray`` if none is given, and parse the arguments."""
        followers = [*args, "-"][1:]
        return super().parse_args(
            ctx, [f"--ray={LOCAL}" if arg == "--ray" and next_.startswith("-") else arg for arg, next_ in zip(args, followers, strict=True)]
        )
