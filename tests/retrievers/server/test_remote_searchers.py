"""Use of a RemoteSearcher besides searching, and the one for asyncio."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from wikidx import AsyncRemoteSearcher, RemoteSearcher, open_searcher
from wikidx.base.errors import ClosedError, IdxError, InputError, UnknownNameError
from wikidx.retrievers.errors import Unreachable


def test_it_says_what_it_searches(url: str) -> None:
    with RemoteSearcher(url) as first, RemoteSearcher(url, corpus="other", retriever="bm25") as other:
        assert (len(first), len(other)) == (600, 30)
        assert repr(first) == f"<RemoteSearcher of {url}: the first corpus, the first retriever>"
        assert repr(other) == f"<RemoteSearcher of {url}: other, bm25>"
    with RemoteSearcher(url, corpus="othr") as wrong, pytest.raises(UnknownNameError, match="unknown corpus 'othr': did you mean 'other'"):
        len(wrong)


def test_passages_are_read_by_id(url: str, made: Path) -> None:
    with RemoteSearcher(url) as first, RemoteSearcher(url, corpus="other") as other:
        assert first.passages(["p599", "p2", "p2"]) == open_searcher("made").passages(["p599", "p2", "p2"])
        assert first.passages([]) == []
        with pytest.raises(UnknownNameError, match="no passage of 'other' has the id 'p599'"):
            other.passage("p599")


def test_options_and_queries_are_as_in_a_local_search(url: str, made: Path) -> None:
    local = open_searcher("made")
    with RemoteSearcher(url) as remote:
        assert remote.search(["fox", "ship"], k=3).to_trec() == local.search(["fox", "ship"], k=3).to_trec()
        groups = [["fox", "ship"], ["whale"]]
        assert remote.search_groups(groups, merge="rrf").to_dict() == local.search_groups(groups, merge="rrf").to_dict()


def test_many_searches_at_once_are_awaited(url: str, made: Path) -> None:
    queries = [f"fox number {n}" for n in range(40)]

    async def search_all() -> list[str]:
        async with AsyncRemoteSearcher(url, corpus="made") as searcher:
            assert repr(searcher) == f"<AsyncRemoteSearcher of {url}: made, the first retriever>"
            assert (await searcher.passage("p2")).id == "p2"
            assert [passage.id for passage in await searcher.passages(["p3", "p2"])] == ["p3", "p2"]
            (merged,) = await searcher.search_groups([["fox", "ship"]], k=2)
            assert merged.queries == ("fox", "ship")
            found = await asyncio.gather(*(searcher.search([query], k=3) for query in queries))
        return [rankings.to_trec() for rankings in found]

    assert asyncio.run(search_all()) == [open_searcher("made").search([query], k=3).to_trec() for query in queries]


def test_the_event_loop_goes_on_during_a_search(url: str) -> None:
    async def search_and_count() -> int:
        n_turns = 0
        async with AsyncRemoteSearcher(url, max_concurrent=1) as searcher:
            search = asyncio.gather(*(searcher.search([f"fox {n}"]) for n in range(20)))
            while not search.done():
                n_turns += 1
                await asyncio.sleep(0)
        return n_turns

    assert asyncio.run(search_and_count()) > 20


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda searcher: searcher.search(["fox"], 10), "the options are 10, no SearchOptions: give single ones by name, such as k=10"),
        (lambda searcher: searcher.search_groups([["fox"]], 10), "the options are 10, no SearchOptions"),
        (lambda searcher: searcher.search(["fox"], merge="sum"), "merge is for search_groups"),
        (lambda searcher: searcher.search("fox"), "queries is one string: give a list"),
        (lambda searcher: searcher.search(5), "the queries are 5: give a list"),
        (lambda searcher: searcher.search([None]), "a query is a text, .* not None"),
        (lambda searcher: searcher.search(["\ud800"]), "a lone surrogate"),
        (lambda searcher: searcher.search_groups(5), "groups is a int: give a list of groups"),
        (lambda searcher: searcher.search_groups(["fox"]), "a group is a list of queries, not 'fox'"),
        (lambda searcher: searcher.search_groups([[]]), "a group is empty"),
        (lambda searcher: searcher.passages("p2"), "ids of passages are texts, in a list"),
    ],
)
def test_a_wrong_argument_is_an_idx_error_and_a_type_error(call: Callable[[Any], Any], message: str, url: str, made: Path) -> None:
    async def awaited() -> None:
        async with AsyncRemoteSearcher(url) as searcher:
            await call(searcher)

    with RemoteSearcher(url) as remote:
        for search in (partial(call, open_searcher("made")), partial(call, remote), lambda: asyncio.run(awaited())):
            with pytest.raises(IdxError, match=message) as caught:
                search()
            assert isinstance(caught.value, TypeError)


def test_closing_cancels_the_searches_under_way_and_waits_for_none() -> None:
    async def close_while_searching(url: str) -> float:
        searcher = AsyncRemoteSearcher(url, max_concurrent=1, timeout=5.0)
        searches = [asyncio.create_task(searcher.search([query])) for query in ("under way", "waiting")]
        with (await asyncio.to_thread(silent.accept))[0]:
            started = time.monotonic()
            await searcher.close()
            outcomes = await asyncio.gather(*searches, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 2
        with pytest.raises(ClosedError, match="the connection is closed: open it again"):
            await searcher.search(["late"])
        return time.monotonic() - started

    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert asyncio.run(close_while_searching(f"http://127.0.0.1:{silent.getsockname()[1]}")) < 2


def test_errors_are_those_of_the_synchronous_one() -> None:
    async def search(url: str) -> None:
        async with AsyncRemoteSearcher(url, timeout=0.5) as searcher:
            await searcher.search(["fox"])

    with pytest.raises(InputError, match="is not the address of a server"):
        asyncio.run(search("nowhere"))
    with pytest.raises(Unreachable, match="is 'idx serve' running there"):
        asyncio.run(search("http://127.0.0.1:9"))
    with pytest.raises(ValueError, match="0 threads"):
        AsyncRemoteSearcher("http://127.0.0.1:9", max_concurrent=0)
