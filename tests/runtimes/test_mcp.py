"""``idx mcp``, asked by the client of the ``mcp`` package: its tools in this process, its transports in processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from tests.conftest import ROOT
from tests.retrievers.conftest import some_passages
from tests.retrievers.retrieving import at_home, build_corpus
from tests.retrievers.server.serving import ask, serving
from tests.runtimes.command_line import IDX, Command
from wikidx.base.errors import MissingExtraError
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.base import Ranking
from wikidx.retrievers.client import RemoteSearcher
from wikidx.retrievers.mcp.sources import LocalSource, RemoteSource, Source
from wikidx.retrievers.mcp.tools import create_server
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.server.settings import Settings

GROUP = ["river and whale", "fox", "planet 7"]


@pytest.fixture(scope="module")
def built_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the corpora 'made' and 'other'."""
    with at_home(tmp_path_factory.mktemp("mcp")) as home:
        for name, n in (("made", 100), ("other", 30)):
            build_corpus(name, some_passages(n), "bm25")
        return home


@pytest.fixture(autouse=True)
def made(built_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make that home this test's."""
    monkeypatch.setenv("IDX_HOME", str(built_home))
    return built_home


MakeSource = Callable[..., Source]


@pytest.fixture(params=["local", "remote"])
def source(request: pytest.FixtureRequest) -> Iterator[MakeSource]:
    """Make a source of some corpora and retrievers, here or at a server that serves the same."""
    if request.param == "local":
        yield lambda corpora, *names: LocalSource(corpora, [RetrieverName.parse(name) for name in names], "cpu")
        return
    with serving(Settings(corpora=("made", "other"), port=0)) as url:
        yield lambda corpora, *names: RemoteSource(RemoteSearcher(url), corpora, [RetrieverName.parse(name) for name in names])


BOTH = ("made", "other")


def run(source: Source, body: Callable[[Client], Awaitable[None]]) -> None:
    """Connect a client with a server in this process."""

    async def connected() -> None:
        async with Client(create_server(source)) as client:
            await body(client)

    asyncio.run(connected())


async def call(client: Client, tool: str, **arguments: object) -> Any:  # noqa: ANN401 - JSON
    """Return what a tool gives; as text it must be the same."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert json.loads(content.text) == result.structured_content
    return result.structured_content


async def refusal(client: Client, tool: str, **arguments: object) -> str:
    """Return why a call is refused, which must be one line."""
    result: CallToolResult = await client.call_tool(tool, arguments)
    assert result.is_error
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert "\n" not in content.text
    return content.text


def as_found(ranking: Ranking) -> list[Mapping[str, Any]]:
    return [
        {
            "rank": rank,
            **hit.passage._asdict(),
            "score": hit.score,
            "provenance": [match._asdict() for match in hit.provenance],
            "span": None,
        }
        for rank, hit in enumerate(ranking, 1)
    ]


def test_searches_find_what_the_searcher_finds(source: MakeSource) -> None:
    searcher, other = open_searcher("made"), open_searcher("other")

    async def body(client: Client) -> None:
        found = await call(client, "search", queries=["fox"])
        (expected,) = searcher.search(["fox"], SearchOptions(k=5))
        assert found == {"corpus": "made", "retriever": "bm25", "passages": as_found(expected)}
        options = SearchOptions(k=7, merge="interleave", rerank="primary")
        found = await call(client, "search", queries=GROUP, corpus="other", retriever="bm25", k=7, merge="interleave", rerank="primary")
        (expected,) = other.search_groups([GROUP], options)
        assert (found["corpus"], found["passages"]) == ("other", as_found(expected))
        assert len(found["passages"]) == 7
        assert (await call(client, "search", queries=["xyzzy"]))["passages"] == []

    run(source(BOTH), body)


def test_passages_and_indexes_are_told(source: MakeSource) -> None:
    passages = {passage.id: passage for passage in some_passages(100)}

    async def body(client: Client) -> None:
        got = await call(client, "get_passages", ids=["p7", "nothing", "p3"])
        assert got == {"corpus": "made", "passages": [passages["p7"]._asdict(), passages["p3"]._asdict()], "missing": ["nothing"]}
        assert (await call(client, "get_passages", ids=["p1"], corpus="other"))["corpus"] == "other"
        offers = (await call(client, "list_indexes"))["corpora"]
        told = [(offer["corpus"], offer["passages"], offer["retrievers"]) for offer in offers]
        assert told == [("made", 100, ["bm25"]), ("other", 30, ["bm25"])]
        assert all(offer["indexes"][0]["name"] == "bm25" and offer["indexes"][0]["bytes"] > 1000 for offer in offers)

    run(source(BOTH), body)


def test_only_what_is_named_is_offered(source: MakeSource) -> None:
    async def body(client: Client) -> None:
        offers = await call(client, "list_indexes")
        assert [offer["corpus"] for offer in offers["corpora"]] == ["other"]
        assert not offers["can_fuse_retrievers"]
        assert "unknown corpus 'made'" in await refusal(client, "search", queries=["fox"], corpus="made")

    run(source(("other",), "bm25"), body)


MISTAKES: list[tuple[str, dict[str, object], str]] = [
    ("search", {}, "queries is missing"),
    ("search", {"queries": "fox"}, "queries is 'fox': it should be a valid list"),
    ("search", {"queries": []}, "queries is []: List should have at least 1 item"),
    ("search", {"queries": [" "]}, "every query is blank"),
    ("search", {"queries": ["fox"], "k": 1000}, "k is 1000: it should be less than or equal to 100"),
    ("search", {"queries": ["fox"], "merge": "mean"}, "it should be 'max', 'sum'"),
    ("search", {"queries": ["fox"], "kk": 3}, "unknown argument of search 'kk'"),
    ("search", {"queries": ["fox"], "corpus": "maed"}, "unknown corpus 'maed': did you mean 'made'"),
    ("search", {"queries": ["fox"], "retriever": "bm52"}, "unknown retriever 'bm52': did you mean 'bm25'"),
    ("search", {"queries": ["fox"], "retriever": "bm25+minilm"}, "unknown retriever"),
    ("search", {"queries": ["fox"], "retriever": "bm25+bm25"}, "names a retriever twice"),
    ("get_passages", {"ids": ["x"]}, "'made' has no passage with the id 'x': take ids that search returned"),
    ("serach", {}, "unknown tool 'serach': did you mean 'search'"),
]


def test_mistakes_are_told_in_a_line_that_helps(source: MakeSource) -> None:
    async def body(client: Client) -> None:
        for tool, arguments, message in MISTAKES:
            assert message in await refusal(client, tool, **arguments)
        assert (await call(client, "search", queries=["fox"]))["passages"]

    run(source(BOTH), body)


def test_a_server_that_is_not_there_is_a_tool_error() -> None:
    async def body(client: Client) -> None:
        assert "cannot be reached" in await refusal(client, "search", queries=["fox"])

    run(RemoteSource(RemoteSearcher("http://127.0.0.1:9", retries=0), (), []), body)


def test_agents_are_told_what_the_tools_are_for() -> None:
    async def body(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"search", "get_passages", "get_document", "list_indexes"}
        for tool in tools.values():
            assert len(tool.description or "") > 40
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint
            assert all(field["description"] for field in tool.input_schema["properties"].values())
            assert tool.output_schema is not None
        fields = tools["search"].input_schema
        assert fields["required"] == ["queries"]
        assert list(fields["properties"]) == ["queries", "corpus", "retriever", "k", "merge", "rerank"]
        assert fields["properties"]["merge"]["enum"] == ["max", "sum", "rrf", "interleave"]
        assert "information need" in (client.instructions or "")

    run(LocalSource(("made",), [], "cpu"), body)


def test_without_the_package_or_a_corpus_it_says_what_to_do(idx: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDX_HOME", str(tmp_path / "empty"))
    assert "no corpus is built: run 'idx build sample'" in idx("mcp", status=2)
    monkeypatch.delitem(sys.modules, "wikidx.retrievers.mcp.tools")
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    message = MissingExtraError("'idx mcp'", "mcp")
    assert idx("mcp", status=2) == f"error: {message}"


def environment(**variables: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **variables}


@asynccontextmanager
async def over_stdio(*arguments: str) -> AsyncIterator[Client]:
    """Run ``idx mcp`` as agents do; yield a client of it."""
    parameters = StdioServerParameters(command=sys.executable, args=[*IDX[1:], "mcp", *arguments], env=environment())
    with open(os.devnull, "w") as said:
        async with Client(stdio_client(parameters, errlog=said)) as client:
            yield client


@pytest.mark.slow  # a process
def test_searches_at_once_are_all_answered() -> None:
    searcher = open_searcher("made")
    queries = [f"number {n}" for n in range(40)]

    async def connected() -> None:
        async with over_stdio() as client:
            found = await asyncio.gather(*(call(client, "search", queries=[query]) for query in queries))
            expected = searcher.search(queries, SearchOptions(k=5))
            assert [ranking["passages"] for ranking in found] == [as_found(ranking) for ranking in expected]

    asyncio.run(connected())


def search_call(id_: int, **arguments: object) -> dict[str, object]:
    return {"id": id_, "method": "tools/call", "params": {"name": "search", "arguments": arguments}}


@pytest.mark.slow  # a process
def test_the_handshake_opens_nothing_and_standard_output_is_the_protocols() -> None:
    """Half a character, such as a model writes, escaped in JSON, costs no query; the official client cannot send it."""
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"}}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        search_call(3, queries=["river and whale", "x\ufffd"], k=3),
        search_call(4),
        search_call(5, queries=["river and whale", "x\ud800"], k=3),
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen([*IDX, "mcp", "made"], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment()) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers, opened = list[dict[str, Any]](), list[bool]()
        for message in messages:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()
            if "id" in message:
                answers.append(json.loads(process.stdout.readline()))
                opened.append("libllvmlite" in Path(f"/proc/{process.pid}/maps").read_text())  # the kernels' compiler
        printed, said = process.communicate(timeout=20)
    assert [answer["id"] for answer in answers] == [1, 2, 3, 4, 5]
    assert opened[1:3] == [False, True]
    assert [answer["result"].get("isError", False) for answer in answers[2:]] == [False, True, False]
    assert answers[2]["result"]["structuredContent"]["passages"]
    assert answers[4]["result"] == answers[2]["result"]
    assert (process.returncode, printed) == (0, "")
    assert "Traceback" not in said


@pytest.mark.slow  # a process
def test_a_line_that_is_no_message_is_answered() -> None:
    """With its id where that can be read."""
    call = '{"jsonrpc": "2.0", "id": %s, "method": "tools/call", "params": {"name": "search", "arguments": {"queries": [%s]}}}'
    lines = [call % ('"b"', "9" * 5000), r'{"id": 1, "x": "\ud800"', "[" * 100_000, f"[{call % (3, 1)}]", "no JSON"]
    process = subprocess.run(
        [*IDX, "mcp", "made"], input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=60, env=environment()
    )
    answers = [json.loads(line) for line in process.stdout.splitlines()]
    assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(id_, -32700) for id_ in ("b", *[None] * 4)]
    assert process.stderr == ""


@contextmanager
def listening(*arguments: str, **variables: str) -> Iterator[str]:
    """Run ``idx mcp --http`` on a free port; yield where it listens."""
    command = [*IDX, "mcp", "--http", "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**variables))
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r"listening on (http://\S+/mcp)$", line)
        assert found, line
        yield found[1]
    finally:
        process.terminate()
        printed, said = process.communicate(timeout=20)
        assert printed == ""
        assert "Traceback" not in said


@pytest.mark.slow  # a process
def test_over_http_a_key_is_wanted_where_there_is_one() -> None:
    (expected,) = open_searcher("made").search(["fox"], SearchOptions(k=5))

    async def body(url: str) -> None:
        async with (
            httpx2.AsyncClient(headers={"authorization": "Bearer top secret"}) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            assert (await call(client, "search", queries=["fox"]))["passages"] == as_found(expected)

    with listening(IDX_API_KEY="top secret") as url:
        message, accept = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, {"accept": "application/json, text/event-stream"}
        for header in ({}, {"x-api-key": "wrong"}, {"authorization": "top secret"}):
            refused = ask(url.removesuffix("/mcp"), "/mcp", message, headers={**accept, **header})
            assert (refused.status, refused.json["error_type"]) == (401, "Unauthorized")
        for header in ({"authorization": "bearer top secret"}, {"x-api-key": "top secret"}):
            assert ask(url.removesuffix("/mcp"), "/mcp", message, headers={**accept, **header}).status != 401
        asyncio.run(body(url))
