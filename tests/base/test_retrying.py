"""The retries of requests: which failures are waited for, how long, and how often. Nobody waits here: pauses are written down."""

from __future__ import annotations

import email.utils
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from wikidx.base.errors import IdxError
from wikidx.base.net import retrying
from wikidx.base.net.retrying import FINAL, LATE, TRANSIENT, UNUSABLE, Retries, Verdict, is_transient, retry_after_s


class Failure(IdxError):
    """A failure of a kind; ``pause_s`` is the pause that the server asks for."""

    def __init__(self, kind: float, pause_s: float | None = None) -> None:
        super().__init__("busy")
        self.verdict = Verdict(kind, pause_s)


def send(failures: list[Failure], **limits: Any) -> tuple[list[float], str]:  # noqa: ANN401 - fields of ``Retries``
    """Return the pauses of a request that fails some times, and its result or its error."""
    pauses, left = list[float](), list(failures)

    def once() -> str:
        if left:
            raise left.pop(0)
        return "sent"

    defaults = {"n": 5, "first_pause_s": 1.0, "wait": lambda pause_s: pauses.append(pause_s), "judge": lambda failure: failure.verdict}
    try:
        return pauses, Retries(**{**defaults, **limits}).send(once)
    except IdxError as error:
        return pauses, str(error)


@pytest.mark.parametrize(
    ("kinds", "n_pauses", "result"),
    [
        ([], 0, "sent"),
        ([TRANSIENT] * 5, 5, "sent"),
        ([TRANSIENT] * 6, 5, "busy (6 tries)"),
        ([FINAL], 0, "busy"),
        ([LATE], 1, "sent"),
        ([LATE, LATE], 1, "busy (2 tries)"),
        ([UNUSABLE, TRANSIENT, UNUSABLE], 3, "sent"),
        ([UNUSABLE, TRANSIENT, UNUSABLE, UNUSABLE], 3, "busy (4 tries)"),
    ],
)
def test_a_failure_is_retried_as_often_as_that_may_help(kinds: list[float], n_pauses: int, result: str) -> None:
    pauses, found = send(list(map(Failure, kinds)))
    assert (len(pauses), found) == (n_pauses, result)


def test_pauses_double_up_to_half_a_minute_unless_the_server_names_one(caplog: pytest.LogCaptureFixture) -> None:
    longest = [1, 2, 4, 8, 16, 30, 30]
    with caplog.at_level(logging.WARNING):
        pauses, _ = send([Failure(TRANSIENT)] * 7, n=7)
        assert all(most / 2 <= pause <= most for pause, most in zip(pauses, longest, strict=True))
        assert len(caplog.messages) == sum(pause >= 10 for pause in pauses)
        assert send([Failure(TRANSIENT, 0.0), Failure(TRANSIENT, 10.0)])[0] == [0.0, 10.0]
    assert caplog.messages[-1] == "retry in 10 s: busy"


def test_it_is_given_up_when_no_time_is_left_or_it_is_closed() -> None:
    assert send([Failure(TRANSIENT, 3.0)], left_s=lambda: 3.0) == ([3.0], "sent")
    assert send([Failure(TRANSIENT, 3.0)], left_s=lambda: 2.9) == ([], "busy")
    assert send([Failure(TRANSIENT)] * 2, wait=lambda pause_s: True) == ([], "busy")


@pytest.mark.parametrize(
    ("header", "pause_s"),
    [("7.5", 7.5), ("-3", 0.0), ("1e18", 300.0), ("nan", None), ("soon", None), (email.utils.formatdate(1002, usegmt=True), 2.0)],
)
def test_the_pause_that_a_server_asks_for_is_read(header: str, pause_s: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "time", SimpleNamespace(time=lambda: 1000.0))
    assert retry_after_s({"Retry-After": header}) == pause_s
    assert retry_after_s({}) is None


def test_a_status_passes_or_is_a_refusal() -> None:
    assert list(filter(is_transient, range(400, 600))) == [408, 409, 425, 429, 500, *range(502, 600)]
