"""Endpoints ``/v1/search`` and ``/retrieve``, from the request body to the response."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from wikidx.base.errors import ArgumentError, OptionError
from wikidx.base.registry import suggest
from wikidx.base.validation import unknown_field
from wikidx.corpora.store import PassageStore
from wikidx.indexer.scope import Scope
from wikidx.retrievers.base import Ranking, Rankings, ScoredPassage, UnsearchedRows
from wikidx.retrievers.errors import DeadlineExceeded, InvalidRequest, NotReady, Overloaded
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.refusals import blank_refused, find_refused, mark_refused
from wikidx.retrievers.vector_queries import to_query
from wikidx.retrievers.wire import OPTION_NAMES, documents_to_json, ranking_to_json, unsearched_to_json

from .batcher import RETRY_AFTER_S, Batcher, Groups, SearchRequest
from .bodies import decode_body
from .catalog import Catalog
from .gate import GONE, JSON
from .limits import check_size
from .schemas import RetrieveBody, SearchBody, retrieval_model, validate_body
from .settings import Settings

T = TypeVar("T")

_POLL_S = 0.1  # interval at which a request that waits for what is being opened looks again
_CHUNK_BYTES = 256 << 10  # larger responses are sent in chunks of about this size
_CHUNK_MATCHES = 2_000  # provenance entries encoded in one step
_DEFAULT_BODY = SearchBody.model_validate({})


class SearchEndpoints:
    """The endpoints for searches."""

    def __init__(self, settings: Settings, catalog: Catalog) -> None:
        self._limits, self._topk = settings.limits, settings.topk
        self._catalog = catalog
        self._retrieval_model = retrieval_model(settings)

    async def search(self, request: Request) -> Response:
        """Search for queries, or groups of queries, as one batch."""
        body = validate_body(SearchBody, await read_body(request, self._limits.max_body_bytes))
        unsearched = set[UnsearchedRows]() if body.partial else None
        options = _read_options(body)  # first, because a mistaken name of a field may be that of the queries
        groups = _read_groups(body)
        rankings = await self._search(request, body, groups, options, unsearched)
        if len(errors := rankings.errors) == len(rankings) > 0:
            raise InvalidRequest(errors[0])
        highlight = [query for ranking in rankings for query in ranking.queries] if body.highlight else ()
        fields: dict[str, Any] = {} if unsearched is None else {"unsearched_rows": unsearched_to_json(unsearched)}
        if options.explain:
            fields["stages"] = [stage._asdict() for stage in rankings.stages]
        if errors:
            fields["errors"] = errors
        chunks = encode_in_chunks(fields, "rankings", rankings, partial(ranking_to_json, highlight=highlight))
        return await _to_response(request, chunks, in_thread=body.highlight)

    async def retrieve(self, request: Request) -> Response:
        """Search with Search-R1's protocol, in the first corpus by the first retriever; its clients read the result whatever the status."""
        body = validate_body(self._retrieval_model, await read_body(request, self._limits.max_body_bytes))
        if body.queries is body.query is None:
            raise InvalidRequest("queries is missing")
        queries = [body.query] if body.queries is None else body.queries
        options = SearchOptions(k=body.topk or self._topk)
        rankings = await self._search(request, _DEFAULT_BODY, [[query] for query in queries], options)
        fields = {"errors": rankings.errors} if rankings.errors else {}
        chunks = encode_in_chunks(fields, "result", rankings, lambda ranking: documents_to_json(ranking, with_scores=body.return_scores))
        response = await _to_response(request, chunks)
        if body.model_extra:
            request.state.logged["ignored"] = response.headers["idx-ignored"] = _describe_ignored(body.model_extra)
        return response

    async def _search(
        self, request: Request, body: SearchBody, groups: Groups, options: SearchOptions, unsearched: set[UnsearchedRows] | None = None
    ) -> Rankings:
        deadline = time.monotonic() + min(body.timeout_s or self._limits.deadline_s, self._limits.deadline_s)
        find = partial(self._catalog.find, body.corpus, body.retriever)
        with self._catalog.memory.holding(request.state.n_bytes):
            name, batcher, searcher, retriever = await wait_until_open(request, find, deadline)
        groups = [[*map(to_query, group)] if isinstance(group, list) else group for group in groups]
        refused = find_refused(groups, self._limits.max_query_characters)
        groups = blank_refused(groups, refused, may_be_all=True)
        check_size(self._limits, groups, options, retriever)
        scope = _read_scope(body.rows, self._catalog.store(name[0])) if body.rows is not None else None
        answer: asyncio.Future[Rankings] = asyncio.get_running_loop().create_future()
        search = SearchRequest(name, searcher, groups, options, deadline, answer, unsearched, request.state.n_bytes, scope)
        request.state.logged = {"corpus": name[0], "retriever": name[1], "queries": search.n_queries}
        return mark_refused(await submit(request, batcher, search), refused)


def _describe_ignored(names: Iterable[str]) -> str:
    """Return some unknown fields of /retrieve with similar known ones, in ASCII for a header."""
    shown = (name[:40] for name in sorted(names)[:5])
    return ", ".join(f"{ascii(name)}: {suggest(name, RetrieveBody.model_fields)}".rstrip(": ") for name in shown)


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return a request's body, decompressed; the request's state has its size, ``n_bytes``.

    Raises:
        InvalidRequest: the body is too long, or is refused by ``decode_body``.
        ClientDisconnect: the client disconnected before the end of the body.
    """
    parts, n_bytes = list[bytes](), 0
    async for part in request.stream():
        n_bytes += len(part)
        # The rest of an oversized body is discarded: a client reads the answer only after sending the whole body.
        if n_bytes <= max_bytes:
            parts.append(part)
    if n_bytes > max_bytes:
        raise InvalidRequest(f"the body has {n_bytes:,} bytes, {max_bytes:,} are allowed", status=413)
    body = decode_body(b"".join(parts), request.headers, max_bytes)
    request.state.n_bytes = len(body)
    return body


def _read_groups(body: SearchBody) -> Groups:
    if (body.queries is None) == (body.groups is None):
        raise InvalidRequest("give either queries, which get a ranking each, or groups of queries")
    return [[query] for query in body.queries] if body.queries is not None else body.groups or []


def _read_options(body: SearchBody) -> SearchOptions:
    given = body.model_extra or {}
    if unknown := next((name for name in given if name not in OPTION_NAMES), None):
        raise InvalidRequest(unknown_field(unknown, (*SearchBody.model_fields, *OPTION_NAMES)))
    try:
        return SearchOptions(**given)
    except OptionError as error:
        raise InvalidRequest(str(error)) from error


def _read_scope(rows: list[int] | str, store: PassageStore) -> Scope:
    try:
        return Scope.from_json(rows, len(store))
    except ArgumentError as error:
        raise InvalidRequest(str(error)) from error


async def wait_until_open(request: Request, find: Callable[[], T], deadline: float) -> T:
    """Return what a function finds, which is called again as long as it raises ``NotReady`` for what is being opened.

    Raises:
        NotReady: it was not open in time, or will not be opened, or the client prefers not to wait (RFC 7240).
        ClientDisconnect: the client disconnected.
    """
    while True:
        try:
            return find()
        except NotReady as error:
            if error.retry_after is None or time.monotonic() >= deadline or "wait=0" in request.headers.get("prefer", ""):
                raise
        with contextlib.suppress(DeadlineExceeded):
            await wait_for(request, asyncio.get_running_loop().create_future(), _POLL_S)


async def submit(request: Request, batcher: Batcher, search: SearchRequest) -> Any:  # noqa: ANN401 - of any kind of searcher
    """Submit a search, and return its answer.

    Raises:
        Overloaded: there is no room, or the search has not begun at its deadline.
        DeadlineExceeded, ClientDisconnect: see ``wait_for``.
    """
    batcher.submit(search)
    try:
        return await wait_for(request, search.answer, search.deadline - time.monotonic())
    except DeadlineExceeded as error:
        if search.has_begun:
            raise
        raise Overloaded("the search had not begun at its deadline: ask again, or give it more time", retry_after=RETRY_AFTER_S) from error


async def wait_for(request: Request, answer: asyncio.Future[T], timeout_s: float) -> T:
    """Wait for an answer until the deadline or a disconnect, then cancel an unanswered search.

    Raises:
        ClientDisconnect: the client disconnected.
        DeadlineExceeded: the deadline passed.
    """
    gone: asyncio.Future[Any] = getattr(request.state, GONE)
    try:
        await asyncio.wait({answer, gone}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        if gone.done():
            raise ClientDisconnect
        raise DeadlineExceeded(f"there was no answer within {'less than ' * (timeout_s < 0.01)}{max(round(timeout_s, 2), 0.01):g} s")
    finally:
        answer.cancel()


async def _to_response(request: Request, chunks: Iterator[bytes], *, in_thread: bool = False) -> Response:
    """Return chunks of JSON as one response; a long response is streamed, so that only few chunks are in memory.

    Args:
        request: the request.
        chunks: lazily encoded JSON.
        in_thread: encode the chunks in a thread, because they are slow and other requests must be answered meanwhile.
    """
    first_two = islice(chunks, 2)
    first = await run_in_threadpool(list, first_two) if in_thread else list(first_two)
    if len(first) == 1 or request.scope["http_version"] == "1.0":  # HTTP/1.0 has no chunked encoding
        return Response(b"".join(chain(first, chunks)), media_type=JSON)
    remaining = chain(first, chunks)
    return StreamingResponse(remaining if in_thread else _stream(remaining), media_type=JSON)  # starlette iterates in a thread, too


async def _stream(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield chunks; each is encoded after the previous one has been sent, and other requests are served in between."""
    for chunk in chunks:
        yield chunk
        await asyncio.sleep(0)


def encode_in_chunks(
    fields: Mapping[str, Any], name: str, rankings: Sequence[Ranking], encode: Callable[[Sequence[ScoredPassage]], bytes]
) -> Iterator[bytes]:
    """Yield a JSON object with rankings in chunks of about ``_CHUNK_BYTES``, encoded lazily.

    Args:
        fields: the object's other fields, as JSON values; keys may be numbers.
        name: name of the field with the list of rankings, the last one.
        rankings: the rankings.
        encode: function that returns a part of a ranking as a JSON list.
    """
    parts, n_bytes = [orjson.dumps({**fields, name: []}, option=orjson.OPT_NON_STR_KEYS)[: -len(b"]}")]], 0
    for number, ranking in enumerate(rankings):
        parts.append(b",[" if number else b"[")
        for position, part in enumerate(_split(ranking)):
            if n_bytes > _CHUNK_BYTES:
                yield b"".join(parts)
                parts, n_bytes = [], 0
            parts += (b"," if position else b"", encode(part)[1:-1])  # without the brackets of the list
            n_bytes += len(parts[-1])
        parts.append(b"]")
    yield b"".join([*parts, b"]}"])


def _split(ranking: Ranking) -> Iterator[Sequence[ScoredPassage]]:
    """Split a ranking into parts of at most about ``_CHUNK_MATCHES`` provenance entries, which are fast to encode."""
    max_matches = max((len(hit.provenance) for hit in ranking), default=1)
    size = max(1, _CHUNK_MATCHES // max(1, max_matches))
    for start in range(0, len(ranking), size):
        yield ranking[start : start + size]
