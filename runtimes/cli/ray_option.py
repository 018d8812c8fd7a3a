"""The option ``--ray [ADDRESS]``, which may stand without an address, and what belongs to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from wikidx.indexer.embedding.options import ClusterOptions

HERE = "local"
"""What ``--ray`` without an address means: Ray is started on this machine alone."""

RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Work on a Ray cluster: HOST:PORT of its head, auto for the one that this machine is in, by default one started here.",
    ),
]


EncoderCpus = Annotated[
    int | None,
    typer.Option("--ray-cpus", metavar="N", help="Processors of each encoder on a cluster without GPUs; by default those of a node."),
]


class RayCommand(TyperCommand):
    """A command whose ``--ray`` may stand without an address, at the end or before another option; typer itself has no such options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - click's context, or typer's copy of it
        """Put in the address where none was given."""
        followers = [*args, "-"][1:]
        return super().parse_args(
            ctx, [f"--ray={HERE}" if arg == "--ray" and next_.startswith("-") else arg for arg, next_ in zip(args, followers, strict=True)]
        )


def cluster_options(address: str | None, cpus: int | None) -> ClusterOptions | None:
    """Return how to embed on a cluster, None if none is named.

    Raises:
        InputError: processors are given without ``--ray``, or fewer than one.
    """
    from wikidx.corpora.errors import InputError
    from wikidx.indexer.embedding.options import ClusterOptions

    if address is None:
        if cpus is not None:
            raise InputError(f"--ray-cpus {cpus} is for work on a Ray cluster: say --ray as well")
        return None
    return ClusterOptions(cpus=cpus)


def vectors_from(cluster: ClusterOptions | None, encoders: list[str] | None, origin: str | None) -> str | None:
    """Return where vectors come from: on a cluster they are encoded, also where some are published.

    Raises:
        InputError: no encoder is named, or published vectors are wanted.
    """
    from wikidx.corpora.errors import InputError

    if cluster is None:
        return origin
    if not encoders or origin == "published":
        raise InputError("--ray is for embedding passages: say --encoder, and not --vectors published")
    return "encode"


@contextlib.contextmanager
def on_cluster(address: str | None, options: ClusterOptions | None) -> Iterator[None]:
    """Be connected to the cluster, whose nodes have been compared; do nothing if there is none."""
    if options is None:
        yield
        return
    from wikidx.indexer.embedding.cluster.embedding import check_cluster
    from wikidx.indexer.embedding.cluster.nodes import connected

    with connected(address):
        check_cluster()
        yield
