"""``idx serve``: serve searches over HTTP.

Examples:
    idx serve sample --retriever bm25 --retriever bm25+minilm
    idx serve wiki2018 --retriever contriever --port 8001
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from . import completion
from .method_options import Device, QueryDtype
from .ray_option import RayAddress
from .screen import note

if TYPE_CHECKING:
    from wikidx.retrievers.server.settings import Settings
    from wikidx.runtimes.pages.asking import Asker

Corpora = Annotated[list[str] | None, completion.corpus_argument("Built corpora; default: all.")]
Retrievers = Annotated[
    list[str] | None,
    completion.retriever_option(
        "An index, several indexes joined with +, or a pipeline; may be repeated. Requests use the first by default. Default: bm25."
    ),
]
Llm = Annotated[
    list[str] | None,
    typer.Option("--llm", metavar="[ROLE=]BACKEND:MODEL[@URL]", help="Also answer questions by this model, as idx ask; may be repeated."),
]
LlmOption = Annotated[
    list[str] | None,
    typer.Option("--llm-option", metavar="[ROLE.]NAME=VALUE", help="An option of the models that idx runs; may be repeated."),
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
    device: Device = "auto",
    query_dtype: QueryDtype = None,
    reranker: Annotated[str | None, typer.Option(help="The model of requests with rerank cross-encoder.")] = None,
    cache: Annotated[int, typer.Option(min=0, help="Size of each retriever's cache of recent results, in megabytes.", metavar="MB")] = 0,
    api_key: Annotated[str | None, typer.Option(envvar="IDX_API_KEY", help="The API key required of every request.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Allow searches without a key from other machines and web pages.")] = False,
    topk: Annotated[int, typer.Option(min=1, help="Default number of passages returned by /retrieve.")] = 3,
    max_k: Annotated[int, typer.Option(min=1, help="Maximum k of a request.")] = 1_000,
    max_queries: Annotated[int, typer.Option(min=1, help="Maximum number of queries in a request.")] = 10_000,
    queue_memory: Annotated[int, typer.Option(min=1, help="Memory of the bodies of waiting requests, in MB.", metavar="MB")] = 256,
    deadline: Annotated[float, typer.Option(min=0.1, help="Deadline of a request in seconds.")] = 30.0,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="Also embed texts by the retrievers' encoders, as OpenAI does.")] = False,
    access_log: Annotated[bool, typer.Option("--access-log/--no-access-log", help="Log every request as a line of JSON.")] = True,
    llm: Llm = None,
    llm_option: LlmOption = None,
    ray: RayAddress = None,
    shards: ShardCount = None,
    replicas: ReplicaCount = 1,
) -> None:
    """Serve searches over HTTP, and with --llm answers to questions."""
    from wikidx.corpora.resolving import require_built_names
    from wikidx.retrievers.server.limits import Limits
    from wikidx.retrievers.server.settings import Settings

    limits = Limits(max_k=max_k, max_queries=max_queries, max_queued_bytes=queue_memory * 1_000_000, deadline_s=deadline)
    names = require_built_names(corpora or ())
    settings = Settings(
        corpora=names,
        retrievers=_retriever_names(retriever or ["bm25"], names),
        device=device,
        query_dtype=query_dtype,
        reranker=reranker,
        cache_bytes=cache * 1_000_000,
        host=host,
        port=port,
        api_key=api_key,
        insecure=insecure,
        topk=topk,
        workers=workers,
        access_log=access_log,
        embeddings=embeddings,
        limits=limits,
    )
    _run(settings, ray, shards, replicas, _asker(settings, llm or (), llm_option or (), is_cluster=ray is not None))


def _retriever_names(given: Sequence[str], corpora: Sequence[str]) -> tuple[str, ...]:
    """Check the names of retrievers for each corpus, and return them without repetitions."""
    from wikidx.retrievers.naming import RetrieverName

    names = [RetrieverName.parse(name, corpus) for name in given for corpus in corpora]
    for name in names:
        name.check()
    return tuple(dict.fromkeys(map(str, names)))


def _asker(settings: Settings, llms: Sequence[str], llm_options: Sequence[str], *, is_cluster: bool) -> Asker | None:
    """Return what answers questions; None without a model."""
    from wikidx.base.errors import InputError

    if not llms:
        if llm_options:
            raise InputError("--llm-option is of a model: name one with --llm")
        return None
    if settings.workers > 1 or is_cluster:
        raise InputError("--llm needs a server of one process: leave out --workers and --ray, or start a second server for questions")
    from wikidx.runtimes.pages.asking import Asker

    return Asker(llms, llm_options, settings.device)


def _run(settings: Settings, ray: str | None, shards: int | None, replicas: int, asker: Asker | None) -> None:
    """Print the address and the served retrievers, and serve them on this machine or on a Ray cluster."""
    from wikidx.base.errors import InputError
    from wikidx.retrievers.server.settings import listen, server_url

    if ray is None and (shards is not None or replicas > 1):
        raise InputError("--shards and --replicas are for a cluster: add --ray")
    listener = listen(settings)
    logging.getLogger("idx.server").setLevel(logging.INFO)
    note(f"listening on {server_url(listener)} (search page: /, API: /openapi.json)")
    for corpus, retriever in settings.served_pairs:
        note(f"serving '{corpus}' by {retriever}")
    if settings.embeddings:
        note("embedding by the encoders of these retrievers (/v1/embeddings)")
    if asker is not None:
        note(f"answering by {' and '.join(asker.describe()['models'])} (/ask)")
    if ray is None:
        from wikidx.retrievers.server.workers import serve as serve_here

        serve_here(settings, listener, asker)
        if asker is not None and asker.is_busy:  # its model would be waited for
            sys.stdout.flush()
            os._exit(0)
    else:
        from wikidx.retrievers.cluster.service import serve as serve_cluster

        serve_cluster(settings, listener, ray, shards, replicas)
