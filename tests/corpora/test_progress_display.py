"""Progress as lines, with a clock of the test."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from wikidx.corpora import progress_display


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the display sees, in seconds."""
    now = [0.0]
    monkeypatch.setattr(progress_display, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.fixture
def lines(clock: list[float], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines after 1, 15, 16 and 64 of 107 questions: the first 16 take 40 s, the others 1 s each."""
    with progress_display.show_steps() as step:
        report = step("rag", "questions")
        report(0, 107)
        for done, seconds in ((1, 38.0), (15, 39.0), (15, 49.5), (16, 60.0), (64, 108.0)):
            clock[0] = seconds
            report(done, 107)
    return capsys.readouterr().err.splitlines()


def test_the_remaining_time_is_estimated_when_some_units_are_done(lines: list[str]) -> None:
    assert lines == [
        "rag: 1 of 107 questions, 0.026 questions/s",
        "rag: 15 of 107 questions, 0.3 questions/s",
        "rag: 16 of 107 questions, 0.27 questions/s, about 6 min left",
        "rag: 64 of 107 questions, 0.59 questions/s, about 73 s left",
    ]


def test_what_an_earlier_start_did_does_not_count(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with progress_display.show_steps() as step:
        report = step("passages", "passages")
        report(1_000, 2_000)
        clock[0] = 10.0
        report(1_500, 2_000)
    assert capsys.readouterr().err == "passages: 1,500 of 2,000 passages, 50 passages/s, about 10 s left\n"
