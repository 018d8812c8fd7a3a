"""The measured servers, each a process: ``python -m benchmarks.serve.hosts KIND FOLDER`` prints its address.

``idx-bm25`` and ``idx-dense`` are this project's server, ``idx-sample`` is that over the 784 passages of the sample, where searches are
short. ``nothing`` is Starlette without a search: it accepts the same requests, validates them, and sends the same 10 encoded
passages. ``fastapi`` is a FastAPI handler that accepts such a request and returns an empty object.
``search-r1-bm25`` and ``search-r1-dense`` are written the way Search-R1's server is: FastAPI, a synchronous handler in its pool of threads,
one request one search, BM25 by Pyserini query by query, FAISS's flat index with its defaults, passages from memory.

Passage and query vectors are random, except in ``idx-minilm`` and ``search-r1-minilm``, which encode every question by MiniLM.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.engines.anserini import PYSERINI
from benchmarks.engines.embedded import checkpoint
from benchmarks.engines.faiss_flat import read_flat
from benchmarks.engines.kinds import NAME, use_data_home
from benchmarks.serve.corpus import DENSE, RandomEncoder, flat_index, open_benchmark_retriever, read_questions
from wikidx.corpora.build import open_store
from wikidx.retrievers import SearchOptions
from wikidx.retrievers.opening import OpenRetriever, open_retriever, open_searcher
from wikidx.retrievers.server.metrics import Metrics
from wikidx.retrievers.server.running import Service
from wikidx.retrievers.server.schemas import search_model, validate_body
from wikidx.retrievers.server.settings import Settings, listen, server_url
from wikidx.retrievers.wire import SEARCH, ranking_to_json

Found = tuple[list[list[dict[str, str]]], list[list[float]]]


class RetrieveBody(BaseModel):
    """Body of a request to Search-R1's server."""

    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


class SearchBody(BaseModel):
    """The fields of a search that a handler without a searcher needs."""

    queries: list[str]
    k: int = 10
    depth: int = 100


def idx(corpus: str, retriever: str, listener: socket.socket, opener: OpenRetriever = open_retriever) -> None:
    """Serve this project's server."""
    settings = Settings(corpora=(corpus,), retrievers=(retriever,), topk=10, access_log=True)
    Service(settings, listener, Metrics(), opener).run()


def nothing(folder: Path, listener: socket.socket) -> None:
    """Serve without a search."""
    (ranking,) = open_searcher(NAME).search([read_questions(folder)[0]], SearchOptions(k=10))
    ready = b'{"rankings":[' + ranking_to_json(ranking) + b"]}"
    model = search_model(Settings(corpora=(NAME,)))

    async def answer(request: Request) -> Response:
        validate_body(model, await request.body())
        return Response(ready, media_type="application/json")

    _run(Starlette(routes=[Route(SEARCH, answer, methods=["POST"])]), listener)


def fastapi(folder: Path, listener: socket.socket) -> None:
    """Serve a handler that does nothing."""
    api = FastAPI()

    @api.post(SEARCH)
    async def answer(body: SearchBody) -> dict[str, str]:
        return {}

    _run(api, listener)


def search_r1(find: Callable[[Sequence[str], int], Found], listener: socket.socket) -> None:
    """Serve like Search-R1's server."""
    api = FastAPI()

    @api.post("/retrieve")
    def retrieve(body: RetrieveBody) -> dict[str, Any]:
        documents, scores = find(body.queries, body.topk or 3)
        if not body.return_scores:
            return {"result": documents}
        pairs = [list(zip(*line, strict=True)) for line in zip(documents, scores, strict=True)]
        return {"result": [[{"document": document, "score": score} for document, score in line] for line in pairs]}

    _run(api, listener)


def pyserini(folder: Path) -> Callable[[Sequence[str], int], Found]:
    """Return the search of Search-R1's BM25 retriever: one query after the other, one hit after the other."""
    documents = _documents()
    PYSERINI.load()
    engine: Any = PYSERINI.open(folder, 1)

    def find(queries: Sequence[str], k: int) -> Found:
        engine.set_questions(queries)
        found = [engine.single(number, k) for number in range(len(queries))]
        return [[documents[int(docid)] for docid, _ in hits] for hits in found], [[float(score) for _, score in hits] for hits in found]

    return find


def flat(index: Any, encode: Callable[[list[str]], Any]) -> Callable[[Sequence[str], int], Found]:  # noqa: ANN401 - FAISS has no types
    """Return the search of Search-R1's dense retriever: all queries of a request in one batch."""
    documents = _documents()

    def find(queries: Sequence[str], k: int) -> Found:
        scores, rows = index.search(encode(list(queries)), k)
        return [[documents[row] for row in line] for line in rows.tolist()], scores.tolist()

    return find


def random_flat(folder: Path) -> Callable[[Sequence[str], int], Found]:
    """Return that search over random vectors."""
    return flat(flat_index(folder), RandomEncoder().encode_queries)


def minilm_flat(folder: Path) -> Callable[[Sequence[str], int], Found]:
    """Return that search over the passages' vectors, questions encoded by sentence-transformers."""
    import sentence_transformers

    model = sentence_transformers.SentenceTransformer(checkpoint(folder), device="cpu")
    return flat(read_flat(folder), lambda queries: model.encode(queries, show_progress_bar=False))


def _documents() -> list[dict[str, str]]:
    return [{"id": passage.id, "contents": f'"{passage.title}"\n{passage.text}'} for passage in open_store(NAME).read()]


def _run(application: Any, listener: socket.socket) -> None:  # noqa: ANN401 - any ASGI application
    config = uvicorn.Config(application, log_level="warning", access_log=False, lifespan="off", ws="none")
    asyncio.Runner(loop_factory=config.get_loop_factory()).run(uvicorn.Server(config).serve([listener]))


KINDS: dict[str, Callable[[Path, socket.socket], None]] = {
    "idx-bm25": lambda folder, listener: idx(NAME, "bm25", listener),
    "idx-dense": lambda folder, listener: idx(NAME, DENSE, listener, open_benchmark_retriever),
    "idx-minilm": lambda folder, listener: idx(NAME, "minilm", listener),
    "idx-sample": lambda folder, listener: idx("sample", "bm25", listener),
    "nothing": nothing,
    "fastapi": fastapi,
    "search-r1-bm25": lambda folder, listener: search_r1(pyserini(folder), listener),
    "search-r1-dense": lambda folder, listener: search_r1(random_flat(folder), listener),
    "search-r1-minilm": lambda folder, listener: search_r1(minilm_flat(folder), listener),
}


def main() -> int:
    """Run the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve.hosts")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    use_data_home(options.folder)
    listener = listen(Settings(corpora=(NAME,), port=0))
    print(server_url(listener), file=sys.stderr, flush=True)
    KINDS[options.kind](options.folder, listener)
    return 0


if __name__ == "__main__":
    sys.exit(main())
