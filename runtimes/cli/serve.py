"""``idx serve``: serve searches over HTTP."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated

import typer

from . import completion
from .ray_option import RayAddress
from .screen import note

if TYPE_CHECKING:
    from wikidx.retrievers.server.settings import Settings

Corpora = Annotated[list[str] | None, completion.corpus_argument("Built corpora; default: all.")]
Retrievers = Annotated[
    list[str] | None,
    completion.retriever_option(
        "An index, or several indexes joined with +; may be repeated. Requests use the first by default. Default: bm25."
    ),
]
ShardCount = Annotated[
    int | None, typer.Option("--shards", min=1, help="With --ray: number of shards of each index; default: one per node.")
]
ReplicaCount = Annotated[int, typer.Option("--replicas", min=1, help="With --ray: number of processes that hold each shard.")]


def serve(
    corpora: Corpora = None,
    retriever: Retrievers = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0: any free port.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Number of processes; they share memory-mapped indexes.")] = 1,
    device: Annotated[str, typer.Option(help="Device of encoders and indexes: auto, cpu, cuda, cuda:0,1, all (GPUs), mps.")] = "auto",
    reranker: Annotated[str | None, typer.Option(help="The cross-encoder of requests with rerank cross-encoder.")] = None,
    cache: Annotated[int, typer.Option(min=0, help="Size of each retriever's cache of recent results, in megabytes.", metavar="MB")] = 0,
    api_key: Annotated[str | None, typer.Option(envvar="IDX_API_KEY", help="The API key required of every request.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Allow searches without a key from other machines and web pages.")] = False,
    topk: Annotated[int, typer.Option(min=1, help="Default number of passages returned by /retrieve.")] = 3,
    max_k: Annotated[int, typer.Option(min=1, help="Maximum k of a request.")] = 1_000,
    max_queries: Annotated[int, typer.Option(min=1, help="Maximum number of queries in a request.")] = 10_000,
    max_queued_queries: Annotated[int, typer.Option(min=1, help="Maximum number of queued queries; later requests are refused.")] = 4_096,
    deadline: Annotated[float, typer.Option(min=0.1, help="Deadline of a request in seconds.")] = 30.0,
    access_log: Annotated[bool, typer.Option("--access-log/--no-access-log", help="Log every request as a line of JSON.")] = True,
    ray: RayAddress = None,
    shards: ShardCount = None,
    replicas: ReplicaCount = 1,
) -> None:
    """Serve searches over HTTP."""
    from wikidx.corpora.resolving import require_built_names
    from wikidx.indexer.machine.devices import check_devices
    from wikidx.retrievers.naming import RetrieverName
    from wikidx.retrievers.server.limits import Limits
    from wikidx.retrievers.server.settings import Settings

    check_devices(device)
    names = [RetrieverName.parse(name) for name in retriever or ["bm25"]]
    for name in names:
        name.check()
    limits = Limits(max_k=max_k, max_queries=max_queries, max_queued_queries=max_queued_queries, deadline_s=deadline)
    settings = Settings(
        corpora=require_built_names(corpora or ()),
        retrievers=tuple(dict.fromkeys(map(str, names))),
        device=device,
        reranker=reranker,
        cache_bytes=cache * 1_000_000,
        host=host,
        port=port,
        api_key=api_key,
        insecure=insecure,
        topk=topk,
        workers=workers,
        access_log=access_log,
        limits=limits,
    )
    _run(settings, ray, shards, replicas)


def _run(settings: Settings, ray: str | None, shards: int | None, replicas: int) -> None:
    """Print the address and the served retrievers, and serve them on this machine or on a Ray cluster."""
    from wikidx.corpora.errors import InputError
    from wikidx.retrievers.server.settings import listen, server_url

    if ray is None and (shards is not None or replicas > 1):
        raise InputError("--shards and --replicas are for a cluster: add --ray")
    listener = listen(settings)
    logging.getLogger("idx.server").setLevel(logging.INFO)
    note(f"listening on {server_url(listener)} (search page: /, documentation: /docs)")
    for corpus, retriever in settings.served_pairs:
        note(f"serving '{corpus}' by {retriever}")
    if ray is None:
        from wikidx.retrievers.server.workers import serve as serve_here

        serve_here(settings, listener)
    else:
        from wikidx.retrievers.cluster.service import Layout
        from wikidx.retrievers.cluster.service import serve as serve_cluster

        serve_cluster(settings, listener, ray, Layout(shards=shards, replicas=replicas))
