"""Progress as lines, with a clock of the test."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.conftest import read_rows
from wikidx.base import progress_display


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the display sees, in seconds."""
    now = [0.0]
    monkeypatch.setattr(progress_display, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.mark.parametrize(("reports", "expected"), read_rows("base/progress.jsonl"))
def test_the_time_that_is_left_is_estimated_from_the_second_batch_on(
    clock: list[float], capsys: pytest.CaptureFixture[str], reports: tuple[tuple[int, float], ...], expected: list[str]
) -> None:
    with progress_display.show_steps() as step:
        report = step("rag", "questions")
        for done, clock[0] in reports:
            report(done, 107)
    assert capsys.readouterr().err.splitlines() == [f"rag: {line}" for line in expected]
