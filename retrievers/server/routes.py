"""The paths of the server: searches, corpora, passages by id, health, metrics, the description of the API and the search page."""

from __future__ import annotations

import dataclasses
import functools
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from wikidx.base.errors import IdxError
from wikidx.retrievers.base import DEFAULTS
from wikidx.retrievers.documents import Window, read_excerpt
from wikidx.retrievers.errors import InvalidRequest
from wikidx.retrievers.wire import EMBEDDINGS, OPTION_NAMES, RETRIEVE, SEARCH

from .answerer import ASK, EVENTS, Answerer
from .catalog import Catalog
from .gate import CLIENT_GONE, JSON, error_response
from .limits import Limits
from .metrics import Metrics
from .openai_embeddings import EmbeddingBody, EmbeddingEndpoints, EmbeddingResponse
from .openapi import Operation, openapi_document
from .schemas import ERRORS, RULES, Excerpt, OpenAIErrorBody, RetrieveResponse, SearchResponse, retrieval_model, search_model
from .searching import SearchEndpoints
from .settings import Settings

PAGE = Path(__file__).parent / "page"  # index.html is served at "/", all files of the folder below "/page"

_PUBLIC_LIMITS = ("max_k", "max_depth", "max_queries", "max_query_characters", "max_candidates", "max_provenance", "max_rerank_pairs")
_PASSAGES = "/v1/corpora/{corpus}/passages"
_PASSAGES_PARAMETERS = (
    {"name": "corpus", "in": "path", "required": True, "schema": {"type": "string"}},
    {"name": "id", "in": "query", "required": True, "schema": {"type": "array", "items": {"type": "string"}, "minItems": 1}},
)
_DOCUMENTS = "/v1/corpora/{corpus}/documents"
_WINDOW = [field.name for field in dataclasses.fields(Window)]
_TEXTS, _LARGEST = ("document", "passage"), 2**31 - 1
_DOCUMENTS_PARAMETERS: tuple[dict[str, Any], ...] = (
    _PASSAGES_PARAMETERS[0],
    *({"name": name, "in": "query", "schema": {"type": "string" if name in _TEXTS else "integer"}} for name in _WINDOW),
)


def make_routes(settings: Settings, catalog: Catalog, metrics: Metrics, answerer: Answerer | None = None) -> Starlette:
    """Return the ASGI application that answers all paths.

    Args:
        settings: the server's settings.
        catalog: all corpora and retrievers.
        metrics: the server's metrics.
        answerer: answers to questions; None: searches only.
    """
    searching = SearchEndpoints(settings, catalog)
    operations = [
        Operation("POST", SEARCH, searching.search, "search", search_model(settings), SearchResponse, errors=ERRORS),
        Operation("POST", RETRIEVE, searching.retrieve, "search", retrieval_model(settings), RetrieveResponse, errors=ERRORS),
        *_state(catalog, metrics),
        *_contents(settings, catalog, answerer),
    ]
    if catalog.embedding is not None:
        embedding = EmbeddingEndpoints(settings, catalog, catalog.embedding)
        embed = Operation("POST", EMBEDDINGS, embedding.embed, "embeddings", EmbeddingBody, EmbeddingResponse)
        operations.append(embed._replace(errors=ERRORS, error=OpenAIErrorBody))
        operations.append(Operation("GET", "/v1/models", embedding.models, "embeddings"))
    if answerer is not None:
        operations.append(Operation("POST", ASK, answerer.ask, "ask", answerer.body, answerer.event, EVENTS, errors=ERRORS))

    describe = functools.cache(lambda: openapi_document(operations))  # on the first request, not at the start

    async def document(request: Request) -> Response:
        return _to_response(describe())

    routes = [Route(operation.path, operation.endpoint, methods=[operation.method]) for operation in operations]
    handlers = {HTTPException: _answer_http_error, ClientDisconnect: _answer_nobody, IdxError: _answer_error, Exception: _answer_error}
    app = Starlette(routes=[*routes, Route("/openapi.json", document), *_files(answerer)], exception_handlers=handlers)  # type: ignore[arg-type]  # of each its own error
    app.router.redirect_slashes = False  # not every client repeats a POST that is redirected
    return app


def _state(catalog: Catalog, metrics: Metrics) -> list[Operation]:
    """Return the operations that report the state of the server."""

    async def health(request: Request) -> Response:
        """Confirm that the process is alive."""
        return _to_response({"alive": True})

    async def ready(request: Request) -> Response:
        """Return the readiness; the status is 200 once every process has opened all corpora and retrievers."""
        state = catalog.readiness()
        return _to_response(state) if state["ready"] else _to_response(state, HTTPStatus.SERVICE_UNAVAILABLE, {"retry-after": "1"})

    async def measurements(request: Request) -> Response:
        """Return the metrics of all processes for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return [
        Operation("GET", "/health", health, "state"),
        Operation("GET", "/ready", ready, "state", errors={HTTPStatus.SERVICE_UNAVAILABLE: "Not everything is open yet."}, error=None),
        Operation("GET", "/metrics", measurements, "state", media_type="text/plain"),
    ]


def _contents(settings: Settings, catalog: Catalog, answerer: Answerer | None) -> list[Operation]:
    """Return the operations that return the served corpora and their passages."""
    limits = settings.limits
    rerank = [rule for rule in RULES["rerank"] if settings.reranker or rule != "cross-encoder"]
    constant = {
        "rules": {**RULES, "rerank": rerank},
        "defaults": {name: getattr(DEFAULTS, name) for name in OPTION_NAMES},
        "limits": {name: getattr(limits, name) for name in _PUBLIC_LIMITS},
    }

    def indexes(request: Request) -> Response:
        """Return the served corpora and indexes; "replaced" means that a newer build is on disk, which a restart will serve."""
        return _to_response({"corpora": catalog.describe(), **constant, **({} if answerer is None else {"ask": answerer.describe()})})

    def passages(request: Request) -> Response:
        """Return the passages with the given ids, in this order; ids that the corpus lacks are listed as missing."""
        ids = _read_ids(request, limits)
        store = catalog.store(request.path_params["corpus"])
        rows = store.rows_of(ids).tolist()
        known = [row for row in rows if row >= 0]
        found = [{**passage._asdict(), "row": row} for passage, row in zip(store.get_many(known), known, strict=True)]
        return _to_response({"passages": found, "missing": [name for name, row in zip(ids, rows, strict=True) if row < 0]})

    def documents(request: Request) -> Response:
        """Return passages of a document that follow one another: around a passage, or from a position or a page on."""
        store = catalog.store(request.path_params["corpus"])
        return _to_response(read_excerpt(store, _read_window(request), limits.max_ids).to_dict())

    statuses = (HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE)
    errors: dict[int, str] = {status: ERRORS[status] for status in statuses}
    return [
        Operation("GET", "/v1/indexes", indexes, "search"),
        Operation("GET", _PASSAGES, passages, "search", errors=errors, parameters=_PASSAGES_PARAMETERS),
        Operation("GET", _DOCUMENTS, documents, "search", answer=Excerpt, errors=errors, parameters=_DOCUMENTS_PARAMETERS),
    ]


def _read_ids(request: Request, limits: Limits) -> list[str]:
    """Return the ids that a request names.

    Raises:
        InvalidRequest: there is none, there are too many, or another field.
    """
    ids = request.query_params.getlist("id")
    if unknown := sorted(set(request.query_params) - {"id"}):
        raise InvalidRequest(f"unknown field {unknown[0][:80]!r}: known: id")
    if not ids:
        raise InvalidRequest("id is missing: name the passages as ?id=FIRST&id=SECOND")
    if len(ids) > limits.max_ids:
        raise InvalidRequest(f"{len(ids):,} passages in a request, {limits.max_ids:,} are allowed")
    return ids


def _read_window(request: Request) -> Window:
    """Return the part of a document that a request names; raises ``InvalidRequest`` for other fields or values."""
    values: dict[str, Any] = dict(request.query_params)
    if unknown := sorted(values.keys() - {*_WINDOW}):
        raise InvalidRequest(f"unknown field {unknown[0][:80]!r}: known: {', '.join(_WINDOW)}")
    if len(values.keys() & {*_TEXTS}) != 1:
        raise InvalidRequest("give either document=ID or passage=ID")
    for name in values.keys() - {*_TEXTS}:
        if not values[name].isdecimal() or len(values[name]) > len(str(_LARGEST)) or int(values[name]) > _LARGEST:
            raise InvalidRequest(f"{name} is {values[name]!r:.80}: it should be a number from 0 on")
        values[name] = int(values[name])
    return Window(**values)


def _files(answerer: Answerer | None) -> list[BaseRoute]:
    """Return the routes of the search page, and of the page for questions."""
    pages = (
        [] if answerer is None else [Mount("/page/runs", StaticFiles(directory=answerer.files)), _page("/ask", answerer.files / "ask.html")]
    )
    return [*pages, Mount("/page", StaticFiles(directory=PAGE)), _page("/", PAGE / "index.html")] if PAGE.is_dir() else pages


def _page(path: str, file: Path) -> BaseRoute:
    return Route(path, lambda request: FileResponse(file))


def _to_response(value: object, status: int = HTTPStatus.OK, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status, headers, JSON)


async def _answer_error(request: Request, error: Exception) -> Response:
    """Answer an error as ``{error, error_type}``; uvicorn logs an unexpected one."""
    return error_response(error, request.scope["path"])


async def _answer_http_error(request: Request, error: HTTPException) -> Response:
    """Answer Starlette's own errors."""
    message, headers = str(error.detail), dict(error.headers or {})
    if error.status_code == HTTPStatus.NOT_FOUND:
        message = f"there is nothing at {request.scope['path']!r:.200}: searches go to {SEARCH} or {RETRIEVE}, /openapi.json has all paths"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["allow"] = ", ".join(sorted(headers.pop("Allow").split(", ")))
        message = f"{request.scope['path']} takes {headers['allow']}, not {request.method}"
    response = error_response(InvalidRequest(message, status=error.status_code))
    response.headers.update(headers)
    return response


async def _answer_nobody(request: Request, error: ClientDisconnect) -> Response:
    return Response(status_code=CLIENT_GONE)  # for the log
