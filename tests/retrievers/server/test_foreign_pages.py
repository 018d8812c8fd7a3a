"""Web pages elsewhere that reach a server without a key through a browser on its machine, and those who may ask it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import read_rows
from tests.retrievers.server.serving import ask, send_raw, serving
from wikidx.retrievers.server.settings import Settings

FOX = {"queries": ["fox"]}


@pytest.mark.parametrize("headers", read_rows("retrievers/server/foreign_pages.jsonl"))
def test_pages_elsewhere_are_refused(url: str, headers: dict[str, str]) -> None:
    for path, body in (("/v1/search", FOX), ("/retrieve", FOX), ("/v1/indexes", None), ("/metrics", None)):
        refused = ask(url, path, body, headers=headers)
        assert (refused.status, refused.json["error_type"]) == (403, "InvalidRequest")
        assert len(refused.json["error"]) < 400
        assert "without a key the server answers to localhost, 127.0.0.1, [::1] and 127.0.0.1 only" in refused.json["error"]
    assert ask(url, "/health", headers=headers).status == 200  # holds no data


@pytest.mark.parametrize("path", ["/", "/page/main.js", "/v1/indexes", "/nothing", "/health", "garbage"])
def test_browsers_are_told_to_run_and_frame_nothing(url: str, path: str) -> None:
    head = send_raw(url, f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()).partition(b"\r\n\r\n")[0]
    policy = b"frame-ancestors 'none'" if path == "/" else b"default-src 'none'; frame-ancestors 'none'"
    assert {b"content-security-policy: " + policy, b"x-content-type-options: nosniff"} <= set(head.split(b"\r\n"))
    if path == "/":
        assert b'http-equiv="Content-Security-Policy" content="default-src \'none\'; s' in ask(url, path).body


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "127.0.0.2"])
def test_this_machine_may_ask_under_its_names(url: str, name: str) -> None:
    for where in (name, f"{name}:{urlsplit(url).port}", f"{name}:9"):  # another port: it is forwarded
        assert ask(url, "/v1/search", FOX, headers={"host": where, "origin": f"http://{where}"}).status == 200


@pytest.mark.parametrize("settings", [{"host": "localhost"}, {"api_key": "key"}, {"insecure": True}])
def test_a_key_or_an_explicit_word_lets_every_name_in(made: Path, settings: dict[str, object]) -> None:
    headers = {"host": "proxy.example", "origin": "https://proxy.example", "x-api-key": "key"}
    with serving(Settings(corpora=("other",), port=0, **settings)) as where:  # type: ignore[arg-type]
        assert ask(where, "/v1/search", FOX, headers=headers).status == (403 if "host" in settings else 200)
        assert ask(where, "/v1/search", FOX, headers={"x-api-key": "key"}).status == 200


def test_pages_of_any_site_read_the_answers_of_a_server_that_is_open_to_all(made: Path) -> None:
    origin = {"origin": "http://localhost:3000"}
    asked = {**origin, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    with serving(Settings(corpora=("other",), port=0, insecure=True)) as where:
        before, answer = ask(where, "/v1/search", method="OPTIONS", headers=asked), ask(where, "/v1/search", FOX, headers=origin)
    assert (before.status, answer.status) == (200, 200)
    assert before.headers["access-control-allow-origin"] == answer.headers["access-control-allow-origin"] == "*"
