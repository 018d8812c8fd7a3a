"""An ``AsyncRemoteSearcher`` and its event loop; what it answers is part of the contract of all clients."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from wikidx import AsyncRemoteSearcher
from wikidx.base.errors import ClosedError, InputError
from wikidx.retrievers.errors import Unreachable


def test_many_searches_at_once_get_their_own_answers_while_the_loop_goes_on(url: str) -> None:
    async def search_and_count() -> tuple[list[list[tuple[str, ...]]], int]:
        n_turns = 0
        async with AsyncRemoteSearcher(url, max_concurrent=2) as searcher:
            search = asyncio.gather(*(searcher.search([f"fox {n}"], k=3) for n in range(20)))
            while not search.done():
                n_turns += 1
                await asyncio.sleep(0)
        return [[ranking.queries for ranking in rankings] for rankings in await search], n_turns

    found, n_turns = asyncio.run(search_and_count())
    assert found == [[(f"fox {n}",)] for n in range(20)]
    assert n_turns > 20


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
