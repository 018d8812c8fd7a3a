"""Description of the API, ``/openapi.json``, made of the table of its operations."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from .gate import JSON
from .schemas import ErrorBody

_COMPONENTS = "#/components/schemas/{model}"


class Operation(NamedTuple):
    """A path with its method, and what a client can expect of it; the docstring of the function describes it.

    Attributes:
        method: the HTTP method.
        path: the path, with its parameters in braces.
        endpoint: function that answers a request; in a thread unless it is a coroutine function.
        tag: group of the operation in the document.
        body: schema of a request's body; None: without a body.
        answer: schema of the answer; None: any object of JSON, or text.
        media_type: type of the answer.
        errors: status -> description of the errors.
        error: schema of errors; None: that of the answer.
        parameters: parameters of path and query, as the document has them.
    """

    method: str
    path: str
    endpoint: Callable[[Request], Awaitable[Response]] | Callable[[Request], Response]
    tag: str
    body: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    media_type: str = JSON
    errors: Mapping[int, str] = {}
    error: type[BaseModel] | None = ErrorBody
    parameters: Sequence[dict[str, Any]] = ()


def openapi_document(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the description of operations, in the format of OpenAPI 3.1."""
    models = {model for operation in operations for model in (operation.answer, operation.error) if model is not None}
    ordered = sorted(models, key=lambda model: model.__name__)
    references, definitions = models_json_schema([(model, "serialization") for model in ordered], ref_template=_COMPONENTS)
    schemas = {model: references[model, "serialization"] for model in ordered}
    paths = dict[str, dict[str, Any]]()
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "idx", "description": "Local retrieval: one batched call for groups of queries.", "version": "1"},
        "paths": paths,
        "components": {"schemas": definitions["$defs"]},
    }


def _describe(operation: Operation, schemas: dict[type[BaseModel], Any]) -> dict[str, Any]:
    name = operation.endpoint.__name__
    answer: dict[str, Any] = {"schema": {"type": "object"}} if operation.media_type == JSON else {}
    if operation.answer is not None:
        answer = {"schema": schemas[operation.answer]}
    error = answer if operation.error is None else {"schema": schemas[operation.error]}
    responses = {"200": {"description": "The answer.", "content": {operation.media_type: answer}}}
    responses |= {str(status): {"description": text, "content": {JSON: error}} for status, text in operation.errors.items()}
    described: dict[str, Any] = {
        "tags": [operation.tag],
        "summary": name.replace("_", " ").capitalize(),
        "description": inspect.getdoc(operation.endpoint),
        "operationId": f"{name}_{operation.method.lower()}",
        "parameters": list(operation.parameters),
        "responses": responses,
    }
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": operation.body.model_json_schema()}}}
    return described
