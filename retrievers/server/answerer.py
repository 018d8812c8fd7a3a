"""Interface of the part of a server that answers questions by a language model. ``runtimes`` implements it; the server gives it paths."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from wikidx.base.machine.failures import DeviceLost

from .catalog import Catalog

ASK = "/v1/ask"
EVENTS = "application/x-ndjson"  # a JSON object on each line


class Answerer(Protocol):
    """Answers to questions, as a stream of events.

    Attributes:
        body: model of the body of ``ASK``.
        event: model of an event.
        files: folder of the files of the page ``ask.html``.
        device_lost: error of a GPU after which its model cannot answer; None: no such error.
    """

    body: type[BaseModel]
    event: type[BaseModel]
    files: Path
    device_lost: DeviceLost | None

    def describe(self) -> Mapping[str, Any]:
        """Return models and methods as JSON values, for ``/v1/indexes``."""
        ...

    def open(self, catalog: Catalog) -> None:
        """Open the models, which may take long; raise ``IdxError`` if one cannot be opened."""
        ...

    def end(self) -> None:
        """End all open answers with an error."""
        ...

    async def ask(self, request: Request) -> Response:
        """Answer a question."""
        ...
