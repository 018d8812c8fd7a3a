"""Limits on a request, and on the queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wikidx.retrievers.errors import InvalidRequest
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.pipelines.tree import size, source_depths


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a server; each ``max_`` value is the largest number that is allowed.

    Attributes:
        max_body_bytes: bytes in the body of a request.
        max_queries: queries in all groups of a request.
        max_query_characters: characters in a query.
        max_k: ``k`` of a request.
        max_depth: ``depth`` and ``rerank_depth`` of a request, and the depth of a pipeline's retrievers.
        max_candidates: queries of a request times the larger of ``k`` and ``depth``; a candidate takes 12 bytes of memory per retriever.
        max_provenance: queries of a request times ``k`` times retrievers; a match takes some hundred bytes of memory.
        max_rerank_pairs: pairs of query and passage that a cross-encoder reads for a request.
        max_ids: passages fetched by id in a request.
        max_queued_bytes: bytes in the bodies of all requests that wait or are being searched; a request that comes alone may have more.
        max_batch_queries: queries in a batch of several requests.
        deadline_s: seconds until a request must be answered; a request may set fewer.
        drain_s: seconds at shutdown during which new connections are accepted; every answer already closes its connection.
    """

    max_body_bytes: int = 16 << 20
    max_queries: int = 10_000
    max_query_characters: int = 20_000
    max_k: int = 1_000
    max_depth: int = 10_000
    max_candidates: int = 10_000_000
    max_provenance: int = 1_000_000
    max_rerank_pairs: int = 10_000
    max_ids: int = 1_000
    max_queued_bytes: int = 256_000_000
    max_batch_queries: int = 256
    deadline_s: float = 30.0
    drain_s: float = 0.4


def check_size(limits: Limits, groups: Sequence[Sequence[str]], options: SearchOptions, retriever: RetrieverName) -> None:
    """Check that a search is within the limits, before the search starts.

    Raises:
        InvalidRequest: the search exceeds a limit.
    """
    n_queries = sum(map(len, groups))
    if n_queries > limits.max_queries:
        raise InvalidRequest(f"{n_queries:,} queries in a request, {limits.max_queries:,} are allowed")
    for name, most in (("k", limits.max_k), ("depth", limits.max_depth), ("rerank_depth", limits.max_depth)):
        if (value := getattr(options, name) or 0) > most:
            raise InvalidRequest(f"{name} is {value:,}, at most {most:,} are allowed")
    depth, n_pairs = max(options.k, options.depth), 0
    n_retrievers = len(retriever.parts) + len(retriever.remotes)
    if retriever.pipeline is not None:
        n_pairs = n_queries * size(retriever.pipeline, depth).n_reranked
        depth = max(source_depths(retriever.pipeline, depth).values())
        if depth > limits.max_depth:
            raise InvalidRequest(f"a retriever of the pipeline is to return {depth:,} candidates, {limits.max_depth:,} are allowed")
    if n_queries * depth > limits.max_candidates:
        raise InvalidRequest(
            f"{n_queries:,} queries with up to {depth:,} candidates each are {n_queries * depth:,}, "
            f"{limits.max_candidates:,} are allowed in a request: ask for less depth, or in several requests"
        )
    n_provenance = n_queries * options.k * n_retrievers
    if n_provenance > limits.max_provenance:
        raise InvalidRequest(
            f"{n_queries:,} queries can find {options.k:,} passages in {n_provenance:,} ways, {limits.max_provenance:,} are allowed "
            "in a request: ask for a smaller k, or in several requests"
        )
    n_pairs += sum(_n_reranked(len(group), options, n_retrievers) for group in groups) if options.rerank == "cross-encoder" else 0
    if n_pairs > limits.max_rerank_pairs:
        raise InvalidRequest(
            f"up to {n_pairs:,} passages would be read by the cross-encoder, {limits.max_rerank_pairs:,} are allowed in a request: "
            "give a smaller rerank_depth, or ask in several requests"
        )


def _n_reranked(n_queries: int, options: SearchOptions, n_retrievers: int) -> int:
    """Return the maximum number of reranked candidates of a group."""
    n_candidates = n_queries * max(options.depth, options.k) * n_retrievers
    return n_candidates if options.rerank_depth is None else min(n_candidates, max(options.k, options.rerank_depth))
