"""FastAPI's application: searches, corpora, passages by id, health, metrics, the description of the API and the search page."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from wikidx.base.errors import IdxError
from wikidx.retrievers.base import DEFAULTS
from wikidx.retrievers.errors import InvalidRequest
from wikidx.retrievers.wire import EMBEDDINGS, OPTION_NAMES, RETRIEVE, SEARCH

from .answering import ASK, EVENTS, Answerer
from .catalog import Catalog
from .embedding import EmbeddingBody, EmbeddingEndpoints, EmbeddingResponse
from .front import CLIENT_GONE, Message, Receive, Send, error_response
from .metrics import Metrics
from .models import ERROR_RESPONSES, RULES, RetrieveResponse, SearchResponse, describe_body, retrieval_model, search_model
from .searching import SearchEndpoints
from .settings import Settings

_PUBLIC_LIMITS = ("max_k", "max_depth", "max_queries", "max_query_characters", "max_candidates", "max_provenance", "max_rerank_pairs")

PAGE = Path(__file__).parent / "page"  # index.html is served at "/", all files of the folder below "/page"


class Pages:
    """The ASGI application that answers all paths; searches bypass FastAPI, whose layers take longer than many searches.

    Args:
        settings: the server's settings.
        catalog: all corpora and retrievers.
        metrics: the server's metrics.
        answerer: answers to questions; None: searches only.
    """

    def __init__(self, settings: Settings, catalog: Catalog, metrics: Metrics, answerer: Answerer | None = None) -> None:
        searching = SearchEndpoints(settings, catalog)
        self._endpoints = {SEARCH: searching.search, RETRIEVE: searching.retrieve}
        embedding = EmbeddingEndpoints(settings, catalog, catalog.embedding) if catalog.embedding else None
        if embedding is not None:
            self._endpoints[EMBEDDINGS] = embedding.embed
        self.api = FastAPI(
            title="idx", description="Local retrieval: one batched call for groups of queries.", version="1", docs_url=None, redoc_url=None
        )
        _add_error_handlers(self.api)
        _add_searches(self.api, settings, searching)
        _add_state(self.api, catalog, metrics)
        _add_contents(self.api, settings, catalog, answerer)
        if embedding is not None:
            _add_embeddings(self.api, embedding)
        if answerer is not None:
            _add_answers(self.api, answerer)
        _add_files(self.api)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request."""
        path = scope["path"].removesuffix("/")  # not every client repeats a POST that is redirected
        endpoint = self._endpoints.get(path) if scope["method"] == "POST" else None
        if endpoint is None:
            await self.api(scope, receive, send)
            return
        try:
            response = await endpoint(Request(scope, receive))
        except ClientDisconnect:
            response = Response(status_code=CLIENT_GONE)  # for the log
        except IdxError as error:
            response = error_response(error, path)
        except Exception as error:
            await error_response(error, path)(scope, receive, send)
            raise  # uvicorn logs the exception
        await response(scope, receive, send)


def _add_state(api: FastAPI, catalog: Catalog, metrics: Metrics) -> None:
    """Add the paths that report the state of the server."""

    @api.get("/health", tags=["state"])
    async def health() -> dict[str, bool]:
        """Confirm that the process is alive."""
        return {"alive": True}

    @api.get("/ready", tags=["state"], responses={503: {"description": "Not everything is open yet."}})
    async def ready(response: Response) -> dict[str, Any]:
        """Return the readiness; the status is 200 once every process has opened all corpora and retrievers."""
        state = catalog.readiness()
        if not state["ready"]:
            response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
            response.headers["retry-after"] = "1"
        return state

    @api.get("/metrics", tags=["state"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def measurements() -> Response:
        """Return the metrics of all processes for Prometheus."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_contents(api: FastAPI, settings: Settings, catalog: Catalog, answerer: Answerer | None) -> None:
    """Add the paths that return the served corpora and their passages."""
    limits = settings.limits
    rerank = [rule for rule in RULES["rerank"] if settings.reranker or rule != "cross-encoder"]
    rules = {**RULES, "rerank": rerank}

    @api.get("/v1/indexes", tags=["search"])
    def indexes() -> dict[str, Any]:
        """Return the served corpora and indexes; "replaced" means that a newer build is on disk, which a restart will serve."""
        return {
            "corpora": catalog.describe(),
            "rules": rules,
            "defaults": {name: getattr(DEFAULTS, name) for name in OPTION_NAMES},
            "limits": {name: getattr(limits, name) for name in _PUBLIC_LIMITS},
            **({} if answerer is None else {"ask": answerer.describe()}),
        }

    @api.get("/v1/corpora/{corpus}/passages", tags=["search"], responses={status: ERROR_RESPONSES[status] for status in (404, 422, 503)})
    def passages(corpus: str, id: Annotated[list[str], Query()], request: Request) -> dict[str, Any]:
        """Return the passages with the given ids, in this order; ids that the corpus lacks are listed as missing."""
        if unknown := sorted(set(request.query_params) - {"id"}):
            raise InvalidRequest(f"unknown field {unknown[0][:80]!r}: known: id")
        if len(id) > limits.max_ids:
            raise InvalidRequest(f"{len(id):,} passages in a request, {limits.max_ids:,} are allowed")
        store = catalog.store(corpus)
        rows = store.rows_of(id).tolist()
        known = [row for row in rows if row >= 0]
        return {
            "passages": [{**passage._asdict(), "row": row} for passage, row in zip(store.get_many(known), known, strict=True)],
            "missing": [name for name, row in zip(id, rows, strict=True) if row < 0],
        }


def _add_searches(api: FastAPI, settings: Settings, searching: SearchEndpoints) -> None:
    """Add the search paths, so that FastAPI documents them and refuses methods other than POST."""
    for path, endpoint, body, answer in (
        (SEARCH, searching.search, search_model(settings), SearchResponse),
        (RETRIEVE, searching.retrieve, retrieval_model(settings), RetrieveResponse),
    ):
        extra = dict(describe_body(body))
        api.post(path, response_model=answer, responses=ERROR_RESPONSES, openapi_extra=extra, tags=["search"])(endpoint)


def _add_embeddings(api: FastAPI, embedding: EmbeddingEndpoints) -> None:
    """Add the paths that embed texts, so that FastAPI documents them and refuses methods other than POST."""
    extra = dict(describe_body(EmbeddingBody))
    responses = {status: {"description": response["description"]} for status, response in ERROR_RESPONSES.items()}
    api.post(EMBEDDINGS, response_model=EmbeddingResponse, responses=responses, openapi_extra=extra, tags=["embeddings"])(embedding.embed)
    api.get("/v1/models", tags=["embeddings"])(embedding.models)


def _add_answers(api: FastAPI, answerer: Answerer) -> None:
    """Add the path that answers questions, and its page."""
    lines = {"description": "Lines of JSON.", "content": {EVENTS: {"schema": answerer.event.model_json_schema()}}}
    responses = {**ERROR_RESPONSES, 200: lines}
    extra = dict(describe_body(answerer.body))
    api.post(ASK, response_class=StreamingResponse, responses=responses, openapi_extra=extra, tags=["ask"])(answerer.ask)
    api.mount("/page/runs", StaticFiles(directory=answerer.files))
    api.add_api_route("/ask", lambda: FileResponse(answerer.files / "ask.html"), include_in_schema=False, response_class=FileResponse)


def _add_files(api: FastAPI) -> None:
    """Add the paths of the search page."""
    if PAGE.is_dir():
        api.mount("/page", StaticFiles(directory=PAGE))
        api.add_api_route("/", lambda: FileResponse(PAGE / "index.html"), include_in_schema=False, response_class=FileResponse)


def _add_error_handlers(api: FastAPI) -> None:
    """Add handlers that answer every error as ``{error, error_type}``."""

    @api.exception_handler(IdxError)
    @api.exception_handler(Exception)  # Starlette raises the exception again, and uvicorn logs it
    async def handle_error(request: Request, error: Exception) -> Response:
        return error_response(error)

    @api.exception_handler(HTTPException)
    async def handle_http_error(request: Request, error: HTTPException) -> Response:
        message = str(error.detail)
        if error.status_code == HTTPStatus.NOT_FOUND:
            message = f"there is nothing at {request.scope['path']!r:.200}"
        elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            message = f"{request.scope['path']} takes {(error.headers or {})['Allow']}, not {request.method}"
        response = error_response(InvalidRequest(message, status=error.status_code))
        response.headers.update(error.headers or {})  # such as Allow
        return response

    @api.exception_handler(RequestValidationError)
    async def handle_invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return error_response(InvalidRequest(f"{'.'.join(map(str, first['loc']))}: {first['msg']}"))
