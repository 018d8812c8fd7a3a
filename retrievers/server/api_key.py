"""Check of the API key of requests, for the server and for ``idx mcp``."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from wikidx.base.errors import InputError
from wikidx.retrievers.errors import Unauthorized


class ApiKey:
    """An API key.

    Raises:
        InputError: the key is empty.
    """

    def __init__(self, key: str) -> None:
        if not key.strip():
            raise InputError("the API key is empty: give one, or none")
        self._key = key.encode()

    def unauthorized_error(self) -> Unauthorized:
        """Return the error for requests without the key."""
        return Unauthorized("this server requires its API key, as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'")

    def authorizes(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Return whether headers with lower-case names contain ``Authorization: Bearer KEY`` or ``X-API-Key: KEY``."""
        for name, value in headers:
            scheme, _, key = value.partition(b" ")
            if name == b"authorization" and scheme.lower() == b"bearer":  # schemes are case-insensitive (RFC 9110, 11.1)
                value = key.strip()
            elif name != b"x-api-key":
                continue
            if hmac.compare_digest(value, self._key):
                return True
        return False
