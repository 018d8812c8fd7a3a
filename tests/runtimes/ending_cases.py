"""Calls of a slow server, for tests: how a process ends when an error, Ctrl-C or SIGTERM stops its main thread meanwhile.

``python -m tests.runtimes.ending_cases URL`` prints the exit status of each case as JSON. A request with ``QUICK`` is to be answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from typing import NoReturn

from wikidx import AsyncRemoteSearcher
from wikidx.base.net.endpoint import EndpointError
from wikidx.base.registry import load
from wikidx.corpora import CORPORA
from wikidx.corpora.build import StoreOptions, build_store, open_store
from wikidx.indexer.build import build_index, build_vectors
from wikidx.indexer.embedding.options import EmbedOptions
from wikidx.indexer.encoders.served import ServedEncoder, spec_of_served
from wikidx.retrievers.errors import ServiceError
from wikidx.retrievers.opening import open_searcher
from wikidx.retrievers.pipelines.remote import RemoteRetriever
from wikidx.retrievers.rerankers.endpoint import RerankEndpoint
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.llms.base import Generate
from wikidx.runtimes.llms.openai_model import OpenAIHttp
from wikidx.runtimes.llms.options import ConnectionOptions
from wikidx.runtimes.llms.prompts import Message
from wikidx.runtimes.llms.replicas import Replicas
from wikidx.runtimes.methods import find_method
from wikidx.runtimes.questions import Question

QUICK = "quick" * 50
"""A text that is longer than the others: the longest are embedded first."""

_CONNECTION = ConnectionOptions(concurrency=4)


def _fail(replies: Mapping[int, object]) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def ask_model(url: str, texts: list[str]) -> None:
    with closing(OpenAIHttp("fake", url, options=_CONNECTION)) as llm:
        llm.run([Generate(role="answer", prompt=(Message("user", text),)) for text in texts], _fail)


def ask_replicas(url: str, texts: list[str]) -> None:
    llms = [OpenAIHttp("fake", address, options=_CONNECTION) for address in (url, f"{url}/")]
    with closing(Replicas("fake", llms, _CONNECTION)) as llm:
        llm.run([Generate(role="answer", prompt=(Message("user", text),)) for text in texts], _fail)


def run_method(url: str, texts: list[str]) -> None:
    direct = find_method("direct")
    with closing(OpenAIHttp("fake", url, options=_CONNECTION)) as llm:
        for _ in execute(lambda text: direct.run(text, direct.options()), [Question(t, t) for t in texts], Services(llms={"answer": llm})):
            _fail({})


def encode(url: str, texts: list[str]) -> None:
    recipe = {"checkpoint": "openai:fake", "url": url, "names_sides": False, "dim": 4, "normalize": False}
    with closing(ServedEncoder(spec_of_served("fake", recipe))) as encoder:
        encoder.encode_texts("query", texts)


def embed_corpus(url: str, texts: list[str]) -> None:
    recipe = {"checkpoint": "openai:fake", "url": url, "names_sides": False, "dim": 4, "normalize": False}
    build_vectors("sample", spec_of_served(f"fake-{os.getpid()}", recipe), open_store("sample"), EmbedOptions())


def rerank(url: str, texts: list[str]) -> None:
    RerankEndpoint("fake", url).score(texts, open_store("sample").get_many([0] * len(texts)))


def search_at_a_server(url: str, texts: list[str]) -> None:
    RemoteRetriever(f"remote:{url}", open_store("sample")).retrieve(texts, 3)


def search_here_and_there(url: str, texts: list[str]) -> None:
    open_searcher("sample", f"bm25+remote:{url}").search(texts)


def search_in_a_loop(url: str, texts: list[str]) -> None:
    async def search() -> None:
        async with AsyncRemoteSearcher(url, corpus="made", max_concurrent=4) as searcher:
            await asyncio.gather(*(searcher.search([text]) for text in texts))

    asyncio.run(search())


_CASES = (ask_model, ask_replicas, run_method, encode, embed_corpus, rerank, search_at_a_server, search_here_and_there, search_in_a_loop)
CASES = [(case, event) for case in _CASES for event in ("error", "SIGINT", "SIGTERM") if (case, event) != (embed_corpus, "error")]


def main(url: str) -> None:
    """Begin all cases at once, each in a process of its own, and print how each ends; 14 is the status of one that hangs."""
    build_store(load("corpus", "sample", CORPORA), StoreOptions())
    build_index("sample", "bm25", open_store("sample"))
    children = dict[str, int]()
    for case, event in CASES:
        child = os.fork()
        if not child:
            signal.alarm(20)
            with contextlib.suppress(OSError, EndpointError, ServiceError):
                case(url, [QUICK if event == "error" else "slow", *(f"slow {n}" for n in range(400))])
            return  # and the process ends with status 0
        children[f"{case.__name__} {event}"] = child
    time.sleep(3)
    for name, child in children.items():
        if (event := name.split()[1]) != "error":
            os.kill(child, signal.Signals[event])
    sys.stdout.write(json.dumps({name: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for name, child in children.items()}))


if __name__ == "__main__":
    main(sys.argv[1])
