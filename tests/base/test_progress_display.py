"""Progress as lines, with a clock of the test."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from wikidx.base import progress_display


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the display sees, in seconds."""
    now = [0.0]
    monkeypatch.setattr(progress_display, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        pytest.param(  # the first 16 take 40 s, the others 1 s each
            ((0, 0), (1, 38), (15, 39), (15, 49.5), (17, 60), (64, 107)),
            [
                "1 of 107 questions",
                "15 of 107 questions, 1.2 questions/s",
                "17 of 107 questions, 0.73 questions/s, about 2 min left",
                "64 of 107 questions, 0.91 questions/s, about 47 s left",
            ],
            id="questions at the same time",
        ),
        pytest.param(
            ((0, 0), (30, 60), (60, 61), (90, 70)),
            ["30 of 107 questions", "90 of 107 questions, 6 questions/s, about 3 s left"],
            id="a first batch that includes compiling and loading",
        ),
        pytest.param(
            ((50, 0), (50, 30), (60, 40), (80, 50)),
            ["50 of 107 questions", "60 of 107 questions", "80 of 107 questions, 2 questions/s, about 14 s left"],
            id="an earlier start does not count",
        ),
    ],
)
def test_the_time_that_is_left_is_estimated_from_the_second_batch_on(
    clock: list[float], capsys: pytest.CaptureFixture[str], reports: tuple[tuple[int, float], ...], expected: list[str]
) -> None:
    with progress_display.show_steps() as step:
        report = step("rag", "questions")
        for done, clock[0] in reports:
            report(done, 107)
    assert capsys.readouterr().err.splitlines() == [f"rag: {line}" for line in expected]
