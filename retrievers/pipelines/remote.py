"""Retrievers on other servers, ``remote:URL`` or ``remote:URL#NAME``, which are recognised by asking.

    idx serve    GET /v1/indexes   POST /v1/search   NAME is a retriever of the server, or a pipeline; default: its first
    RoutIR       GET /avail        POST /search      NAME is a search service; default: its first (github.com/hltcoe/routir)
    Search-R1    –                 POST /retrieve    has one retriever (github.com/PeterGriffinJin/Search-R1)

Results become rows of the local corpus. An idx server with a corpus of the same fingerprint has the same rows. Else a passage is the local
one of the same text, with the same id if there are several. RoutIR gives no texts, so that ids decide. Other passages are left out.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np
import orjson

from wikidx.base.errors import ArtifactMismatch, InputError
from wikidx.base.net.request_threads import RequestThreads
from wikidx.base.registry import unknown_name_error
from wikidx.corpora.passage import Rows, text_key
from wikidx.corpora.store import PassageStore, TextKeys
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, Scores, SearchParam, SearchParams, empty_hits
from wikidx.indexer.scope import Scope
from wikidx.retrievers.client import TIMEOUT_S, RemoteSearcher
from wikidx.retrievers.errors import BadAnswer
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.vector_queries import QueriesRefused
from wikidx.retrievers.wire import RETRIEVE

from .tree import REMOTE

logger = logging.getLogger(__name__)

Read = TypeVar("Read")

API_KEY = "IDX_REMOTE_API_KEY"  # environment variable with the key of remote retrievers
_BATCH_RESULTS = 20_000  # results of a request of several queries
_LARGEST_SCORE = float(np.finfo(np.float32).max)
_CONCURRENT = 16  # requests to a server that takes one query in each; it batches them


class _Found(NamedTuple):
    """A result: the passage's id, its text (None: not given), the local row if it is known (else -1), and the score."""

    id: str
    text: str | None
    row: int
    score: float


_Search = Callable[[Sequence[str], int, Scope | None], list[list[_Found]]]
"""Function: queries, depth, scope -> results of each query, best first."""


def parse_remote(name: str) -> tuple[str, str | None]:
    """Return the URL and the retriever in ``remote:URL#NAME``, None for the server's first; raises ``InputError`` for an invalid URL."""
    url, _, retriever = name.removeprefix(REMOTE).partition("#")
    RemoteSearcher(url)
    return url, retriever or None


class RemoteRetriever:
    """Retriever on another server.

    Args:
        name: the name, see ``parse_remote``.
        store: the local corpus.

    Raises:
        InputError: the URL is invalid.
        UnknownNameError: the server lacks the retriever.
        ServiceError: no server answers, or none of a known kind.
    """

    parameters: Mapping[str, SearchParam] = {}

    def __init__(self, name: str, store: PassageStore) -> None:
        self._name, self._store = name, store
        self._url, retriever = parse_remote(name)
        self._client = RemoteSearcher(self._url, api_key=os.environ.get(API_KEY) or None)
        self._has_warned = False
        self._search = self._recognize(retriever)

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the ``depth`` best rows for each query; of the parameters, the scope counts.

        Raises:
            InputError: there is a scope, and the server has another corpus or is no idx server.
            ArtifactMismatch: none of the results is in the local corpus.
            BadAnswer: there is not one ranking for each query, or a score is no finite float32.
            ServiceError: the server refuses the search or does not answer.
        """
        hits = empty_hits(len(queries), depth)
        nonblank = [number for number, query in enumerate(queries) if query.strip()]
        n_queries = max(1, _BATCH_RESULTS // depth)
        for start in range(0, len(nonblank), n_queries):
            batch = nonblank[start : start + n_queries]
            results = self._search([queries[number] for number in batch], depth, params.scope)
            if len(results) != len(batch):
                raise BadAnswer(f"{self._url} answered {len(results):,} rankings for {len(batch):,} queries")
            for found in (found for result in results for found in result if not abs(found.score) <= _LARGEST_SCORE):  # NaN, too
                raise BadAnswer(f"{self._url} answered the score {found.score} for {found.id!r:.80}: a score is a finite float32")
            rows = iter(self._match([found for result in results for found in result]))
            for number, result in zip(batch, results, strict=True):
                scores = dict[int, float]()
                # In this order: a zip ends with the first that has no more.
                for found, row in zip(result, rows, strict=False):
                    scores.setdefault(row, found.score)
                scores.pop(-1, None)
                best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:depth]
                hits.rows[number, : len(best)], hits.scores[number, : len(best)] = zip(*best, strict=True) if best else ((), ())
        return hits

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Raise ``InputError``: servers do not score given passages."""
        raise InputError(f"rerank is 'primary', but '{self._name}' cannot score given passages: leave it out")

    def _recognize(self, retriever: str | None) -> _Search:
        """Return the search of the server, whose kind is found by requests."""
        try:
            return self._idx(retriever)
        except BadAnswer:
            for search in (self._routir, self._search_r1):
                if found := search(retriever):
                    return found
        raise BadAnswer(f"{self._url} answers neither as an idx server nor as RoutIR nor as Search-R1: is it a search server?")

    def _idx(self, retriever: str | None) -> _Search:
        corpora = self._client.corpora()
        same = [name for name, served in corpora.items() if served.fingerprint == self._store.fingerprint]
        corpus = same[0] if same else next(iter(corpora))

        def search(queries: Sequence[str], depth: int, scope: Scope | None = None) -> list[list[_Found]]:
            self._check(None if same else scope)
            options = SearchOptions(k=depth, depth=depth)
            rankings = self._client.search_in(corpus, retriever, [[query] for query in queries], options, rows=scope).rankings
            if rankings.errors:
                raise QueriesRefused({queries[position]: reason for position, reason in rankings.errors.items()})
            return [[_Found(hit.id, hit.text, hit.row if same else -1, hit.score) for hit in ranking] for ranking in rankings]

        search(["recognised"], 1)  # an unknown retriever is refused now
        return search

    def _routir(self, retriever: str | None) -> _Search | None:
        services = self._ask("GET", "/avail", lambda answer: list(map(str, answer["search"])))
        if services is None:
            return None
        if retriever not in (None, *services) or not services:
            raise unknown_name_error(f"search service of {self._url}", retriever or "", services)

        def search_one(query: str, depth: int) -> list[_Found]:
            body = {"service": retriever or services[0], "query": query, "limit": depth}
            found = self._ask("POST", "/search", _read_routir, body)
            return self._refuse("/search") if found is None else found

        def search(queries: Sequence[str], depth: int, scope: Scope | None) -> list[list[_Found]]:
            self._check(scope)
            with RequestThreads(min(_CONCURRENT, len(queries))) as pool:
                return list(pool.map(search_one, queries, [depth] * len(queries)))

        return search

    def _search_r1(self, retriever: str | None) -> _Search | None:
        def ask(queries: Sequence[str], depth: int) -> list[list[_Found]] | None:
            return self._ask("POST", RETRIEVE, _read_search_r1, {"queries": list(queries), "topk": depth, "return_scores": True})

        if ask(["recognised"], 1) is None:
            return None
        if retriever is not None:
            raise InputError(f"{self._url} is a Search-R1 server, which has one retriever: leave out '#{retriever}'")

        def search(queries: Sequence[str], depth: int, scope: Scope | None) -> list[list[_Found]]:
            self._check(scope)
            return ask(queries, depth) or self._refuse(RETRIEVE)

        return search

    def _check(self, scope: Scope | None) -> None:
        """Raise ``InputError`` for a scope, where rows have other numbers or none."""
        if scope is not None:
            raise InputError(f"'{self._name}' does not search this corpus, so that its rows cannot be chosen: search without rows")

    def _ask(self, method: str, path: str, read: Callable[[Any], Read], body: object = None) -> Read | None:
        """Return what ``read`` finds in an answer; None if the answer is another. Raises ``ServiceError`` without an answer."""
        response, answer = self._client.send(method, path, b"" if body is None else orjson.dumps(body), TIMEOUT_S)
        try:
            return read(orjson.loads(answer)) if response.status == 200 else None
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def _refuse(self, path: str) -> NoReturn:
        raise BadAnswer(f"{self._url}{path} no longer answers as it did when it was opened: its log may say why")

    def _match(self, results: Sequence[_Found]) -> list[int]:
        """Return the local row of each result; -1: none.

        Raises:
            ArtifactMismatch: there are results, and none has a row.
        """
        rows = self._store.rows_of([found.id for found in results]).tolist() if results else []
        keys = self._store.text_key
        for number, found in enumerate(results):
            if found.row >= 0:
                rows[number] = found.row
            elif found.text is not None and (key := text_key(found.text)) != (keys[rows[number]] if rows[number] >= 0 else None):
                texts, rows_of_texts = self._texts
                place = int(np.searchsorted(texts, np.uint64(key)))
                rows[number] = int(rows_of_texts[place]) if place < len(keys) and texts[place] == key else -1
        n_missing = rows.count(-1)
        if n_missing:
            corpus, example = self._store.folder.parent.name, results[rows.index(-1)].id
            if n_missing == len(rows):
                raise ArtifactMismatch(f"none of the {n_missing:,} results of {self._url} is in '{corpus}', such as {example!r:.80}")
            if not self._has_warned:
                logger.warning("%s of %s results of %s are not in '%s', such as %.80r", n_missing, len(rows), self._url, corpus, example)
            self._has_warned = True
        return rows

    @cached_property
    def _texts(self) -> tuple[TextKeys, Rows]:
        """Keys of the local texts, ascending, and their rows, of equal texts the lowest first."""
        order = np.argsort(self._store.text_key, kind="stable")
        return self._store.text_key[order], order


def _read_routir(answer: Any) -> list[_Found]:  # noqa: ANN401 - any JSON
    scores = answer["scores"] if "scores" in answer else answer["result"]
    return [_Found(str(name), None, -1, float(score)) for name, score in scores.items()]


def _read_search_r1(answer: Any) -> list[list[_Found]]:  # noqa: ANN401
    return [[_read_document(hit["document"], float(hit["score"])) for hit in ranking] for ranking in answer["result"]]


def _read_document(document: Mapping[str, Any], score: float) -> _Found:
    """Return a document, whose contents are the title in quotes, a line break and the text; without a title, the text alone."""
    contents = str(document["contents"])
    titled = re.match(r'"[^\n]*"\n', contents)
    return _Found(str(document.get("id", "")), contents[titled.end() :] if titled else contents, -1, score)
