"""Addresses, keys and proxies of a connection, and answers that never end."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from tests.runtimes.llms.endpoint import Endpoint, serving
from wikidx.corpora.errors import InputError
from wikidx.runtimes.errors import LLMError, Unreachable
from wikidx.runtimes.llms.openai_connection import Connection
from wikidx.runtimes.llms.options import ConnectionOptions
from wikidx.runtimes.llms.scripted import ScriptedLLM

BODY = {"model": "tiny", "messages": [{"role": "user", "content": "Who?"}]}


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


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("slow headers", "has not answered within 0.5 s"),
        ("trickle", "has not answered within 0.5 s"),
        ("endless", "it has more than 64.0 MB"),
    ],
)
def test_an_answer_that_does_not_end_is_given_up(fault: str, message: str) -> None:
    endpoint = Endpoint(ScriptedLLM(lambda call: "He."))
    endpoint.faults.append(fault)
    with serving(endpoint) as url:
        connection = Connection("tiny", url, ConnectionOptions(retries=0, timeout=60.0 if fault == "endless" else 0.5))
        started = time.monotonic()
        with pytest.raises(LLMError, match=message):
            connection.post("/chat/completions", BODY)
        assert fault == "endless" or time.monotonic() - started < 4  # a fault takes 8 s
        assert connection.post("/chat/completions", BODY)["choices"][0]["message"]["content"] == "He."
        connection.close()


def test_a_long_pause_that_the_endpoint_asks_for_is_told(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = Endpoint(ScriptedLLM(lambda call: "He."))
    endpoint.faults.append("429 1e18")
    with serving(endpoint) as url, caplog.at_level(logging.WARNING):
        connection = Connection("tiny", url, ConnectionOptions())
        asking = threading.Thread(target=lambda: pytest.raises(LLMError, connection.post, "/chat/completions", BODY))
        asking.start()
        while not caplog.messages and asking.is_alive():
            asking.join(0.02)
        connection.close()
        asking.join()
    assert caplog.messages == ["retry in 300 s: tiny answers 429: made to fail"]


def test_a_server_on_this_machine_is_not_asked_through_a_proxy(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with serving(endpoint) as url:
        connection = Connection("tiny", url, ConnectionOptions(retries=0))
        assert connection.post("/chat/completions", BODY)["choices"]
        connection.close()
