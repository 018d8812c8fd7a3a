"""Schemas of request and response bodies, which pydantic validates and ``/openapi.json`` shows."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError, WithJsonSchema, create_model

from wikidx.base.artifacts.durable import parse_json
from wikidx.base.validation import explain
from wikidx.retrievers.errors import InvalidRequest
from wikidx.retrievers.options import SearchOptions

from .settings import Settings

RULES = {name: list(get_args(kind)) for name, kind in get_type_hints(SearchOptions).items() if get_origin(kind) is Literal}
NAME_CHARACTERS = 200
PIPELINE_CHARACTERS = 2_000
Name = Annotated[str, StringConstraints(max_length=NAME_CHARACTERS)]
Pipeline = Annotated[str, StringConstraints(max_length=PIPELINE_CHARACTERS)]
Body = TypeVar("Body", bound=BaseModel)


class SearchBody(BaseModel):
    """A search; its options are the further fields, which ``SearchOptions`` checks, and ``find_refused`` each query by itself."""

    model_config = ConfigDict(
        strict=True,
        extra="allow",
        title="Search",
        json_schema_extra={"oneOf": [{"required": [name], "properties": {name: {"type": "array"}}} for name in ("queries", "groups")]},
    )

    queries: list[Any] | None = Field(None, description="Queries, texts or vectors; each gets a ranking. Give either queries or groups.")
    groups: list[Any] | None = Field(
        None, description="Groups of queries; each group gets one ranking. The first query of a group is its primary query."
    )
    corpus: Name | None = Field(None, description="A served corpus; default: the first.")
    retriever: Pipeline | None = Field(
        None, description="A served retriever, a named pipeline of the corpus, or a pipeline of served retrievers; default: the first."
    )
    timeout_s: float | None = Field(None, gt=0, allow_inf_nan=False, description="Timeout of the request in seconds.")
    rows: list[int] | str | None = Field(
        None, description="The rows that may be returned: their numbers, or a bitmap in base64, row r being bit r % 8 of byte r // 8."
    )
    highlight: bool = Field(False, description="Return the positions of words in titles and texts that match the queries.")
    partial: bool = Field(
        False, description="On a cluster: leave out the rows of unavailable shards, and list these rows in unsearched_rows."
    )


class _Described(SearchBody):
    model_config = ConfigDict(extra="forbid")


class RetrieveBody(BaseModel):
    """A search in Search-R1's protocol; unknown fields are kept apart and ignored, as in Search-R1's server."""

    model_config = ConfigDict(
        strict=True, extra="allow", json_schema_extra={"anyOf": [{"required": [name]} for name in ("queries", "query")]}
    )

    queries: list[Any] | None = None
    query: Any = Field(None, description="Instead of queries: one, answered as a list of one.")
    topk: int | None = Field(None, ge=1)
    return_scores: bool = Field(False, strict=False)


class Match(BaseModel):
    """One match of a passage: a query and a retriever that found the passage."""

    query: str
    retriever: str
    rank: int
    score: float


class Highlights(BaseModel):
    """Start and end, in code points, of words that match the queries."""

    title: list[tuple[int, int]]
    text: list[tuple[int, int]]


class Span(BaseModel):
    """The place of a passage in its document: offsets in the extracted text, the page from 1 (0: no pages), the path of its headings."""

    document: str
    start: int
    end: int
    page: int
    heading: str


class RankedPassage(BaseModel):
    """A passage in a ranking, with its place in its document if it was split from one; with "highlight" also its words that match."""

    id: str
    title: str
    text: str
    row: int
    score: float
    provenance: list[Match]
    span: Span | None = None
    highlights: Highlights | None = None


class PlacedPassage(BaseModel):
    """A passage of a document, with its place in it."""

    id: str
    title: str
    text: str
    span: Span | None


class Excerpt(BaseModel):
    """Passages of a document that follow one another: the position of the first, and the number of all of the document."""

    document: str
    first: int
    n_passages: int
    passages: list[PlacedPassage]


class UnsearchedRows(BaseModel):
    """Rows of an index, from ``first_row`` to before ``stop_row``, that were not searched."""

    index: str
    first_row: int
    stop_row: int


class Stage(BaseModel):
    """A stage of a search: its name, the numbers of candidates before and after it, and its seconds."""

    stage: str
    candidates_in: int
    candidates_out: int
    seconds: float


class SearchResponse(BaseModel):
    """One ranking for each query or group, in request order, and the reasons, by position, why some were not searched.

    With "partial" also the rows that were not searched, with "explain" the stages of the search.
    """

    rankings: list[list[RankedPassage]]
    errors: dict[str, str] | None = None
    stages: list[Stage] | None = None
    unsearched_rows: list[UnsearchedRows] | None = None


class Document(BaseModel):
    """A passage in Search-R1's format: the title in quotes on the first line of the contents."""

    id: str
    contents: str


class ScoredDocument(BaseModel):
    """A document with its score."""

    document: Document
    score: float


class RetrieveResponse(BaseModel):
    """One list of documents for each query, and the reasons, by position, why some were not searched."""

    result: list[list[ScoredDocument]] | list[list[Document]]
    errors: dict[str, str] | None = None


class ErrorBody(BaseModel):
    """Body of every error response."""

    error: str = Field(description="One line: the problem with its values, and the remedy.")
    error_type: str = Field(description="Name of the exception that wikidx.retrievers.client raises.")


class OpenAIError(BaseModel):
    """An error as OpenAI's clients read it."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIErrorBody(BaseModel):
    """Body of the error responses of OpenAI's paths."""

    error: OpenAIError


ERRORS: dict[int, str] = {
    HTTPStatus.BAD_REQUEST: "The body is not JSON.",
    HTTPStatus.UNAUTHORIZED: "The API key is missing or wrong.",
    HTTPStatus.FORBIDDEN: "The server has no API key, and the Host or Origin of the request is not this machine.",
    HTTPStatus.NOT_FOUND: "What is named is not served, such as the corpus or the retriever.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too long.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body is not JSON, or its Content-Encoding is neither gzip nor zstd.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "A field is invalid, or exceeds a limit of the server.",
    HTTPStatus.INTERNAL_SERVER_ERROR: "The search failed.",
    HTTPStatus.SERVICE_UNAVAILABLE: (
        "The queue is full, or what is asked for is not open yet, or a shard is unavailable. Retry-After gives the seconds to wait."
    ),
    HTTPStatus.GATEWAY_TIMEOUT: "The answer was not ready in time.",
}
"""Status -> description of the errors of searches."""


def _list_of(kind: Any) -> Any:  # noqa: ANN401 - types
    """Return the type of a list of any values, or None, which ``/openapi.json`` describes as a list of ``kind``."""
    return list[Annotated[Any, WithJsonSchema(TypeAdapter(kind).json_schema())]] | None


def search_model(settings: Settings) -> type[SearchBody]:
    """Return the model that describes the body of ``/v1/search``: ``SearchBody`` and ``SearchOptions``, with the server's limits."""
    limits = settings.limits
    text = Annotated[str, StringConstraints(max_length=limits.max_query_characters)]
    query = text | list[float]
    maxima = {"k": limits.max_k, "depth": limits.max_depth, "rerank_depth": limits.max_depth}
    types = get_type_hints(SearchOptions, include_extras=True)
    types |= {name: Annotated[types[name], Field(le=limit)] for name, limit in maxima.items()}
    fields: dict[str, Any] = {option.name: (types[option.name], option.default) for option in dataclasses.fields(SearchOptions)}
    base = SearchBody.model_fields
    fields["queries"] = (_list_of(query), Field(None, max_length=limits.max_queries, description=base["queries"].description))
    groups = _list_of(Annotated[list[query], Field(min_length=1)])
    fields["groups"] = (groups, Field(None, max_length=limits.max_queries, description=base["groups"].description))
    return create_model("Search", __base__=_Described, __doc__="A search.", **fields)


def retrieval_model(settings: Settings) -> type[RetrieveBody]:
    """Return the model of the body of ``/retrieve``, with the server's limits."""
    limits = settings.limits
    query = Annotated[str, StringConstraints(max_length=limits.max_query_characters)]
    topk = Field(None, ge=1, le=limits.max_k, strict=False, description=f"Number of passages for each query; default: {settings.topk}.")
    queries = Field(None, max_length=limits.max_queries)
    fields: dict[str, Any] = {"queries": (_list_of(query), queries), "topk": (int | None, topk)}
    return create_model("RetrieveBody", __base__=RetrieveBody, __doc__="The body of Search-R1's clients.", **fields)


def _parse(body: bytes) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON of a body, in which Python's parser takes a byte order mark and lone surrogates; None if it is not JSON."""
    with suppress(ValueError):
        return parse_json(body)
    return None


def validate_body(model: type[Body], body: bytes | dict[str, Any]) -> Body:
    """Validate and return a body, as JSON or parsed.

    Raises:
        InvalidRequest: the body is not JSON, or a field is invalid.
    """
    try:
        return model.model_validate_json(body) if isinstance(body, bytes) else model.model_validate(body)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        if problem["type"] == "json_invalid":
            if "recursion" not in problem["msg"] and isinstance(body, bytes) and (data := _parse(body)) is not None:
                return validate_body(model, data)
            raise InvalidRequest(
                f"the body is no JSON: {problem['msg'].removeprefix('Invalid JSON: ')}", status=HTTPStatus.BAD_REQUEST
            ) from error
        raise InvalidRequest(explain(error, list(model.model_fields), whole="the body")) from error
