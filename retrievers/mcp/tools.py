"""The tools and their descriptions for agents: search, get_passages, get_document, list_indexes.

An invalid call returns a tool error of one line, which names the remedy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from wikidx.base.errors import IdxError, InputError, MissingExtraError
from wikidx.base.registry import unknown_name_error
from wikidx.base.validation import explain
from wikidx.retrievers.base import ScoredPassage
from wikidx.retrievers.documents import Excerpt, Window
from wikidx.retrievers.naming import RetrieverName
from wikidx.retrievers.options import SearchOptions

from .sources import SearchableCorpus, Source

try:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations

    from .stdio import serve_stdio
except ImportError as error:
    raise MissingExtraError("'idx mcp'", "mcp") from error

INSTRUCTIONS = (
    "Search in local corpora of passages, such as Wikipedia. Call search with a question, or with several queries for one information "
    "need. Each passage has an id, a text and its provenance: the queries that found it. One of a document has its place in it, too: "
    "get_document reads on from there. list_indexes lists the corpora and retrievers."
)
MAX_QUERIES, MAX_K, MAX_IDS, MAX_COUNT = 50, 100, 100, 50

Queries = Annotated[
    list[str],
    Field(
        min_length=1,
        max_length=MAX_QUERIES,
        description="Queries for ONE information need, most important first: a question and, if useful, rephrasings, sub-questions or "
        "guessed answers. Their results are merged into one ranking. Call search again for another information need.",
    ),
]
CorpusName = Annotated[str | None, Field(description="Name of a corpus from list_indexes; default: the first.")]
RetrieverArgument = Annotated[
    str | None,
    Field(
        description="Name of a retriever from list_indexes; default: the first. bm25 finds passages that share words with the query. An "
        "encoder (minilm, contriever, …) finds passages of similar meaning. Names joined with + (bm25+minilm) fuse their results."
    ),
]
K = Annotated[int, Field(ge=1, le=MAX_K, description="Number of passages to return.")]
Merge = Annotated[
    Literal["max", "sum", "rrf", "interleave"],
    Field(
        description="How the lists of several queries are merged. max keeps the best score of a passage. sum adds its scores. rrf adds "
        "1 / (60 + rank). interleave takes the first passage of each list, then the second of each list, and so on."
    ),
]
Rerank = Annotated[
    Literal["none", "primary"],
    Field(description="primary: score all found passages again for the first query alone, and order them by these scores. none: do not."),
]
Ids = Annotated[list[str], Field(min_length=1, max_length=MAX_IDS, description="Ids of passages, as search returns them.")]

DocumentId = Annotated[str, Field(description="Id of a document: the field document of a passage's span.")]
First = Annotated[int, Field(ge=0, description="Position of the first passage in the document, from 0.")]
Page = Annotated[int | None, Field(ge=1, description="Instead of first: the first page, from 1; count is then a number of pages.")]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT, description="Number of passages, or of pages.")]


class Match(BaseModel):
    """One match of a passage: a query and a retriever that found the passage."""

    query: str
    retriever: str
    rank: int = Field(description="Rank in the list of this retriever for this query, from 1.")
    score: float = Field(description="Score by this retriever; not comparable with scores by other retrievers.")


class PlainPassage(BaseModel):
    """A passage."""

    id: str
    title: str
    text: str


class Span(BaseModel):
    """The place of a passage in its document."""

    document: str
    start: int = Field(description="Offset of its first character in the document.")
    end: int
    page: int = Field(description="Page on which it begins, from 1; 0: the document has no pages.")
    heading: str = Field(description="Path of the headings above it.")


class RankedPassage(PlainPassage):
    """A passage in a ranking."""

    rank: int = Field(description="Rank in the ranking, from 1.")
    score: float = Field(description="Score in the ranking; not comparable with scores in other rankings.")
    provenance: list[Match] = Field(description="The queries and retrievers that found the passage.")
    span: Span | None = Field(None, description="Its place in its document, if it is of one.")


class SearchResult(BaseModel):
    """A ranking, best first; empty if nothing was found."""

    corpus: str
    retriever: str
    passages: list[RankedPassage]


class Passages(BaseModel):
    """Passages in the requested order."""

    corpus: str
    passages: list[PlainPassage]
    missing: list[str] = Field(description="Requested ids that the corpus does not have.")


class DocumentPassages(BaseModel):
    """Passages of a document that follow one another."""

    corpus: str
    document: str
    first: int = Field(description="Position of the first passage in the document, from 0.")
    n_passages: int = Field(description="Number of passages of the whole document.")
    text: str = Field(description="The text of the passages.")
    passages: list[str] = Field(description="Ids of the passages.")


class SearchableCorpora(BaseModel):
    """Searchable corpora with their retrievers, the defaults first."""

    corpora: list[SearchableCorpus]
    can_fuse_retrievers: bool = Field(description="Whether retrievers can be fused by joining their names with +, as in bm25+minilm.")


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools over one source."""

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
        """Search a corpus for passages that answer an information need. Return the passages with their full text, best first."""
        if not any(query.strip() for query in queries):
            raise InputError("every query is blank: write a query")
        target = self._find_corpus(corpus)
        name = self._resolve_retriever(target, retriever)
        ranking = self.source.search(target.corpus, name, queries, SearchOptions(k=k, merge=merge, rerank=rerank))
        return SearchResult(corpus=target.corpus, retriever=name, passages=[_to_ranked(rank, hit) for rank, hit in enumerate(ranking, 1)])

    def get_passages(self, ids: Ids, corpus: CorpusName = None) -> Passages:
        """Fetch passages by their ids, for instance to reread or check results of an earlier search."""
        target = self._find_corpus(corpus)
        passages_by_id = self.source.passages(target.corpus, ids)
        missing = [name for name in ids if name not in passages_by_id]
        if not passages_by_id:
            raise InputError(
                f"'{target.corpus}' has no passage with the id {' or '.join(map(repr, missing[:3]))}: take ids that search returned"
            )
        passages = [PlainPassage(**passages_by_id[name]._asdict()) for name in ids if name in passages_by_id]
        return Passages(corpus=target.corpus, passages=passages, missing=missing)

    def get_document(
        self, document: DocumentId, corpus: CorpusName = None, first: First = 0, page: Page = None, count: Count = 10
    ) -> DocumentPassages:
        """Read a document of a corpus, some passages or pages at a time, for instance around a passage that search returned."""
        target = self._find_corpus(corpus)
        found = self.source.excerpt(target.corpus, Window(document, first=first, count=count, page=page))
        ids = [passage.id for passage in found[:MAX_IDS]]
        text = Excerpt(found[:MAX_IDS], found.spans[:MAX_IDS], found.document, found.first, found.n_passages).text
        return DocumentPassages(
            corpus=target.corpus, document=found.document, first=found.first, n_passages=found.n_passages, text=text, passages=ids
        )

    def list_indexes(self) -> SearchableCorpora:
        """List the searchable corpora, with their numbers of passages and their retrievers."""
        return SearchableCorpora(corpora=self.source.list_corpora(), can_fuse_retrievers=self.source.can_fuse)

    def _find_corpus(self, corpus: str | None) -> SearchableCorpus:
        corpora = {target.corpus: target for target in self.source.list_corpora()}
        if corpus is not None and corpus not in corpora:
            raise unknown_name_error("corpus", corpus, corpora)
        return corpora[corpus] if corpus is not None else next(iter(corpora.values()))

    def _resolve_retriever(self, target: SearchableCorpus, retriever: str | None) -> str:
        """Return the canonical name of the retriever that a call requests."""
        if not target.retrievers:
            raise InputError(f"'{target.corpus}' has no index: run 'idx build {target.corpus} --bm25'")
        name = RetrieverName.parse(retriever or target.retrievers[0])
        if str(name) not in target.retrievers:
            name.check()
            for part in (*name.parts, *name.remotes, *name.rerankers) if self.source.can_fuse else [str(name)]:
                if part not in target.retrievers:
                    raise unknown_name_error("retriever", part, target.retrievers)
        return str(name)


def _to_ranked(rank: int, hit: ScoredPassage) -> RankedPassage:
    provenance = [Match(**match._asdict()) for match in hit.provenance]
    span = Span(**hit.span._asdict()) if hit.span else None
    return RankedPassage(rank=rank, **hit.passage._asdict(), score=hit.score, provenance=provenance, span=span)


class _Server(MCPServer[Any]):
    """MCP server that reports each error of a call to the agent in one line."""

    async def run_stdio_async(self) -> None:
        """Serve standard input and output."""
        await serve_stdio(self._lowlevel_server)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        known = {tool.name: tool.input_schema["properties"] for tool in await self.list_tools()}
        try:
            if name not in known:
                raise unknown_name_error("tool", name, known)
            for argument in arguments:
                if argument not in known[name]:
                    raise unknown_name_error(f"argument of {name}", argument, known[name])
            return await super().call_tool(name, arguments, context)
        except (IdxError, ToolError) as error:
            cause = error.__cause__ if isinstance(error, ToolError) else error
            if not isinstance(cause, IdxError | ValidationError):
                raise
            raise ToolError(explain(cause) if isinstance(cause, ValidationError) else str(cause)) from error


def create_server(source: Source) -> MCPServer[Any]:
    """Return an MCP server with the tools over a source."""
    tools, server = Tools(source), _Server("idx", title="idx", instructions=INSTRUCTIONS, log_level="WARNING")
    reads = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    server.add_tool(tools.search, title="Search passages", annotations=reads)
    server.add_tool(tools.get_passages, title="Fetch passages by id", annotations=reads)
    server.add_tool(tools.get_document, title="Read a document", annotations=reads)
    server.add_tool(tools.list_indexes, title="List corpora and retrievers", annotations=reads)
    return server
