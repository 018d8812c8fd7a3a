"""``idx mcp``: the search as tools for agents, by the Model Context Protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import completion
from .screen import note

if TYPE_CHECKING:
    from wikidx.retrievers.mcp.sources import Source


def mcp(
    corpora: Annotated[list[str] | None, completion.corpus_argument("Built corpora; by default all.")] = None,
    retriever: Annotated[
        list[str] | None,
        completion.retriever_option("What agents may search by, the first by default; by default every index. May be repeated."),
    ] = None,
    device: Annotated[str, typer.Option(help="Where encoders run: auto, cpu, cuda.")] = "auto",
    url: Annotated[str | None, typer.Option(help="Search on the server that 'idx serve' runs there.")] = None,
    http: Annotated[bool, typer.Option("--http", help="Listen for streamable HTTP instead of standard input and output.")] = False,
    host: Annotated[str, typer.Option(help="With --http, the address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --http, the port; 0 takes a free one.")] = 8001,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="IDX_API_KEY", help="The key that the server at --url wants; with --http, also what clients must bring."),
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="With --http, let other machines search without a key.")] = False,
) -> None:
    """Offer the search to agents (Model Context Protocol)."""
    from wikidx.indexer.machine.devices import check_device
    from wikidx.retrievers.mcp.tools import server_of

    check_device(device)
    server = server_of(_source(corpora or [], retriever or [], device, url, api_key))
    if not http:
        server.run("stdio")  # the transport redirects all other output to standard error
        return
    from wikidx.retrievers.mcp.transports import PATH, run_http
    from wikidx.retrievers.server.settings import Settings, listen, url_of

    settings = Settings(corpora=(), host=host, port=port, api_key=api_key, insecure=insecure)
    listening = listen(settings)
    note(f"listening on {url_of(listening)}{PATH}")
    run_http(server, listening, settings)


def _source(corpora: list[str], named: list[str], device: str, url: str | None, api_key: str | None) -> Source:
    from wikidx.corpora.resolving import require_built_names
    from wikidx.retrievers.client import ServerClient
    from wikidx.retrievers.mcp.sources import LocalSource, RemoteSource
    from wikidx.retrievers.naming import RetrieverName

    retrievers = list(dict.fromkeys(map(RetrieverName.parse, named)))
    if url is not None:
        return RemoteSource(ServerClient(url, api_key=api_key), tuple(dict.fromkeys(corpora)), retrievers)
    return LocalSource(require_built_names(corpora), retrievers, device)
