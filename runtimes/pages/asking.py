"""Answers of a server: ``POST /v1/ask`` answers a question by a method and streams each step, for the *Ask* tab and other clients.

Questions run in threads of their own, with a limit: one at a time if a model is in this process. Their searches are batched with those of
other clients. When a client disconnects, its question ends after its current request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from wikidx.base.errors import IdxError
from wikidx.base.machine.failures import DeviceLost
from wikidx.corpora.passage import Passage
from wikidx.retrievers.base import DEFAULTS, Ranking, Rankings, Searcher
from wikidx.retrievers.errors import DeadlineExceeded, NotReady, Overloaded, SearchFailed
from wikidx.retrievers.options import SearchOptions
from wikidx.retrievers.server.answerer import EVENTS
from wikidx.retrievers.server.batcher import SearchRequest
from wikidx.retrievers.server.catalog import Catalog
from wikidx.retrievers.server.schemas import Name, validate_body
from wikidx.retrievers.server.searching import read_body
from wikidx.runtimes.execution.dispatching import Services
from wikidx.runtimes.execution.executor import execute
from wikidx.runtimes.execution.results import Prediction, Step, prediction_to_json, step_to_json
from wikidx.runtimes.execution.similarity import EncoderSimilarity
from wikidx.runtimes.llms.base import LLM
from wikidx.runtimes.llms.naming import ModelSpec, Settings, assign_models, find_backend, open_llms
from wikidx.runtimes.methods import METHODS, find_method, method_names
from wikidx.runtimes.methods.base import Method
from wikidx.runtimes.questions import Question

from . import FILES

_LOG = logging.getLogger("idx.server")
_MAX_CHARACTERS = 20_000
_MAX_BODY_BYTES = 1 << 20
_MAX_OPEN = 16  # questions that wait or run
_AT_ONCE = 4  # questions that run, if all models are endpoints
_SEARCH_S = 60.0
_RETRY_AFTER_S = 5.0

Tell = Callable[[Mapping[str, Any]], None]


class AskBody(BaseModel):
    """A question to a method."""

    model_config = ConfigDict(strict=True, extra="forbid", title="Ask")

    question: Annotated[str, StringConstraints(pattern=r"\S", max_length=_MAX_CHARACTERS)] = Field(description="The question.")
    method: Name = Field("rag", description=f"One of {', '.join(METHODS)}, or of the plug-ins of the server.")
    corpus: Name | None = Field(None, description="A served corpus; default: the first.")
    retriever: Name | None = Field(None, description="A served retriever; default: the first.")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Random seed of sampled texts.")


class AskEvent(BaseModel):
    """A line of the answer: a step as in predictions.jsonl with the texts of its passages by id, or at last a prediction or an error."""

    step: dict[str, Any] | None = None
    texts: dict[str, str] | None = None
    prediction: dict[str, Any] | None = None
    error: str | None = None
    error_type: str | None = None


class _ClientGone(Exception):
    """Nobody waits for the answer any more."""


class _ServedSearcher(Searcher):
    """A searcher whose searches join the batches of the server; it is called in threads other than the event loop's."""

    def __init__(self, catalog: Catalog, corpus: str | None, retriever: str | None) -> None:
        self._served = catalog.find(corpus, retriever)
        self.corpus = self._served.name[0]
        self._loop = asyncio.get_running_loop()

    def search_groups(self, groups: Sequence[Sequence[str]], options: SearchOptions = DEFAULTS) -> list[Ranking]:
        """Return one ranking for each group."""
        return asyncio.run_coroutine_threadsafe(self._search(groups, options), self._loop).result()

    async def _search(self, groups: Sequence[Sequence[str]], options: SearchOptions) -> Rankings:
        served, deadline = self._served, time.monotonic() + _SEARCH_S
        answer: asyncio.Future[Rankings] = self._loop.create_future()
        served.batcher.submit(SearchRequest(served.name, served.searcher, groups, options, deadline, answer))
        try:
            return await asyncio.wait_for(answer, _SEARCH_S)
        except TimeoutError as error:
            raise DeadlineExceeded(f"there were no passages within {_SEARCH_S:g} s") from error


class Asker:
    """The ``Answerer`` of ``idx serve --llm``.

    Args:
        llms: models as named by the user, ``[ROLE=]BACKEND:MODEL[@URL]``, for the roles of all methods.
        llm_options: options of models that idx runs.
        device: device of these models.

    Raises:
        InputError, UnknownNameError: a model or an option is unknown, or a role has no model.
    """

    body: type[BaseModel] = AskBody
    event: type[BaseModel] = AskEvent
    files = FILES

    def __init__(self, llms: Sequence[str], llm_options: Sequence[str] = (), device: str = "auto") -> None:
        self._methods: list[Method] = [find_method(name) for name in method_names()]
        roles = dict.fromkeys(role for method in self._methods for role in method.roles)
        self._specs, self._device = assign_models(llms, roles, options=llm_options), device
        self._llms: Mapping[str, LLM] = {}
        self._similarity = EncoderSimilarity(device)
        self._catalog: Catalog | None = None
        self.device_lost: DeviceLost | None = None
        is_remote = all(find_backend(spec.backend).kind == "endpoint" for spec in self._specs.values())
        self._pool = ThreadPoolExecutor(_AT_ONCE if is_remote else 1, thread_name_prefix="ask")
        self._open: dict[asyncio.Future[None], asyncio.Queue[Mapping[str, Any] | None]] = {}

    @property
    def is_busy(self) -> bool:
        """True if a question is being answered."""
        return bool(self._open)

    def describe(self) -> Mapping[str, Any]:
        """Return models and methods as JSON values."""
        methods = [{"method": method.name, "summary": method.summary} for method in self._methods]
        return {"models": sorted({_public_name(spec) for spec in self._specs.values()}), "methods": methods}

    def open(self, catalog: Catalog) -> None:
        """Open the models."""
        self._llms, self._catalog = open_llms(self._specs, Settings(device=self._device)), catalog

    def end(self) -> None:
        """End all open answers with an error."""
        for events in self._open.values():
            events.put_nowait({"error": "the server ends: ask another one, or again", "error_type": NotReady.__name__})
            events.put_nowait(None)

    async def ask(self, request: Request) -> Response:
        """Answer a question by a method: a line of JSON for each step as it comes, and at last the prediction or an error."""
        body = validate_body(AskBody, await read_body(request, _MAX_BODY_BYTES))
        method: Method = find_method(body.method)
        if self._catalog is None:
            raise NotReady("the language model is being opened", retry_after=1)
        services = self._services(self._catalog, body)
        if len(self._open) >= _MAX_OPEN:
            raise Overloaded(f"{len(self._open)} questions are waiting: ask again in a while", retry_after=_RETRY_AFTER_S)
        request.state.logged = {"answered_by": method.name}
        loop, is_gone = asyncio.get_running_loop(), threading.Event()
        events: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()

        def tell(event: Mapping[str, Any]) -> None:
            if is_gone.is_set():
                raise _ClientGone
            loop.call_soon_threadsafe(events.put_nowait, event)

        def answer() -> None:
            if not is_gone.is_set():  # after the wait for other questions
                self._answer(method, body, services, tell)

        answering = loop.run_in_executor(self._pool, answer)
        self._open[answering] = events
        answering.add_done_callback(self._open.pop)
        answering.add_done_callback(lambda _: events.put_nowait(None))
        return StreamingResponse(_lines(events, is_gone), media_type=EVENTS, headers={"cache-control": "no-store"})

    def _answer(self, method: Method, body: AskBody, services: Services, tell: Tell) -> None:
        """Answer a question, and tell each step and the outcome; runs in a thread."""
        options, question = method.options(), Question("question", body.question)
        with contextlib.suppress(_ClientGone):
            try:
                observed = execute(
                    lambda text: method.run(text, options), [question], services, seed=body.seed, on_step=lambda _, step: tell(_step(step))
                )
                tell(_outcome(method, next(iter(observed))))
            except IdxError as error:
                if isinstance(error, DeviceLost):
                    self.device_lost = error
                tell({"error": str(error), "error_type": type(error).__name__})
            except Exception as error:
                if isinstance(error, _ClientGone):
                    raise
                _LOG.exception("a question failed: %s", method.name)
                tell({"error": "the question failed: the server's log says why", "error_type": SearchFailed.__name__})

    def _services(self, catalog: Catalog, body: AskBody) -> Services:
        searcher = _ServedSearcher(catalog, body.corpus, body.retriever)
        store = catalog.store(searcher.corpus)
        return Services(
            llms=self._llms,
            searcher=searcher,
            look_up_title=lambda title: store.get_many(store.rows_with_title(title).tolist()),
            similarity=self._similarity,
        )


def _public_name(spec: ModelSpec) -> str:
    """Return a model's name for clients, without folders and URLs."""
    path = PurePath(spec.model)
    return f"{spec.backend}:{path.name if path.is_absolute() else spec.model}"


async def _lines(events: asyncio.Queue[Mapping[str, Any] | None], is_gone: threading.Event) -> AsyncIterator[bytes]:
    """Yield events as lines of JSON; the end of the iteration, also by a disconnect, sets ``is_gone``."""
    try:
        while (event := await events.get()) is not None:
            yield json.dumps(event).encode() + b"\n"
    finally:
        is_gone.set()


def _step(step: Step) -> dict[str, Any]:
    found = step.result if isinstance(step.result, tuple | list) else ()
    passages = [item if isinstance(item, Passage) else getattr(item, "passage", None) for item in found]
    return {"step": step_to_json(step), "texts": {passage.id: passage.text for passage in passages if passage is not None}}


def _outcome(method: Method, prediction: Prediction) -> dict[str, Any]:
    if prediction.error is not None:
        kind, _, message = prediction.error.partition(": ")
        return {"error": message, "error_type": kind}
    record = prediction_to_json(prediction, with_steps=False)
    return {"prediction": {"method": method.name, **{name: value for name, value in record.items() if name not in ("id", "error")}}}
