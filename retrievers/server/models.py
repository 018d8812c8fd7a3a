"""Models of the bodies of requests and answers: validated by pydantic, and shown in the OpenAPI document.

The fields of a search are those of ``SearchOptions``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, create_model

from wikidx.corpora.validation import explain
from wikidx.retrievers.errors import InvalidRequest
from wikidx.retrievers.options import SearchOptions

from .settings import Settings

RULES = {name: list(get_args(kind)) for name, kind in get_type_hints(SearchOptions).items() if get_origin(kind) is Literal}
NAME_CHARACTERS = 200
Name = Annotated[str, StringConstraints(max_length=NAME_CHARACTERS)]
Checked = TypeVar("Checked", bound=BaseModel)


class Asked(BaseModel):
    """A search without its options; ``search_model`` adds these."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        title="Search",
        json_schema_extra={"oneOf": [{"required": [name], "properties": {name: {"type": "array"}}} for name in ("queries", "groups")]},
    )

    queries: list[str] | None = Field(None, description="Queries that get a ranking each; either these or groups.")
    groups: list[list[str]] | None = Field(None, description="Groups of queries; each group gets one ranking, its first query is the root.")
    corpus: Name | None = Field(None, description="One of those served; by default the first.")
    retriever: Name | None = Field(None, description="One of those served; by default the first.")
    timeout_s: float | None = Field(None, gt=0, allow_inf_nan=False, description="Seconds until the answer is of no more use.")
    highlight: bool = Field(False, description="Say which words of each title and text are among the queries' terms.")
    partial: bool = Field(False, description="Of a cluster: answer without rows that nobody can search, and say which they are.")


class Retrieval(BaseModel):
    """A search in Search-R1's protocol; unknown fields are ignored, as in its server."""

    model_config = ConfigDict(strict=True)

    queries: list[str]
    topk: int | None = Field(None, ge=1)
    return_scores: bool = False


class FoundBy(BaseModel):
    """One way a passage was found."""

    query: str
    retriever: str
    rank: int
    score: float


class Highlights(BaseModel):
    """Start and end of words that the queries contain, in code points."""

    title: list[tuple[int, int]]
    text: list[tuple[int, int]]


class FoundPassage(BaseModel):
    """A passage in a ranking; with "highlight" also its words that match the queries."""

    id: str
    title: str
    text: str
    row: int
    score: float
    found: list[FoundBy]
    highlights: Highlights | None = None


class LostRows(BaseModel):
    """Rows of an index, from ``first_row`` to before ``stop_row``, that were not searched."""

    index: str
    first_row: int
    stop_row: int


class Rankings(BaseModel):
    """One ranking for each query or group, in their order; with "partial" also the rows that were not searched."""

    rankings: list[list[FoundPassage]]
    not_searched: list[LostRows] | None = None


class Document(BaseModel):
    """A passage in Search-R1's format: the title in quotes on the first line of the contents."""

    id: str
    contents: str


class ScoredDocument(BaseModel):
    """A document with its score."""

    document: Document
    score: float


class Retrieved(BaseModel):
    """One list for each query."""

    result: list[list[ScoredDocument]] | list[list[Document]]


class Problem(BaseModel):
    """Body of every error response."""

    error: str = Field(description="What happened, with the values, and what to do; one line.")
    error_type: str = Field(description="The class that wikidx.retrievers.client raises.")


PROBLEMS: dict[int | str, dict[str, Any]] = {
    status.value: {"model": Problem, "description": description}
    for status, description in (
        (HTTPStatus.BAD_REQUEST, "The body is no JSON."),
        (HTTPStatus.UNAUTHORIZED, "The API key is missing or wrong."),
        (HTTPStatus.FORBIDDEN, "A server without a key was asked under a name that is not this machine's, or by a page elsewhere."),
        (HTTPStatus.NOT_FOUND, "That corpus or retriever is not served."),
        (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too long."),
        (HTTPStatus.UNPROCESSABLE_ENTITY, "A field is wrong, or asks for more than the server allows."),
        (HTTPStatus.INTERNAL_SERVER_ERROR, "The search failed."),
        (
            HTTPStatus.SERVICE_UNAVAILABLE,
            "Too much is waiting, the index is not open yet, or a part of it is lost: Retry-After says when to ask again.",
        ),
        (HTTPStatus.GATEWAY_TIMEOUT, "The answer was not there in time."),
    )
}


def search_model(settings: Settings) -> type[Asked]:
    """Return the model of ``/v1/search``'s body within the limits."""
    limits = settings.limits
    query = Annotated[str, StringConstraints(max_length=limits.query_characters)]
    most = {"k": limits.k, "depth": limits.depth, "rerank_depth": limits.depth}
    types = get_type_hints(SearchOptions, include_extras=True)
    types |= {name: Annotated[types[name], Field(le=limit)] for name, limit in most.items()}
    fields: dict[str, Any] = {option.name: (types[option.name], option.default) for option in dataclasses.fields(SearchOptions)}
    asked = Asked.model_fields
    fields["queries"] = (list[query] | None, Field(None, max_length=limits.queries, description=asked["queries"].description))
    groups = list[Annotated[list[query], Field(min_length=1)]] | None
    fields["groups"] = (groups, Field(None, max_length=limits.queries, description=asked["groups"].description))
    return create_model("Search", __base__=Asked, __doc__="A search.", **fields)


def retrieval_model(settings: Settings) -> type[Retrieval]:
    """Return the model of ``/retrieve``'s body within the limits."""
    limits = settings.limits
    query = Annotated[str, StringConstraints(max_length=limits.query_characters)]
    topk = Field(None, ge=1, le=limits.k, strict=False, description=f"Passages for each query; by default {settings.topk}.")
    fields: dict[str, Any] = {"queries": (list[query], Field(max_length=limits.queries)), "topk": (int | None, topk)}
    return create_model("Retrieval", __base__=Retrieval, __doc__="What Search-R1's clients send.", **fields)


def checked(model: type[Checked], body: bytes) -> Checked:
    """Validate and return a body.

    Raises:
        InvalidRequest: it is not JSON, or a field is wrong.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        if problem["type"] == "json_invalid":
            raise InvalidRequest(
                f"the body is no JSON: {problem['msg'].removeprefix('Invalid JSON: ')}", status=HTTPStatus.BAD_REQUEST
            ) from error
        raise InvalidRequest(explain(error, list(model.model_fields), whole="the body")) from error


def inlined(model: type[BaseModel]) -> Mapping[str, Any]:
    """Return the documentation of a body that is checked by ``checked``, for FastAPI's ``openapi_extra``."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}}
