"""RemoteSearcher against servers that misbehave, and errors on their way; see also ``contracts/test_http_client``."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from typing import Any

import pytest

from tests.conftest import read_rows
from tests.scripted import answer, scripted
from wikidx.base.errors import ArtifactCorrupt, IdxError, InputError, MissingExtraError, UnknownNameError
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.client import RemoteSearcher, ServedCorpus, ServedIndex
from wikidx.retrievers.errors import (
    BadAnswer,
    DeadlineExceeded,
    InvalidRequest,
    NotReady,
    Overloaded,
    SearchFailed,
    ServiceError,
    Unauthorized,
    from_json,
    http_status,
    to_json,
)

FOUND = answer("200 OK", b'{"rankings":[[]]}')
NO_ADDRESS = "is not the address of a server, such as http://127.0.0.1:8000"


def refusal(kind: str, *headers: str) -> bytes:
    body = json.dumps({"error": "not now", "error_type": kind}).encode()
    return answer("503 Service Unavailable", body, *headers)


def test_a_connection_is_used_again_and_what_is_sent_is_a_search() -> None:
    with scripted([FOUND, FOUND]) as server, RemoteSearcher(server.url + "/", corpus="made", api_key="secret", timeout=7) as remote:
        assert remote.search(["fox"]) == remote.search(["fox"]) == [[]]
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/search HTTP/1.1\r\n")
    assert b"authorization: Bearer secret" in head
    asked = json.loads(body)
    assert 6 < asked.pop("timeout_s") <= 7
    assert asked == {"groups": [["fox"]], "corpus": "made", **dataclasses.asdict(SearchOptions())}


def test_an_idle_connection_that_was_closed_is_replaced() -> None:
    with scripted([FOUND, None], [FOUND]) as server, RemoteSearcher(server.url) as remote:
        assert remote.search(["fox"]) == remote.search(["fox"]) == [[]]
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        ("200 OK", b"<html>", "answered something else than rankings: b'<html>'"),
        ("200 OK", b'{"rankings":[]}', "answered 0 rankings for 1 groups"),
        ("200 OK", b'{"rankings":[[{"id":"1"}]]}', "answered something else than rankings"),
        ("404 Not Found", b"not here", r"answered with status 404: b'not here': is it an idx server\?"),
    ],
)
def test_what_is_no_answer_of_ours_is_said(status: str, body: bytes, message: str) -> None:
    with scripted([answer(status, body)]) as server, RemoteSearcher(server.url) as remote, pytest.raises(BadAnswer, match=message):
        remote.search(["fox"])


@pytest.mark.parametrize(
    ("headers", "n_tries", "retry_after"),
    [
        ([], 1, None),
        (["retry-after: 60"], 1, 60),  # longer than the client waits
        (["retry-after: ²"], 1, None),  # of a proxy
    ],
)
def test_a_search_is_sent_again_only_when_the_server_says_when(headers: list[str], n_tries: int, retry_after: float | None) -> None:
    busy = refusal("Overloaded", *headers)
    with scripted([busy] * n_tries) as server, RemoteSearcher(server.url) as remote, pytest.raises(Overloaded, match="not now") as raised:
        remote.search(["fox"])
    assert (len(server.requests), raised.value.retry_after) == (n_tries, retry_after)


def test_a_server_that_is_being_started_is_asked_again_and_named_not_ready() -> None:
    starting = refusal("NotReady", "retry-after: 0")
    corpus = {
        "corpus": "made",
        "fingerprint": "f",
        "passages": {"rows": 3},
        "retrievers": [{"retriever": "bm25", "ready": True}],
        "indexes": [{"index": "bm25", "rows": 3, "bytes": 5, "created": "today"}],
    }
    served = answer("200 OK", json.dumps({"corpora": [corpus]}).encode())
    with scripted([starting, served]) as server, RemoteSearcher(server.url) as client:
        assert client.corpora() == {"made": ServedCorpus("made", "f", 3, {"bm25": True}, {"bm25": ServedIndex(3, 5, "today")})}
    with scripted([starting]) as server, RemoteSearcher(server.url, retries=0) as client, pytest.raises(NotReady, match="not now"):
        client.corpora()


@pytest.mark.parametrize(("url", "options", "message"), read_rows("retrievers/refused_addresses.jsonl"))
def test_what_is_no_address_or_key_is_refused_and_no_secret_shown(url: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        RemoteSearcher(url, **options)
    assert "secret" not in str(raised.value)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_connections_of_its_own() -> None:
    with scripted([FOUND, FOUND], [FOUND], [FOUND]) as server, RemoteSearcher(server.url) as remote:
        assert remote.search(["one"]) == [[]]
        child = os.fork()
        if not child:
            try:
                os._exit(0 if remote.search(["of the child"]) == [[]] else 1)
            finally:
                os._exit(2)
        assert remote.search(["two"]) == [[]]
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        remote.close()
        assert remote.search(["three"]) == [[]]
    assert [re.search(rb'"groups":\[\["(.*?)"', request)[1] for request in server.requests] == [b"one", b"two", b"of the child", b"three"]  # type: ignore[index]


@pytest.mark.parametrize(
    "error",
    [
        InputError("a"),
        UnknownNameError("b"),
        ArtifactCorrupt("c"),
        InvalidRequest("d"),
        InvalidRequest("e", status=413),
        Unauthorized("f"),
        Overloaded("g", retry_after=3),
        NotReady("h"),
        DeadlineExceeded("i"),
        SearchFailed("j"),
    ],
)
def test_errors_come_back_as_they_were(error: IdxError) -> None:
    body = to_json(error)
    back = from_json(body["error_type"], body["error"], http_status(error), getattr(error, "retry_after", None))
    assert (type(back), str(back), http_status(back)) == (type(error), str(error), http_status(error))
    assert getattr(back, "retry_after", None) == getattr(error, "retry_after", None)


def test_errors_of_other_kinds_come_back_as_the_nearest() -> None:
    assert to_json(RuntimeError("secret")) == {"error": "the search failed: the server's log says why", "error_type": "SearchFailed"}
    missing = MissingExtraError("the encoder 'x'", "dense")
    assert (to_json(missing)["error_type"], http_status(missing)) == ("IdxError", 501)
    later = from_json("SomethingOfALaterVersion", "sorry", 418, None)
    assert (type(later), http_status(later), str(later)) == (ServiceError, 418, "sorry")
