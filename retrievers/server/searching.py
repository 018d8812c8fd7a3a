"""``/v1/search`` and ``/retrieve``: from a body to rankings and back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

from retrievers.base import NotSearched, Ranking
from retrievers.errors import DeadlineExceeded, InvalidRequest
from retrievers.naming import RetrieverName
from retrievers.options import SearchOptions
from retrievers.wire import OPTION_NAMES, documents_to_json, not_searched_to_json, ranking_to_json

from .batcher import Wanted
from .catalog import Catalog
from .front import ClientGone, Exchange
from .joining import Groups, Search
from .models import Asked, checked, retrieval_model, search_model
from .protocol import IS_LOST, WAITED_FOR
from .settings import Settings

_PIECE_BYTES = 64 << 10  # answers up to this size are sent whole, longer ones in pieces of it
_PIECE_WAYS = 2_000  # in which passages were found, that are encoded at once
_ANYWHERE = Asked(queries=None, groups=None, corpus=None, retriever=None, timeout_s=None, highlight=False, partial=False)


class Searching:
    """Answers searches."""

    def __init__(self, settings: Settings, catalog: Catalog) -> None:
        self._limits, self._topk = settings.limits, settings.topk
        self._fuses = len(RetrieverName.parse(settings.retrievers[0]).parts) > 1
        self._catalog = catalog
        self._search_model = search_model(settings)
        self._retrieval_model = retrieval_model(settings)

    async def search(self, exchange: Exchange) -> None:
        """Answer ``POST /v1/search``."""
        asked = checked(self._search_model, await exchange.body(self._limits.body_bytes, self._limits.body_s))
        options = _options(asked)
        lost = set[NotSearched]() if asked.partial else None
        rankings = await self._rankings(exchange, asked, Wanted(_groups(asked), options, lost))
        highlight = [query for group in _groups(asked) for query in group] if asked.highlight else ()
        head = b"{" if lost is None else b'{"not_searched":%s,' % not_searched_to_json(lost)
        await _send(exchange, head + b'"rankings":', rankings, partial(ranking_to_json, highlight=highlight))

    async def retrieve(self, exchange: Exchange) -> None:
        """Answer ``POST /retrieve`` as Search-R1's server does, from the first corpus by the first retriever."""
        asked = checked(self._retrieval_model, await exchange.body(self._limits.body_bytes, self._limits.body_s))
        k = asked.topk or self._topk
        options = SearchOptions(k=k) if self._fuses else SearchOptions(k=k, depth=k)  # of one retriever no more can matter
        rankings = await self._rankings(exchange, _ANYWHERE, Wanted([[query] for query in asked.queries], options))
        await _send(exchange, b'{"result":', rankings, lambda ranking: documents_to_json(ranking, with_scores=asked.return_scores))

    async def _rankings(self, exchange: Exchange, asked: Asked, wanted: Wanted) -> list[Ranking]:
        served, searcher = self._catalog.find(asked.corpus, asked.retriever)
        self._check_size(wanted.groups, wanted.options, len(RetrieverName.parse(served.retriever).parts))
        timeout_s = min(asked.timeout_s or self._limits.deadline_s, self._limits.deadline_s)
        deadline = time.monotonic() + timeout_s
        search = served.batcher.submit((served.corpus, served.retriever), searcher, wanted, deadline)
        exchange.about = {"corpus": served.corpus, "retriever": served.retriever, "queries": search.n_queries}
        return await _outcome(search, exchange, timeout_s)

    def _check_size(self, groups: Groups, options: SearchOptions, n_retrievers: int) -> None:
        """Check that a search's size is known to be borne before it is begun.

        Raises:
            InvalidRequest: it is not.
        """
        n_queries = sum(map(len, groups))
        if n_queries > self._limits.queries:
            raise InvalidRequest(f"{n_queries:,} queries are asked, {self._limits.queries:,} are allowed in a request")
        n_hits = n_queries * max(options.k, options.depth)
        if n_hits > self._limits.hits:
            raise InvalidRequest(
                f"{n_queries:,} queries with up to {max(options.k, options.depth):,} candidates each are {n_hits:,}, "
                f"{self._limits.hits:,} are allowed in a request: ask for less depth, or in several requests"
            )
        n_found = n_queries * options.k * n_retrievers
        if n_found > self._limits.found:
            raise InvalidRequest(
                f"{n_queries:,} queries can find {options.k:,} passages in {n_found:,} ways, {self._limits.found:,} are allowed "
                "in a request: ask for a smaller k, or in several requests"
            )
        n_pairs = sum(_n_reranked(len(group), options, n_retrievers) for group in groups) if options.rerank == "cross-encoder" else 0
        if n_pairs > self._limits.pairs:
            raise InvalidRequest(
                f"up to {n_pairs:,} passages would be read by the cross-encoder, {self._limits.pairs:,} are allowed in a request: "
                "give a smaller rerank_depth, or ask in several requests"
            )


def _n_reranked(n_queries: int, options: SearchOptions, n_retrievers: int) -> int:
    """Return how many candidates of a group are reranked at most."""
    n_candidates = n_queries * max(options.depth, options.k) * n_retrievers
    return n_candidates if options.rerank_depth is None else min(n_candidates, max(options.k, options.rerank_depth))


def _groups(asked: Asked) -> Groups:
    if (asked.queries is None) == (asked.groups is None):
        raise InvalidRequest("give either queries, which get a ranking each, or groups of queries")
    return [[query] for query in asked.queries] if asked.queries is not None else asked.groups or []


def _options(asked: Asked) -> SearchOptions:
    try:
        return SearchOptions(**{name: getattr(asked, name) for name in OPTION_NAMES})
    except (ValueError, TypeError) as error:
        raise InvalidRequest(str(error)) from error


async def _outcome(search: Search, exchange: Exchange, timeout_s: float) -> list[Ranking]:
    """Wait for the rankings as long as they are of use.

    Raises:
        ClientGone: nobody waits for them any more.
        DeadlineExceeded: they are not there in time.
    """
    answer = search.answer
    exchange.scope[WAITED_FOR] = answer
    if IS_LOST in exchange.scope:
        answer.cancel()
    await asyncio.wait({answer}, timeout=search.deadline - time.monotonic())
    if answer.cancelled():
        raise ClientGone
    if not answer.done():
        answer.cancel()  # unless it has begun, it is not searched
        raise DeadlineExceeded(f"there was no answer within {timeout_s:g} s")
    return answer.result()


async def _send(exchange: Exchange, head: bytes, rankings: Sequence[Ranking], encode: Callable[[Ranking], bytes]) -> None:
    """Send rankings as a list in an object; only as much of a long answer is in memory as JSON as is being sent."""
    pieces = pieces_of(head, rankings, encode)
    first = next(pieces)
    second = next(pieces, None)
    if second is None:
        await exchange.answer(200, first)
    else:
        await exchange.stream(chain((first, second), pieces))


def pieces_of(head: bytes, rankings: Sequence[Ranking], encode: Callable[[Ranking], bytes]) -> Iterator[bytes]:
    """Yield an object of rankings in pieces of about ``_PIECE_BYTES``; each is made when it is asked for."""
    parts, n_bytes = [head, b"["], 0
    for number, ranking in enumerate(rankings):
        parts.append(b",[" if number else b"[")
        for place, some in enumerate(_slices(ranking)):
            if n_bytes > _PIECE_BYTES:
                yield b"".join(parts)
                parts, n_bytes = [], 0
            parts += (b"," if place else b"", encode(some)[1:-1])  # without the brackets of its list
            n_bytes += len(parts[-1])
        parts.append(b"]")
    yield b"".join([*parts, b"]}"])


def _slices(ranking: Ranking) -> Iterator[Ranking]:
    """Yield a ranking in parts that are quickly encoded: whole, unless its passages were found in very many ways."""
    most_ways = max((len(hit.found) for hit in ranking), default=1)
    size = max(1, _PIECE_WAYS // max(1, most_ways))
    for start in range(0, len(ranking), size):
        yield ranking[start : start + size]
