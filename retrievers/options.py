"""Search options: one declaration for Python, the server's requests, the command line and ``NAME=VALUE`` assignments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from pydantic import Field

from wikidx.base.errors import ArgumentError, InputError
from wikidx.base.validation import options

if TYPE_CHECKING:
    from wikidx.indexer.base import SearchParams

FuseRule = Literal["rrf", "weighted"]
MergeRule = Literal["max", "sum", "rrf", "interleave"]
DedupRule = Literal["row", "text"]
CollapseRule = Literal["none", "document", "document_sum"]
RerankRule = Literal["none", "primary", "cross-encoder"]

_LARGEST = 2**63 - 1  # largest integer that all search steps and JSON readers accept
_LARGEST_PARAM = 2**31 - 1  # more lists or candidates than any index has
_MAX_WEIGHT = 1e9  # keeps sums of weighted scores far from infinity

RetrieverName = Annotated[str, Field(max_length=200)]
Weight = Annotated[float, Field(ge=-_MAX_WEIGHT, le=_MAX_WEIGHT)]


@options
class SearchOptions:
    """Options of a search. Every value is a JSON value; equal options have equal hashes.

    The server's documentation shows the descriptions of the fields, ``idx search --help`` their first sentences.
    """

    k: Annotated[int, Field(ge=1, le=_LARGEST, description="Number of passages to return.")] = 10
    depth: Annotated[
        int,
        Field(ge=1, le=_LARGEST, description="Number of candidates from each retriever for each query. Values below k count as k."),
    ] = 100
    fuse: Annotated[
        FuseRule,
        Field(
            description="How the retrievers' lists are fused: rrf or weighted. rrf adds 1 / (60 + rank). weighted adds the weighted "
            "scores; a row that is missing from a list gets the list's lowest score. The scores of a single retriever stay unchanged."
        ),
    ] = "rrf"
    weights: Annotated[
        Mapping[RetrieverName, Weight] | None,
        Field(max_length=100, description="With weighted fusion: the weight of each retriever. Default: 1."),
    ] = dataclasses.field(default=None, hash=False)
    normalize: Annotated[
        bool,
        Field(description="With weighted fusion: first scale the scores of each list. The lowest becomes -1/2, the highest 1/2."),
    ] = False
    merge: Annotated[
        MergeRule,
        Field(
            description="How the queries' lists are merged: max, sum, rrf or interleave. max keeps each row's best score. sum adds the "
            "scores. rrf adds 1 / (60 + rank). interleave takes the first row of every list, then the second of every list, and so on; "
            "the score is 1 / (best rank). sum and rrf favour rows that several queries find. They suit paraphrases, not different "
            "questions."
        ),
    ] = "max"
    dedup: Annotated[
        DedupRule,
        Field(
            description="How duplicates are recognised: row or text. text keeps only the best of all passages whose texts differ only in "
            "case, spacing or Unicode compatibility form."
        ),
    ] = "row"
    collapse: Annotated[
        CollapseRule,
        Field(
            description="How passages of one document are collapsed: none, document or document_sum. document keeps the best passage of "
            "each document, document_sum gives it the sum of the scores of the document's candidates. k counts documents, and the search "
            "goes deeper until it has found as many. The corpus must have been split from documents."
        ),
    ] = "none"
    rerank: Annotated[
        RerankRule,
        Field(
            description="How candidates are reranked for the primary query, the first of its group: none, primary or cross-encoder. "
            "primary: each retriever scores the merged candidates for the primary query, and the scores are fused again. cross-encoder: "
            "the searcher's reranker, of whatever kind, scores each pair of primary query and candidate."
        ),
    ] = "none"
    rerank_depth: Annotated[
        int | None,
        Field(
            ge=1,
            le=_LARGEST,
            description="Number of candidates to rerank; default: all. Values below k count as k. All other candidates are dropped.",
        ),
    ] = None
    nprobe: Annotated[int | None, Field(ge=1, le=_LARGEST_PARAM, description="Number of inverted lists that ivf and ivfpq search.")] = None
    ef_search: Annotated[
        int | None,
        Field(ge=1, le=_LARGEST_PARAM, description="Length of the candidate list of hnsw. Values below k count as k."),
    ] = None
    refine: Annotated[
        int | None,
        Field(ge=0, le=_LARGEST_PARAM, description="Number of candidates per result that ivfpq, int8 and binary rescore exactly; 0: none."),
    ] = None

    explain: Annotated[
        bool,
        Field(description="Report each stage of the search: its candidates and its time. On a server, such a search runs alone."),
    ] = False

    def __post_init__(self) -> None:
        """Check values that depend on one another."""
        if self.fuse != "weighted" and (self.weights is not None or self.normalize):
            raise ValueError(f"weights and normalize belong to the fuse rule 'weighted', the rule is '{self.fuse}'")
        if self.rerank == "none" and self.rerank_depth is not None:
            raise ValueError(f"rerank_depth is {self.rerank_depth}, but rerank is 'none': give a rerank rule, or leave it out")

    def with_reranker(self, reranker: str | None) -> SearchOptions:
        """Return the options of a search for which a user has named a reranker, or not: it reranks, whether they say so or not.

        Raises:
            InputError: they say to rerank by the primary query.
        """
        if reranker is not None and self.rerank == "primary":
            raise InputError(f"rerank is 'primary', which the reranker '{reranker}' has no part in: leave one of them out")
        return self if reranker is None else dataclasses.replace(self, rerank="cross-encoder")

    def params(self) -> SearchParams:
        """Return the options that are search parameters of an index."""
        from wikidx.indexer.base import DEFAULT_PARAMS, SearchParams

        if self.nprobe is self.ef_search is self.refine is None:
            return DEFAULT_PARAMS
        return SearchParams(nprobe=self.nprobe, ef_search=self.ef_search, refine=self.refine)


class SearchOptionValues(TypedDict, total=False):
    """Fields of ``SearchOptions`` as keyword arguments of a search."""

    k: int
    depth: int
    fuse: FuseRule
    weights: Mapping[str, float] | None
    normalize: bool
    merge: MergeRule
    dedup: DedupRule
    collapse: CollapseRule
    rerank: RerankRule
    rerank_depth: int | None
    nprobe: int | None
    ef_search: int | None
    refine: int | None
    explain: bool


def override(options: SearchOptions, values: SearchOptionValues) -> SearchOptions:
    """Return options with some values replaced; raises ``OptionError`` for such a value, ``ArgumentError`` for other options."""
    if not isinstance(options, SearchOptions):
        raise ArgumentError(f"the options are {options!r:.60}, no SearchOptions: give single ones by name, such as k=10")
    return dataclasses.replace(options, **values) if values else options
