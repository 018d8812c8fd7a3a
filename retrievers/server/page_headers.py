"""Headers that tell browsers to run nothing in an answer that is no page, and to show no page in a frame."""

from __future__ import annotations

_POLICY, _NO_FRAME = b"content-security-policy", b"frame-ancestors 'none'"  # the latter is ignored in the policy in a page's text
_NO_SNIFF = (b"x-content-type-options", b"nosniff")
_OF_PAGES = ((_POLICY, _NO_FRAME), _NO_SNIFF)
_OF_OTHERS = ((_POLICY, b"default-src 'none'; " + _NO_FRAME), _NO_SNIFF)


def add_page_headers(headers: list[tuple[bytes, bytes]]) -> None:
    """Add the headers to those of an answer; pages have the rest of their policy in their text."""
    is_page = any(name == b"content-type" and value.startswith(b"text/html") for name, value in headers)
    headers += _OF_PAGES if is_page else _OF_OTHERS
