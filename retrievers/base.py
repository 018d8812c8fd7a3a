"""Protocols of retrievers, rerankers and searchers, and the types of their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from wikidx.corpora.passage import Passage
from wikidx.corpora.store import Rows
from wikidx.indexer.base import DEFAULT_PARAMS, Hits, Scores, SearchParam, SearchParams

from .options import SearchOptions

DEFAULTS = SearchOptions()


class Retriever(Protocol):
    """An open index that returns the best rows for queries."""

    @property
    def parameters(self) -> Mapping[str, SearchParam]:
        """Search parameters by name; empty for exact searches."""
        ...

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the ``depth`` best rows for each query, and none for a blank query; parameters that the retriever lacks are ignored."""
        ...

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Return the scores of given rows for each query without searching.

        Args:
            queries: the queries.
            rows: for each query, int64 rows, ascending.

        Returns:
            For each query, the exact float32 scores of its rows; -inf for a row that an exact ``retrieve`` would never return.
        """
        ...


class Reranker(Protocol):
    """A model that reads a query together with a passage and scores the passage."""

    def score(self, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
        """Return a float32 score for each pair ``(queries[i], passages[i])``, shape (n,); higher is better."""
        ...


class Match(NamedTuple):
    """One entry of a passage's provenance: the query of the group, the retriever, the rank (from 1) and the score."""

    query: str
    retriever: str
    rank: int
    score: float


class ScoredPassage(NamedTuple):
    """A passage in a ranking. ``row`` is its position in the store; ``provenance`` is ordered by query, then retriever."""

    passage: Passage
    row: int
    score: float
    provenance: tuple[Match, ...]


Ranking = list[ScoredPassage]


class UnsearchedRows(NamedTuple):
    """Rows of the index ``name`` that were not searched: from ``first_row`` to before ``stop_row``."""

    name: str
    first_row: int
    stop_row: int


class PartialAnswer(NamedTuple):
    """Rankings, and the rows that were not searched: an empty list if the search was complete."""

    rankings: list[Ranking]
    unsearched_rows: list[UnsearchedRows]


class Searcher(Protocol):
    """A corpus open for searching, which answers queries with ranked passages."""

    def search(self, queries: Sequence[str], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        """Return one ranking for each query; a ranking is empty if nothing matches.

        Raises:
            TypeError: ``queries`` is a string, or contains an item that is not a string.
            ValueError, IdxError: see ``search_groups``.
        """
        if isinstance(queries, str):
            raise TypeError("queries is one string: give a list of queries")
        return self.search_groups([[query] for query in queries], options)

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        """Return one ranking for each group of queries."""
        ...


def check_groups(groups: Sequence[Sequence[str]]) -> None:
    """Validate the groups of ``Searcher.search_groups``.

    Raises:
        TypeError: ``groups`` is not a sequence, or a group is not a sequence of strings.
        ValueError: a group is empty, or a query contains a lone surrogate.
    """
    if not isinstance(groups, Sequence):
        raise TypeError(f"groups is a {type(groups).__name__}: give a list of groups")
    for number, group in enumerate(groups):
        if not _is_list_of_strings(group):
            raise TypeError(f"group {number} is not a list of strings: {group!r:.80}")
        if not group:
            raise ValueError(f"group {number} is empty: it needs at least its primary query")
        for query in group:
            try:
                query.encode()
            except UnicodeEncodeError:  # a lone surrogate, which breaks tokenizers
                raise ValueError(f"a query of group {number} contains a lone surrogate, half a character: {query!a:.80}") from None


def _is_list_of_strings(group: object) -> bool:
    return isinstance(group, Sequence) and not isinstance(group, str) and all(isinstance(query, str) for query in group)
