"""``AsyncRemoteSearcher``, a ``RemoteSearcher`` for asyncio: each request runs in a thread."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, Unpack

from wikidx.base.net.request_threads import RequestThreads
from wikidx.corpora.passage import Passage

from .base import DEFAULTS, Queries, Rankings, RowFilter
from .client import TIMEOUT_S, RemoteSearcher
from .documents import Excerpt, Found
from .options import SearchOptions, SearchOptionValues
from .reopening import Reopened

MAX_CONCURRENT = 64

Result = TypeVar("Result")


class AsyncRemoteSearcher(Reopened):
    """Searcher of one corpus of a server with one of its retrievers, without blocking the event loop.

    >>> async with AsyncRemoteSearcher("http://127.0.0.1:8000", corpus="sample") as searcher:
    ...     rankings = await asyncio.gather(*(searcher.search([query], k=3) for query in queries))

    The request of a cancelled search continues to its end, and its answer is dropped.

    Args:
        url: address of the server.
        corpus: a served corpus; None: the first.
        retriever: a served retriever; None: the first.
        api_key: the server's API key.
        timeout: seconds until a request must be answered, including delays and retries; 30 by default.
        max_concurrent: maximum number of concurrent requests; further requests wait.

    Raises:
        InputError: the URL or the key is invalid.
        ValueError: ``max_concurrent`` is not positive.
    """

    def __init__(
        self,
        url: str,
        *,
        corpus: str | None = None,
        retriever: str | None = None,
        api_key: str | None = None,
        timeout: float = TIMEOUT_S,
        max_concurrent: int = MAX_CONCURRENT,
    ) -> None:
        self._searcher = RemoteSearcher(url, corpus=corpus, retriever=retriever, api_key=api_key, timeout=timeout)
        self._threads = RequestThreads(max_concurrent, "idx")
        self._answers = weakref.WeakSet[asyncio.Future[Any]]()
        target = {"corpus": corpus, "retriever": retriever, "api_key": api_key}
        self.reopen = partial(AsyncRemoteSearcher, url, **target, timeout=timeout, max_concurrent=max_concurrent)

    async def __aenter__(self) -> AsyncRemoteSearcher:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._searcher).replace("RemoteSearcher", "AsyncRemoteSearcher")

    async def close(self) -> None:
        """Cancel all searches without waiting, as ``httpx.AsyncClient.aclose`` does; later searches raise ``ClosedError``.

        Those who await a search get ``asyncio.CancelledError``. Requests that have begun continue to their end in their threads.
        """
        self._threads.shutdown()
        for answer in list(self._answers):
            answer.cancel()
        self._searcher.close()

    async def search(
        self, queries: Queries, options: SearchOptions = DEFAULTS, *, rows: RowFilter = None, **values: Unpack[SearchOptionValues]
    ) -> Rankings:
        """Return one ranking for each query; see ``RemoteSearcher.search``."""
        return await self._run(lambda: self._searcher.search(queries, options, rows=rows, **values))

    async def search_groups(
        self,
        groups: Sequence[Sequence[str]],
        options: SearchOptions = DEFAULTS,
        *,
        rows: RowFilter = None,
        **values: Unpack[SearchOptionValues],
    ) -> Rankings:
        """Return one ranking for each group of queries; see ``RemoteSearcher.search_groups``."""
        return await self._run(lambda: self._searcher.search_groups(groups, options, rows=rows, **values))

    async def passage(self, id: str) -> Passage:
        """Return the passage with this id; see ``RemoteSearcher.passage``."""
        return await self._run(lambda: self._searcher.passage(id))

    async def passages(self, ids: Sequence[str]) -> list[Passage]:
        """Return the passages with these ids, in the order of ``ids``; see ``RemoteSearcher.passages``."""
        return await self._run(lambda: self._searcher.passages(ids))

    async def context(self, hit: Found | str, before: int = 1, after: int = 1) -> Excerpt:
        """Return the passages around one of them, in the same document; see ``RemoteSearcher.context``."""
        return await self._run(lambda: self._searcher.context(hit, before, after))

    async def document(self, id: str) -> Excerpt:
        """Return all passages of a document; see ``RemoteSearcher.document``."""
        return await self._run(lambda: self._searcher.document(id))

    async def _run(self, call: Callable[[], Result]) -> Result:
        self._answers.add(answer := asyncio.get_running_loop().run_in_executor(self._threads, call))
        return await answer
