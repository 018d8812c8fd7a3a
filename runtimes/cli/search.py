"""``idx search``: search a built corpus, or a corpus on a server, for one group of queries or for each query of a file.

Examples:
    idx search sample "Which metal is liquid at room temperature?" -k 3
    idx search sample "river of Egypt" "country where the Nile ends" --retriever bm25+minilm
    idx search sample --queries questions.txt
    idx search sample "chemical symbol Au" --url http://127.0.0.1:8000
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from wikidx.base.errors import InputError
from wikidx.retrievers.options import SearchOptions

from . import completion
from .method_options import Device, QueryDtype
from .option_groups import command
from .screen import Result, is_unicode, note, print_json, print_passage
from .show import describe_place

if TYPE_CHECKING:
    from wikidx.retrievers.base import Ranking, Rankings, Searcher
    from wikidx.retrievers.client import RemoteSearcher
    from wikidx.retrievers.searcher import LocalSearcher
    from wikidx.runtimes.questions.queries import Query

Corpus = Annotated[str, completion.corpus_argument("A built corpus; with --url, a corpus of that server.")]
Queries = Annotated[
    list[str] | None, typer.Argument(help="A query; several are merged into one ranking. - alone is --queries -.", metavar="QUERY")
]
QueryFile = Annotated[
    Path | None,
    typer.Option(
        "--queries",
        help="Instead of QUERY, a file of queries, or - for standard input: one per line, as text or JSON, or any file of questions. "
        "Prints JSON Lines.",
    ),
]
Retriever = Annotated[
    str,
    completion.retriever_option(
        "An index as idx list names it (bm25, contriever, contriever-ivfpq), several indexes joined with +, or a pipeline."
    ),
]
Reranker = Annotated[
    str | None, typer.Option(help="Rerank by this model (--rerank cross-encoder): a name such as simlm, a directory, or rerank:MODEL@URL.")
]

_BATCH = 256  # queries of a file that are searched together


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
    typer.Option("--weight", metavar="RETRIEVER=FACTOR", help="A retriever's weight in weighted fusion; default: 1. May be repeated."),
    _factors,
]


@command(weights=Weights)
def search(
    corpus: Corpus,
    queries: Queries = None,
    retriever: Retriever = "bm25",
    *,
    options: SearchOptions,
    query_file: QueryFile = None,
    reranker: Reranker = None,
    device: Device = "auto",
    query_dtype: QueryDtype = None,
    url: Annotated[str | None, typer.Option(help="Search on the 'idx serve' server at this URL.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="IDX_API_KEY", help="API key of the server.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Timeout of the server in seconds.")] = 30.0,
    full: Annotated[bool, typer.Option("--full", help="Print whole passages instead of their beginnings.")] = False,
) -> Result | None:
    """Search a corpus."""
    from wikidx.base.machine.devices import check_devices
    from wikidx.corpora.resolving import require_built
    from wikidx.retrievers.client import RemoteSearcher
    from wikidx.retrievers.opening import open_searcher

    check_devices(device)
    group, file_queries = _read(queries or [], query_file)
    with contextlib.ExitStack() as stack:
        searcher: LocalSearcher | RemoteSearcher
        if url is None:
            require_built(corpus)
            options = options.with_reranker(reranker)
            searcher = open_searcher(corpus, retriever, device=device, query_dtype=query_dtype, reranker=reranker)
        else:
            if reranker is not None or query_dtype is not None:
                raise InputError("--reranker and --query-dtype are for searches on this machine: a server has its own")
            remote = RemoteSearcher(url, corpus=corpus, retriever=retriever, api_key=api_key, timeout=timeout)
            searcher = stack.enter_context(remote)
        if file_queries:
            _search_each(searcher, file_queries, options)
            return None
        rankings = searcher.search_groups([group], options)
    stages = {"stages": [stage._asdict() for stage in rankings.stages]} if options.explain else {}
    values = {"corpus": corpus, "retriever": retriever, "queries": group, "passages": _to_json(rankings[0]), **stages}
    return Result(values, _lines(rankings[0], group, is_full=full), _stage_lines(rankings))


def _read(queries: list[str], file: Path | None) -> tuple[list[str], list[Query]]:
    """Return the group of queries, and the queries of a file or of standard input; one of the two is empty."""
    from wikidx.corpora.reading.compression import STANDARD_INPUT
    from wikidx.runtimes.questions.queries import read_queries

    if queries == [str(STANDARD_INPUT)] and file is None:
        queries, file = [], STANDARD_INPUT
    if bool(queries) == bool(file):
        raise InputError(f"give one query or several, or a file of queries with --queries{', not both' if queries else ''}")
    for number, query in enumerate(queries, 1):
        if not is_unicode(query):
            raise InputError(f"query {number} is not UTF-8: {query!r:.80}")
    return queries, read_queries(file) if file else []


def _search_each(searcher: Searcher, queries: Sequence[Query], options: SearchOptions) -> None:
    """Search each query, and print one line of JSON for each, in order, with the query's id if it has one.

    Raises:
        InputError: queries could not be searched; the others have been answered.
    """
    from wikidx.retrievers.refusals import mark_refused

    n_errors = 0
    for start in range(0, len(queries), _BATCH):
        batch = queries[start : start + _BATCH]
        refused = {position: InputError(query.error) for position, query in enumerate(batch) if query.error}
        rankings = mark_refused(searcher.search([query.text for query in batch], options), refused)
        for number, (query, ranking) in enumerate(zip(batch, rankings, strict=True), start + 1):
            line = {} if query.id is None else {"id": query.id}
            line |= {"error": ranking.error} if ranking.error else {}
            print_json(line | {"query": query.text, "passages": _to_json(ranking)}, indent=None)
            if ranking.error:
                note(f"query {number:,} was not searched: {ranking.error}")
        n_errors += len(rankings.errors)
        for stage in _stage_lines(rankings):
            note(stage)
    if n_errors:
        raise InputError(f"{n_errors:,} of {len(queries):,} queries could not be searched; the others have been answered")


def _stage_lines(rankings: Rankings) -> Iterator[str]:
    """Yield the stages of a search, for standard error."""
    for stage in rankings.stages:
        before = f"{stage.candidates_in:,} candidates -> " if stage.candidates_in else ""
        yield f"{stage.stage}: {before}{stage.candidates_out:,} candidates, {1000 * stage.seconds:.1f} ms"


def _to_json(ranking: Ranking) -> list[dict[str, Any]]:
    from wikidx.retrievers.wire import ranking_to_json

    return [{"rank": rank, **passage} for rank, passage in enumerate(orjson.loads(ranking_to_json(ranking)), 1)]


def _lines(ranking: Ranking, queries: Sequence[str], *, is_full: bool) -> Iterator[str | Callable[[], None]]:
    """Yield a ranking, with provenance if several queries or retrievers could find a passage."""
    if not ranking:
        yield "no passage found"
    with_origin = len(queries) > 1 or len({match.retriever for hit in ranking for match in hit.provenance}) > 1
    for rank, hit in enumerate(ranking, 1):
        heading = f"{rank:>3}  {hit.score:.4f}  {hit.passage.title}  [{hit.passage.id}]{describe_place(hit.span)}"
        yield partial(print_passage, heading, hit.passage.text, queries, is_full=is_full)
        for match in hit.provenance if with_origin else ():
            yield f"     {match.retriever} rank {match.rank} for '{match.query}'"
