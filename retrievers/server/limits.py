"""Bounds on one request, and on all waiting ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wikidx.retrievers.errors import InvalidRequest
from wikidx.retrievers.options import SearchOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a server.

    Attributes:
        body_bytes: of a request.
        queries: in a request, all groups together.
        query_characters: of one query.
        k: passages in a ranking.
        depth: candidates of a query.
        hits: queries of a request times the larger of ``k`` and ``depth``: 12 bytes of memory each, for each retriever.
        found: provenance entries of a request: queries times ``k`` times retrievers; some hundred bytes of memory each.
        pairs: of query and passage that a cross-encoder reads for a request.
        ids: passages fetched by id in a request.
        waiting: queries in the queue; beyond that, new requests are refused.
        requests: requests in the queue or running.
        joined: queries in a batch of several requests.
        deadline_s: until a request must be answered; a request may ask for less.
        linger_s: grace period at shutdown in which new connections are still accepted, while clients learn of it.
    """

    body_bytes: int = 16 << 20
    queries: int = 10_000
    query_characters: int = 20_000
    k: int = 1_000
    depth: int = 10_000
    hits: int = 10_000_000
    found: int = 1_000_000
    pairs: int = 10_000
    ids: int = 1_000
    waiting: int = 4_096
    requests: int = 1_024
    joined: int = 256
    deadline_s: float = 30.0
    linger_s: float = 0.4


def check_size(limits: Limits, groups: Sequence[Sequence[str]], options: SearchOptions, n_retrievers: int) -> None:
    """Check that a search is within the limits before it starts.

    Raises:
        InvalidRequest: it exceeds one.
    """
    n_queries = sum(map(len, groups))
    if n_queries > limits.queries:
        raise InvalidRequest(f"{n_queries:,} queries are asked, {limits.queries:,} are allowed in a request")
    depth = max(options.k, options.depth)
    if n_queries * depth > limits.hits:
        raise InvalidRequest(
            f"{n_queries:,} queries with up to {depth:,} candidates each are {n_queries * depth:,}, "
            f"{limits.hits:,} are allowed in a request: ask for less depth, or in several requests"
        )
    n_found = n_queries * options.k * n_retrievers
    if n_found > limits.found:
        raise InvalidRequest(
            f"{n_queries:,} queries can find {options.k:,} passages in {n_found:,} ways, {limits.found:,} are allowed "
            "in a request: ask for a smaller k, or in several requests"
        )
    n_pairs = sum(_n_reranked(len(group), options, n_retrievers) for group in groups) if options.rerank == "cross-encoder" else 0
    if n_pairs > limits.pairs:
        raise InvalidRequest(
            f"up to {n_pairs:,} passages would be read by the cross-encoder, {limits.pairs:,} are allowed in a request: "
            "give a smaller rerank_depth, or ask in several requests"
        )


def _n_reranked(n_queries: int, options: SearchOptions, n_retrievers: int) -> int:
    """Return the maximum number of reranked candidates of a group."""
    n_candidates = n_queries * max(options.depth, options.k) * n_retrievers
    return n_candidates if options.rerank_depth is None else min(n_candidates, max(options.k, options.rerank_depth))
