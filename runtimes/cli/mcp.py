"""``idx mcp``: offer searches to agents as tools of the Model Context Protocol.

Examples:
    idx mcp sample --retriever bm25
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import completion
from .screen import note

if TYPE_CHECKING:
    from wikidx.retrievers.mcp.sources import Source


def mcp(
    corpora: Annotated[list[str] | None, completion.corpus_argument("Built corpora; default: all.")] = None,
    retriever: Annotated[
        list[str] | None,
        completion.retriever_option(
            "A retriever offered to agents; may be repeated. Agents use the first by default. Default: all indexes."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Device of the encoders: auto, cpu, cuda, cuda:1, mps.")] = "auto",
    url: Annotated[str | None, typer.Option(help="Search on the 'idx serve' server at this URL.")] = None,
    http: Annotated[bool, typer.Option("--http", help="Listen for streamable HTTP instead of standard input and output.")] = False,
    host: Annotated[str, typer.Option(help="With --http, the address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --http, the port to listen on; 0: any free port.")] = 8001,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="IDX_API_KEY", help="API key of the server at --url; with --http, clients must send the same key."),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="With --http, allow searches without a key from other machines.")] = False,
) -> None:
    """Offer searches to agents (Model Context Protocol)."""
    from wikidx.base.machine.devices import check_device
    from wikidx.retrievers.mcp.tools import create_server

    check_device(device)
    server = create_server(_source(corpora or [], retriever or [], device, url, api_key))
    if not http:
        server.run("stdio")
        return
    from wikidx.retrievers.mcp.transports import PATH, run_http
    from wikidx.retrievers.server.settings import Settings, listen, server_url

    settings = Settings(corpora=(), host=host, port=port, api_key=api_key, insecure=insecure)
    listener = listen(settings)
    note(f"listening on {server_url(listener)}{PATH}")
    run_http(server, listener, settings)


def _source(corpora: list[str], names: list[str], device: str, url: str | None, api_key: str | None) -> Source:
    from wikidx.corpora.resolving import require_built_names
    from wikidx.retrievers.client import RemoteSearcher
    from wikidx.retrievers.mcp.sources import LocalSource, RemoteSource
    from wikidx.retrievers.naming import RetrieverName

    retrievers = list(dict.fromkeys(map(RetrieverName.parse, names)))
    if url is not None:
        return RemoteSource(RemoteSearcher(url, api_key=api_key), tuple(dict.fromkeys(corpora)), retrievers)
    return LocalSource(require_built_names(corpora), retrievers, device)
