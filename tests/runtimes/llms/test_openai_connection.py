"""What a connection to an endpoint can be, before anything is sent."""

from __future__ import annotations

import pytest

from wikidx.corpora.errors import InputError
from wikidx.runtimes.errors import LLMError
from wikidx.runtimes.llms.openai_connection import Connection, Unreachable
from wikidx.runtimes.llms.options import ConnectionOptions


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://a b/v1", "ftp://host"])
def test_an_address_without_a_host_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="is no address of an endpoint"):
        Connection("tiny", url, ConnectionOptions())


def test_a_key_that_no_header_can_hold_is_refused() -> None:
    with pytest.raises(InputError, match="printable ASCII"):
        Connection("tiny", "http://127.0.0.1:1", ConnectionOptions(api_key="schlüssel\n"))


def test_the_environment_s_proxy_is_asked_but_for_hosts_that_it_is_not_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.2")
    options = ConnectionOptions(retries=0)
    with pytest.raises(LLMError, match="the connection to tiny broke"):
        Connection("tiny", "http://models.invalid/v1", options).post("/completions", {})
    with pytest.raises(Unreachable, match=r"nobody listens at http://127\.0\.0\.2:9/v1"):
        Connection("tiny", "http://127.0.0.2:9/v1", options).post("/completions", {})
