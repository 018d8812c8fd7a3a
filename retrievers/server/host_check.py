"""Host check of a server without a key: a foreign web page must not use the server through a browser on this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import urlsplit

from wikidx.retrievers.errors import InvalidRequest


def foreign_host_error(headers: Iterable[tuple[bytes, bytes]], host: str) -> InvalidRequest | None:
    """Return the error for a request whose ``Host`` or ``Origin`` is neither this machine nor ``host``; None if both are allowed.

    ``Host`` reveals a page that reaches the server under the page's own name (DNS rebinding); ``Origin`` reveals a page that sends a form.
    """
    for name, value in headers:
        if name in (b"host", b"origin") and not _is_local(value, host):
            return InvalidRequest(
                f"{name.decode().title()} {value.decode('latin-1')!r:.80} is not this machine: without a key the server answers to "
                f"localhost, 127.0.0.1, [::1] and {host} only; give it a key in IDX_API_KEY, or use --insecure to let anybody search",
                status=HTTPStatus.FORBIDDEN,
            )
    return None


@lru_cache(256)
def _is_local(value: bytes, host: str) -> bool:
    """Return whether the value of ``Host`` or ``Origin`` is a loopback address, localhost, or the bound host."""
    address = value.decode("latin-1")
    try:
        name = urlsplit(address if "//" in address else f"//{address}").hostname or ""
        return name in ("localhost", host.lower()) or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
