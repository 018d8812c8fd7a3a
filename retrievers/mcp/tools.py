"""The tools and their descriptions for agents: search, get_passages, list_indexes.

An invalid call is answered with a tool error of one line that names the remedy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from wikidx.corpora.errors import IdxError, InputError, MissingExtraError
from wikidx.corpora.registry import near_names
from wikidx.corpora.validation import explain
from wikidx.retrievers.base import ScoredPassage
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.options import SearchOptions

from .sources import Offer, Source

try:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations
except ImportError as error:
    raise MissingExtraError("'idx mcp'", "mcp") from error

INSTRUCTIONS = (
    "Search over local collections of passages, such as Wikipedia. Call search with a question, or with several queries for one "
    "information need; every passage comes with its id, text, and by which query it was found. list_indexes says what can be searched."
)
MAX_QUERIES, MAX_K, MAX_IDS = 50, 100, 100

Queries = Annotated[
    list[str],
    Field(
        min_length=1,
        max_length=MAX_QUERIES,
        description="Queries for ONE information need, most important first: a question, and if that helps, rephrasings, "
        "sub-questions or guessed answers. Their results are merged into one ranking. For another need, call again.",
    ),
]
CorpusName = Annotated[str | None, Field(description="A corpus that list_indexes names; by default the first.")]
RetrieverArgument = Annotated[
    str | None,
    Field(
        description="How to search, by default the first that list_indexes names: bm25 finds passages that share words with the query, "
        "an encoder (minilm, contriever, …) those of similar meaning, several joined with + (bm25+minilm) fuse both."
    ),
]
K = Annotated[int, Field(ge=1, le=MAX_K, description="How many passages to return.")]
Merge = Annotated[
    Literal["max", "sum", "rrf", "interleave"],
    Field(
        description="How the lists of several queries become one: max keeps a passage's best score, sum adds the scores, rrf adds "
        "1 / (60 + rank), interleave takes the first of each list, then the second, and so on."
    ),
]
Rerank = Annotated[
    Literal["none", "root"],
    Field(description="root scores what all queries found once more by the first query alone, so that it decides the order."),
]
Ids = Annotated[list[str], Field(min_length=1, max_length=MAX_IDS, description="Ids as search returns them.")]


class FoundBy(BaseModel):
    """One way a passage was found."""

    query: str
    retriever: str
    rank: int = Field(description="Place in that retriever's list for that query, from 1.")
    score: float = Field(description="Comparable within one retriever only.")


class PlainPassage(BaseModel):
    """A passage."""

    id: str
    title: str
    text: str


class FoundPassage(PlainPassage):
    """A passage in a ranking."""

    rank: int = Field(description="Place in the ranking, from 1.")
    score: float = Field(description="What the ranking goes by; comparable within this ranking only.")
    found: list[FoundBy] = Field(description="Which query and retriever found it.")


class SearchResult(BaseModel):
    """A ranking, best first; empty if nothing was found."""

    corpus: str
    retriever: str
    passages: list[FoundPassage]


class Passages(BaseModel):
    """Passages in the order that was asked for."""

    corpus: str
    passages: list[PlainPassage]
    missing: list[str] = Field(description="Ids that the corpus does not have.")


class Offers(BaseModel):
    """Corpora and retrievers that can be searched, the default first."""

    corpora: list[Offer]
    may_join_retrievers: bool = Field(description="Whether any retrievers can be joined with +, such as bm25+minilm.")


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools over a source."""

    source: Source

    def search(
        self,
        queries: Queries,
        corpus: CorpusName = None,
        retriever: RetrieverArgument = None,
        k: K = 5,
        merge: Merge = "max",
        rerank: Rerank = "none",
    ) -> SearchResult:
        """Search a corpus for passages that answer an information need; returns them best first, with their full text."""
        if not any(query.strip() for query in queries):
            raise InputError("every query is blank: write what is to be found")
        offer = self._offer(corpus)
        name = self._retriever(offer, retriever)
        ranking = self.source.search(offer.corpus, name, queries, SearchOptions(k=k, merge=merge, rerank=rerank))
        return SearchResult(corpus=offer.corpus, retriever=name, passages=[_found(rank, hit) for rank, hit in enumerate(ranking, 1)])

    def get_passages(self, ids: Ids, corpus: CorpusName = None) -> Passages:
        """Fetch passages by their ids, for instance to read again or to check what an earlier search returned."""
        offer = self._offer(corpus)
        found = self.source.passages(offer.corpus, ids)
        missing = [name for name in ids if name not in found]
        if not found:
            raise InputError(
                f"'{offer.corpus}' has no passage with the id {' or '.join(map(repr, missing[:3]))}: take ids that search returned"
            )
        passages = [PlainPassage(**found[name]._asdict()) for name in ids if name in found]
        return Passages(corpus=offer.corpus, passages=passages, missing=missing)

    def list_indexes(self) -> Offers:
        """List the corpora that can be searched, how many passages each has, and by which retrievers."""
        return Offers(corpora=self.source.offers(), may_join_retrievers=self.source.may_join)

    def _offer(self, corpus: str | None) -> Offer:
        offers = {offer.corpus: offer for offer in self.source.offers()}
        if corpus is not None and corpus not in offers:
            raise near_names("corpus", corpus, offers)
        return offers[corpus] if corpus is not None else next(iter(offers.values()))

    def _retriever(self, offer: Offer, retriever: str | None) -> str:
        """Return the retriever of a call."""
        if not offer.retrievers:
            raise InputError(f"'{offer.corpus}' has no index: run 'idx build {offer.corpus} --bm25'")
        name = RetrieverName.parse(retriever or offer.retrievers[0])
        if str(name) not in offer.retrievers:
            name.check()
            for part in name.parts if self.source.may_join else [str(name)]:
                if part not in offer.retrievers:
                    raise near_names("retriever", part, offer.retrievers)
        return str(name)


def _found(rank: int, hit: ScoredPassage) -> FoundPassage:
    return FoundPassage(rank=rank, **hit.passage._asdict(), score=hit.score, found=[FoundBy(**way._asdict()) for way in hit.found])


class _Server(MCPServer[Any]):
    """MCP server that reports errors of a call to agents in one line."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        known = {tool.name: tool.input_schema["properties"] for tool in await self.list_tools()}
        try:
            if name not in known:
                raise near_names("tool", name, known)
            for argument in arguments:
                if argument not in known[name]:
                    raise near_names(f"argument of {name}", argument, known[name])
            return await super().call_tool(name, arguments, context)
        except IdxError as error:
            raise ToolError(str(error)) from error
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(explain(error.__cause__)) from error
            if isinstance(error.__cause__, IdxError):
                raise ToolError(str(error.__cause__)) from error
            raise


def server_of(source: Source) -> MCPServer[Any]:
    """Return a server of the tools; ``transports`` runs it."""
    tools, server = Tools(source), _Server("idx", title="idx", instructions=INSTRUCTIONS, log_level="WARNING")
    reads = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    server.add_tool(tools.search, title="Search passages", annotations=reads)
    server.add_tool(tools.get_passages, title="Fetch passages by id", annotations=reads)
    server.add_tool(tools.list_indexes, title="List corpora and retrievers", annotations=reads)
    return server
