"""Groups of queries that are refused, and what is answered in their place."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence

from wikidx.base.errors import ArgumentError

from .base import Ranking, Rankings

_SURROGATE = re.compile("[\ud800-\udfff]")


def find_refused(groups: Sequence[object], max_characters: int = sys.maxsize) -> dict[int, Exception]:
    """Return the errors of groups that cannot be searched, by position; raises ``ArgumentError`` if ``groups`` is not a sequence."""
    if not isinstance(groups, Sequence):
        raise ArgumentError(f"groups is a {type(groups).__name__}: give a list of groups")
    return {position: error for position, group in enumerate(groups) if (error := _refusal(group, max_characters))}


def blank_refused(
    groups: Sequence[Sequence[str]], refused: Mapping[int, Exception], *, may_be_all: bool = False
) -> Sequence[Sequence[str]]:
    """Return the groups with a blank one, which finds nothing, for each that is refused; raise the first error if all are."""
    if len(refused) == len(groups) > 0 and not may_be_all:
        raise refused[0]
    return [[""] if position in refused else group for position, group in enumerate(groups)] if refused else groups


def mark_refused(rankings: Rankings, refused: Mapping[int, Exception]) -> Rankings:
    """Return the rankings, with an error for each group that is refused."""
    for position, error in refused.items():
        rankings[position] = Ranking(error=str(error))
    return rankings


def _refusal(group: object, max_characters: int) -> Exception | None:
    """Return the error of a group that is no list of texts, or that has a text that cannot be searched."""
    if isinstance(group, str) or not isinstance(group, Sequence):
        return ArgumentError(f"a group is a list of queries, not {group!r:.60}")
    if not group:
        return ArgumentError("a group is empty: it needs at least its primary query")
    for query in group:
        if not isinstance(query, str):
            return ArgumentError(f"a query is a text, or a vector of finite numbers, not {query!r:.60}")
        if len(query) > max_characters:
            return ArgumentError(f"a query has {len(query):,} characters, {max_characters:,} are allowed")
        if not query.isascii() and _SURROGATE.search(query):  # it breaks tokenizers
            return ArgumentError(f"a query contains a lone surrogate, half a character: {query!a:.80}")
    return None
