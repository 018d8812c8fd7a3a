"""Drives ReFeed by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.runtimes.methods.driving import Driven, drive, passages
from wikidx.runtimes.llms.base import Gen, Generate, Nll
from wikidx.runtimes.methods.refeed import RefeedOptions, refeed
from wikidx.runtimes.methods.requests import Request, Retrieve

FOUND = passages("one", "two")
NO_NLL = Nll(total=None, n_tokens=0)


def run(question: str, canned: Sequence[Any] | Callable[[Request], Any], **values: Any) -> Driven:  # noqa: ANN401 - the options' values
    return drive(refeed(question, RefeedOptions(**values)), canned)


def said(text: str, *nlls: float) -> Gen:
    """Make a generated text whose tokens have these negative log-probabilities."""
    return Gen(text=text, logprobs=tuple(-nll for nll in nlls))


def calls(driven: Driven) -> list[Generate]:
    return [request for request in driven.requests if isinstance(request, Generate)]


def searches(driven: Driven) -> list[Retrieve]:
    return [request for request in driven.requests if isinstance(request, Retrieve)]


def basic(canned: list[Any], **values: Any) -> Driven:  # noqa: ANN401 - the options' values
    return run("Who?", canned, diverse=False, **values)
