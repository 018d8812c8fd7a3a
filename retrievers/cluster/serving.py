"""``idx serve --ray``: the server in this process, which encodes, merges, fuses and fetches, and the shards on a cluster."""

from __future__ import annotations

import socket

from wikidx.corpora.errors import InputError
from wikidx.indexer.embedding.cluster.nodes import check_versions, connected
from wikidx.retrievers.server.metrics import Metrics
from wikidx.retrievers.server.settings import Settings

from .service import Layout, ShardService


def serve(settings: Settings, listening: socket.socket, address: str | None, layout: Layout) -> None:
    """Serve on a listening socket until told to end by SIGTERM or SIGINT; SIGHUP exchanges what is served for what is built then.

    Args:
        settings: of the server.
        listening: the socket.
        address: of the cluster; see ``indexer.embedding.cluster.nodes.connected``.
        layout: of the shards.

    Raises:
        InputError: the cluster cannot be reached, or the settings want several processes.
        IdxError: nodes have other versions, or something cannot be opened.
        MissingExtraError: Ray is not installed.
    """
    if settings.workers > 1:
        raise InputError(f"--workers {settings.workers}: with --ray one process answers, and the shards search")
    with connected(address):
        check_versions()
        from wikidx.retrievers.server.running import Service  # FastAPI

        metrics = Metrics()
        shards = ShardService(settings, layout, metrics)
        try:
            Service(settings, listening, metrics, shards).run()
        finally:
            shards.stop()
