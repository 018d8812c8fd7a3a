"""What commands that ask models are told alike: the method and its switches, models, where to search, how to go on."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import completion

if TYPE_CHECKING:
    from runtimes.execution.opening import Place, Plan
    from runtimes.methods.base import Method

METHOD = typer.Argument(
    metavar="METHOD",
    help="A method, such as direct, rag or ra_isf; 'idx ask' lists them, 'idx ask METHOD' explains one.",
    autocompletion=completion.method,
)
MethodName = Annotated[str, METHOD]
Llm = Annotated[
    list[str] | None,
    typer.Option(
        "--llm",
        metavar="[ROLE=]BACKEND:MODEL[@URL]",
        help="A model for all roles, or for one: openai:NAME@URL, hf:FOLDER, vllm:NAME, scripted:FILE; may be repeated.",
    ),
]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="SWITCH=VALUE", help="A switch of the method; may be repeated.")]
PresetName = Annotated[str | None, typer.Option("--preset", help="Search as the method's paper did, but for what is named besides.")]
Corpus = Annotated[
    str | None,
    typer.Option(
        "--corpus", metavar="CORPUS", help="A built corpus, or with --url one that is served.", autocompletion=completion.built_corpus
    ),
]
Retriever = Annotated[
    str | None,
    typer.Option(
        "--retriever",
        "-r",
        metavar="NAME",
        help="An index as idx list names it, or several joined with +; bm25 unless named.",
        autocompletion=completion.retriever,
    ),
]
Search = Annotated[
    list[str] | None,
    typer.Option(
        "--search", metavar="OPTION=VALUE", help="How searches are done: depth, merge, fuse, dedup, rerank, nprobe …; may be repeated."
    ),
]
Reranker = Annotated[str | None, typer.Option(help="A cross-encoder for --search rerank=cross-encoder; simlm unless named.")]
Url = Annotated[str | None, typer.Option(help="Search on the server that 'idx serve' runs there.")]
ApiKey = Annotated[str | None, typer.Option(envvar="IDX_API_KEY", help="The key that this server wants; a model's is OPENAI_API_KEY.")]
Device = Annotated[str, typer.Option(help="Where local models, encoders and indexes run: auto, cpu, cuda, cuda:1, mps.")]
Concurrency = Annotated[int, typer.Option(min=1, help="Requests to an endpoint at a time.")]
Timeout = Annotated[float, typer.Option(min=0.1, help="Seconds that an endpoint may take to answer.")]
Retries = Annotated[int, typer.Option(min=0, help="How often a request to an endpoint is sent again.")]
Context = Annotated[int | None, typer.Option(min=1, help="Tokens that an endpoint's model takes, if it does not say so itself.")]
Seed = Annotated[int, typer.Option(min=0, help="Of all random draws.")]
Cache = Annotated[Path | None, typer.Option(help="Where replies of endpoints are kept; replies.sqlite in the folder unless named.")]
InFlight = Annotated[int, typer.Option(min=1, help="Questions that are worked on at once; the results do not depend on it.")]
Steps = Annotated[bool, typer.Option("--steps/--no-steps", help="Write down every step of every question.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Ask questions again that have failed.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Ask no model but scripted ones: print the prompts, answered by stand-ins.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def plan_of(
    method: Method,
    llms: Sequence[str] | None,
    assignments: Sequence[str] | None,
    place: Place | None,
    device: str,
    concurrency: int,
    timeout: float,
    retries: int,
    context: int | None,
    dry_run: bool,
    base: Mapping[str, Any] | None = None,
) -> Plan:
    """Return what is to be run, checked as far as that goes without opening anything; ``base`` are switches unless they are set.

    Raises:
        InputError, UnknownNameError, ArtifactMissing: something named is not there or does not go with the rest.
    """
    from corpora.resolving import require_built
    from indexer.base import check_device
    from runtimes.execution.assignments import assigned
    from runtimes.execution.opening import Plan
    from runtimes.llms.options import ConnectionOptions

    check_device(device)
    plan = Plan(
        method=method,
        options=assigned(method.options, assignments or (), what="switch", base=base),
        llms=llms or (),
        place=place,
        connection=ConnectionOptions(concurrency=concurrency, timeout=timeout, retries=retries, context=context),
        device=device,
        is_dry=dry_run,
    )
    plan.check()
    if place is not None and place.url is None:
        require_built(place.corpus or "")
    return plan


@contextlib.contextmanager
def leaving_at_once() -> Iterator[None]:
    """Have Ctrl-C end the process when all is closed, without waiting for what models were asked and have not answered."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)
