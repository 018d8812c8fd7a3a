from __future__ import annotations

import pytest

from wikidx.corpora.artifacts.durable import parse_json


def test_a_value() -> None:
    assert parse_json(b'{"a": [1, null, "\xc3\xa9"]}') == {"a": [1, None, "é"]}


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, "9" * 5_000, b"\xff", "", "1 2"], ids=range(6))
def test_what_is_none_is_a_value_error(content: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own words
        parse_json(content)
