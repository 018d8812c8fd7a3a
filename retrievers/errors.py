"""Errors between a client and a search server, and their form on the wire: ``{"error": message, "error_type": class name}``.

    IdxError
    └── ServiceError          base class, with the HTTP ``status``
        ├── InvalidRequest    400, 403, 404, 405, 413, 415, 422 …: the request is invalid, or exceeds the server's limits; a ValueError
        ├── Unauthorized      401: the API key is missing or wrong
        ├── Overloaded        503: the queue is full; retry after ``retry_after`` seconds
        ├── NotReady          503: the corpus or retriever is still being opened, could not be opened, or the server is ending
        │   └── ShardUnavailable  503: rows of an unavailable shard cannot be searched; ``partial`` answers without them
        ├── DeadlineExceeded  504: the deadline passed before the answer
        ├── SearchFailed      500: the search itself failed
        ├── Unreachable       no server answers at that address
        └── BadAnswer         the answer does not follow this protocol

A ``RemoteSearcher`` raises the class that the server names. The server also names the classes of ``base.errors`` that a local search
raises; for ``MissingExtraError`` it names the base class ``IdxError``.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from wikidx.base import errors as local
from wikidx.base.errors import IdxError, InputError, MissingExtraError, UnknownNameError


class ServiceError(IdxError):
    """A failure of a search over HTTP."""

    status: int = HTTPStatus.INTERNAL_SERVER_ERROR

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None, **headers: str) -> None:
        super().__init__(message)
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if status is not None:
            self.status = status
        self.retry_after = retry_after


class InvalidRequest(ServiceError, ValueError):
    """The request is invalid, or exceeds the server's limits."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY


class Unauthorized(ServiceError):
    """The API key is missing or wrong."""

    status = HTTPStatus.UNAUTHORIZED


class Overloaded(ServiceError):
    """The queue is full: retry after ``retry_after`` seconds."""

    status = HTTPStatus.SERVICE_UNAVAILABLE


class NotReady(ServiceError):
    """The requested corpus or retriever is not open yet, could not be opened, or is closed."""

    status = HTTPStatus.SERVICE_UNAVAILABLE


class ShardUnavailable(NotReady):
    """Rows of an index cannot be searched: all replicas of their shard are lost, or do not answer."""


class DeadlineExceeded(ServiceError):
    """The deadline passed before the answer."""

    status = HTTPStatus.GATEWAY_TIMEOUT


class SearchFailed(ServiceError):
    """The search itself failed; the server's log has details."""


class Unreachable(ServiceError):
    """No server answers at that address."""


class BadAnswer(ServiceError):
    """The answer does not follow this protocol."""


_OWN = (ServiceError, InvalidRequest, Unauthorized, Overloaded, NotReady, ShardUnavailable, DeadlineExceeded, SearchFailed)
_LOCAL = [kind for kind in vars(local).values() if isinstance(kind, type) and issubclass(kind, IdxError) and kind is not MissingExtraError]
_BY_NAME: dict[str, type[IdxError]] = {kind.__name__: kind for kind in (*_LOCAL, *_OWN)}

_STATUSES = {
    UnknownNameError: HTTPStatus.NOT_FOUND,
    InputError: HTTPStatus.UNPROCESSABLE_ENTITY,
    MissingExtraError: HTTPStatus.NOT_IMPLEMENTED,
}


def http_status(error: Exception) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, ServiceError):
        return error.status
    for kind, status in _STATUSES.items():
        if isinstance(error, kind):
            return status
    return HTTPStatus.INTERNAL_SERVER_ERROR


def to_json(error: Exception) -> dict[str, str]:
    """Return the response body for an error; the details of an internal error are omitted."""
    if not isinstance(error, IdxError):
        return {"error": "the search failed: the server's log says why", "error_type": SearchFailed.__name__}
    return {"error": str(error), "error_type": next(kind.__name__ for kind in type(error).__mro__ if _BY_NAME.get(kind.__name__) is kind)}


def to_openai_json(error: Exception) -> dict[str, Any]:
    """Return the response body for an error in OpenAI's format."""
    kind = "invalid_request_error" if http_status(error) < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
    return {"error": {"message": to_json(error)["error"], "type": kind, "param": None, "code": None}}


def from_json(name: str, message: str, status: int, retry_after: float | None) -> IdxError:
    """Return the error that a response body names; ``ServiceError`` for an unknown name."""
    kind = _BY_NAME.get(name, ServiceError)
    return kind(message, status=status, retry_after=retry_after) if issubclass(kind, ServiceError) else kind(message)
