"""Servers to compare with, each a process: ``python -m benchmarks.serve.hosts KIND FOLDER`` prints its address.

``empty`` is a FastAPI handler that accepts a request of Search-R1's and returns an empty object. ``search-r1-bm25`` and
``search-r1-minilm`` are written the way Search-R1's server is: FastAPI, a synchronous handler in its pool of threads, one request one
search, BM25 by Pyserini query by query, MiniLM by sentence-transformers with FAISS's flat index at its defaults, passages from memory.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from benchmarks.engines.embedded import checkpoint
from benchmarks.engines.kinds import find_kind
from benchmarks.processes import NAME, use_data_home
from wikidx.corpora.build import open_store
from wikidx.retrievers.wire import RETRIEVE

Found = tuple[list[list[dict[str, str]]], list[list[float]]]
Find = Callable[[Sequence[str], int], Found]


class Body(BaseModel):
    """Body of a request to Search-R1's server."""

    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


def empty() -> FastAPI:
    """Return a handler that does nothing."""
    api = FastAPI()

    @api.post(RETRIEVE)
    async def answer(body: Body) -> dict[str, str]:
        return {}

    return api


def search_r1(find: Find) -> FastAPI:
    """Return a server like Search-R1's."""
    api = FastAPI()

    @api.post(RETRIEVE)
    def retrieve(body: Body) -> dict[str, Any]:
        documents, scores = find(body.queries, body.topk or 3)
        if not body.return_scores:
            return {"result": documents}
        pairs = [list(zip(*line, strict=True)) for line in zip(documents, scores, strict=True)]
        return {"result": [[{"document": document, "score": score} for document, score in line] for line in pairs]}

    return api


def bm25(folder: Path) -> Find:
    """Return the search of Search-R1's BM25 retriever: one query after the other, one hit after the other."""
    documents, kind = _documents(), find_kind("pyserini")
    kind.load()
    engine = kind.open(folder, 1)

    def find(queries: Sequence[str], k: int) -> Found:
        engine.set_questions(queries)
        found = [engine.single(number, k) for number in range(len(queries))]
        return [[documents[int(docid)] for docid, _ in hits] for hits in found], [[float(score) for _, score in hits] for hits in found]

    return find


def minilm(folder: Path) -> Find:
    """Return the search of Search-R1's dense retriever: all queries of a request in one batch."""
    documents, index = _documents(), importlib.import_module("benchmarks.engines.dense_packages").read_flat(folder)
    model = importlib.import_module("sentence_transformers").SentenceTransformer(checkpoint(folder), device="cpu")

    def find(queries: Sequence[str], k: int) -> Found:
        scores, rows = index.search(model.encode(list(queries), show_progress_bar=False), k)
        return [[documents[row] for row in line] for line in rows.tolist()], scores.tolist()

    return find


def _documents() -> list[dict[str, str]]:
    return [{"id": passage.id, "contents": f'"{passage.title}"\n{passage.text}'} for passage in open_store(NAME).read()]


KINDS: dict[str, Callable[[Path], FastAPI]] = {
    "empty": lambda folder: empty(),
    "search-r1-bm25": lambda folder: search_r1(bm25(folder)),
    "search-r1-minilm": lambda folder: search_r1(minilm(folder)),
}


def main() -> int:
    """Run the process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve.hosts")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    use_data_home(options.folder)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
        config = uvicorn.Config(KINDS[options.kind](options.folder), log_level="warning", access_log=False, lifespan="off", ws="none")
        asyncio.Runner(loop_factory=config.get_loop_factory()).run(uvicorn.Server(config).serve([listener]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
