"""Which of the waiting searches are done next, together, and which not at all, because their results would come too late."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from retrievers.base import NotSearched, Ranking, Searcher
from retrievers.options import SearchOptions

from .cost import Kind

_CAUTION = 1.25  # times what is expected of a batch must be left to join it: expectations err
_FIRST_GROWTH = 8  # times the queries of the batches before may be joined as long as nobody knows what a query more takes

Groups = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """One request's search.

    Attributes:
        name: corpus and retriever.
        searcher: searches.
        groups: of queries.
        options: of the search.
        n_queries: of all groups.
        deadline: on the clock of ``time.monotonic``.
        answer: the rankings; cancelled if nobody waits for them.
        kind: what such searches cost.
        lost: takes the rows that were not searched, before the answer is there; None: all have to be.
    """

    name: tuple[str, str]
    searcher: Searcher
    groups: Groups
    options: SearchOptions
    n_queries: int
    deadline: float
    answer: asyncio.Future[list[Ranking]]
    kind: Kind
    lost: set[NotSearched] | None = None

    def joins(self, other: Search) -> bool:
        """Return whether the two can be one search."""
        return self.searcher is other.searcher and self.options == other.options and (self.lost is None) == (other.lost is None)


class Taken(NamedTuple):
    """What no longer waits: what is searched now, and what is not searched at all."""

    batch: list[Search]
    dropped: list[Search]


def take(waiting: deque[Search], joined: int, now: float) -> Taken:
    """Take the oldest search that can be answered in time, and what can be joined with it so that none of them is late.

    Older ones that nobody waits for, or that would be late even by themselves, are dropped. If all would be late, one is searched all the
    same, that with the most time left: an expectation that is too high is put right only by searching.

    Args:
        waiting: the oldest first; what is taken is removed.
        joined: queries that are searched at once, if they came in several requests.
        now: on the clock of the deadlines.
    """
    batch, dropped, left = list[Search](), list[Search](), list[Search]()
    n_queries, deadline = 0, math.inf
    while waiting and n_queries < joined:
        search = waiting.popleft()
        more, sooner = n_queries + search.n_queries, min(deadline, search.deadline)
        if _is_late(search, joined, now):
            dropped.append(search)
        elif not batch or (search.joins(batch[0]) and more <= _most(search.kind, joined) and _ends_by(sooner, search.kind, more, now)):
            batch.append(search)
            n_queries, deadline = more, sooner
        else:
            left.append(search)
    waiting.extendleft(reversed(left))
    wanted = [search for search in dropped if search.deadline > now and not search.answer.cancelled()]
    if wanted and not batch:
        batch.append(max(wanted, key=lambda search: search.deadline))
        dropped.remove(batch[0])
    return Taken(batch, dropped)


def _is_late(search: Search, joined: int, now: float) -> bool:
    """Return whether a search need not be begun; one that is larger than any batch is judged as one of these, which tell little of it."""
    return search.answer.cancelled() or now + search.kind.cost.seconds(min(search.n_queries, joined)) > search.deadline


def _ends_by(deadline: float, kind: Kind, n_queries: int, now: float) -> bool:
    return now + _CAUTION * kind.cost.seconds(n_queries) <= deadline


def _most(kind: Kind, joined: int) -> float:
    """Return how many queries may be joined."""
    return joined if kind.cost.per_query is not None else min(joined, _FIRST_GROWTH * max(1, kind.cost.mean_queries))
