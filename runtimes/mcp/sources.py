"""Where the tools' passages come from: built corpora in this process, opened when they are first asked for, or a running server."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, urlencode

from corpora.build import open_store, store_manifest
from corpora.errors import ArtifactError
from corpora.passage import Passage
from corpora.registry import near_names
from retrievers.base import Ranking
from retrievers.options import SearchOptions

if TYPE_CHECKING:
    from corpora.store import PassageStore
    from retrievers.base import Retriever, Searcher
    from retrievers.client import RemoteSearcher

_TIMEOUT_S = 30.0
Read = TypeVar("Read")


class Offer(NamedTuple):
    """A corpus that can be searched; retrievers go by preference."""

    corpus: str
    n_passages: int
    retrievers: tuple[str, ...]
    index_bytes: dict[str, int]


class Source(Protocol):
    """Has corpora; may be used by several threads at once. Everything raises ``IdxError`` for what is not there."""

    may_join: bool  # whether retrievers may be joined with "+" that are not offered so

    def offers(self) -> list[Offer]:
        """Return what can be searched, the default corpus first."""
        ...

    def search(self, corpus: str, retriever: str, queries: Sequence[str], options: SearchOptions) -> Ranking:
        """Return the ranking of one group of queries."""
        ...

    def passages(self, corpus: str, ids: Sequence[str]) -> dict[str, Passage]:
        """Return those of the passages that the corpus has, by id."""
        ...


class LocalSource:
    """Built corpora of this machine.

    Args:
        corpora: their names.
        retrievers: what may be used; none: every built index, and any of them joined.
        device: where encoders run.

    Raises:
        UnknownNameError, ArtifactError: a corpus does not have a retriever's index.
    """

    def __init__(self, corpora: Sequence[str], retrievers: Sequence[str], device: str) -> None:
        self._corpora, self._retrievers, self._device = tuple(corpora), tuple(retrievers), device
        self.may_join = not retrievers
        self._opening = threading.Lock()
        self._stores: dict[str, PassageStore] = {}
        self._stages: dict[tuple[str, str], Retriever] = {}
        self._searchers: dict[tuple[str, str], Searcher] = {}
        for corpus, retriever in itertools.product(self._corpora, self._retrievers):
            _check(corpus, retriever)

    def offers(self) -> list[Offer]:
        """Return what is built; indexes that cannot be used are left out."""
        # It imports numba, which the handshake does not wait for.
        from indexer.catalog import built_indexes, index_manifest

        found = []
        for corpus in self._corpora:
            manifest, sizes = store_manifest(corpus), {}
            for name in built_indexes(corpus):
                with contextlib.suppress(ArtifactError):
                    sizes[name] = index_manifest(corpus, name, manifest.fingerprint).n_bytes
            found.append(Offer(corpus, manifest.counts["rows"], self._retrievers or tuple(sizes), sizes))
        return found

    def search(self, corpus: str, retriever: str, queries: Sequence[str], options: SearchOptions) -> Ranking:
        """Return the ranking of one group of queries."""
        with self._opening:  # opening an index twice would need its memory twice
            searcher = self._searchers.get((corpus, retriever)) or self._open(corpus, retriever)
        return searcher.search_groups([queries], options)[0]

    def passages(self, corpus: str, ids: Sequence[str]) -> dict[str, Passage]:
        """Return those of the passages that the corpus has, by id."""
        with self._opening:
            store = self._store(corpus)
        rows = [row for row in store.rows_of(ids).tolist() if row >= 0]
        return {passage.id: passage for passage in store.get_many(rows)}

    def _open(self, corpus: str, retriever: str) -> Searcher:
        from retrievers.searcher import LocalSearcher

        store = self._store(corpus)
        stages = {name: self._stage(corpus, name, store) for name in retriever.split("+")}
        self._searchers[corpus, retriever] = searcher = LocalSearcher(store, stages)
        return searcher

    def _store(self, corpus: str) -> PassageStore:
        if corpus not in self._stores:
            self._stores[corpus] = open_store(corpus)
        return self._stores[corpus]

    def _stage(self, corpus: str, name: str, store: PassageStore) -> Retriever:
        """Open a first stage; searchers that differ in others share it."""
        from retrievers.opening import open_retriever

        if (corpus, name) not in self._stages:
            self._stages[corpus, name] = open_retriever(corpus, name, store, device=self._device)
        return self._stages[corpus, name]


def _check(corpus: str, retriever: str) -> None:
    """Raise ``UnknownNameError`` or ``ArtifactError`` unless a corpus has a retriever's indexes."""
    from indexer.catalog import index_manifest
    from indexer.naming import parse_index_name

    for name in retriever.split("+"):
        index_manifest(corpus, str(parse_index_name(name, "retriever")), store_manifest(corpus).fingerprint)


class RemoteSource:
    """What a server serves.

    Args:
        url: where ``idx serve`` listens.
        api_key: the key that it wants.
        corpora, retrievers: those that may be used; none: all.

    Raises:
        InputError: the URL or the key cannot be one.
    """

    may_join = False

    def __init__(self, url: str, api_key: str | None, corpora: Sequence[str] = (), retrievers: Sequence[str] = ()) -> None:
        from retrievers.connections import Connections

        headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        self._url, self._api_key = url, api_key
        self._corpora, self._retrievers = tuple(corpora), tuple(retrievers)
        self._connections = Connections(url, headers)
        self._opening = threading.Lock()
        self._searchers: dict[tuple[str, str], RemoteSearcher] = {}

    def offers(self) -> list[Offer]:
        """Return what the server serves."""
        known = self._get("/v1/indexes", lambda answer: {about["corpus"]: _offer(about) for about in answer["corpora"]})
        found = []
        for corpus in self._corpora or known:
            if corpus not in known:
                raise near_names("corpus", corpus, known)
            offer = known[corpus]
            for retriever in self._retrievers:
                if retriever not in offer.retrievers:
                    raise near_names("retriever", retriever, offer.retrievers)
            found.append(offer._replace(retrievers=self._retrievers or offer.retrievers))
        return found

    def search(self, corpus: str, retriever: str, queries: Sequence[str], options: SearchOptions) -> Ranking:
        """Return the ranking of one group of queries."""
        from retrievers.client import RemoteSearcher

        with self._opening:
            if (corpus, retriever) not in self._searchers:
                searcher = RemoteSearcher(self._url, corpus=corpus, retriever=retriever, api_key=self._api_key)
                self._searchers[corpus, retriever] = searcher
        return self._searchers[corpus, retriever].search_groups([queries], options)[0]

    def passages(self, corpus: str, ids: Sequence[str]) -> dict[str, Passage]:
        """Return those of the passages that the corpus has, by id."""
        path = f"/v1/corpora/{quote(corpus, safe='')}/passages?{urlencode([('id', name) for name in ids])}"
        return self._get(
            path, lambda answer: {about["id"]: Passage(about["id"], about["title"], about["text"]) for about in answer["passages"]}
        )

    def _get(self, path: str, read: Callable[[Any], Read]) -> Read:
        """Return what is read of an answer."""
        import orjson

        from retrievers.errors import BadAnswer, from_json

        answer = self._connections.request("GET", path, b"", _TIMEOUT_S)
        try:
            found = orjson.loads(answer.body)
            if answer.status == HTTPStatus.OK:
                return read(found)
            problem = from_json(str(found["error_type"]), str(found["error"]), answer.status, None)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadAnswer(f"{self._url} answered with status {answer.status}: {answer.body!r:.80}: is it an idx server?") from error
        raise problem


def _offer(about: Mapping[str, Any]) -> Offer:
    """Read what a server says of a corpus."""
    names = tuple(entry["retriever"] for entry in about["retrievers"])
    sizes = {index["index"]: index["bytes"] for index in about["indexes"]}
    return Offer(about["corpus"], about["passages"]["rows"] if about["passages"] else 0, names, sizes)
