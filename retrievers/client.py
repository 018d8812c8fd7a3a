"""RemoteSearcher: a search over HTTP, the same as ``LocalSearcher``'s in this process."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import orjson

from corpora.errors import InputError

from .base import PartialAnswer, Ranking, check_groups
from .connections import Answer, Connections
from .errors import BadAnswer, ServiceError, from_json
from .options import SearchOptions
from .wire import SEARCH, not_searched_from_json, ranking_from_json, request_to_json

_DEFAULTS = SearchOptions()
_FIRST_PAUSE_S = 0.1
_LEAST_S = 0.001


class RemoteSearcher:
    """Searches on a server that ``idx serve`` runs; may be used by many threads at once.

    Args:
        url: where the server listens, such as ``http://127.0.0.1:8000``.
        corpus: one of those that it serves; by default its first.
        retriever: one of those that it serves; by default its first.
        api_key: the key that it wants.
        timeout: seconds until a search must have been answered, waiting and further tries included.
        retries: how often a search is sent again that the server refused because of its load, or that nobody listened to.

    Raises:
        InputError: the URL or the key cannot be one.
    """

    def __init__(
        self,
        url: str,
        *,
        corpus: str | None = None,
        retriever: str | None = None,
        api_key: str | None = None,
        timeout: float = 30.0,
        retries: int = 2,
    ) -> None:
        headers = {"content-type": "application/json"}
        if api_key is not None and not api_key.strip():
            raise InputError("the API key is empty: give one, or none")
        if api_key is not None:
            headers["authorization"] = f"Bearer {api_key}"
        self._connections = Connections(url, headers)
        self._corpus, self._retriever = corpus, retriever
        self._timeout, self._retries = timeout, retries

    def __enter__(self) -> RemoteSearcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def search(self, queries: Sequence[str], options: SearchOptions = _DEFAULTS) -> list[Ranking]:
        """Return one ranking for each query; a query that finds nothing has an empty one.

        Raises:
            TypeError: ``queries`` is a string, or holds something else than strings.
            IdxError: see ``search_groups``.
        """
        if isinstance(queries, str):
            raise TypeError("queries is one string: give a list of queries")
        return self.search_groups([[query] for query in queries], options)

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = _DEFAULTS) -> list[Ranking]:
        """Return one ranking for each group; a group is its root query, the first, and any number of further queries.

        Raises:
            TypeError: a group is not a sequence of strings.
            ValueError: a group is empty, or a query holds half of a surrogate pair.
            ServiceError: the server refused, or did not answer; see ``retrievers.errors``.
            IdxError: what the search itself raised there.
        """
        return self._search(groups, options, partial=False).rankings

    def search_partial(self, groups: Sequence[Sequence[str]], options: SearchOptions = _DEFAULTS) -> PartialAnswer:
        """Return what ``search_groups`` does, without the rows of a cluster that nobody can search just now, and which these are."""
        return self._search(groups, options, partial=True)

    def _search(self, groups: Sequence[Sequence[str]], options: SearchOptions, *, partial: bool) -> PartialAnswer:
        check_groups(groups)
        if not groups:
            return PartialAnswer([], [])
        deadline = time.monotonic() + self._timeout
        answer = self._ask(groups, options, deadline, partial=partial)
        try:
            found = orjson.loads(answer.body)
            rankings = [ranking_from_json(passages) for passages in found["rankings"]]
            lost = not_searched_from_json(found.get("not_searched", ()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadAnswer(f"{self._connections.url} answered something else than rankings: {answer.body!r:.80}") from error
        if len(rankings) != len(groups):
            raise BadAnswer(f"{self._connections.url} answered {len(rankings):,} rankings for {len(groups):,} groups")
        return PartialAnswer(rankings, lost)

    def _ask(self, groups: Sequence[Sequence[str]], options: SearchOptions, deadline: float, *, partial: bool) -> Answer:
        """Return the answer to a search, sent again where that is safe and there is time."""
        n_tries = 0
        while True:
            left_s = max(_LEAST_S, deadline - time.monotonic())
            named = {"corpus": self._corpus, "retriever": self._retriever, "timeout_s": left_s, "partial": partial or None}
            try:
                return self._answer(request_to_json(groups, options, named), left_s)
            except ServiceError as error:
                # With "retry_after" the search was not taken up: the server said so, or nobody listened.
                n_tries += 1
                pause_s = error.retry_after or _FIRST_PAUSE_S * 2**n_tries
                if error.retry_after is None or n_tries > self._retries or time.monotonic() + pause_s > deadline:
                    raise
            time.sleep(pause_s)

    def _answer(self, body: bytes, timeout_s: float) -> Answer:
        answer = self._connections.request("POST", SEARCH, body, timeout_s)
        if answer.status == 200:
            return answer
        retry_after = answer.headers.get("retry-after", "")
        try:
            problem: Mapping[str, Any] = orjson.loads(answer.body)
            name, message = str(problem["error_type"]), str(problem["error"])
        except (ValueError, KeyError, TypeError) as error:
            raise BadAnswer(
                f"{self._connections.url} answered with status {answer.status}: {answer.body!r:.80}: is it an idx server?"
            ) from error
        raise from_json(name, message, answer.status, float(retry_after) if retry_after.isascii() and retry_after.isdecimal() else None)
