"""``idx search``: search a built corpus, or a corpus on a server, for one group of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from wikidx.corpora.errors import InputError
from wikidx.retrievers.options import SearchOptions

from . import completion
from .option_groups import flatten
from .screen import is_unicode, print_json, print_line, print_passage

if TYPE_CHECKING:
    from wikidx.retrievers.base import Ranking

Corpus = Annotated[str, completion.corpus_argument("A built corpus, or with --url a served one.")]
Queries = Annotated[list[str], typer.Argument(help="One query, or several that are merged into one ranking.", metavar="QUERY")]
Retriever = Annotated[
    str, completion.retriever_option("An index as idx list names it (bm25, contriever, contriever-ivfpq), or several joined with +.")
]
Reranker = Annotated[str | None, typer.Option(help="The cross-encoder: simlm, minilm-msmarco, bge-base or a directory.")]
Device = Annotated[str, typer.Option(help="Where encoders and indexes run: auto, cpu, cuda, cuda:0,1, all GPUs, mps.")]


def _factors(weights: list[str] | None) -> dict[str, float] | None:
    """Parse texts ``RETRIEVER=FACTOR``; return None if there are none."""
    factors = {}
    for text in weights or ():
        name, _, factor = text.partition("=")
        try:
            factors[name] = float(factor)
        except ValueError as error:
            raise InputError(f"--weight {text}: give a retriever and a number, such as bm25=0.5") from error
    return factors or None


Weights = Annotated[
    list[str] | None,
    typer.Option("--weight", metavar="RETRIEVER=FACTOR", help="A retriever's weight in weighted fusion; default: 1."),
    _factors,
]


@flatten(weights=Weights)
def search(
    corpus: Corpus,
    queries: Queries,
    retriever: Retriever = "bm25",
    *,
    options: SearchOptions,
    reranker: Reranker = None,
    device: Device = "auto",
    url: Annotated[str | None, typer.Option(help="The URL of an 'idx serve' server to search on.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="IDX_API_KEY", help="The API key of the server.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Timeout of that server in seconds.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Search a corpus."""
    from wikidx.corpora.resolving import require_built
    from wikidx.indexer.machine.devices import check_devices
    from wikidx.retrievers.client import RemoteSearcher
    from wikidx.retrievers.opening import open_searcher
    from wikidx.retrievers.wire import ranking_to_json

    check_devices(device)
    for number, query in enumerate(queries, 1):
        if not is_unicode(query):
            raise InputError(f"query {number} is not UTF-8: {query!r:.80}")
    if url is None:
        require_built(corpus)
        (ranking,) = open_searcher(corpus, retriever, device=device, reranker=reranker).search_groups([queries], options)
    else:
        with RemoteSearcher(url, corpus=corpus, retriever=retriever, api_key=api_key, timeout=timeout) as remote:
            (ranking,) = remote.search_groups([queries], options)
    if as_json:
        passages = [{"rank": rank, **passage} for rank, passage in enumerate(orjson.loads(ranking_to_json(ranking)), 1)]
        print_json({"corpus": corpus, "retriever": retriever, "queries": queries, "passages": passages})
    else:
        _show(ranking, with_origin=len(queries) > 1 or len({match.retriever for hit in ranking for match in hit.provenance}) > 1)


def _show(ranking: Ranking, *, with_origin: bool) -> None:
    if not ranking:
        print_line("no passage found")
    for rank, hit in enumerate(ranking, 1):
        print_passage(f"{rank:>3}  {hit.score:.4f}  {hit.passage.title}  [{hit.passage.id}]", hit.passage.text)
        for match in hit.provenance if with_origin else ():
            print_line(f"     {match.retriever} rank {match.rank} for '{match.query}'")
