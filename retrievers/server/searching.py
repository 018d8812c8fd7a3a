"""``/v1/search`` and ``/retrieve``: from request bodies to rankings and responses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from wikidx.indexer import INDEXES
from wikidx.retrievers.base import NotSearched, Ranking
from wikidx.retrievers.errors import DeadlineExceeded, InvalidRequest
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.wire import OPTION_NAMES, documents_to_json, not_searched_to_json, ranking_to_json

from .batcher import Groups, Search
from .catalog import Catalog
from .front import JSON
from .limits import check_size
from .models import Asked, checked, retrieval_model, search_model
from .settings import Settings

_PATIENCE_S = 0.1  # before the first check for a disconnect, which takes longer than most searches wait
_PIECE_BYTES = 256 << 10  # answers up to this size are sent whole, longer ones in pieces of this size
_PIECE_WAYS = 2_000  # provenance entries that are encoded at once
_ANYWHERE = Asked(queries=None, groups=None, corpus=None, retriever=None, timeout_s=None, highlight=False, partial=False)


class Searching:
    """Answers searches."""

    def __init__(self, settings: Settings, catalog: Catalog) -> None:
        self._limits, self._topk = settings.limits, settings.topk
        self._is_lexical = settings.retrievers[0] in INDEXES  # lexical search is exact: its k best are the same at any depth
        self._catalog = catalog
        self._search_model = search_model(settings)
        self._retrieval_model = retrieval_model(settings)

    async def search(self, request: Request) -> Response:
        """Search for queries, or groups of queries, as one batch."""
        asked = checked(self._search_model, await _body(request, self._limits.body_bytes))
        lost = set[NotSearched]() if asked.partial else None
        groups = _groups(asked)
        rankings = await self._rankings(request, asked, groups, _options(asked), lost)
        highlight = [query for group in groups for query in group] if asked.highlight else ()
        head = b"{" if lost is None else b'{"not_searched":%s,' % not_searched_to_json(lost)
        pieces = pieces_of(head + b'"rankings":', rankings, partial(ranking_to_json, highlight=highlight))
        return await _response(request, pieces, in_thread=asked.highlight)

    async def retrieve(self, request: Request) -> Response:
        """Search with Search-R1's protocol, in the first corpus by the first retriever."""
        asked = checked(self._retrieval_model, await _body(request, self._limits.body_bytes))
        k = asked.topk or self._topk
        options = SearchOptions(k=k, depth=k) if self._is_lexical else SearchOptions(k=k)
        rankings = await self._rankings(request, _ANYWHERE, [[query] for query in asked.queries], options)
        pieces = pieces_of(b'{"result":', rankings, lambda ranking: documents_to_json(ranking, with_scores=asked.return_scores))
        return await _response(request, pieces)

    async def _rankings(
        self, request: Request, asked: Asked, groups: Groups, options: SearchOptions, lost: set[NotSearched] | None = None
    ) -> list[Ranking]:
        name, batcher, searcher = self._catalog.find(asked.corpus, asked.retriever)
        check_size(self._limits, groups, options, len(RetrieverName.parse(name[1]).parts))
        timeout_s = min(asked.timeout_s or self._limits.deadline_s, self._limits.deadline_s)
        answer: asyncio.Future[list[Ranking]] = asyncio.get_running_loop().create_future()
        search = Search(name, searcher, groups, options, time.monotonic() + timeout_s, answer, lost)
        batcher.submit(search)
        request.state.logged = {"corpus": name[0], "retriever": name[1], "queries": search.n_queries}
        return await _answer(request, answer, timeout_s)


async def _body(request: Request, max_bytes: int) -> bytes:
    """Return a request's body.

    Raises:
        InvalidRequest: it is too long.
        ClientDisconnect: the client disconnected before its end.
    """
    parts, n_bytes = list[bytes](), 0
    async for part in request.stream():
        n_bytes += len(part)
        if n_bytes <= max_bytes:  # an oversized body is read and discarded: the client does not listen before it has sent all
            parts.append(part)
    if n_bytes > max_bytes:
        raise InvalidRequest(f"the body has {n_bytes:,} bytes, {max_bytes:,} are allowed", status=413)
    return b"".join(parts)


def _groups(asked: Asked) -> Groups:
    if (asked.queries is None) == (asked.groups is None):
        raise InvalidRequest("give either queries, which get a ranking each, or groups of queries")
    return [[query] for query in asked.queries] if asked.queries is not None else asked.groups or []


def _options(asked: Asked) -> SearchOptions:
    try:
        return SearchOptions(**{name: getattr(asked, name) for name in OPTION_NAMES})
    except (ValueError, TypeError) as error:
        raise InvalidRequest(str(error)) from error


async def _answer(request: Request, answer: asyncio.Future[list[Ranking]], timeout_s: float) -> list[Ranking]:
    """Wait for rankings until the deadline or a disconnect; a search that has not started by then is cancelled.

    Raises:
        ClientDisconnect: the client is gone.
        DeadlineExceeded: the deadline passed.
    """
    try:
        await asyncio.wait({answer}, timeout=min(timeout_s, _PATIENCE_S))
        if not answer.done():
            await _wait_with_client(request, answer, timeout_s - _PATIENCE_S)
        if not answer.done():
            raise DeadlineExceeded(f"there was no answer within {timeout_s:g} s")
        return answer.result()
    finally:
        answer.cancel()


async def _wait_with_client(request: Request, answer: asyncio.Future[list[Ranking]], timeout_s: float) -> None:
    """Wait while the client is connected; raises ``ClientDisconnect`` when it disconnects."""
    gone = asyncio.ensure_future(request.receive())  # the body was read: the next message is the disconnect
    waits: set[asyncio.Future[Any]] = {answer, gone}
    await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    if gone.done() and not answer.done():
        raise ClientDisconnect
    gone.cancel()


async def _response(request: Request, pieces: Iterator[bytes], *, in_thread: bool = False) -> Response:
    """Return pieces of JSON as one response; a long one is streamed, with one piece at a time in memory.

    Args:
        request: the request.
        pieces: encoded lazily.
        in_thread: encode in a thread because it takes long; other requests are answered meanwhile.
    """
    first_two = islice(pieces, 2)
    begun = await run_in_threadpool(list, first_two) if in_thread else list(first_two)
    if len(begun) == 1 or request.scope["http_version"] == "1.0":  # HTTP/1.0 has no chunked encoding
        return Response(b"".join(chain(begun, pieces)), media_type=JSON)
    rest = chain(begun, pieces)
    return StreamingResponse(rest if in_thread else _in_turns(rest), media_type=JSON)  # starlette iterates in a thread, too


async def _in_turns(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield pieces, each encoded when the previous one has been sent; other requests are served in between."""
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)


def pieces_of(head: bytes, rankings: Sequence[Ranking], encode: Callable[[Ranking], bytes]) -> Iterator[bytes]:
    """Yield a JSON object of rankings in pieces of about ``_PIECE_BYTES``, encoded lazily."""
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
    """Yield a ranking in parts that are fast to encode: whole, unless its passages have very many provenance entries."""
    most_ways = max((len(hit.found) for hit in ranking), default=1)
    size = max(1, _PIECE_WAYS // max(1, most_ways))
    for start in range(0, len(ranking), size):
        yield ranking[start : start + size]
