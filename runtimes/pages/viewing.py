"""The page of ``idx view``: all questions of one run or two, with what went wrong, and the trace of each.

The list is sent as a whole. A trace is read from ``predictions.jsonl`` when it is requested, from the offset of its line.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wikidx.base.errors import IdxError, InputError
from wikidx.retrievers.errors import InvalidRequest
from wikidx.retrievers.server.gate import add_page_headers, error_response, foreign_host_error
from wikidx.retrievers.server.protocol import Protocol
from wikidx.retrievers.server.routes import PAGE
from wikidx.runtimes.evaluation.answers.metrics import METRICS, default_metrics
from wikidx.runtimes.evaluation.comparing import metric_names, question_positions
from wikidx.runtimes.evaluation.outcomes import PROBLEMS, problems
from wikidx.runtimes.evaluation.predictions import load_predictions
from wikidx.runtimes.evaluation.retrieval.passage_texts import PassageTexts
from wikidx.runtimes.evaluation.run_questions import run_questions
from wikidx.runtimes.evaluation.scoring import ScoredRun, score_run
from wikidx.runtimes.execution.runs import PREDICTIONS, complete_lines

from . import FILES

_HOST = "127.0.0.1"


class ViewedRun:
    """A run of ``idx run``, its scores and the positions of its lines.

    Args:
        folder: folder of the run.
        questions: file of its questions with gold answers; None: the recorded one.

    Raises:
        InputError: the folder has no run, or its questions cannot be found.
        ArtifactCorrupt: a line cannot be read.
    """

    def __init__(self, folder: Path, questions: str | None = None) -> None:
        if not (folder / PREDICTIONS).is_file():
            raise InputError(f"{folder} holds no {PREDICTIONS}: name the folder of 'idx run --out'")
        self.folder = folder
        self.version = self.current_version()
        self.lines = {record["id"]: line for record, line in complete_lines(folder / PREDICTIONS)}
        predictions = load_predictions(folder)
        source = run_questions(predictions, questions)
        metrics = [METRICS[name] for name in default_metrics(source.questions)]
        self.scored: ScoredRun = score_run(folder.resolve().name, predictions, source, metrics)
        self.positions = question_positions(self.scored)
        self._questions = {question.id: question for question in source.questions}
        self._texts = PassageTexts(predictions.run_json)

    def current_version(self) -> tuple[int, int, int]:
        """Return number, size and time of the file of predictions."""
        state = (self.folder / PREDICTIONS).stat()
        return state.st_ino, state.st_size, state.st_mtime_ns

    def describe(self, position: int) -> dict[str, Any] | None:
        """Return the entry of a question in the list; None if the run has not answered it."""
        run, row = self.scored, self.scored.rows[position]
        line = self.lines.get(row.id)
        if line is None:
            return None
        values = {name: float(values[position]) for name, values in run.values.items() if not math.isnan(values[position])}
        passages = {1.0: ["holds"], 0.0: ["lacks"]}.get(float(run.holds_answer[position]), [])
        return {"answer": row.answer, "values": values, "kinds": [*passages, *sorted(problems(row))]}

    def read(self, id: str) -> bytes:
        """Return the record of a question as JSON; ``null`` if there is none."""
        if self.version[0] != self.current_version()[0]:  # the run has ended and put its lines in order
            self.lines = {record["id"]: line for record, line in complete_lines(self.folder / PREDICTIONS)}
        line = self.lines.get(id)
        if line is None:
            return b"null"
        with (self.folder / PREDICTIONS).open("rb") as file:
            return os.pread(file.fileno(), line.size, line.offset)

    def texts(self, record: Mapping[str, Any] | None) -> dict[str, str]:
        """Return id -> text of the passages in a record and in its steps, as far as they are known."""
        if record is None:
            return {}
        evidence = record.get("passages") or ()
        texts = self._texts.recorded(evidence, self._questions.get(record["id"]))
        searches = [step for step in record.get("steps") or () if step.get("request") in ("retrieve", "look_up") and step.get("result")]
        shown = [hit["id"] for hits in (evidence, *(step["result"] for step in searches)) for hit in hits]
        texts |= self._texts.in_corpus(name for name in shown if name not in texts)
        return {name: texts[name] for name in shown if name in texts}


class Viewer:
    """The data of the page: one run, or two whose questions are joined by id and text.

    Args:
        folders: folders of the runs.
        questions: file of questions with gold answers; None: those that the runs recorded.

    Raises:
        InputError: as ``ViewedRun``, or the runs have no question in common.
    """

    def __init__(self, folders: Sequence[Path], questions: str | None = None) -> None:
        self._lock = threading.Lock()
        self._questions = questions
        self.runs = [ViewedRun(folder, questions) for folder in folders]
        if len(self.runs) == 2 and not self.runs[0].positions.keys() & self.runs[1].positions.keys():
            raise InputError(f"{folders[0]} and {folders[1]} have no question in common: they can be viewed one by one")

    def list_questions(self) -> dict[str, Any]:
        """Return runs and questions as JSON values; runs that have changed on disk are read again."""
        with self._lock:
            self.runs = [run if run.version == run.current_version() else ViewedRun(run.folder, self._questions) for run in self.runs]
            runs = self.runs
        keys = dict.fromkeys(key for run in runs for key in run.positions)
        return {
            "runs": [{"name": run.scored.name, "folder": str(run.folder), **run.scored.facts._asdict()} for run in runs],
            "metrics": metric_names([run.scored for run in runs]),
            "problems": PROBLEMS,
            "questions": [self._describe(runs, key) for key in keys],
        }

    @staticmethod
    def _describe(runs: Sequence[ViewedRun], key: tuple[str, str]) -> dict[str, Any]:
        places = [run.positions.get(key) for run in runs]
        question = next(run.scored.questions[place] for run, place in zip(runs, places, strict=True) if place is not None)
        entries = [None if place is None else run.describe(place) for run, place in zip(runs, places, strict=True)]
        return {"id": question.id, "question": question.text, "gold": list(question.golden_answers), "runs": entries}

    def trace(self, id: str) -> bytes:
        """Return the records of a question in all runs as JSON, and the texts of their passages."""
        lines = [run.read(id) for run in self.runs]
        texts = [run.texts(orjson.loads(line)) for run, line in zip(self.runs, lines, strict=True)]
        return b'{"records":[%s],"texts":%s}' % (b",".join(lines), orjson.dumps(texts))


class _LocalOnly:
    """ASGI middleware that refuses requests of foreign web pages, and adds the headers of ``add_page_headers``."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        foreign = foreign_host_error(scope["headers"], _HOST) if scope["type"] == "http" else None

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                add_page_headers(message["headers"])
            await send(message)

        await (self._app if foreign is None else error_response(foreign))(scope, receive, send_with_headers)


def application(viewer: Viewer) -> Starlette:
    """Return the web application of a viewer."""

    def page(request: Request) -> Response:
        return FileResponse(FILES / "view.html")

    def questions(request: Request) -> Response:
        try:
            return Response(orjson.dumps(viewer.list_questions()), media_type="application/json")
        except (IdxError, OSError) as error:
            return error_response(error)

    def trace(request: Request) -> Response:
        try:
            return Response(viewer.trace(request.query_params.get("id", "")), media_type="application/json")
        except (OSError, ValueError) as error:
            return error_response(InvalidRequest(f"the line cannot be read ({error!r:.120}): reload the page"))

    routes = [
        Route("/", page),
        Route("/v1/questions", questions),
        Route("/v1/trace", trace),
        Mount("/page/runs", StaticFiles(directory=FILES)),
        Mount("/page", StaticFiles(directory=PAGE)),
    ]
    return Starlette(routes=routes, middleware=[Middleware(_LocalOnly)])


def serve(viewer: Viewer, listener: socket.socket) -> None:
    """Serve the page of a viewer on a listening socket of this machine until Ctrl-C."""
    config = uvicorn.Config(application(viewer), http=Protocol, log_config=None, access_log=False, lifespan="off", server_header=False)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn ends first, and then raises it
        uvicorn.Server(config).run([listener])
