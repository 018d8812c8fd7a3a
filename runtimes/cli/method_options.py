"""Options of the commands that ask models: the method, models, where to search, how to continue."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import completion

if TYPE_CHECKING:
    from wikidx.runtimes.execution.opening import Plan
    from wikidx.runtimes.methods.base import Method

METHOD = typer.Argument(
    metavar="METHOD",
    help="A method, such as direct, rag or ra_isf; 'idx ask' lists them, 'idx ask METHOD' explains one.",
    autocompletion=completion.method,
)
MethodName = Annotated[str, METHOD]
Search = Annotated[
    list[str] | None,
    typer.Option(
        "--search", metavar="OPTION=VALUE", help="How searches are done: depth, merge, fuse, dedup, rerank, nprobe …; may be repeated."
    ),
]
Reranker = Annotated[str | None, typer.Option(help="A cross-encoder for --search rerank=cross-encoder; simlm unless named.")]
Seed = Annotated[int, typer.Option(min=0, help="Of all random draws.")]
Cache = Annotated[Path | None, typer.Option(help="Where replies of endpoints are kept; replies.sqlite in the folder unless named.")]
InFlight = Annotated[int, typer.Option(min=1, help="Questions that are worked on at once; the results do not depend on it.")]
Steps = Annotated[bool, typer.Option("--steps/--no-steps", help="Write down every step of every question.")]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Ask questions again that have failed.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Ask no model but scripted ones: print the prompts, answered by stand-ins.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Options that name the method, its models, and where it searches."""

    llm: Annotated[
        list[str] | None,
        typer.Option(
            "--llm",
            metavar="[ROLE=]BACKEND:MODEL[@URL]",
            help="A model for all roles, or for one: openai:NAME@URL, hf:FOLDER, vllm:NAME, scripted:FILE; may be repeated.",
        ),
    ] = None
    corpus: Annotated[str | None, completion.corpus_option("A built corpus, or with --url one that is served.")] = None
    retriever: Annotated[
        str | None, completion.retriever_option("An index as idx list names it, or several joined with +; bm25 unless named.")
    ] = None
    switch: Annotated[list[str] | None, typer.Option("--set", metavar="SWITCH=VALUE", help="A switch of the method; may be repeated.")] = (
        None
    )
    preset: Annotated[str | None, typer.Option("--preset", help="Search as the method's paper did, but for what is named besides.")] = None
    search: Search = None
    reranker: Reranker = None
    url: Annotated[str | None, typer.Option(help="Search on the server that 'idx serve' runs there.")] = None
    api_key: Annotated[
        str | None, typer.Option(envvar="IDX_API_KEY", help="The key that this server wants; a model's is OPENAI_API_KEY.")
    ] = None
    device: Annotated[str, typer.Option(help="Where local models, encoders and indexes run: auto, cpu, cuda, cuda:1, mps.")] = "auto"
    concurrency: Annotated[int, typer.Option(min=1, help="Requests to an endpoint at a time.")] = 16
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that an endpoint, or the server at --url, may take.")] = 120.0
    retries: Annotated[int, typer.Option(min=0, help="How often a request to an endpoint is sent again.")] = 5
    context: Annotated[int | None, typer.Option(min=1, help="Tokens that an endpoint's model takes, if it does not say so itself.")] = None


def plan_of(method: Method, options: PlanOptions, *, dry_run: bool, base: Mapping[str, Any] | None = None) -> Plan:
    """Return the plan of a run, checked as far as possible without opening anything; ``base`` holds defaults of options.

    Raises:
        InputError, UnknownNameError, ArtifactMissing: something named does not exist or contradicts the rest.
    """
    from wikidx.corpora.resolving import require_built
    from wikidx.indexer.machine.devices import check_device
    from wikidx.runtimes.execution.assignments import assigned
    from wikidx.runtimes.execution.opening import Place, Plan, place_of
    from wikidx.runtimes.llms.options import ConnectionOptions

    named = Place(corpus=options.corpus, retriever=options.retriever, url=options.url, api_key=options.api_key, reranker=options.reranker)
    place = place_of(method, options.preset, named, options.search or ())
    check_device(options.device)
    plan = Plan(
        method=method,
        options=assigned(method.options, options.switch or (), what="switch", base=base),
        llms=options.llm or (),
        place=place,
        connection=ConnectionOptions(
            concurrency=options.concurrency, timeout=options.timeout, retries=options.retries, context=options.context
        ),
        device=options.device,
        is_dry=dry_run,
    )
    plan.check()
    if place is not None and place.url is None:
        require_built(place.corpus or "")
    return plan


@contextlib.contextmanager
def leaving_at_once() -> Iterator[None]:
    """Make Ctrl-C end the process once everything is closed, without waiting for pending calls of models."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(130)
