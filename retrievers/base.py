"""What goes into a search and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from corpora.passage import Passage
from corpora.registry import near_names
from corpora.store import Rows
from indexer.base import DEFAULT_PARAMS, Hits, Scores, SearchParam, SearchParams

MERGE_RULES = ("max", "sum", "rrf", "interleave")
FUSE_RULES = ("rrf", "weighted")
DEDUP_RULES = ("row", "text")
RERANK_RULES = ("none", "root", "cross-encoder")

_LARGEST = 2**63 - 1  # whole number that every part of a search, and JSON's readers, can take
_MAX_WEIGHT = 1e9  # enough for any use, and sums of weighted scores stay far from infinity


class Retriever(Protocol):
    """A first stage: finds rows for queries."""

    @property
    def parameters(self) -> Mapping[str, SearchParam]:
        """Its search parameters by name; none if its searches are exact."""
        ...

    def retrieve(self, queries: Sequence[str], depth: int, params: SearchParams = DEFAULT_PARAMS) -> Hits:
        """Return the ``depth`` best rows of each query; a blank query has none. Parameters that it does not have are passed over."""
        ...

    def rescore(self, queries: Sequence[str], rows: Sequence[Rows]) -> list[Scores]:
        """Return what some rows score for each query, without a search.

        Args:
            queries: the queries.
            rows: for each query, int64 rows, ascending.

        Returns:
            For each query, float32 scores of its rows: those of ``retrieve`` with unlimited depth, -inf for a row that is not found so.
        """
        ...


class Reranker(Protocol):
    """Scores how well passages answer queries by reading the two together."""

    def score(self, queries: Sequence[str], passages: Sequence[Passage]) -> Scores:
        """Return a float32 score for each pair ``(queries[i], passages[i])``, shape (n,); higher is better."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """How a search is done. Every value is one that JSON has; equal options have equal hashes.

    Attributes:
        k: passages in each ranking.
        depth: candidates that each retriever gives for each query; at least ``k`` are taken.
        fuse: how several retrievers' lists for one query become one: "rrf" adds 1 / (60 + rank), "weighted" adds the scores times
            ``weights``, where a row that a list lacks has that list's lowest score. A single retriever's scores stay as they are.
        weights: with "weighted", retriever -> factor; retrievers that are not named have 1.
        normalize: with "weighted", whether each list's scores are first brought to -1/2 (the lowest) to 1/2 (the highest).
        merge: how the lists of a group's queries become one: "max" keeps each row's best score, "sum" adds the scores, "rrf" adds
            1 / (60 + rank), "interleave" takes the first of every list, then the second, and so on: the score is 1 / (best rank).
        dedup: "row", or "text" to keep only the best of passages whose texts are equal up to case, spacing and compatibility form.
        rerank: "none"; "root" to score the merged candidates once more, by each retriever for the group's first query, and to fuse again;
            "cross-encoder" to let the searcher's cross-encoder read each candidate together with that query.
        rerank_depth: how many of the best merged candidates are reranked, the others being left out; at least ``k``. None: all.
        nprobe, ef_search, refine: see ``SearchParams``; for the retrievers that have them.
    """

    k: int = 10
    depth: int = 100
    fuse: str = "rrf"
    weights: Mapping[str, float] | None = field(default=None, hash=False)
    normalize: bool = False
    merge: str = "max"
    dedup: str = "row"
    rerank: str = "none"
    rerank_depth: int | None = None
    nprobe: int | None = None
    ef_search: int | None = None
    refine: int | None = None

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            TypeError: a number or a mapping is something else.
            ValueError: a number is out of range, or a value has no meaning beside the others.
            UnknownNameError: there is no such rule.
            InputError: a search parameter is out of range.
        """
        self.params()
        for name, number in (("k", self.k), ("depth", self.depth), ("rerank_depth", self.rerank_depth)):
            if number is not None or name != "rerank_depth":
                _check_positive(name, number)
        for name, value, known in (
            ("fuse", self.fuse, FUSE_RULES),
            ("merge", self.merge, MERGE_RULES),
            ("dedup", self.dedup, DEDUP_RULES),
            ("rerank", self.rerank, RERANK_RULES),
        ):
            if value not in known:
                raise near_names(f"{name} rule", value, known)
        if not isinstance(self.normalize, bool):
            raise TypeError(f"normalize is {self.normalize!r:.80}, neither True nor False")
        if self.weights is not None:
            object.__setattr__(self, "weights", _checked_weights(self.weights))
        if self.fuse != "weighted" and (self.weights is not None or self.normalize):
            raise ValueError(f"weights and normalize belong to the fuse rule 'weighted', the rule is '{self.fuse}'")
        if self.rerank == "none" and self.rerank_depth is not None:
            raise ValueError(f"rerank_depth is {self.rerank_depth}, but rerank is 'none': give a rerank rule, or leave it out")

    def params(self) -> SearchParams:
        """Return the search parameters that are set."""
        return SearchParams(nprobe=self.nprobe, ef_search=self.ef_search, refine=self.refine)


def _check_positive(name: str, number: object) -> None:
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name} is {number!r:.80}, not a whole number")
    if number < 1:
        raise ValueError(f"{name} is {number}: it must be at least 1")
    if number > _LARGEST:
        raise ValueError(f"{name} has {len(str(number))} digits: it must be below 2 ** 63")


def _checked_weights(weights: object) -> dict[str, float]:
    """Return a copy of the weights that nobody else can change, with plain names and numbers."""
    if not isinstance(weights, Mapping):
        raise TypeError(f"weights are {weights!r:.80}, not a mapping of retrievers to numbers")
    for name, weight in weights.items():
        if not isinstance(name, str) or isinstance(weight, bool) or not isinstance(weight, int | float):
            raise TypeError(f"the weight of {name!r:.80} is {weight!r:.80}: weights are a mapping of retrievers to numbers")
        if not -_MAX_WEIGHT <= weight <= _MAX_WEIGHT:  # nor nan
            raise ValueError(f"the weight of '{name}' is {str(weight):.80}: it must lie between -{_MAX_WEIGHT:g} and {_MAX_WEIGHT:g}")
    return {str(name): float(weight) for name, weight in weights.items()}


class Found(NamedTuple):
    """One way a passage was found: which query of the group, by which retriever, at which rank (from 1), with which score."""

    query: str
    retriever: str
    rank: int
    score: float


class ScoredPassage(NamedTuple):
    """A passage in a ranking. ``row`` is its place in the store; ``found`` goes by query, then retriever."""

    passage: Passage
    row: int
    score: float
    found: tuple[Found, ...]


Ranking = list[ScoredPassage]


class Searcher(Protocol):
    """Answers queries with ranked passages."""

    def search(self, queries: Sequence[str], options: SearchOptions = ...) -> list[Ranking]:
        """Return one ranking for each query."""
        ...

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = ...) -> list[Ranking]:
        """Return one ranking for each group of queries."""
        ...


def check_groups(groups: Sequence[Sequence[str]]) -> None:
    """Check what ``Searcher.search_groups`` is given.

    Raises:
        TypeError: a group is not a sequence of strings.
        ValueError: a group is empty, or a query holds half of a surrogate pair.
    """
    if not isinstance(groups, Sequence):
        raise TypeError(f"groups is a {type(groups).__name__}: give a list of groups")
    for number, group in enumerate(groups):
        if not _is_list_of_strings(group):
            raise TypeError(f"group {number} is not a list of strings: {group!r:.80}")
        if not group:
            raise ValueError(f"group {number} is empty: it needs at least its root query")
        for query in group:
            query.encode()  # raises UnicodeEncodeError, a ValueError: half of a surrogate pair is no text, and tokenizers choke on it


def _is_list_of_strings(group: object) -> bool:
    return isinstance(group, Sequence) and not isinstance(group, str) and all(isinstance(query, str) for query in group)
