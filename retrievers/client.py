"""Clients of ``idx serve``: ``ServerClient``, and ``RemoteSearcher`` with the interface of ``LocalSearcher``.

A request is retried only if no server has accepted it. This is the case if the server is overloaded or not ready, if no server listens, or
if the server closes an idle connection before the first byte of the answer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http.client import HTTPException, IncompleteRead, RemoteDisconnected
from types import TracebackType
from typing import Any, NamedTuple, TypeVar, Unpack
from urllib.parse import quote, urlencode, urlsplit

import orjson
import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError
from urllib3.exceptions import TimeoutError as TimedOut

from wikidx.base.errors import IdxError, InputError, UnknownNameError
from wikidx.base.net.timed_http import TIMED_POOLS, PerProcess
from wikidx.base.registry import unknown_name_error
from wikidx.corpora.passage import Passage

from .base import DEFAULTS, PartialAnswer, Rankings, Reopened, Searcher, StageReport, blank_refused, check_ids, find_refused, mark_refused
from .errors import BadAnswer, DeadlineExceeded, ServiceError, Unauthorized, Unreachable, from_json
from .options import SearchOptions, SearchOptionValues, override
from .wire import SEARCH, ranking_from_json, request_to_json, unsearched_from_json

TIMEOUT_S = 30.0

_RETRIES = 2
_FIRST_DELAY_S = 0.1
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


class ServerClient:
    """Client of a server that ``idx serve`` runs; thread-safe, and usable in forked processes.

    Args:
        url: address of the server, such as ``http://127.0.0.1:8000``; behind a proxy, with the path that the proxy forwards.
        api_key: the server's API key.
        timeout: seconds until a request must be answered, including delays and retries.
        retries: maximum number of retries of a request that the server has not accepted.

    Raises:
        InputError: the URL or the key is invalid.
    """

    def __init__(self, url: str, *, api_key: str | None = None, timeout: float = TIMEOUT_S, retries: int = _RETRIES) -> None:
        self._prefix = _parse_path(url)
        self.url = url.rstrip("/")
        self._headers = {"content-type": "application/json", "accept": "application/json", "user-agent": "idx"}
        if api_key is not None:
            if not api_key.strip():
                raise InputError("the API key is empty: give one, or none")
            if not re.fullmatch("[ -~]+", api_key):
                raise InputError("an API key has printable ASCII characters only")
            self._headers["authorization"] = f"Bearer {api_key}"
        self._timeout, self._retries = timeout, retries
        self._connections = PerProcess(self._new_pool)

    def close(self) -> None:
        """Close the connections; a later request opens new ones."""
        self._connections.get().close()
        self._connections.renew()

    def search(
        self,
        groups: Sequence[Sequence[str]],
        options: SearchOptions = DEFAULTS,
        *,
        corpus: str | None = None,
        retriever: str | None = None,
        partial: bool = False,
    ) -> PartialAnswer:
        """Return one ranking for each group of queries.

        Args:
            groups: groups of queries, each with its primary query first.
            options: the search options.
            corpus: a served corpus; None: the first.
            retriever: a served retriever; None: the first.
            partial: if shards are unavailable, leave out their rows and report them, instead of failing.

        Raises:
            ArgumentError: no group can be searched, or ``options`` are no ``SearchOptions``.
            ServiceError: the server refuses the request or does not answer; see ``retrievers.errors``.
            IdxError: the search fails on the server.
        """
        valid = blank_refused(groups, refused := find_refused(groups))
        if not groups:
            return PartialAnswer(Rankings(), [])

        def body(left_s: float) -> bytes:
            target = {"corpus": corpus, "retriever": retriever, "timeout_s": left_s, "partial": partial or None}
            return request_to_json(valid, override(options, {}), target)

        answer = self._request("POST", SEARCH, "rankings", _read_rankings, body)
        if len(answer.rankings) != len(groups):
            raise BadAnswer(f"{self.url} answered {len(answer.rankings):,} rankings for {len(groups):,} groups")
        for ranking, group in zip(answer.rankings, valid, strict=True):
            ranking.queries = tuple(group)
        return answer._replace(rankings=mark_refused(answer.rankings, refused))

    def passages(self, corpus: str, ids: Sequence[str]) -> dict[str, Passage]:
        """Return the passages of a corpus with these ids, by id; unknown ids are left out. Raises as ``search`` does."""
        path = f"/v1/corpora/{quote(corpus, safe='')}/passages?{urlencode([('id', name) for name in ids])}"
        return self._request(
            "GET",
            path,
            "passages",
            lambda answer: {hit["id"]: Passage(hit["id"], hit["title"], hit["text"]) for hit in answer["passages"]},
        )

    def corpora(self) -> dict[str, ServedCorpus]:
        """Return the served corpora by name, the default first; raises as ``search`` does."""
        return self._request("GET", "/v1/indexes", "the served corpora", _read_corpora)

    def served(self, corpus: str | None) -> ServedCorpus:
        """Return a served corpus, the first without a name; raises ``UnknownNameError``, and as ``search`` does."""
        corpora = self.corpora()
        name = corpus or next(iter(corpora))
        if name not in corpora:
            raise unknown_name_error("corpus", name, corpora)
        return corpora[name]

    def send(self, method: str, path: str, body: bytes, timeout_s: float) -> urllib3.BaseHTTPResponse:
        """Send a request once, and return the response of any status; raises ``ServiceError`` without a complete response."""
        connections, deadline = self._connections.get(), time.monotonic() + timeout_s
        while True:
            n_opened = connections.num_connections
            timeout = urllib3.Timeout(total=max(_MIN_TIMEOUT_S, deadline - time.monotonic()))
            try:
                return connections.request(method, self._prefix + path, body=body, timeout=timeout, retries=False)
            except HTTPError as error:
                was_idle = connections.num_connections == n_opened
                if not (was_idle and _is_closed(error)):
                    raise self._connection_error(error) from error

    def _request(
        self, method: str, path: str, expected: str, read: Callable[[Any], Read], body: Callable[[float], bytes] = lambda left_s: b""
    ) -> Read:
        """Send a request with retries, and return the parsed answer."""
        answer = self._send_with_retries(method, path, body)
        try:
            return read(orjson.loads(answer))
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
            raise BadAnswer(f"{self.url} answered something else than {expected}: {answer!r:.80}: is it an idx server?") from error

    def _send_with_retries(self, method: str, path: str, body: Callable[[float], bytes]) -> bytes:
        deadline, n_tries = time.monotonic() + self._timeout, 0
        while True:
            left_s = max(_MIN_TIMEOUT_S, deadline - time.monotonic())
            try:
                return self._send_once(method, path, body(left_s), left_s)
            except ServiceError as error:
                # An error has ``retry_after`` if the request was not accepted: the server refused it, or no server listened.
                n_tries += 1
                delay_s = error.retry_after or _FIRST_DELAY_S * 2**n_tries
                if error.retry_after is None or n_tries > self._retries or time.monotonic() + delay_s > deadline:
                    raise
            time.sleep(delay_s)

    def _send_once(self, method: str, path: str, body: bytes, timeout_s: float) -> bytes:
        """Return the body of a successful response, or raise the error that the response names."""
        answer = self.send(method, path, body, timeout_s)
        if answer.status == 200:
            return answer.data
        retry_after = answer.headers.get("retry-after", "")
        try:
            problem: Mapping[str, Any] = orjson.loads(answer.data)
            name, message = str(problem["error_type"]), str(problem["error"])
        except (ValueError, KeyError, TypeError) as error:
            raise BadAnswer(f"{self.url} answered with status {answer.status}: {answer.data!r:.80}: is it an idx server?") from error
        if name == Unauthorized.__name__:
            message += "; idx takes it from IDX_API_KEY or --api-key"
        raise from_json(name, message, answer.status, float(retry_after) if retry_after.isascii() and retry_after.isdecimal() else None)

    def _connection_error(self, error: HTTPError) -> IdxError:
        """Return the error for a request without a complete answer."""
        cause = error.args[-1] if isinstance(error, ProtocolError) else error.__cause__
        if isinstance(error, TimedOut) and not isinstance(error, NewConnectionError):
            return DeadlineExceeded(f"{self.url} did not answer within {self._timeout:g} s: give it more time, or fewer queries at once")
        if isinstance(cause, IncompleteRead) or isinstance(error, IncompleteRead):
            return Unreachable(f"{self.url} closed the connection before its answer was whole")
        if _is_closed(error):
            return Unreachable(f"{self.url} closed the connection without an answer")
        if isinstance(cause, HTTPException):
            return BadAnswer(f"{self.url} does not speak HTTP: {cause}")
        reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else cause or error
        is_refused = isinstance(cause, ConnectionRefusedError)
        return Unreachable(f"{self.url} cannot be reached ({reason}): is 'idx serve' running there?", retry_after=0 if is_refused else None)

    def _new_pool(self) -> urllib3.HTTPConnectionPool:
        url = urllib3.util.parse_url(self.url)
        return TIMED_POOLS[url.scheme or "http"](url.host or "", url.port, headers=self._headers, maxsize=_MAX_IDLE)


class RemoteSearcher(Reopened, Searcher):
    """Searcher of one corpus of a server with one of its retrievers; thread-safe.

    >>> with RemoteSearcher("http://127.0.0.1:8000", corpus="sample") as searcher:
    ...     searcher.search(["river of Egypt"], k=3)

    Args:
        url: address of the server.
        corpus: a served corpus; None: the first.
        retriever: a served retriever; None: the first.
        api_key: the server's API key.
        timeout: seconds until a request must be answered, including delays and retries; 30 by default.
        retries: maximum number of retries of a request that the server has not accepted; 2 by default.

    Attributes:
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
        self._client = ServerClient(url, api_key=api_key, timeout=timeout, retries=retries)
        self._corpus, self.retriever = corpus, retriever
        self.reopen = partial(RemoteSearcher, url, corpus=corpus, retriever=retriever, api_key=api_key, timeout=timeout, retries=retries)

    def __enter__(self) -> RemoteSearcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a later request opens new ones."""
        self._client.close()

    def __len__(self) -> int:
        """Request the number of passages from the server; raises as ``ServerClient.corpora`` does."""
        return self._client.served(self._corpus).n_passages

    def __bool__(self) -> bool:
        return True  # otherwise ``bool`` would request the length from the server

    def __repr__(self) -> str:
        return f"<RemoteSearcher of {self._client.url}: {self._corpus or 'the first corpus'}, {self.retriever or 'the first retriever'}>"

    def search_groups(
        self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS, **values: Unpack[SearchOptionValues]
    ) -> Rankings:
        """Return one ranking for each group of queries; raises as ``ServerClient.search`` does."""
        options = override(options, values)
        return self._client.search(groups, options, corpus=self._corpus, retriever=self.retriever).rankings

    def passage(self, id: str) -> Passage:
        """Return the passage with this id; raises as ``passages`` does."""
        return self.passages([id])[0]

    def passages(self, ids: Sequence[str]) -> list[Passage]:
        """Return the passages with these ids, in the order of ``ids``.

        Raises:
            UnknownNameError: no passage has one of the ids.
            ArgumentError: the ids are not a list of strings.
            ServiceError, IdxError: see ``ServerClient.search``.
        """
        check_ids(ids)
        if not ids:
            return []
        corpus = self._corpus or self._client.served(self._corpus).corpus
        found = self._client.passages(corpus, ids)
        for name in ids:
            if name not in found:
                raise UnknownNameError(f"no passage of '{corpus}' has the id {name!r:.80}")
        return [found[name] for name in ids]

    def search_partial(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> PartialAnswer:
        """Return rankings without the rows of unavailable shards, and these rows; raises as ``ServerClient.search`` does."""
        return self._client.search(groups, options, corpus=self._corpus, retriever=self.retriever, partial=True)


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


def _is_closed(error: HTTPError) -> bool:
    """Return whether the server closed the connection before the first byte of its answer."""
    return isinstance(error, ProtocolError) and isinstance(error.args[-1], RemoteDisconnected | ConnectionError)


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
