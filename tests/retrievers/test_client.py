"""RemoteSearcher's connections, against servers that misbehave."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest

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


def answer(status: str, body: bytes, *headers: str) -> bytes:
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers))
    return head.encode() + b"\r\n" + body


FOUND = answer("200 OK", b'{"rankings":[[]]}')


class Scripted:
    """A server that answers the requests of each connection with a list of its own; None closes it without an answer."""

    def __init__(self, script: Sequence[Sequence[bytes | None]]) -> None:
        self._script = script
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.requests: list[bytes] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for answers in self._script:
            connection, _ = self._listening.accept()
            with connection:
                for content in answers:
                    self.requests.append(self._request(connection))
                    if content is None:
                        break
                    connection.sendall(content.replace(b"//HERE/", self.url[5:].encode() + b"/"))

    def _request(self, connection: socket.socket) -> bytes:
        """Return the next request, or nothing if the client has gone."""
        data = b""
        while not (found := re.match(rb"(?si).*?\r\ncontent-length: (\d+)\r\n.*?\r\n\r\n", data)) or len(data) < found.end() + int(
            found[1]
        ):
            part = connection.recv(65536)
            if not part:
                return b""
            data += part
        return data

    def close(self) -> None:
        self._thread.join(30)
        self._listening.close()


@contextmanager
def scripted(*script: Sequence[bytes | None]) -> Iterator[Scripted]:
    server = Scripted(script)
    try:
        yield server
    finally:
        server.close()


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
        assert remote.search(["fox"]) == [[]]
        assert remote.search(["fox"]) == [[]]
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (answer("200 OK", b"<html>"), "answered something else than rankings: b'<html>'"),
        (answer("200 OK", b'{"rankings":[]}'), "answered 0 rankings for 1 groups"),
        (answer("200 OK", b'{"rankings":[[{"id":"1"}]]}'), "answered something else than rankings"),
        (answer("404 Not Found", b"not here"), "answered with status 404: b'not here': is it an idx server?"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"),
    ],
)
def test_what_is_no_answer_of_ours_is_said(content: bytes, message: str) -> None:
    with scripted([content]) as server, RemoteSearcher(server.url) as remote, pytest.raises(BadAnswer, match=message.replace("?", r"\?")):
        remote.search(["fox"])


def test_a_search_is_sent_again_only_when_the_server_says_when() -> None:
    busy = json.dumps({"error": "busy", "error_type": "Overloaded"}).encode()
    soon = answer("503 Service Unavailable", busy, "retry-after: 0")
    with scripted([soon, soon, FOUND]) as server, RemoteSearcher(server.url) as remote:
        assert remote.search(["fox"]) == [[]]
    with scripted([soon, soon]) as server, RemoteSearcher(server.url, retries=1) as remote, pytest.raises(Overloaded, match="busy"):
        remote.search(["fox"])
    with scripted([answer("503 Service Unavailable", busy)]) as server, RemoteSearcher(server.url) as remote, pytest.raises(Overloaded):
        remote.search(["fox"])
    late = answer("503 Service Unavailable", busy, "retry-after: 60")
    with scripted([late]) as server, RemoteSearcher(server.url) as remote, pytest.raises(Overloaded) as raised:
        remote.search(["fox"])
    assert raised.value.retry_after == 60


def test_a_server_that_is_being_started_is_asked_again_and_named_not_ready() -> None:
    body = json.dumps({"error": "the server has just been started", "error_type": "NotReady"}).encode()
    starting = answer("503 Service Unavailable", body, "retry-after: 0")
    corpus = {
        "corpus": "made",
        "fingerprint": "f",
        "passages": {"rows": 3},
        "retrievers": [{"retriever": "bm25", "ready": True}],
        "indexes": [{"index": "bm25", "rows": 3, "bytes": 5, "created": "today"}],
    }
    served = answer("200 OK", json.dumps({"corpora": [corpus]}).encode())
    with scripted([starting, served]) as server, closing(RemoteSearcher(server.url)) as client:
        assert client.corpora() == {"made": ServedCorpus("made", "f", 3, {"bm25": True}, {"bm25": ServedIndex(3, 5, "today")})}
    with scripted([starting]) as server, closing(RemoteSearcher(server.url, retries=0)) as client:
        with pytest.raises(NotReady, match="has just been started"):
            client.corpora()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8000",
        "ftp://here",
        "http://",
        "http://here:x",
        "http://here:99999",
        "http://here/?a=b",
        "http://here/pa th",
        "http://a b/",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="is not the address of a server, such as http://127.0.0.1:8000"):
        RemoteSearcher(url)


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(InputError, match="the address of here has a user name") as raised:
        RemoteSearcher("http://ada:secret@here")
    assert "secret" not in str(raised.value)


def test_an_empty_key_is_refused() -> None:
    with pytest.raises(InputError, match="the API key is empty"):
        RemoteSearcher("http://here", api_key=" ")


def test_a_key_that_no_header_can_carry_is_refused() -> None:
    with pytest.raises(InputError, match="printable ASCII"):
        RemoteSearcher("http://here", api_key="a\r\nb")


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
    body = to_json(MissingExtraError("the encoder 'x'", "dense"))
    assert body["error_type"] == "IdxError"
    assert http_status(MissingExtraError("x", "dense")) == 501
    later = from_json("SomethingOfALaterVersion", "sorry", 418, None)
    assert (type(later), http_status(later), str(later)) == (ServiceError, 418, "sorry")


@pytest.mark.parametrize("said", ["²", "-1", "Wed, 21 Oct 2026 07:28:00 GMT", "9" * 400])
def test_a_pause_that_is_no_number_of_seconds_is_passed_over(said: str) -> None:
    """A proxy in front of the server may send a date or something else as Retry-After."""
    body = b'{"error": "too much", "error_type": "Overloaded"}'
    head = f"HTTP/1.1 503 No\r\nretry-after: {said}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode("latin-1")
    with scripted([head + body]) as server, RemoteSearcher(server.url, timeout=5, retries=0) as remote:
        with pytest.raises(Overloaded, match="too much"):
            remote.search(["q"])
