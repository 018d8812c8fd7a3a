"""Any input is answered with a client error and a reason, never a server error, and the server goes on; see also ``fuzz/test_http``."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.result import Ok

from tests.conftest import read_rows
from tests.retrievers.server.serving import Answer, ask, count, retrieve, search, send_raw, wait_until
from wikidx.retrievers import SearchOptions

SEARCH = {"queries": ["fox"]}
N_EXAMPLES = settings().max_examples  # 100, more in ``make fuzz``


@pytest.fixture(autouse=True)
def goes_on(url: str) -> Iterator[None]:
    """After each test, the server answers as before."""
    yield
    assert len(ask(url, "/v1/search", SEARCH).json["rankings"][0]) == 10
    assert ask(url, "/ready").status == 200


def check_refusal(answer: Answer, status: int, message: str = "") -> None:
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
    assert set(answer.json) == {"error", "error_type"}
    assert message in answer.json["error"]
    assert "\n" not in answer.json["error"]
    assert len(answer.body) < 500


@pytest.mark.parametrize(("method", "path", "body", "status", "message"), read_rows("retrievers/server/bad_requests.jsonl"))
def test_what_is_wrong_is_named(url: str, method: str, path: str, body: object, status: int, message: str) -> None:
    check_refusal(ask(url, path, body.encode() if isinstance(body, str) else body, method=method), status, message)


@pytest.mark.parametrize(("values", "message"), read_rows("retrievers/refused_options.jsonl"))
def test_options_are_refused_as_in_python(url: str, values: dict[str, Any], message: str) -> None:
    refused = search(url, **SEARCH, **values)
    check_refusal(refused, 422)
    assert re.search(message, refused.json["error"])


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b'{"queries": ["\xff\xfe"]}', 400, "the body is not UTF-8: "),
        (b'\xef\xbb\xbf{"queries": "fox"}', 422, "queries is 'fox': it should be a valid list"),
        (b'{"queries": ' + b"[" * 100_000, 400, "the body is no JSON: recursion limit"),
        (b'{"queries": ' + b"[" * 1000 + b"]" * 1000 + b"}", 400, "the body is no JSON: recursion limit"),
        (b'{"queries": ["fox"], "k": ' + b"9" * 4000 + b"}", 422, "k is "),
    ],
)
def test_bytes_that_are_no_search_are_refused(url: str, body: bytes, status: int, message: str) -> None:
    check_refusal(ask(url, "/v1/search", body), status, message)


LONG = "x" * 900_000
FOXES = ["fox"] * 101
CROSS_ENCODER = {"rerank": "cross-encoder"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"queries": ["x" * 1001]}, "a query has 1,001 characters, 1,000 are allowed"),
        ({"queries": ["x"] * 2001}, "2,001 queries in a request, 2,000 are allowed"),
        ({"queries": ["x"] * 100_000}, "100,000 queries in a request, 2,000 are allowed"),
        ({"groups": [["x"] * 1001, ["x"] * 1000]}, "2,001 queries in a request, 2,000 are allowed"),
        (
            {"groups": [["x"] * 1001], "k": 100, "retriever": "mine"},
            "1,001 queries can find 100 passages in 200,200 ways, 200,000 are allowed",
        ),
        ({**SEARCH, "corpus": LONG}, ": String should have at most 200 characters"),
        ({**SEARCH, "retriever": LONG}, ": String should have at most 2000 characters"),  # a pipeline
        ({**SEARCH, "fuse": "weighted", "weights": {LONG: 1}}, "weights"),
        ({**SEARCH, "fuse": "weighted", "weights": {f"r{n}": 1 for n in range(101)}}, "should have at most 100 items"),
        ({**SEARCH, LONG: 1}, "xxx"),
        ({"queries": FOXES, **CROSS_ENCODER}, "up to 10,100 passages would be read by the cross-encoder, 10,000 are allowed in a request"),
        ({"groups": [FOXES], **CROSS_ENCODER}, "up to 10,100 passages would be read"),
        ({"groups": [["fox", "x"]] * 101, **CROSS_ENCODER, "rerank_depth": 100}, "up to 10,100 passages would be read"),
        ({"groups": [FOXES], **CROSS_ENCODER, "rerank_depth": 100}, "the searcher was opened without one"),
        ({"queries": FOXES[1:], **CROSS_ENCODER}, "the searcher was opened without one"),
    ],
)
def test_a_search_is_no_larger_than_can_be_borne(url: str, fields: dict[str, Any], message: str) -> None:
    check_refusal(ask(url, "/v1/search", fields), 422, message)


@pytest.mark.parametrize("query", ["x", None])
def test_a_hundred_thousand_queries_are_too_many(url: str, query: str | None) -> None:
    check_refusal(retrieve(url, queries=[query] * 100_000), 422, ": List should have at most 2000 items")


def test_ids_are_no_more_than_are_allowed(url: str) -> None:
    path = "/v1/corpora/made/passages?" + "&".join(f"id={n}" for n in range(51))
    check_refusal(ask(url, path), 422, "51 passages in a request, 50 are allowed")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/search", "POST"),
        ("HEAD", "/v1/search", "POST"),
        ("POST", "/health", "GET, HEAD"),
        ("DELETE", "/v1/indexes", "GET, HEAD"),
    ],
)
def test_methods_that_are_allowed_are_told(url: str, method: str, path: str, allowed: str) -> None:
    refused = ask(url, path, method=method)
    assert (refused.status, refused.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize("path", ["/v1/search", "/retrieve", "/v1/corpora/made/passages", "/nothing"])
@pytest.mark.parametrize("more", ["%0A", "%0D%0A", "%00", "%FF", "%2F", "//", "%", "%E2%80%A8", "x" * 30_000, "é"])
def test_paths_that_resemble_others_are_not_there(url: str, path: str, more: str) -> None:
    head = f"{path}{more} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n".encode()
    for request in (b"GET " + head + b"\r\n", b"POST " + head + b'content-length: 20\r\n\r\n{"queries": ["fox"] }'):
        answer = send_raw(url, request)
        assert int(answer.split()[1]) in ((400,) if more == "é" else (307, 400, 404, 405, 422)), answer
        assert len(answer) < 1_000 or b"\r\nlocation: " in answer


def test_long_bodies_are_refused_announced_or_not(url: str) -> None:
    long = b'{"queries": ["' + b"x" * (2 << 20) + b'"]}'
    check_refusal(ask(url, "/v1/search", long), 413, "the body has 2,097,169 bytes, 1,048,576 are allowed")
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (long[i : i + 65536] for i in range(0, len(long), 65536)))
    head = b"POST /v1/search HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    assert send_raw(url, head, chunks + b"0\r\n\r\n").startswith(b"HTTP/1.1 413 ")


CHUNKED = b"POST /v1/search HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        (b"garbage\r\n\r\n",),
        (b"GET /health HTTP/1.1\r\nhost localhost\r\n\r\n",),
        (CHUNKED + b"zz\r\nabc\r\n0\r\n\r\n",),
        (CHUNKED + b"2\r\n{}\r\n", b"zz\r\n", b"x" * 10_000_000),
    ],
)
def test_malformed_http_is_refused_even_if_more_of_it_follows(url: str, pieces: tuple[bytes, ...]) -> None:
    header, _, body = send_raw(url, *pieces, pause_s=0.05).partition(b"\r\n\r\n")
    assert header.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"content-type: application/json" in header
    assert "the request is not valid HTTP" in json.loads(body)["error"]


def test_a_body_that_breaks_off_is_no_request(url: str) -> None:
    head = b"POST /v1/search HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n"
    where = urlsplit(url)
    gone = partial(count, url, "idx_requests_total", path="/v1/search", status="499")
    before = gone()
    for _ in range(20):
        with socket.create_connection((where.hostname, where.port)) as connection:
            connection.sendall(head + b"{")
    wait_until(lambda: gone() == before + 20, 30)


@pytest.fixture(scope="module")
def document(url: str) -> dict[str, Any]:
    found: dict[str, Any] = ask(url, "/openapi.json").json
    return found


def test_the_document_describes_the_fields_of_a_search(document: dict[str, Any]) -> None:
    search = document["paths"]["/v1/search"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    k = {"default": 10, "description": "Number of passages to return.", "maximum": 100, "minimum": 1, "title": "K", "type": "integer"}
    assert search["k"] == k
    nprobe, none = search["nprobe"]["anyOf"]
    assert (nprobe, none["type"]) == ({"maximum": 2147483647, "minimum": 1, "type": "integer"}, "null")
    assert search["nprobe"]["description"] == "Number of inverted lists that ivf and ivfpq search."
    assert search["merge"]["enum"] == ["max", "sum", "rrf", "interleave"]
    assert search["queries"]["anyOf"][0]["maxItems"] == 2_000
    assert {field.name for field in dataclasses.fields(SearchOptions)} <= set(search)
    assert {"/v1/search", "/retrieve", "/v1/indexes", "/health", "/ready", "/metrics"} <= set(document["paths"])
    assert document["paths"]["/ready"]["get"]["responses"]["503"]["description"] == "Not everything is open yet."
    assert set(document["components"]["schemas"]["ErrorBody"]["properties"]) == {"error", "error_type"}


@pytest.mark.parametrize(
    "body", [{}, {"queries": None}, {"queries": ["fox"], "groups": [["fox"]]}, {"queries": ["fox"]}, {"groups": [["fox"]], "queries": None}]
)
def test_the_document_knows_that_a_search_has_either_queries_or_groups(url: str, document: dict[str, Any], body: dict[str, Any]) -> None:
    schema = document["paths"]["/v1/search"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert jsonschema_rs.is_valid(schema, body) == (ask(url, "/v1/search", body).status == 200)


def test_answers_are_what_the_document_says(document: dict[str, Any], url: str) -> None:
    """schemathesis generates valid and invalid requests from the OpenAPI document, and checks the responses against it."""
    schema = schemathesis.openapi.from_dict(document)
    names = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
    checks = [getattr(schemathesis.checks, name) for name in names]
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()

        @settings(max_examples=N_EXAMPLES // 4, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy() | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE))
        def run(case: Any) -> None:  # noqa: ANN401
            if isinstance(case.body, dict) and isinstance(case.body.get("timeout_s"), float):
                case.body["timeout_s"] = math.copysign(60.0, case.body["timeout_s"])  # what ends sooner may rightly be answered with 504
            case.call_and_validate(base_url=url, checks=checks)

        run()


def test_what_was_refused_leaves_nothing_behind(url: str) -> None:
    """Neither files nor threads nor waiting queries are more after a thousand bad requests than after a hundred."""

    def send(n: int) -> tuple[int, int]:
        for number in range(n):
            body = (b"{", b'{"queries": [3]}', b'{"queries": ["fox"], "k": 1000}', b"x" * (1 << 16))[number % 4]
            check_refusal(ask(url, "/v1/search", body), (400, 422, 422, 400)[number % 4])
        wait_until(lambda: count(url, "idx_queue_queries", corpus="made", retriever="bm25") == 0)
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to count files")
    files, threads = send(100)
    after = send(1000)
    assert after[0] <= files + 5
    assert after[1] <= threads + 1
