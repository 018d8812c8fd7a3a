"""``RemoteSearcher``, the client of ``idx serve``, with the interface of ``LocalSearcher``.

A request is retried only if no server has accepted it. This is the case if the server is overloaded or not ready, if no server listens, or
if the server closes an idle connection before the first byte of the answer.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar, Unpack
from urllib.parse import quote, urlencode, urlsplit

import orjson
import urllib3
from urllib3.exceptions import HTTPError

from wikidx.base.errors import IdxError, InputError
from wikidx.base.net.endpoint import check_key
from wikidx.base.net.retrying import FINAL, TRANSIENT, Retries, Verdict, retry_after_s
from wikidx.base.net.transport import TIMED_POOLS, PerProcess, Trouble, explain, is_closed, read_answer
from wikidx.base.registry import unknown_name_error
from wikidx.corpora.passage import Passage
from wikidx.indexer.scope import rows_to_json

from .base import DEFAULTS, OpenedSearcher, PartialAnswer, Rankings, RowFilter, StageReport
from .documents import Excerpt, Window
from .errors import BadAnswer, DeadlineExceeded, ServiceError, Unauthorized, Unreachable, from_json
from .options import SearchOptions, SearchOptionValues, override
from .refusals import blank_refused, find_refused, mark_refused
from .wire import SEARCH, ranking_from_json, request_to_json, unsearched_from_json

TIMEOUT_S = 30.0

_RETRIES = 2
_FIRST_PAUSE_S = 0.2
_MIN_TIMEOUT_S = 0.001
_MAX_IDLE = 256  # pooled connections

Read = TypeVar("Read")


class ServedIndex(NamedTuple):
    """An index of a server: number of rows, size on disk in bytes, and build time (ISO 8601)."""

    n_rows: int
    n_bytes: int
    created: str


class ServedCorpus(NamedTuple):
    """A corpus of a server.

    Attributes:
        corpus: name of the corpus.
        fingerprint: fingerprint of the passages; None until the store is open.
        n_passages: number of passages; 0 until the store is open.
        retrievers: whether each retriever is ready, by name, the default first.
        indexes: open indexes by name.
    """

    corpus: str
    fingerprint: str | None
    n_passages: int
    retrievers: dict[str, bool]
    indexes: dict[str, ServedIndex]


class RemoteSearcher(OpenedSearcher):
    """Searcher of one corpus of a server with one of its retrievers; thread-safe, and usable in forked processes.

    >>> with RemoteSearcher("http://127.0.0.1:8000", corpus="sample") as searcher:
    ...     searcher.search(["river of Egypt"], k=3)

    Args:
        url: address of the server; behind a proxy, with the path that the proxy forwards.
        corpus: a served corpus; None: the first.
        retriever: a served retriever; None: the first.
        api_key: the server's API key.
        timeout: seconds until a request must be answered, including delays and retries; 30 by default.
        retries: maximum number of retries of a request that the server has not accepted; 2 by default.

    Attributes:
        url: the address without a slash at its end.
        retriever: the retriever's name; None: the server's first.

    Raises:
        InputError: the URL or the key is invalid.
    """

    def __init__(
        self,
        url: str,
        *,
        corpus: str | None = None,
        retriever: str | None = None,
        api_key: str | None = None,
        timeout: float = TIMEOUT_S,
        retries: int = _RETRIES,
    ) -> None:
        self._prefix, self.url = _parse_path(url), url.rstrip("/")
        self._corpus, self.retriever = corpus, retriever
        self._timeout, self._retries = timeout, retries
        self._headers = {"content-type": "application/json", "accept": "application/json", "user-agent": "idx"}
        if api_key is not None:
            self._headers["authorization"] = f"Bearer {check_key(api_key)}"
        self._connections = PerProcess(self._new_pool)
        self.reopen = partial(RemoteSearcher, url, corpus=corpus, retriever=retriever, api_key=api_key, timeout=timeout, retries=retries)

    def close(self) -> None:
        """Close the connections; a later request opens new ones."""
        self._connections.get().close()
        self._connections.renew()

    def __len__(self) -> int:
        """Request the number of passages from the server; raises as ``corpora`` does."""
        return self.served(self._corpus).n_passages

    def __repr__(self) -> str:
        return f"<RemoteSearcher of {self.url}: {self._corpus or 'the first corpus'}, {self.retriever or 'the first retriever'}>"

    def search_groups(
        self,
        groups: Sequence[Sequence[str]],
        options: SearchOptions = DEFAULTS,
        *,
        rows: RowFilter = None,
        **values: Unpack[SearchOptionValues],
    ) -> Rankings:
        """Return one ranking for each group of queries.

        Args:
            groups: groups of queries, each with its primary query first.
            options: the search options.
            rows: the rows that may be returned; see ``search``.
            values: single options, which override those of ``options``.

        Raises:
            ArgumentError: no group can be searched, ``options`` are no ``SearchOptions``, or ``rows`` no rows.
            ServiceError: the server refuses the request or does not answer; see ``retrievers.errors``.
            IdxError: the search fails on the server.
        """
        return self.search_in(self._corpus, self.retriever, groups, override(options, values), rows=rows).rankings

    def search_partial(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> PartialAnswer:
        """Return rankings without the rows of unavailable shards, and these rows; raises as ``search_groups`` does."""
        return self.search_in(self._corpus, self.retriever, groups, options, partial=True)

    def search_in(
        self,
        corpus: str | None,
        retriever: str | None,
        groups: Sequence[Sequence[str]],
        options: SearchOptions = DEFAULTS,
        *,
        rows: RowFilter = None,
        partial: bool = False,
    ) -> PartialAnswer:
        """Search any served corpus with any served retriever, by default the first; raises as ``search_groups`` does.

        With ``partial``, rows of unavailable shards are left out and reported; otherwise they fail the search.
        """
        valid = blank_refused(groups, refused := find_refused(groups))
        if not groups:
            return PartialAnswer(Rankings(), [])
        named = None if rows is None else rows_to_json(rows)

        def body(left_s: float) -> bytes:
            target = {"corpus": corpus, "retriever": retriever, "timeout_s": left_s, "partial": partial or None, "rows": named}
            return request_to_json(valid, override(options, {}), target)

        answer = self._request("POST", SEARCH, "rankings", _read_rankings, body)
        if len(answer.rankings) != len(groups):
            raise BadAnswer(f"{self.url} answered {len(answer.rankings):,} rankings for {len(groups):,} groups")
        for ranking, group in zip(answer.rankings, valid, strict=True):
            ranking.queries = tuple(group)
        return answer._replace(rankings=mark_refused(answer.rankings, refused))

    def _find(self, ids: Sequence[str]) -> tuple[str, dict[str, Passage]]:
        corpus = self._corpus or (self.served(None).corpus if ids else "")
        return corpus, self.find_passages(corpus, ids) if ids else {}

    def find_passages(self, corpus: str, ids: Sequence[str]) -> dict[str, Passage]:
        """Return the passages of a corpus with these ids, by id; unknown ids are left out. Raises as ``search_groups`` does."""
        path = f"/v1/corpora/{quote(corpus, safe='')}/passages?{urlencode([('id', name) for name in ids])}"
        return self._request(
            "GET",
            path,
            "passages",
            lambda answer: {hit["id"]: Passage(hit["id"], hit["title"], hit["text"]) for hit in answer["passages"]},
        )

    def _excerpt(self, window: Window) -> Excerpt:
        corpus = self._corpus or self.served(None).corpus
        found = self.find_excerpt(corpus, window)
        while window.document is not None and window.count is None and found.first + len(found) < found.n_passages:
            more = self.find_excerpt(corpus, replace(window, first=found.first + len(found)))
            found = Excerpt([*found, *more], [*found.spans, *more.spans], found.document, found.first, more.n_passages)
        return found

    def find_excerpt(self, corpus: str, window: Window) -> Excerpt:
        """Return a part of a document of a corpus, at most as many passages as the server returns at once; raises as ``search_groups``."""
        path = f"/v1/corpora/{quote(corpus, safe='')}/documents?{urlencode(window.to_dict())}"
        return self._request("GET", path, "passages", Excerpt.from_dict)

    def corpora(self) -> dict[str, ServedCorpus]:
        """Return the served corpora by name, the default first; raises as ``search_groups`` does."""
        return self._request("GET", "/v1/indexes", "the served corpora", _read_corpora)

    def served(self, corpus: str | None) -> ServedCorpus:
        """Return a served corpus, the first without a name; raises ``UnknownNameError``, and as ``search_groups`` does."""
        corpora = self.corpora()
        name = corpus or next(iter(corpora))
        if name not in corpora:
            raise unknown_name_error("corpus", name, corpora)
        return corpora[name]

    def send(self, method: str, path: str, body: bytes, timeout_s: float) -> tuple[urllib3.BaseHTTPResponse, bytes]:
        """Send a request once; return the response of any status, and its content. Raises ``ServiceError`` without a complete response."""
        connections, deadline = self._connections.get(), time.monotonic() + timeout_s
        while True:
            n_opened = connections.num_connections
            left_s = max(_MIN_TIMEOUT_S, deadline - time.monotonic())
            try:
                return read_answer(self._connections, method, self._prefix + path, left_s, body, math.inf)
            except HTTPError as error:
                was_idle = connections.num_connections == n_opened
                if not (was_idle and is_closed(error)):
                    raise self._connection_error(error) from error

    def _request(
        self, method: str, path: str, expected: str, read: Callable[[Any], Read], body: Callable[[float], bytes] = lambda left_s: b""
    ) -> Read:
        """Send a request with retries, and return the parsed answer."""
        deadline = time.monotonic() + self._timeout

        def left_s() -> float:
            return max(_MIN_TIMEOUT_S, deadline - time.monotonic())

        def wait(pause_s: float) -> bool:
            time.sleep(pause_s)
            return False

        retries = Retries(self._retries, _FIRST_PAUSE_S, _judge, wait, lambda: deadline - time.monotonic())
        answer = retries.send(lambda: self._send_once(method, path, body(left_s()), left_s()))
        try:
            return read(orjson.loads(answer))
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
            raise BadAnswer(f"{self.url} answered something else than {expected}: {answer!r:.80}: is it an idx server?") from error

    def _send_once(self, method: str, path: str, body: bytes, timeout_s: float) -> bytes:
        """Return the body of a successful response, or raise the error that the response names."""
        response, answer = self.send(method, path, body, timeout_s)
        if response.status == 200:
            return answer
        try:
            problem: Mapping[str, Any] = orjson.loads(answer)
            name, message = str(problem["error_type"]), str(problem["error"])
        except (ValueError, KeyError, TypeError) as error:
            raise BadAnswer(f"{self.url} answered with status {response.status}: {answer!r:.80}: is it an idx server?") from error
        if name == Unauthorized.__name__:
            message += "; idx takes it from IDX_API_KEY or --api-key"
        raise from_json(name, message, response.status, retry_after_s(response.headers))

    def _connection_error(self, error: HTTPError) -> ServiceError:
        """Return the error for a request without a complete answer."""
        trouble, cause = explain(error)
        if trouble is Trouble.LATE:
            return DeadlineExceeded(f"{self.url} did not answer within {self._timeout:g} s: give it more time, or fewer queries at once")
        if trouble is Trouble.NOT_HTTP:
            return BadAnswer(f"{self.url} does not speak HTTP: {cause}")
        if trouble is Trouble.BROKEN:
            return Unreachable(f"the connection to {self.url} broke: {cause}")
        is_refused = isinstance(error.__cause__, ConnectionRefusedError)
        return Unreachable(f"{self.url} cannot be reached ({cause}): is 'idx serve' running there?", retry_after=0 if is_refused else None)

    def _new_pool(self) -> urllib3.HTTPConnectionPool:
        url = urllib3.util.parse_url(self.url)
        return TIMED_POOLS[url.scheme or "http"](url.host or "", url.port, headers=self._headers, maxsize=_MAX_IDLE)


def _judge(error: IdxError) -> Verdict:
    """Return how an error is retried: one has ``retry_after`` if the request was not accepted, as the server says or no server listens."""
    pause_s = error.retry_after if isinstance(error, ServiceError) else None
    return Verdict(FINAL) if pause_s is None else Verdict(TRANSIENT, pause_s or None)


def _parse_path(url: str) -> str:
    """Return the path of a server's address.

    Raises:
        InputError: the address is invalid.
    """
    refusal = InputError(f"'{url}' is not the address of a server, such as http://127.0.0.1:8000")
    try:
        parts, host = urlsplit(url), urllib3.util.parse_url(url).host
        is_valid = bool(host) and parts.scheme in ("http", "https") and parts.port != 0 and not parts.query + parts.fragment
    except ValueError as error:
        raise refusal from error
    if not is_valid or not re.fullmatch("[!-~]+", url):
        raise refusal
    if parts.username is not None:
        raise InputError(f"the address of {parts.hostname} has a user name: an idx server takes an API key instead")
    return parts.path.rstrip("/")


def _read_rankings(answer: Any) -> PartialAnswer:  # noqa: ANN401 - any JSON
    rankings = Rankings(map(ranking_from_json, answer["rankings"]), [StageReport(**stage) for stage in answer.get("stages", ())])
    for position, reason in answer.get("errors", {}).items():
        rankings[int(position)].error = str(reason)
    return PartialAnswer(rankings, unsearched_from_json(answer.get("unsearched_rows", ())))


def _read_corpora(answer: Any) -> dict[str, ServedCorpus]:  # noqa: ANN401 - any JSON
    corpora = {}
    for served in answer["corpora"]:
        retrievers = {entry["retriever"]: entry["ready"] for entry in served["retrievers"]}
        next(iter(retrievers))  # raises unless a retriever is served
        indexes = {index["index"]: ServedIndex(index["rows"], index["bytes"], index["created"]) for index in served["indexes"]}
        n_passages = served["passages"]["rows"] if served["passages"] else 0
        corpora[served["corpus"]] = ServedCorpus(served["corpus"], served["fingerprint"], n_passages, retrievers, indexes)
    next(iter(corpora))
    return corpora
