"""Requests to an endpoint: what is retried, after which pause, and what a refusal says."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.conftest import read_rows
from tests.indexer.encoders.fake_embeddings import FakeEmbeddings, fake_serving
from wikidx.base.errors import InputError
from wikidx.base.net.endpoint import Endpoint, EndpointError

BODY = {"model": "tiny", "input": "river"}


def ask(fake: FakeEmbeddings, retries: int = 5) -> Any:  # noqa: ANN401 - JSON
    with fake_serving(fake) as url:
        endpoint = Endpoint("tiny", url, retries=retries, first_pause_s=0.01)
        try:
            return endpoint.post("/embeddings", BODY)
        finally:
            endpoint.close()


def test_transient_failures_are_retried() -> None:
    fake = FakeEmbeddings(faults=["drop", (200, "no JSON", {}), *((status, "later", {}) for status in (408, 429, 500, 503))])
    assert ask(fake, retries=6)["data"][0]["index"] == 0
    assert fake.bodies == [BODY] * 7


@pytest.mark.parametrize(("status", "body", "message"), read_rows("base/endpoint_refusals.jsonl"))
def test_a_refusal_is_final_and_quotes_the_message(status: int, body: object, message: str) -> None:
    fake = FakeEmbeddings(faults=[(status, body, {})])
    with pytest.raises(EndpointError, match=message) as refusal:
        ask(fake)
    assert len(fake.bodies) == 1
    assert refusal.value.status == status


@pytest.mark.parametrize(("status", "n_sent"), [(301, 1), (302, 1), (303, 1), (307, 1), (308, 4)])
def test_other_redirects_are_refused_with_their_aim_and_the_key_stays(status: int, n_sent: int) -> None:
    """To another server, with a status that loses the body, and in a circle."""
    with fake_serving(other := FakeEmbeddings()) as url:
        aim = "/v1/embeddings" if status == 308 else f"{url}/embeddings"
        fake = FakeEmbeddings(faults=[(status, {"detail": "moved"}, {"Location": aim})] * 4)
        with pytest.raises(EndpointError, match=rf"answers {status}: it redirects to http://127.0.0.1:\d+/v1/embeddings: give the address"):
            ask(fake)
    assert (len(fake.bodies), other.bodies) == (n_sent, [])


def test_an_answer_that_is_none_is_tried_three_times() -> None:
    fake = FakeEmbeddings(faults=[(503, "busy", {}), *[(200, "<html><body>Sign <b>in</b></body></html>", {})] * 3])
    said = r"no usable answer: HTML, not JSON: Sign in, at http://.*/v1/embeddings: an API's address usually ends in /v1 \(4 tries\)"
    with pytest.raises(EndpointError, match=said):
        ask(fake)
    assert len(fake.bodies) == 4


def test_closing_ends_the_pause() -> None:
    with fake_serving(FakeEmbeddings(faults=[(503, "busy", {"Retry-After": "60"})])) as url:
        endpoint = Endpoint("tiny", url)
        threading.Timer(0.2, endpoint.close).start()
        started = time.monotonic()
        with pytest.raises(EndpointError, match="busy"):
            endpoint.post("/embeddings", BODY)
        assert time.monotonic() - started < 5


def test_an_invalid_address_is_refused() -> None:
    with pytest.raises(InputError, match="'ftp://host' is no address of an endpoint"):
        Endpoint("tiny", "ftp://host")


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    fake = FakeEmbeddings()
    ask(fake)
    assert fake.keys == ["Bearer secret"]
